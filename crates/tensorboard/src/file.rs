//! Files of records. Each record is stored with its length and two checksums (TensorFlow's
//! `record_writer.h`).

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::checksum::crc32c;
use crate::value::Value;
use crate::wire::{Field, Message, fields};

/// Content of the first record of a file.
const VERSION: &str = "brain.Event:2";
/// Number of bytes before the data of a record: its length, and the checksum of the length.
const HEAD: usize = 12;
/// Number of bytes after the data of a record: a checksum.
const TAIL: usize = 4;
/// Name of a file that is being written and will replace an event file. TensorBoard reads every
/// file with `tfevents` in its name, so this name does not contain it.
const TEMPORARY: &str = ".events.partial";

/// An event file for appending.
#[derive(Debug)]
pub struct EventFile {
    path: PathBuf,
    file: File,
    /// Bytes that the disk has not accepted yet.
    pending: Vec<u8>,
}

/// A record of a file, without its values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Record {
    /// Training step (optimizer update) at which the values were measured.
    pub step: u64,
    /// Tags of the values.
    pub tags: Vec<String>,
}

impl EventFile {
    /// Opens the file at `path` for appending; creates it if it is missing.
    ///
    /// `known` is called with the step and the tags of each record, in order. The first record for
    /// which it returns `false`, or that is damaged, is dropped with all records after it. If
    /// records are dropped, the whole file is replaced.
    ///
    /// # Errors
    /// When the file cannot be read, replaced or opened.
    pub fn resume(path: &Path, known: impl Fn(u64, &[String]) -> bool) -> io::Result<Self> {
        let bytes = match fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        let mut kept = 0;
        for (end, record) in records(&bytes) {
            if !known(record.step, &record.tags) {
                break;
            }
            kept = end;
        }
        if kept < bytes.len() {
            let partial = path.with_file_name(TEMPORARY);
            let mut file = File::create(&partial)?;
            file.write_all(&bytes[..kept])?;
            file.sync_all()?;
            fs::rename(&partial, path)?;
        }
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        let mut events = Self { path: path.to_owned(), file, pending: Vec::new() };
        if kept == 0 {
            events.record(&Message::default().double(1, now()).bytes(3, VERSION.as_bytes()));
        }
        Ok(events)
    }

    /// Reads the records of the file at `path`, up to the first damaged record.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn read(path: &Path) -> io::Result<Vec<Record>> {
        Ok(records(&fs::read(path)?).map(|(_, record)| record).collect())
    }

    /// Path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends a record. It is written at once. If this fails, it is kept in memory, and is written
    /// together with the next record or by [`EventFile::flush`].
    pub fn append(&mut self, step: u64, values: &[Value]) {
        let summary = values.iter().fold(Message::default(), |all, one| all.message(1, &one.0));
        self.record(&Message::default().double(1, now()).integer(2, step).message(5, &summary));
    }

    /// Writes every pending record, and waits until the file is on the disk.
    ///
    /// # Errors
    /// When the disk refuses a write.
    pub fn flush(&mut self) -> io::Result<()> {
        self.write_pending()?;
        self.file.sync_data()
    }

    fn record(&mut self, message: &Message) {
        let length = (message.0.len() as u64).to_le_bytes();
        self.pending.extend(length);
        self.pending.extend(masked(&length));
        self.pending.extend(&message.0);
        self.pending.extend(masked(&message.0));
        // An error is ignored here, because the bytes stay pending, and the next `flush` writes
        // them again and reports the error.
        let _ = self.write_pending();
    }

    fn write_pending(&mut self) -> io::Result<()> {
        while !self.pending.is_empty() {
            match self.file.write(&self.pending) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                // If the disk is nearly full, it can accept only a part of the bytes.
                Ok(count) => drop(self.pending.drain(..count)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Returns the records of a file, each with the offset of its end, up to the first damaged record.
fn records(bytes: &[u8]) -> impl Iterator<Item = (usize, Record)> {
    let mut at = 0_usize;
    std::iter::from_fn(move || {
        let head = bytes.get(at..at.checked_add(HEAD)?)?;
        let (length, sum) = head.split_at(8);
        if sum != masked(length) {
            return None;
        }
        let length = usize::try_from(u64::from_le_bytes(length.try_into().ok()?)).ok()?;
        let start = at + HEAD;
        let end = start.checked_add(length)?;
        let data = bytes.get(start..end)?;
        if bytes.get(end..end.checked_add(TAIL)?)? != masked(data) {
            return None;
        }
        at = end + TAIL;
        Some((at, record(data)))
    })
}

fn record(data: &[u8]) -> Record {
    let mut record = Record::default();
    for (number, field) in fields(data) {
        match (number, field) {
            (2, Field::Integer(step)) => record.step = step,
            (5, Field::Bytes(summary)) => record.tags.extend(tags(summary)),
            _ => {}
        }
    }
    record
}

fn tags(summary: &[u8]) -> impl Iterator<Item = String> {
    let values = fields(summary).filter_map(|(number, field)| match (number, field) {
        (1, Field::Bytes(value)) => Some(value),
        _ => None,
    });
    values.filter_map(|value| {
        fields(value).find_map(|(number, field)| match (number, field) {
            (1, Field::Bytes(tag)) => Some(String::from_utf8_lossy(tag).into_owned()),
            _ => None,
        })
    })
}

/// Returns the CRC-32C of bytes in TensorFlow's masked form: the bits are rotated, and a constant
/// is added. TensorFlow does this because the CRC of bytes that themselves contain CRCs is
/// problematic (`crc32c.h`).
fn masked(bytes: &[u8]) -> [u8; 4] {
    crc32c(bytes).rotate_right(15).wrapping_add(0xA282_EAD8).to_le_bytes()
}

/// Seconds since 1970.
fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_goes_on_from_where_its_state_stands() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("events.out.tfevents.1.taper");
        let mut events = EventFile::resume(&path, |_, _| true).expect("new");
        for step in 1..=4 {
            events.append(step, &[Value::scalar("train/loss", 1.0), Value::text("sample", "é")]);
        }
        events.flush().expect("flush");
        let whole = fs::read(&path).expect("read");
        // This is the file of a process that was killed while it wrote the fourth record.
        fs::write(&path, &whole[..whole.len() - 3]).expect("write");
        assert_eq!(EventFile::read(&path).expect("read").len(), 4, "the version, and three");
        let mut events = EventFile::resume(&path, |step, _| step <= 2).expect("resume");
        events.append(3, &[Value::scalar("train/loss", 1.0)]);
        events.flush().expect("flush");
        let steps: Vec<u64> =
            EventFile::read(&path).expect("read").into_iter().map(|one| one.step).collect();
        assert_eq!(steps, [0, 1, 2, 3]);
        let records = EventFile::read(&path).expect("read");
        assert_eq!(records[1].tags, ["train/loss", "sample"]);
    }

    #[test]
    fn a_replacement_that_is_not_finished_is_no_file_for_tensorboard() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("events.out.tfevents.1.taper");
        let mut events = EventFile::resume(&path, |_, _| true).expect("new");
        events.append(1, &[Value::scalar("train/loss", 1.0)]);
        events.flush().expect("flush");
        // The replacement cannot be made, because a folder has its name.
        let temporary = folder.path().join(TEMPORARY);
        fs::create_dir(&temporary).expect("folder");
        assert!(EventFile::resume(&path, |step, _| step < 1).is_err());
        assert_eq!(EventFile::read(&path).expect("read").len(), 2, "nothing is lost");
        assert!(!TEMPORARY.contains("tfevents"));
        fs::remove_dir(&temporary).expect("remove");
        EventFile::resume(&path, |step, _| step < 1).expect("resume").flush().expect("flush");
        assert_eq!(fs::read_dir(folder.path()).expect("folder").count(), 1);
    }

    #[test]
    fn damaged_files_end_where_the_damage_is() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("events");
        let mut events = EventFile::resume(&path, |_, _| true).expect("new");
        events.append(1, &[Value::scalar("a", 1.0)]);
        events.flush().expect("flush");
        let whole = fs::read(&path).expect("read");
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x40;
            assert!(records(&damaged).count() < 2, "byte {at}");
        }
    }
}
