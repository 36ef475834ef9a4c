//! `commands.jsonl`, a file in the folder of a run: the commands that trained the model, as one
//! JSON object on each line. Lines are only appended.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use taper_data::read_regular;

use super::{RunFolder, quoted};

/// Largest size of the file in bytes, far above that of any real file.
const MOST_BYTES: u64 = 1 << 26;

/// Command that trained a run, as the user typed it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    /// Time at which the command began, in seconds since the beginning of 1970 (UTC).
    pub began: u64,
    /// Version of the program.
    pub version: String,
    /// Folder in which the command was started.
    pub folder: String,
    /// Program and arguments.
    pub arguments: Vec<String>,
}

impl Command {
    /// Command of this process, which begins now. The first of the `arguments` is the program.
    #[must_use]
    pub fn new(version: &str, arguments: Vec<String>) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let folder = std::env::current_dir().unwrap_or_default().display().to_string();
        Self { began: now.as_secs(), version: version.to_owned(), folder, arguments }
    }

    /// Command line, quoted so that a shell can run it again.
    #[must_use]
    pub fn line(&self) -> String {
        let quote = |argument: &String| quoted(Path::new(argument));
        self.arguments.iter().map(quote).collect::<Vec<_>>().join(" ")
    }

    /// Time at which the command began, in the form `2026-11-24 21:33 UTC`.
    #[must_use]
    pub fn began(&self) -> String {
        let (days, minutes) = (self.began / 86_400, self.began % 86_400 / 60);
        // In this computation, years begin in March, so that a leap day is the last day of its year
        // (Hinnant, "chrono-compatible low-level date algorithms").
        let days = days + 719_468;
        let (era, day) = (days / 146_097, days % 146_097);
        let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let month = (5 * day + 2) / 153;
        let day = day - (153 * month + 2) / 5 + 1;
        let year = 400 * era + year + u64::from(month >= 10);
        let month = if month < 10 { month + 3 } else { month - 9 };
        let (hour, minute) = (minutes / 60, minutes % 60);
        format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02} UTC")
    }
}

impl RunFolder {
    /// Path of the file of commands.
    fn commands_file(&self) -> PathBuf {
        self.root().join("commands.jsonl")
    }

    /// Appends `command` to the file of commands that trained the run.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn note_command(&self, command: &Command) -> Result<()> {
        let path = self.commands_file();
        let mut line = serde_json::to_vec(command).context("a command is not JSON")?;
        line.push(b'\n');
        let append = || OpenOptions::new().create(true).append(true).open(&path)?.write_all(&line);
        append().with_context(|| format!("cannot append to {}", path.display()))
    }

    /// Commands that trained the run; empty if the file does not exist, because an earlier version
    /// began the run. Invalid lines are skipped.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn commands(&self) -> Result<Vec<Command>> {
        let path = self.commands_file();
        if !path.exists() {
            return Ok(Vec::new());
        }
        let bytes = read_regular(&path, MOST_BYTES)
            .with_context(|| format!("cannot read {}", path.display()))?;
        let lines = bytes.split(|&byte| byte == b'\n');
        Ok(lines.filter_map(|line| serde_json::from_slice(line).ok()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_kept_in_order_and_a_torn_line_is_left_out() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let run = RunFolder::new(folder.path());
        assert_eq!(run.commands().expect("none"), []);
        let command = |arguments: &[&str]| {
            Command::new("1.0", arguments.iter().map(|&argument| argument.to_owned()).collect())
        };
        let (first, second) = (command(&["taper", "train", "a b.toml"]), command(&["taper"]));
        run.note_command(&first).expect("append");
        run.note_command(&second).expect("append");
        std::fs::OpenOptions::new()
            .append(true)
            .open(run.commands_file())
            .and_then(|mut file| file.write_all(b"{\"began\":1"))
            .expect("append");
        assert_eq!(first.line(), "taper train 'a b.toml'");
        assert_eq!(run.commands().expect("read"), [first, second]);
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        let at = |began| Command { began, ..Command::default() }.began();
        assert_eq!(at(0), "1970-01-01 00:00 UTC");
        assert_eq!(at(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(at(1_795_555_980), "2026-11-24 21:33 UTC");
    }
}
