//! Verification of a file of weights beside other work, and memory of the file verified last.
//!
//! **Decision.** The hash of a file of weights takes longer to compute than everything else that a
//! command does before its first result. A command that only uses a model therefore remembers the
//! file that it has verified, by what the system knows of the file: its number, its size, and when
//! it was last changed. As long as these are the same, the file is not verified again. Damage on a
//! disk that changes bytes without a write is then found only by training, which always verifies,
//! and by the first use after any change.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::files;
use crate::{CheckpointError, FileEntry};

/// Only a file that was last changed longer ago than this is remembered. In a shorter time, it
/// could be changed twice while the system's clock for files shows the same.
const SETTLED: Duration = Duration::from_secs(2);

/// A verified file as the system knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Stamp {
    /// SHA-256 of the content.
    sha256: String,
    bytes: u64,
    device: u64,
    inode: u64,
    /// When the content was last changed, in nanoseconds since 1970.
    modified: i128,
    /// When the content, the name or the permissions were last changed.
    changed: i128,
}

impl Stamp {
    /// Returns the stamp of a file with the content of `entry`; `None` if the system does not know
    /// what a stamp needs.
    #[cfg(unix)]
    fn of(file: &File, entry: &FileEntry) -> Option<Self> {
        use std::os::unix::fs::MetadataExt;
        let known = file.metadata().ok()?;
        let time = |seconds: i64, nanoseconds: i64| {
            i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds)
        };
        Some(Self {
            sha256: entry.sha256.clone(),
            bytes: known.size(),
            device: known.dev(),
            inode: known.ino(),
            modified: time(known.mtime(), known.mtime_nsec()),
            changed: time(known.ctime(), known.ctime_nsec()),
        })
    }

    #[cfg(not(unix))]
    fn of(_: &File, _: &FileEntry) -> Option<Self> {
        None
    }

    fn is_settled(&self, now: SystemTime) -> bool {
        let since_1970 = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let latest = since_1970.as_nanos() as i128 - SETTLED.as_nanos() as i128;
        self.modified < latest && self.changed < latest
    }
}

/// A file as it was when it was opened, and the memory of verified files.
#[derive(Debug)]
struct Verified {
    memory: PathBuf,
    /// Stamp of the file when it was opened.
    stamp: Stamp,
    is_known: bool,
}

impl Verified {
    /// Looks up an open file in the file `memory`. Returns `None` if the system does not know what
    /// a stamp needs.
    fn look_up(memory: &Path, file: &File, entry: &FileEntry) -> Option<Self> {
        let stamp = Stamp::of(file, entry)?;
        let remembered = files::read(memory).ok();
        let remembered: Option<Stamp> =
            remembered.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let is_known = remembered.as_ref() == Some(&stamp) && stamp.bytes == entry.bytes;
        Some(Self { memory: memory.to_owned(), stamp, is_known })
    }

    /// True if the file is as it was when it was verified.
    fn is_known(&self) -> bool {
        self.is_known
    }

    /// Remembers that the content of `file` has been verified, and that it is that of `entry`. If
    /// this cannot be written, for example because the folder is read-only, the file is verified
    /// again the next time.
    fn remember(&self, file: &File, entry: &FileEntry, now: SystemTime) {
        let is_same = Stamp::of(file, entry).as_ref() == Some(&self.stamp);
        if !self.is_known
            && is_same
            && self.stamp.is_settled(now)
            && let Ok(bytes) = serde_json::to_vec(&self.stamp)
        {
            // A failure costs only another verification.
            let _ = files::replace(&self.memory, &bytes);
        }
    }
}

/// A file that another thread verifies, while it is read or something else is done: the content
/// must not have changed since the file was written.
#[derive(Debug)]
pub(crate) struct BeingVerified {
    file: File,
    entry: FileEntry,
    /// Memory of verified files, if it is used.
    verified: Option<Verified>,
    /// The other thread; `None` if the file is verified already.
    verification: Option<JoinHandle<Result<(), CheckpointError>>>,
}

impl BeingVerified {
    /// Opens a file, and starts to verify it, unless the file `memory` knows it.
    pub(crate) fn open(
        path: &Path,
        entry: &FileEntry,
        memory: Option<&Path>,
    ) -> Result<Self, CheckpointError> {
        let file = files::open_whole(path, entry)?;
        let entry = entry.clone();
        let verified = memory.and_then(|memory| Verified::look_up(memory, &file, &entry));
        if verified.as_ref().is_some_and(Verified::is_known) {
            return Ok(Self { file, entry, verified, verification: None });
        }
        let verification = {
            let again = files::open_whole(path, &entry)?;
            let (path, entry) = (path.to_owned(), entry.clone());
            let thread = std::thread::Builder::new().name("verify".to_owned());
            thread.spawn(move || files::verify(&again, &path, &entry)).ok()
        };
        if verification.is_none() {
            // There can be no more threads.
            files::verify(&files::open_whole(path, &entry)?, path, &entry)?;
        }
        Ok(Self { file, entry, verified, verification })
    }

    /// Reads the file, and waits for the verification. If the content has changed, `read` gets the
    /// changed content, but an error is returned instead of its result. `read` is told whether the
    /// same content has been read before, without an error.
    pub(crate) fn read<R>(
        self,
        read: impl FnOnce(File, bool) -> Result<R, CheckpointError>,
    ) -> Result<R, CheckpointError> {
        let again = self.file.try_clone();
        let is_known = self.verified.as_ref().is_some_and(Verified::is_known);
        let result = read(self.file, is_known);
        if let Some(verification) = self.verification {
            verification.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        if let (Ok(_), Some(verified), Ok(file)) = (&result, &self.verified, again) {
            verified.remember(&file, &self.entry, SystemTime::now());
        }
        result
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn an_unchanged_file_is_known_and_a_changed_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let [path, memory] = ["weights", "memory"].map(|name| folder.path().join(name));
        let entry = files::write_synced(&path, b"content").unwrap();
        let look_up = || {
            let file = File::open(&path).unwrap();
            (Verified::look_up(&memory, &file, &entry).unwrap(), file)
        };
        let later = SystemTime::now() + Duration::from_secs(60);

        let (verified, file) = look_up();
        // A file that was changed just now could change again without a trace.
        verified.remember(&file, &entry, SystemTime::now());
        assert!(!verified.is_known() && !look_up().0.is_known());
        verified.remember(&file, &entry, later);
        assert!(look_up().0.is_known());

        // The same content, written again, is verified again; so is a file that changed while it
        // was verified.
        std::fs::write(&path, b"content").unwrap();
        let (changed, file) = look_up();
        assert!(!changed.is_known());
        std::fs::write(&path, b"Content").unwrap();
        changed.remember(&file, &entry, later);
        assert!(!look_up().0.is_known());

        // A memory that is damaged, or of another content, is none.
        let (verified, file) = look_up();
        verified.remember(&file, &entry, later);
        assert!(look_up().0.is_known());
        let other = FileEntry { sha256: "00".to_owned(), ..entry.clone() };
        assert!(!Verified::look_up(&memory, &file, &other).unwrap().is_known());
        std::fs::write(&memory, b"{").unwrap();
        assert!(!look_up().0.is_known());
    }
}
