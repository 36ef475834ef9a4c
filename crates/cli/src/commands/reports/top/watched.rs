//! A run that is read repeatedly.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};

use taper_report::Record;
use taper_run::RunFolder;
use taper_run::folder::{RunState, RunSummary};

use crate::resident::resident_memory;

/// A run with its record, as read so far.
pub(super) struct WatchedRun {
    pub(super) name: String,
    folder: RunFolder,
    pub(super) summary: RunSummary,
    pub(super) record: Record,
    /// Bytes of the record read so far.
    read: u64,
    /// Checkpoints, the newest last.
    pub(super) checkpoints: Vec<String>,
    /// Memory of the run's process, in bytes.
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

    /// Reads new entries of the record. Unreadable parts appear in the summary.
    pub(super) fn refresh(&mut self) {
        self.summary = RunSummary::read(&self.folder);
        let path = self.folder.metrics();
        let length = fs::metadata(&path).map_or(0, |file| file.len());
        if length < self.read {
            // The run was resumed from an earlier checkpoint.
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

    /// Remaining seconds at the speed of the last entries, if the end is known.
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
