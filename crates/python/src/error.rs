//! Conversion of errors to Python exceptions.

use std::path::PathBuf;

use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use serde::de::DeserializeOwned;
use taper_run::advice::{Action, Resume, Setting, Start, Train, Verb};

pyo3::create_exception!(
    taper,
    TaperError,
    PyException,
    "A request that cannot be fulfilled as given, or a computation that failed.\n\nThe message is \
     the one that the program `taper` prints: what is wrong, where, and what to do, as a call."
);

/// Returns an error and its causes on one line, with the Python calls that help.
pub(crate) fn one_line(error: &anyhow::Error) -> String {
    taper_run::one_line_with(error, |action| match action {
        // Python has no such arguments.
        Action::Choose(
            Setting::MostTokens
            | Setting::Split
            | Setting::RescueFolder
            | Setting::Parts
            | Setting::AcceptChanges,
        ) => None,
        action => Some(format!("`{}`", call(action))),
    })
}

/// Returns the Python call or argument for an action; if there is none, the program's command.
fn call(action: &Action) -> String {
    match action {
        Action::Choose(setting) => match setting {
            Setting::DivideLines => "overlong=\"split\"".to_owned(),
            Setting::MostSourceTokens => "max_source_tokens=…".to_owned(),
            Setting::Checkpoint => "checkpoint=…".to_owned(),
            Setting::Prompts => "prompts=…".to_owned(),
            Setting::MostTokens
            | Setting::Split
            | Setting::RescueFolder
            | Setting::Parts
            | Setting::AcceptChanges => taper::command(action),
        },
        Action::Use(verb) => match verb {
            Verb::Translate => "run.translate(texts)".to_owned(),
            Verb::ScorePairs => "run.score(texts, targets)".to_owned(),
            Verb::ScoreTexts => "run.score(texts)".to_owned(),
            Verb::Generate => "run.generate(prompt)".to_owned(),
            Verb::Predict => "run.predict(texts)".to_owned(),
            Verb::PredictImages => "run.predict(images)".to_owned(),
            Verb::MatchTexts => "run.predict(images, prompts=prompts)".to_owned(),
            Verb::BeginWith => "taper.train(recipe, path, start_from=run.path)".to_owned(),
            Verb::Evaluate | Verb::DrawAttention | Verb::Report => taper::command(action),
        },
        Action::Train(Train { recipe, from, run, change }) => {
            let path = |path: &Option<PathBuf>, unknown: &str| {
                path.as_ref().map_or_else(|| unknown.to_owned(), |path| literal(path.display()))
            };
            let (recipe, run) = (path(recipe, "recipe"), path(run, "path"));
            let from = option("start_from", from.as_ref().map(|from| from.display()));
            format!("taper.train({recipe}, {run}{from}{})", overrides(change))
        }
        // Only the command-line program can continue a run after an edit of keys that determine the
        // shapes of its weights.
        Action::Resume(Resume { accepts_changes: true, .. }) => taper::command(action),
        Action::Resume(Resume { run, from, change, .. }) => {
            let from = match from {
                Some(Start::Chosen) => ", checkpoint=checkpoint".to_owned(),
                Some(Start::Named(name)) => option("checkpoint", Some(name)),
                None => String::new(),
            };
            format!("taper.resume({}{from}{})", literal(run.display()), overrides(change))
        }
        Action::Average(_)
        | Action::Merge(_)
        | Action::Import(_)
        | Action::Tune
        | Action::Shortlist(_) => taper::command(action),
    }
}

fn option(name: &str, value: Option<impl ToString>) -> String {
    value.map_or_else(String::new, |value| format!(", {name}={}", literal(value)))
}

fn overrides(key: &Option<String>) -> String {
    key.as_ref().map_or_else(String::new, |key| format!(", overrides={{{}: …}}", literal(key)))
}

/// Returns a text as a string literal of Python. The text is written as JSON, because a string
/// literal of JSON is also a string literal of Python.
fn literal(text: impl ToString) -> String {
    serde_json::Value::String(text.to_string()).to_string()
}

/// Makes the exception of an error, with the program's message.
pub(crate) fn exception(error: &anyhow::Error) -> PyErr {
    TaperError::new_err(one_line(error))
}

/// Parses options that Python has written as JSON.
///
/// # Errors
/// When an option has a wrong type.
pub(crate) fn options<T: DeserializeOwned>(json: &str) -> PyResult<T> {
    serde_json::from_str(json).map_err(|error| TaperError::new_err(error.to_string()))
}
