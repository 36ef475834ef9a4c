//! `taper completions SHELL`: prints a script with which a shell asks the program itself for
//! completions. These are commands and options, runs, checkpoints of runs, and keys of recipes
//! (TOML files with the settings of trainings) with their values.

use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use clap::{Arg, Command, CommandFactory};
use clap_complete::CompleteEnv;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate, PathCompleter};
use clap_complete::env::Shells;
use serde_json::Value;
use taper_trainer::checkpoint_step;

use crate::arguments::{Arguments, Completions};
use crate::program;
use crate::text::standard_output;

/// Environment variable in which a shell that asks for completions gives its own name.
const VARIABLE: &str = "TAPER_COMPLETE";

/// Runs the command.
pub(crate) fn run(arguments: &Completions) -> Result<()> {
    let (shells, name) = (Shells::builtins(), arguments.shell.to_string());
    let shell = shells.completer(&name).context("the shell has no completion")?;
    let mut script = Vec::new();
    shell.write_registration(VARIABLE, "taper", "taper", "taper", &mut script)?;
    standard_output()?.write_all(&script).context("cannot write to standard output")
}

/// If a shell asks for completions, prints them and ends the process.
pub(crate) fn complete() {
    let completions =
        CompleteEnv::with_factory(|| with_completers(Arguments::command())).var(VARIABLE);
    let folder = std::env::current_dir().ok();
    match completions.try_complete(program::words(), folder.as_deref()) {
        Ok(false) => {}
        Ok(true) => std::process::exit(0),
        Err(error) => error.exit(),
    }
}

/// Adds completers to the arguments of a command and of its subcommands.
fn with_completers(command: Command) -> Command {
    let completed = |argument: Arg| match argument.get_id().as_str() {
        "run" | "runs" => argument.add(ArgValueCompleter::new(PathCompleter::dir())),
        "checkpoint" => argument.add(ArgValueCompleter::new(checkpoints)),
        "set" => argument.add(ArgValueCompleter::new(settings)),
        _ => argument,
    };
    command.mut_args(completed).mut_subcommands(with_completers)
}

/// Returns the names of checkpoints that begin with `begun`, in the run that the command line
/// names.
fn checkpoints(begun: &OsStr) -> Vec<CompletionCandidate> {
    let folders = program::words()
        .filter_map(|word| std::fs::read_dir(Path::new(&word).join("checkpoints")).ok());
    let entries = folders.flatten().filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> = entries.filter(|name| name.starts_with("step-")).collect();
    names.sort_by_cached_key(|name| (checkpoint_step(name), name.clone()));
    let fixed = ["best", "last", "average"].map(str::to_owned);
    starting(begun, fixed.into_iter().chain(names).map(|name| (name, String::new())))
}

/// Completes a setting: returns keys of recipes that begin with `begun`, or, if `begun` contains
/// `=`, the possible values of the key.
fn settings(begun: &OsStr) -> Vec<CompletionCandidate> {
    let mut all = Vec::new();
    collect("", taper_run::config::schema().as_value(), &mut all);
    let is_valued = begun.to_str().is_some_and(|begun| begun.contains('='));
    let shown = all.into_iter().filter(|(setting, _)| setting.ends_with('=') != is_valued);
    starting(begun, shown)
}

/// Adds to `all`, for each key below `section`, `key=` and its meaning. If the key has a fixed set
/// of values, also adds `key=value` and its meaning for each value.
fn collect(prefix: &str, section: &Value, all: &mut Vec<(String, String)>) {
    let meaning = |schema: &Value| -> String {
        let text = schema["description"].as_str().unwrap_or_default().replace('\n', " ");
        text.split_inclusive(". ").next().unwrap_or_default().trim().to_owned()
    };
    for (leaf, schema) in section["properties"].as_object().into_iter().flatten() {
        let key = format!("{prefix}{leaf}");
        if schema["properties"].is_object() {
            collect(&format!("{key}."), schema, all);
            continue;
        }
        all.push((format!("{key}="), meaning(schema)));
        if schema["type"] == "boolean" {
            all.extend([true, false].map(|value| (format!("{key}={value}"), String::new())));
        }
        for one in schema["oneOf"].as_array().into_iter().flatten() {
            if let Some(value) = one["const"].as_str() {
                all.push((format!("{key}={value}"), meaning(one)));
            }
        }
    }
}

/// Returns the candidates among `all` that begin with `begun`, with their meanings as help.
fn starting(
    begun: &OsStr,
    all: impl Iterator<Item = (String, String)>,
) -> Vec<CompletionCandidate> {
    let Some(begun) = begun.to_str() else { return Vec::new() };
    let candidate = |(value, help): (String, String)| {
        let help = (!help.is_empty()).then(|| help.into());
        CompletionCandidate::new(value).help(help)
    };
    all.filter(|(value, _)| value.starts_with(begun)).map(candidate).collect()
}
