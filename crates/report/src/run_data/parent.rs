//! Parent of a run: the run that gave it its first weights.

use std::path::PathBuf;

use anyhow::Result;
use serde_json::Value;
use taper_run::RunFolder;
use taper_run::folder::{Command, RunSummary};

use super::json;

/// Results of the parent of a run, that is, of the run that `taper train --from` names.
#[derive(Debug, Clone)]
pub struct Parent {
    /// Name of the parent's folder.
    pub name: String,
    /// Progress and best validation.
    pub summary: RunSummary,
    /// Results on test sets, in the form of `scores.json`.
    pub scores: Vec<Value>,
}

impl Parent {
    /// Finds the parent of the run that `commands` trained; `None` if the run has no parent, or the
    /// parent no longer exists.
    ///
    /// # Errors
    /// When a file of the parent is damaged.
    pub(super) fn find(commands: &[Command]) -> Result<Option<Self>> {
        let Some(path) = commands.first().and_then(origin) else { return Ok(None) };
        let Ok((folder, _)) = RunFolder::of_weights(&path) else { return Ok(None) };
        let scores = match json(&folder.scores())? {
            Some(Value::Array(results)) => results,
            _ => Vec::new(),
        };
        let name = folder.root().file_name().unwrap_or(folder.root().as_os_str());
        let name = name.to_string_lossy().into_owned();
        Ok(Some(Self { name, summary: RunSummary::read(&folder), scores }))
    }

    /// Returns the number at the JSON pointer `pointer` in the result on the test set `split`.
    pub(crate) fn score(&self, split: &Value, pointer: &str) -> Option<f64> {
        let set = self.scores.iter().find(|one| one["split"] == *split)?;
        set.pointer(pointer)?.as_f64()
    }
}

/// Returns the path that a command names with `--from`; `None` without this option.
fn origin(command: &Command) -> Option<PathBuf> {
    let mut arguments = command.arguments.iter();
    let path = loop {
        let argument = arguments.next()?;
        if let Some(path) = argument.strip_prefix("--from=") {
            break path;
        }
        if argument == "--from" {
            break arguments.next()?;
        }
    };
    Some(PathBuf::from(&command.folder).join(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_origin_is_what_the_command_says() {
        let of = |arguments: &[&str]| {
            let arguments = arguments.iter().map(|&one| one.to_owned()).collect();
            origin(&Command { folder: "/runs".to_owned(), arguments, ..Command::default() })
        };
        assert_eq!(of(&["taper", "train", "a.toml"]), None);
        assert_eq!(of(&["train", "--from", "old", "x"]), Some(PathBuf::from("/runs/old")));
        assert_eq!(of(&["train", "--from=/else/old"]), Some(PathBuf::from("/else/old")));
        assert_eq!(of(&["train", "--from"]), None);
    }
}
