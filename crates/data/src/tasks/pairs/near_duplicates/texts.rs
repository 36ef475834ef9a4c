//! Stores the texts of pairs in a separate file, from which they can be read by index.

use std::fs::File;
use std::io::{ErrorKind, Seek, SeekFrom, Write};
use std::path::Path;

use crate::files::{Partial, read_at};
use crate::{Error, Result};

/// Number of bytes that are collected before they are written.
const BUFFER: usize = 1 << 20;

/// Each pair is preceded by the length of its source, a number of this many bytes.
const LENGTH_BYTES: usize = 4;

/// Pairs of texts on the disk. For each pair, memory holds only the offset of its end, 8 bytes. The
/// file is deleted when this value is dropped.
#[derive(Debug)]
pub(crate) struct StoredTexts {
    file: File,
    /// Name of the file, which is deleted after it is closed.
    partial: Partial,
    ends: Vec<u64>,
    written: u64,
    /// The last pairs, which have not been written yet.
    buffer: Vec<u8>,
}

impl StoredTexts {
    /// Makes an empty file in the folder of `path`.
    ///
    /// # Errors
    ///
    /// If the file cannot be made.
    pub(crate) fn beside(path: &Path) -> Result<Self> {
        let partial = Partial::beside(&path.with_extension("texts"));
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(true);
        let file = options.open(&partial.0).map_err(|error| Error::io(&partial.0, error))?;
        Ok(Self { file, partial, ends: Vec::new(), written: 0, buffer: Vec::new() })
    }

    /// Number of pairs.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Adds a pair. Its index is the number of pairs that were added before.
    ///
    /// # Errors
    ///
    /// If the disk is full.
    pub(crate) fn push(&mut self, source: &str, target: &str) -> Result<()> {
        // Every format limits a text to less than 4 GiB.
        self.buffer.extend((source.len() as u32).to_le_bytes());
        self.buffer.extend(source.as_bytes());
        self.buffer.extend(target.as_bytes());
        self.ends.push(self.written + self.buffer.len() as u64);
        if self.buffer.len() >= BUFFER {
            // On Windows, reading changes the position at which the file is written.
            let end = self.file.seek(SeekFrom::Start(self.written));
            end.and_then(|_| self.file.write_all(&self.buffer))
                .map_err(|error| Error::io(&self.partial.0, error))?;
            self.written += self.buffer.len() as u64;
            self.buffer.clear();
        }
        Ok(())
    }

    /// Reads source and target of the pair with this index.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or another program changed it.
    pub(crate) fn read(&self, number: usize) -> Result<(String, String)> {
        let begin = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        let length = (self.ends[number] - begin) as usize;
        let mut bytes = vec![0; length];
        let failed = |error| Error::io(&self.partial.0, error);
        match begin.checked_sub(self.written) {
            Some(place) => bytes.copy_from_slice(&self.buffer[place as usize..][..length]),
            None => read_at(&self.file, &mut bytes, begin).map_err(failed)?,
        }
        divided(bytes).ok_or_else(|| failed(ErrorKind::InvalidData.into()))
    }
}

/// Source and target in the bytes of a pair; `None` if the bytes are not a pair, because another
/// program changed the file.
fn divided(mut bytes: Vec<u8>) -> Option<(String, String)> {
    let length = u32::from_le_bytes(*bytes.first_chunk()?) as usize;
    let end = LENGTH_BYTES.checked_add(length).filter(|end| *end <= bytes.len())?;
    let target = bytes.split_off(end);
    let source = bytes.split_off(LENGTH_BYTES);
    Some((String::from_utf8(source).ok()?, String::from_utf8(target).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_come_back_from_memory_and_disk() {
        let folder = tempfile::tempdir().expect("folder");
        let mut texts = StoredTexts::beside(&folder.path().join("train.bin")).expect("a file");
        let pair = |number: usize| {
            let source = format!("{number} 猫\n").repeat(number % 29);
            (source, format!("\n{number} ").repeat(number % 23))
        };
        for number in 0..20_000 {
            let (source, target) = pair(number);
            texts.push(&source, &target).expect("room");
            // Reads the pair that was just added, and a pair that was added long ago.
            for number in [number, number / 3] {
                assert_eq!(texts.read(number).expect("readable"), pair(number));
            }
        }
        assert!(texts.written > 2 * BUFFER as u64);
        assert_eq!(std::fs::read_dir(folder.path()).expect("folder").count(), 1);
        drop(texts);
        assert_eq!(std::fs::read_dir(folder.path()).expect("folder").count(), 0);
    }
}
