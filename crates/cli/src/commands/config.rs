//! `taper config show|check|explain`: shows all settings of a recipe (a TOML file with the settings
//! of a training) with their defaults, checks them, or explains the keys of recipes.

use anyhow::Result;

use crate::arguments::ConfigCommand;
use crate::text::print_line;
use taper_run::config::{RunConfig, annotated, explain, reference, schema, without_effect};

/// Head of the manual page that lists all keys.
const REFERENCE_HEAD: &str = "\
# Configuration

<!-- Written by `taper config explain --markdown`; a test compares. -->

This page lists every key of a recipe, as `taper config explain` prints them. `taper config explain
KEY` explains one key, and `taper config show CONFIG` prints a whole recipe with these explanations
as comments. A key that a recipe does not set has its default.

";

/// Runs the command.
pub(crate) fn run(command: &ConfigCommand) -> Result<()> {
    match command {
        ConfigCommand::Show(file) => {
            let config = RunConfig::load(&file.config, &file.overrides.set)?;
            if file.json {
                print_line(&serde_json::to_string_pretty(&config)?)
            } else {
                print_line(annotated(&config)?.trim_end())
            }
        }
        ConfigCommand::Check(file) => {
            let config = RunConfig::load(&file.config, &file.overrides.set)?;
            config.require_what_is_watched()?;
            let idle = without_effect(&config)?;
            if file.json {
                return print_line(
                    &serde_json::json!({ "valid": true, "without_effect": idle }).to_string(),
                );
            }
            for note in &idle {
                print_line(&format!("{}: {note}", file.config.display()))?;
            }
            print_line(&format!("{}: valid", file.config.display()))
        }
        ConfigCommand::Explain(arguments) => {
            let text = match (arguments.json, arguments.markdown) {
                (true, _) => serde_json::to_string_pretty(&schema())?,
                (_, true) => format!("{REFERENCE_HEAD}{}", reference()),
                _ => explain(arguments.key.as_deref())?,
            };
            print_line(text.trim_end())
        }
    }
}
