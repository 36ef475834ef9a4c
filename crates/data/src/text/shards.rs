//! Divides splits (such as the training data) into parts, called shards, which are tokenised
//! separately. So several processes can work on a split. If a process is killed, the shards that it
//! completed need not be made again.
//!
//! A shard is a part of the text whose place depends only on the text: a fixed amount of text,
//! counted from the beginning of a file. It is stored in the folder `cache/SPLIT.shards`, in a file
//! with the format of [`cache`](super::cache), whose key also identifies the shard. The file is
//! either complete or missing. Once all shards exist, one process joins them in their order, and
//! removes them. The result does not depend on which process made which shard.
//!
//! **Decision.** Which process makes a shard depends only on the shard and the number of processes.
//! The processes do not take the next free shard instead, because this would need locks, which are
//! unreliable on network file systems.

use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

use crate::text::cache::{Cache, CacheWriter, Items, Key};
use crate::{Error, Result};

/// If a split has at least this number of files for each process, each file is read by only one
/// process. With fewer files, whole files could not be divided evenly, so the processes divide the
/// shards of each file.
const FILES_OF_A_PROCESS: usize = 8;

/// Position of this process among the processes that tokenise a split together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// Index of this process, counted from 0.
    pub place: usize,
    /// Number of processes.
    pub of: usize,
}

impl Share {
    /// Share of a process that tokenises the split alone.
    pub const WHOLE: Self = Self { place: 0, of: 1 };

    /// Divides the shards of files among processes. `bytes` has the size of each file.
    pub(crate) fn owners(self, bytes: &[u64]) -> Owners {
        if self.of == 1 || bytes.len() < FILES_OF_A_PROCESS * self.of {
            return Owners { share: self, of_file: None };
        }
        // The files are assigned in the order of decreasing size. Each file goes to the process
        // that has the fewest bytes so far (Graham 1969).
        let mut order: Vec<usize> = (0..bytes.len()).collect();
        order.sort_by_key(|&file| (std::cmp::Reverse(bytes[file]), file));
        let (mut loads, mut of_file) = (vec![0_u64; self.of], vec![0; bytes.len()]);
        for file in order {
            let least = (0..self.of).min_by_key(|&process| (loads[process], process));
            let least = least.unwrap_or(0);
            loads[least] += bytes[file];
            of_file[file] = least;
        }
        Owners { share: self, of_file: Some(of_file) }
    }
}

/// Division of shards among processes.
pub(crate) struct Owners {
    share: Share,
    /// Index of the process that reads each file; `None` if all processes share all files.
    of_file: Option<Vec<usize>>,
}

impl Owners {
    /// True if this process makes shards of a file.
    pub(crate) fn reads(&self, file: usize) -> bool {
        self.of_file.as_ref().is_none_or(|owner| owner[file] == self.share.place)
    }

    /// True if this process makes the shard with the index `shard` of a file that it reads.
    pub(crate) fn makes(&self, file: usize, shard: usize) -> bool {
        self.of_file.is_some() || (file + shard) % self.share.of == self.share.place
    }
}

/// Progress of a process with its share of a split.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenisingProgress {
    /// Name of the split.
    pub split: String,
    /// Fraction of the process's text that has been read, from 0 to 1.
    pub done: f64,
    /// Number of bytes of text that this process has tokenised.
    pub bytes: u64,
    /// Number of processes that tokenise the split together.
    pub processes: usize,
}

/// Folder and key of the shards of a split.
#[derive(Debug, Clone)]
pub(crate) struct Shards {
    folder: PathBuf,
    key: Key,
}

impl Shards {
    /// Describes the shards of the split whose cache has the path `cache` and the key `key`.
    pub(crate) fn new(cache: &Path, key: &Key) -> Self {
        Self { folder: cache.with_extension("shards"), key: *key }
    }

    /// Opens the cache at `path` with `open`. If there is none, `make` makes it first. Then removes
    /// the shards. `make` returns `false` if a shard is damaged or missing; then it is called a
    /// second time, to make that shard again.
    ///
    /// # Errors
    ///
    /// Errors of `open` and `make`, and [`Error::Malformed`] if the cache cannot be opened after it
    /// was made.
    pub(crate) fn open_or_make<T>(
        &self,
        path: &Path,
        open: impl Fn() -> Result<Option<T>>,
        mut make: impl FnMut() -> Result<bool>,
    ) -> Result<T> {
        let opened = match open()? {
            Some(opened) => opened,
            None => {
                if !make()? {
                    make()?;
                }
                let message = "cannot be read back right after it was written; check the disk";
                let (path, message) = (path.to_owned(), message.to_owned());
                open()?.ok_or(Error::Malformed { path, message })?
            }
        };
        self.remove()?;
        Ok(opened)
    }

    fn path(&self, file: usize, shard: usize) -> PathBuf {
        self.folder.join(format!("{file:05}-{shard:06}.bin"))
    }

    fn key(&self, file: usize, shard: usize) -> Key {
        let mut digest = Sha256::new();
        digest.update(self.key);
        digest.update((file as u64).to_le_bytes());
        digest.update((shard as u64).to_le_bytes());
        digest.finalize().into()
    }

    /// Report that was stored with a shard, such as its counts; `None` if the shard does not exist.
    /// `file` is the index of the file to which the shard belongs, and `shard` is its index in this
    /// file.
    pub(crate) fn report<R: DeserializeOwned>(
        &self,
        file: usize,
        shard: usize,
    ) -> Result<Option<R>> {
        Cache::report(&self.path(file, shard), &self.key(file, shard))
    }

    /// Begins a new shard, which [`Self::finish`] completes.
    pub(crate) fn writer(&self, file: usize, shard: usize) -> Result<CacheWriter> {
        std::fs::create_dir_all(&self.folder).map_err(|error| Error::io(&self.folder, error))?;
        CacheWriter::create(&self.path(file, shard))
    }

    /// Writes the report of a shard whose items are complete, and gives the shard its final name.
    pub(crate) fn finish(
        &self,
        (file, shard): (usize, usize),
        writer: CacheWriter,
        report: &impl Serialize,
    ) -> Result<()> {
        writer.finish(&self.key(file, shard), report)
    }

    /// Calls `take` for each item of a shard, and returns the report of the shard; `None` if the
    /// shard is missing. A damaged shard is removed, and counts as missing.
    pub(crate) fn read<R: DeserializeOwned>(
        &self,
        (file, shard): (usize, usize),
        mut take: impl FnMut(&mut Items<'_>) -> Result<()>,
    ) -> Result<Option<R>> {
        let path = self.path(file, shard);
        let mut failed = None;
        let opened = Cache::open(&path, &self.key(file, shard), |items| {
            while items.at < items.end {
                match take(items) {
                    Ok(()) => {}
                    Err(Error::Io { path: own, source }) if own == path => return Err(source),
                    Err(error) => {
                        failed = Some(error);
                        return Err(io::Error::other("it could not be written"));
                    }
                }
            }
            Ok(())
        });
        if let Some(error) = failed {
            return Err(error);
        }
        match opened? {
            Some((_, (), report)) => Ok(Some(report)),
            None => match std::fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    Err(Error::io(&path, error))
                }
                _ => Ok(None),
            },
        }
    }

    /// Error that the function `take` of [`Shards::read`] must return if a shard cannot be read.
    pub(crate) fn unreadable(&self, (file, shard): (usize, usize), error: io::Error) -> Error {
        Error::io(&self.path(file, shard), error)
    }

    /// Removes all shards of the split.
    pub(crate) fn remove(&self) -> Result<()> {
        match std::fs::remove_dir_all(&self.folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Error::io(&self.folder, error))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_shard_has_one_process() {
        for (files, of) in [(1, 1), (1, 3), (5, 2), (16, 2), (50, 3)] {
            let bytes: Vec<u64> = (0..files).map(|file| 1 + file * file % 97).collect();
            let owners: Vec<Owners> =
                (0..of).map(|place| Share { place, of }.owners(&bytes)).collect();
            for file in 0..files as usize {
                for shard in 0..7 {
                    let makers = owners
                        .iter()
                        .filter(|owner| owner.reads(file) && owner.makes(file, shard))
                        .count();
                    assert_eq!(makers, 1, "{file} {shard} of {of}");
                }
            }
        }
    }

    #[test]
    fn files_are_divided_by_their_sizes() {
        let bytes: Vec<u64> = (1..=40).collect();
        for place in 0..2 {
            let owners = Share { place, of: 2 }.owners(&bytes);
            let load: u64 =
                (0..40).filter(|&file| owners.reads(file)).map(|file| bytes[file]).sum();
            assert_eq!(load, 410);
        }
    }

    #[test]
    fn a_damaged_shard_is_not_there() {
        let folder = tempfile::tempdir().expect("folder");
        let shards = Shards::new(&folder.path().join("train.bin"), &[7; 32]);
        let write = || {
            let mut writer = shards.writer(2, 3).expect("a writer");
            writer.push(2, &[1, 2, 3, 4]).expect("room");
            shards.finish((2, 3), writer, &"report").expect("room");
        };
        let read = || {
            let mut bytes = Vec::new();
            let report = shards.read::<String>((2, 3), |items| {
                let mut byte = [0];
                items.read(&mut byte).map_err(|error| shards.unreadable((2, 3), error))?;
                bytes.push(byte[0]);
                Ok(())
            });
            (report.expect("readable"), bytes)
        };
        assert_eq!(read().0, None);
        write();
        assert_eq!(shards.report::<String>(2, 3).expect("readable").as_deref(), Some("report"));
        assert_eq!(shards.report::<String>(2, 4).expect("readable"), None);
        assert_eq!(read(), (Some("report".to_owned()), vec![1, 2, 3, 4]));
        let path = shards.path(2, 3);
        let whole = std::fs::read(&path).expect("readable");
        // A copy of the file is invalid in the place of another shard of the split.
        std::fs::copy(&path, shards.path(2, 4)).expect("copied");
        assert_eq!(shards.report::<String>(2, 4).expect("readable"), None);
        // Damage at any byte is noticed, except in the number of items, which is not used for
        // reading.
        for damage in (0..40).chain(48..whole.len()) {
            let mut bytes = whole.clone();
            bytes[damage] ^= 1;
            std::fs::write(&path, &bytes).expect("written");
            assert_eq!(read().0, None, "byte {damage}");
            assert!(!path.exists());
        }
        for length in 0..whole.len() {
            std::fs::write(&path, &whole[..length]).expect("written");
            assert_eq!(read().0, None, "length {length}");
            std::fs::write(&path, &whole[..length]).expect("written");
            assert_eq!(shards.report::<String>(2, 3).expect("readable"), None);
        }
        write();
        shards.remove().expect("removed");
        shards.remove().expect("nothing left");
    }
}
