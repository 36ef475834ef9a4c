//! A run whose files are read repeatedly while it trains.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;

use taper_report::Record;
use taper_run::RunFolder;
use taper_run::folder::{RunState, RunSummary};
use taper_trainer::checkpoint_step;

use crate::resident::resident_memory;

/// A run, with that part of its record of metrics that has been read so far.
pub(super) struct WatchedRun {
    pub(super) name: String,
    folder: RunFolder,
    pub(super) summary: RunSummary,
    pub(super) record: Record,
    /// Number of bytes of the record that have been read.
    read: u64,
    /// Last complete line that has been read. If the file later has other bytes in the place of
    /// this line, the file was written anew.
    last_line: Vec<u8>,
    /// Checkpoints, the newest last.
    pub(super) checkpoints: Vec<String>,
    /// Resident memory of the run's process, in bytes; `None` if the process does not run, or its
    /// memory is not known.
    pub(super) memory: Option<u64>,
}

impl WatchedRun {
    pub(super) fn new(folder: RunFolder) -> Self {
        let root = folder.root();
        let name = root.file_name().unwrap_or(root.as_os_str()).to_string_lossy().into_owned();
        let mut run = Self {
            name,
            summary: RunSummary::read(&folder),
            record: Record::default(),
            read: 0,
            last_line: Vec::new(),
            checkpoints: Vec::new(),
            memory: None,
            folder,
        };
        run.refresh();
        run
    }

    /// Reads the summary, the new entries of the record and the names of checkpoints again. Files
    /// that cannot be read are reported by the summary.
    pub(super) fn refresh(&mut self) {
        self.summary = RunSummary::read(&self.folder);
        self.refresh_record();
        let entries = fs::read_dir(self.folder.checkpoints()).into_iter().flatten().flatten();
        let folders = entries.filter(|entry| entry.path().is_dir());
        let names = folders.map(|entry| entry.file_name().to_string_lossy().into_owned());
        self.checkpoints = names.filter(|name| !name.starts_with('.')).collect();
        self.checkpoints.sort_by_cached_key(|name| (checkpoint_step(name), name.clone()));
        self.memory = match &self.summary.state {
            RunState::Training { process } => resident_memory(process),
            _ => None,
        };
    }

    /// Reads the new entries of the record. Reads the record again from its start if it was written
    /// anew: a run that is resumed from an earlier checkpoint first drops later lines, and may have
    /// appended others since.
    fn refresh_record(&mut self) {
        let path = self.folder.metrics();
        let Ok(bytes) = read_from(&path, self.read - self.last_line.len() as u64) else { return };
        if let Some(new) = bytes.strip_prefix(&self.last_line[..]) {
            return self.append(new);
        }
        (self.record, self.read, self.last_line) = (Record::default(), 0, Vec::new());
        if let Ok(bytes) = read_from(&path, 0) {
            self.append(&bytes);
        }
    }

    /// Adds the complete lines of `bytes`, the part of the record after the lines that have been
    /// read.
    fn append(&mut self, bytes: &[u8]) {
        let count = self.record.append(bytes);
        self.read += count as u64;
        if let Some(line) = bytes[..count].split_inclusive(|&byte| byte == b'\n').next_back() {
            self.last_line = line.to_vec();
        }
    }

    /// Returns the remaining seconds of training at the speed between the last two entries; `None`
    /// if the run does not train, or its number of updates is not limited.
    pub(super) fn seconds_left(&self) -> Option<f64> {
        if !matches!(self.summary.state, RunState::Training { .. }) {
            return None;
        }
        let last = self.record.logged.last()?;
        let before = &self.record.logged[self.record.logged.len().checked_sub(2)?];
        let pace = (last.seconds - before.seconds) / last.step.checked_sub(before.step)? as f64;
        Some(pace * self.summary.max_updates?.checked_sub(last.step)? as f64)
    }
}

/// Reads a file from its byte `start` on; a missing file is read as empty.
fn read_from(path: &Path, start: u64) -> std::io::Result<Vec<u8>> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(start))?;
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the lines of the updates `steps`, at the time `seconds`.
    fn lines(steps: impl Iterator<Item = u64>, seconds: u64) -> String {
        let line = |step: u64| {
            format!(
                "{{\"event\":\"log\",\"step\":{step},\"epoch\":0,\"loss\":2.5,\"nll\":2.0,\
                 \"learning_rate\":0.001,\"gradient_norm\":1.5,\"tokens\":10,\
                 \"window_tokens\":10,\"timing\":{{\"elapsed_seconds\":{seconds}.0}}}}\n"
            )
        };
        steps.map(line).collect()
    }

    #[test]
    fn the_newest_checkpoint_is_the_one_with_the_most_updates() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let names = ["averaged", "step-00000007", "step-99999999", "step-100000000"];
        for name in names.iter().rev() {
            fs::create_dir_all(folder.path().join("checkpoints").join(name)).expect("made");
        }
        assert_eq!(WatchedRun::new(RunFolder::new(folder.path())).checkpoints, names);
    }

    #[test]
    fn a_record_that_grows_is_read_on_and_one_that_is_written_anew_is_read_again() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("metrics.jsonl");
        let write = |text: String| fs::write(&path, text).expect("written");
        let mut run = WatchedRun::new(RunFolder::new(folder.path()));
        let mut entries = |text: Option<String>| -> Vec<(u64, f64)> {
            match text {
                Some(text) => write(text),
                None => fs::remove_file(&path).expect("removed"),
            }
            run.refresh();
            run.record.logged.iter().map(|one| (one.step, one.seconds)).collect()
        };
        let first = lines(1..=3, 1);
        assert_eq!(entries(Some(format!("{first}{{\"event\":"))), [(1, 1.0), (2, 1.0), (3, 1.0)]);
        let grown = first + &lines(4..=4, 2);
        assert_eq!(entries(Some(grown)).len(), 4);
        // The run was resumed after update 1 and has reached update 5.
        let resumed = lines(1..=1, 1) + &lines(2..=5, 3);
        let expected = [(1, 1.0), (2, 3.0), (3, 3.0), (4, 3.0), (5, 3.0)];
        assert_eq!(entries(Some(resumed)), expected);
        assert_eq!(entries(Some(lines(1..=2, 1))), [(1, 1.0), (2, 1.0)]);
        assert_eq!(entries(None), []);
        assert_eq!(entries(Some(lines(1..=1, 1))), [(1, 1.0)]);
    }
}
