//! A run whose files are read repeatedly while it trains.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};

use taper_report::Record;
use taper_run::RunFolder;
use taper_run::folder::{RunState, RunSummary};

use crate::resident::resident_memory;

/// A run with the part of its record that has been read so far.
pub(super) struct WatchedRun {
    pub(super) name: String,
    folder: RunFolder,
    pub(super) summary: RunSummary,
    pub(super) record: Record,
    /// Number of bytes of the record that have been read.
    read: u64,
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
        let path = self.folder.metrics();
        let length = fs::metadata(&path).map_or(0, |file| file.len());
        if length < self.read {
            // The record is shorter, because the run was resumed from an earlier checkpoint: read
            // it again from its start.
            (self.record, self.read) = (Record::default(), 0);
        }
        let mut bytes = Vec::new();
        let read = || -> std::io::Result<()> {
            let mut file = File::open(&path)?;
            file.seek(SeekFrom::Start(self.read))?;
            file.read_to_end(&mut bytes).map(drop)
        };
        if length > self.read && { read }().is_ok() {
            self.read += self.record.append(&bytes) as u64;
        }
        let entries = fs::read_dir(self.folder.checkpoints()).into_iter().flatten().flatten();
        let folders = entries.filter(|entry| entry.path().is_dir());
        let names = folders.map(|entry| entry.file_name().to_string_lossy().into_owned());
        self.checkpoints = names.filter(|name| !name.starts_with('.')).collect();
        self.checkpoints.sort();
        self.memory = match &self.summary.state {
            RunState::Training { process } => resident_memory(process),
            _ => None,
        };
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
