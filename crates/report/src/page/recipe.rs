//! Section of a report with the recipe of the run, which is the file with all settings of its
//! training. The section also lists the keys that differ from the defaults.

use anyhow::Result;
use taper_plots::parts::{note, panel, table};
use taper_plots::{Language, escape};
use taper_run::RunConfig;
use taper_run::config::every_difference;

use crate::paths::short_in_toml;
use crate::run_data::RunData;

/// Section with the keys that differ from the defaults, then the whole recipe.
pub(super) fn section(run: &RunData, language: Language) -> Result<String> {
    let say = |english, chinese| language.choose(english, chinese);
    let changed = every_difference(&RunConfig::default(), &run.config)?;
    let rows: Vec<[String; 3]> = changed
        .iter()
        .map(|one| {
            let show = |value: &Option<String>| value.clone().unwrap_or_else(|| "–".to_owned());
            let [own, usual] = [show(&one.right), show(&one.left)];
            [one.key.clone(), short_in_toml(&own, 1), short_in_toml(&usual, 1)]
        })
        .collect();
    let head = [say("key", "键"), say("this run", "本次运行"), say("default", "默认值")];
    let changed = match rows.is_empty() {
        true => note(say("Every key has its default.", "所有键均为默认值。")),
        false => table(&head, &rows),
    };
    let whole = format!(
        "{changed}<details><summary>{}</summary><pre tabindex=\"0\">{}</pre></details>\n",
        say("The whole recipe", "完整配方"),
        escape(&short_in_toml(&run.config.to_toml()?, 1)),
    );
    Ok(panel(say("Keys that differ from the defaults", "与默认值的差异"), &whole))
}
