//! `metrics.jsonl`: one JSON object a line, appended as training goes.
//!
//! The file is only ever appended to, with one exception: a run that resumes
//! from a checkpoint first drops the lines that are newer than it (the work is
//! about to be repeated) and a torn last line, so that the finished file
//! equals that of an uninterrupted run.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::Value;

/// An open log.
#[derive(Debug)]
pub(crate) struct MetricsLog {
    path: PathBuf,
    file: File,
}

impl MetricsLog {
    /// Opens the log at `path` for appending, made if missing. Lines that the
    /// checkpoint after `last_step` updates and `skipped` skipped ones does not
    /// know of are dropped first, and so are incomplete lines.
    ///
    /// # Errors
    /// When the file cannot be read, rewritten or opened.
    pub(crate) fn open(path: &Path, last_step: u64, skipped: u64) -> Result<Self> {
        if path.exists() {
            truncate(path, last_step, skipped).with_context(|| format!("cannot bring {} back to step {last_step}", path.display()))?;
        }
        let file =
            OpenOptions::new().create(true).append(true).open(path).with_context(|| format!("cannot append to {}", path.display()))?;
        Ok(Self { path: path.to_owned(), file })
    }

    /// Appends `record` as one line, in a single write.
    ///
    /// # Errors
    /// When the disk refuses.
    pub(crate) fn append(&mut self, record: &impl Serialize) -> Result<()> {
        let mut line = serde_json::to_string(record).context("a metrics record is not JSON")?;
        line.push('\n');
        self.file.write_all(line.as_bytes()).with_context(|| format!("cannot append to {}", self.path.display()))
    }
}

/// Keeps the complete lines up to `last_step` (a skipped update does not
/// advance the step: its own count tells it from a later one); the file is replaced whole, and
/// only if something has to go.
fn truncate(path: &Path, last_step: u64, skipped: u64) -> Result<()> {
    let bytes = fs::read(path)?;
    let mut kept = Vec::with_capacity(bytes.len());
    for line in bytes.split_inclusive(|&byte| byte == b'\n') {
        let Ok(record) = serde_json::from_slice::<Value>(line) else {
            continue;
        };
        let number = |key: &str| record.get(key).and_then(Value::as_u64);
        let known = number("step").is_some_and(|step| step <= last_step)
            && (record["event"] != "skipped" || number("total").unwrap_or(0) <= skipped);
        if known && line.ends_with(b"\n") {
            kept.extend_from_slice(line);
        }
    }
    if kept.len() != bytes.len() {
        write_atomically(path, &kept)?;
    }
    Ok(())
}

/// Writes a file so that it appears whole or not at all.
///
/// # Errors
/// When the folder cannot be written to.
pub(crate) fn write_atomically(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".partial");
    let partial = path.with_file_name(name);
    let write = || -> std::io::Result<()> {
        let mut file = File::create(&partial)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&partial, path)
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newer_and_torn_lines_are_dropped() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("metrics.jsonl");
        fs::write(&path, "{\"step\":1}\n{\"step\":2}\n{\"event\":\"skipped\",\"step\":2,\"total\":1}\n{\"step\":3}\n{\"step\":2,\"lo")
            .expect("write");
        let mut log = MetricsLog::open(&path, 2, 0).expect("open");
        log.append(&serde_json::json!({"step": 3})).expect("append");
        let text = fs::read_to_string(&path).expect("read");
        assert_eq!(text, "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n");
    }
}
