//! Texts in a separate file, which can be read again by their index.

use std::fs::File;
use std::io::{ErrorKind, Seek, SeekFrom, Write};
use std::path::Path;

use crate::files::{Partial, read_at};
use crate::{Error, Result};

/// Number of bytes that are written together.
const BUFFER: usize = 1 << 20;

/// Texts on disk; memory holds the end of each, 8 bytes. The file is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct StoredTexts {
    file: File,
    /// Name of the file, which is removed after the file is closed.
    partial: Partial,
    ends: Vec<u64>,
    written: u64,
    /// The last texts, which are not in the file yet.
    buffer: Vec<u8>,
}

impl StoredTexts {
    /// An empty file beside `path`.
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

    /// Number of texts.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Adds a text; its index is the number of texts before it.
    ///
    /// # Errors
    ///
    /// If the disk is full.
    pub(crate) fn push(&mut self, text: &str) -> Result<()> {
        self.buffer.extend(text.as_bytes());
        self.ends.push(self.written + self.buffer.len() as u64);
        if self.buffer.len() >= BUFFER {
            // On Windows, reading moves the place of writing.
            let end = self.file.seek(SeekFrom::Start(self.written));
            end.and_then(|_| self.file.write_all(&self.buffer))
                .map_err(|error| Error::io(&self.partial.0, error))?;
            self.written += self.buffer.len() as u64;
            self.buffer.clear();
        }
        Ok(())
    }

    /// Text with this number.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or was changed by others.
    pub(crate) fn read(&self, number: usize) -> Result<String> {
        let begin = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        let length = (self.ends[number] - begin) as usize;
        let mut bytes = vec![0; length];
        let failed = |error| Error::io(&self.partial.0, error);
        match begin.checked_sub(self.written) {
            Some(place) => bytes.copy_from_slice(&self.buffer[place as usize..][..length]),
            None => read_at(&self.file, &mut bytes, begin).map_err(failed)?,
        }
        String::from_utf8(bytes)
            .map_err(|error| failed(std::io::Error::new(ErrorKind::InvalidData, error)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_come_back_from_memory_and_disk() {
        let folder = tempfile::tempdir().expect("folder");
        let mut texts = StoredTexts::beside(&folder.path().join("train.bin")).expect("a file");
        let text = |number: usize| format!("{number} 猫 ").repeat(number % 50);
        for number in 0..20_000 {
            texts.push(&text(number)).expect("room");
            // One text was just pushed, the other long ago.
            for number in [number, number / 3] {
                assert_eq!(texts.read(number).expect("readable"), text(number));
            }
        }
        assert!(texts.written > 2 * BUFFER as u64);
        assert_eq!(std::fs::read_dir(folder.path()).expect("folder").count(), 1);
        drop(texts);
        assert_eq!(std::fs::read_dir(folder.path()).expect("folder").count(), 0);
    }
}
