//! `metrics.jsonl`, the record of a training: one JSON object on each line.
//!
//! During training, lines are appended to the file. When training resumes from a checkpoint, lines
//! about events after the checkpoint are dropped, because this work is done again. An incomplete
//! last line is dropped too. So the finished file is the same as without an interruption. A file
//! with other invalid lines is damaged or belongs to another program; a copy of it is set aside.
//!
//! A line that cannot be written is kept in memory and written together with the next line. This
//! suffices because lines need not be on the disk before a checkpoint is saved.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::Serialize;
use serde_json::Value;
use taper_data::not_a_file;
use taper_trainer::State;

use crate::event::{FolderNotice, Notice, RunEvent, RunObserver};
use crate::folder::files::write_atomically;

/// Open record of a training: the file `metrics.jsonl` in the folder of the training (the run).
#[derive(Debug)]
pub(crate) struct MetricsLog {
    path: PathBuf,
    file: File,
    /// Bytes of lines that could not be written to the disk yet.
    pending: Vec<u8>,
}

impl MetricsLog {
    /// Opens the record at `path` for appending, and creates it if it is missing. First drops an
    /// incomplete line, and lines about events after `state`, the state of the checkpoint from
    /// which training continues.
    ///
    /// # Errors
    /// When the file cannot be read, rewritten or opened.
    pub(crate) fn open(path: &Path, state: &State, observer: &mut dyn RunObserver) -> Result<Self> {
        if let Some(kind) = not_a_file(path) {
            bail!("{}: {kind}, but the record of the run is expected", path.display());
        }
        if path.exists() {
            let damage = truncate(path, state).with_context(|| {
                format!("cannot bring {} back to step {}", path.display(), state.step)
            })?;
            if let Some(notice) = damage {
                observer.observe(&RunEvent::Notice(notice))?;
            }
        }
        Ok(Self { path: path.to_owned(), file: append_to(path)?, pending: Vec::new() })
    }

    /// Writes the record again if its file is missing but the run's folder still exists. Returns
    /// whether the file was written.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(crate) fn restore(&mut self) -> Result<bool> {
        let has_folder = self.path.parent().is_some_and(Path::is_dir);
        if !has_folder || fs::symlink_metadata(&self.path).is_ok() {
            return Ok(false);
        }
        let contents = self.contents()?;
        write_atomically(&self.path, &contents)?;
        (self.file, self.pending) = (append_to(&self.path)?, Vec::new());
        Ok(true)
    }

    /// Appends `record` as one line: immediately if the disk accepts it, otherwise together with
    /// the next line.
    ///
    /// # Errors
    /// When the record cannot be written as JSON.
    pub(crate) fn append(&mut self, record: &impl Serialize) -> Result<()> {
        serde_json::to_writer(&mut self.pending, record).context("a metrics record is not JSON")?;
        self.pending.push(b'\n');
        // An error can be ignored here: `flush`, which runs before a checkpoint is saved, reports
        // it.
        let _ = self.write_pending();
        Ok(())
    }

    /// Writes all lines to the disk, so that they survive a crash of the system.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(crate) fn flush(&mut self) -> Result<()> {
        self.write_pending()
            .and_then(|()| self.file.sync_data())
            .with_context(|| format!("cannot append to {}", self.path.display()))
    }

    /// Content of the whole record, including lines that are not on the disk yet. It can be read
    /// even if the file was removed, because the file is still open.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub(crate) fn contents(&mut self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.file
            .seek(SeekFrom::Start(0))
            .and_then(|_| self.file.read_to_end(&mut bytes))
            .with_context(|| format!("cannot read {}", self.path.display()))?;
        bytes.extend_from_slice(&self.pending);
        Ok(bytes)
    }

    fn write_pending(&mut self) -> std::io::Result<()> {
        while !self.pending.is_empty() {
            match self.file.write(&self.pending) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                // A disk that is almost full may take only part of a line.
                Ok(count) => drop(self.pending.drain(..count)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn append_to(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    let file = options.create(true).append(true).read(true).open(path);
    file.with_context(|| format!("cannot append to {}", path.display()))
}

/// Keeps only complete lines about events up to `state`. The file is replaced as a whole, and only
/// if a line is dropped. Invalid lines are dropped too, but the original file is kept under another
/// name. The notice that is returned then reports this name, so that a person can decide about the
/// lines.
///
/// The number of updates (step) in a line does not always show whether its event is included in
/// `state`: a skipped update does not advance the step and is counted separately, and the
/// validation at the end of a run may come after a checkpoint with the same step.
fn truncate(path: &Path, state: &State) -> Result<Option<Notice>> {
    let bytes = fs::read(path)?;
    let mut kept = Vec::with_capacity(bytes.len());
    let mut no_record = None;
    for (line, number) in bytes.split_inclusive(|&byte| byte == b'\n').zip(1u64..) {
        if !line.ends_with(b"\n") {
            // An incomplete line, which can only be the last one, is dropped.
            continue;
        }
        match is_known(line, state) {
            Some(true) => kept.extend_from_slice(line),
            Some(false) => {}
            None => drop(no_record.get_or_insert(number)),
        }
    }
    let damage = match no_record {
        Some(line) => {
            let aside = free_name(path);
            write_atomically(&aside, &bytes)?;
            Some(FolderNotice::RecordSetAside { path: path.to_owned(), line, aside }.into())
        }
        None => None,
    };
    if kept.len() != bytes.len() {
        write_atomically(path, &kept)?;
    }
    Ok(damage)
}

/// Whether `state` includes the event that a line records; `None` if the line is invalid.
fn is_known(line: &[u8], state: &State) -> Option<bool> {
    let record = serde_json::from_slice::<Value>(line).ok()?;
    let number = |key: &str| record.get(key).and_then(Value::as_u64);
    let step = number("step")?;
    Some(match record["event"].as_str() {
        Some("skipped") => step <= state.step && number("total").unwrap_or(0) <= state.skipped,
        Some("validation") => state.validated_at.is_some_and(|validated| step <= validated),
        _ => step <= state.step,
    })
}

/// Path in the same folder as `path` at which there is no file: `metrics.damaged.jsonl` or, if it
/// exists, the same name with a number.
fn free_name(path: &Path) -> PathBuf {
    let name = |number: u64| match number {
        1 => path.with_extension("damaged.jsonl"),
        _ => path.with_extension(format!("damaged-{number}.jsonl")),
    };
    (1..).map(name).find(|path| !path.exists()).unwrap_or_else(|| name(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use taper_trainer::Identity;

    #[test]
    fn newer_and_torn_lines_are_dropped() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("metrics.jsonl");
        let kept =
            [r#"{"step":1}"#, r#"{"event":"validation","step":1}"#, r#"{"step":2}"#, ""].join("\n");
        let newer = [
            r#"{"event":"skipped","step":2,"total":1}"#,
            r#"{"event":"validation","step":2}"#,
            r#"{"step":3}"#,
        ]
        .join("\n");
        fs::write(&path, format!("{kept}{newer}\n{}", r#"{"step":2,"lo"#)).expect("write");
        let mut state = State::new(1, Identity::default());
        state.step = 2;
        state.validated_at = Some(1);
        let mut log =
            MetricsLog::open(&path, &state, &mut |_: &RunEvent<'_>| Ok(())).expect("open");
        log.append(&serde_json::json!({"step": 3})).expect("append");
        let text = fs::read_to_string(&path).expect("read");
        assert_eq!(text, format!("{kept}{}\n", r#"{"step":3}"#));
    }
}
