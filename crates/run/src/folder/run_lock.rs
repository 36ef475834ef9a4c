//! One process at a time trains in a run folder.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::event::{FolderNotice, RunEvent, RunObserver};

/// Name of the lock within the run.
pub(crate) const LOCK_FILE: &str = "run.lock";

/// Exclusive right to write to a run, held until it is dropped.
///
/// The operating system holds the lock, and releases it when the process ends in any way, so a lock
/// cannot outlive its process and needs no cleaning up. The file contains the process's id, for
/// people. It is emptied at an orderly end, so an id in an unlocked file belongs to a process that
/// was killed.
#[derive(Debug)]
pub struct RunLock {
    file: File,
    /// Process that held the lock before and was killed.
    pub killed: Option<String>,
}

impl RunLock {
    /// Takes the lock of the run in `folder`, which must exist.
    ///
    /// # Errors
    /// When another process holds it, which the message names; or when the file cannot be made.
    pub fn acquire(folder: &Path, observer: &mut dyn RunObserver) -> Result<Self> {
        let path = folder.join(LOCK_FILE);
        let lock = Self::take(folder, &path, observer)?;
        if lock.is_at(&path) {
            Ok(lock)
        } else {
            bail!("{} was removed by another process a moment ago; try again", folder.display())
        }
    }

    fn take(folder: &Path, path: &Path, observer: &mut dyn RunObserver) -> Result<Self> {
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(path)
            .with_context(|| format!("cannot open {}", path.display()))?;
        let locked = file.try_lock();
        let mut owner = String::new();
        // The content of the file serves only the message.
        let _ = file.read_to_string(&mut owner);
        let owner = owner.trim().to_owned();
        match locked {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let (process, kill) = match owner.as_str() {
                    "" => ("another process".to_owned(), String::new()),
                    pid => (
                        format!("process {pid}"),
                        format!(" (`kill {pid}`; it saves a checkpoint first)"),
                    ),
                };
                bail!(
                    "{} is in use: {process} is training in it; wait for it or stop it{kill}",
                    folder.display()
                );
            }
            Err(TryLockError::Error(error)) if error.kind() == std::io::ErrorKind::Unsupported => {
                observer.observe(&RunEvent::notice(FolderNotice::NoLocks(folder.to_owned())))?;
            }
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("cannot lock {}", path.display()));
            }
        }
        let mut lock = Self { file, killed: Some(owner).filter(|owner| !owner.is_empty()) };
        lock.sign(&format!("{}\n", std::process::id()))
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(lock)
    }

    /// Empties the file in `folder`, like an orderly end, if the lock itself is out of reach and
    /// its process ends now.
    pub fn sign_off(folder: &Path) {
        // Same as in `drop`; a system that forbids it leaves the id in the file.
        let _ = OpenOptions::new().write(true).truncate(true).open(folder.join(LOCK_FILE));
    }

    /// Whether the locked file still has this path: the last owner of the lock may have removed the
    /// file between our opening and locking, and a third process could lock a new file.
    #[cfg(unix)]
    fn is_at(&self, path: &Path) -> bool {
        use std::os::unix::fs::MetadataExt;
        let identity = |metadata: std::io::Result<std::fs::Metadata>| {
            metadata.map(|metadata| (metadata.dev(), metadata.ino())).ok()
        };
        let own_identity = identity(self.file.metadata());
        own_identity.is_some() && own_identity == identity(std::fs::metadata(path))
    }

    #[cfg(not(unix))]
    fn is_at(&self, path: &Path) -> bool {
        path.exists()
    }

    fn sign(&mut self, text: &str) -> std::io::Result<()> {
        self.file.set_len(0)?;
        self.file.seek(SeekFrom::Start(0))?;
        self.file.write_all(text.as_bytes())
    }
}

/// Process that trains the run in `folder`, if any. Killed processes do not count.
pub(super) fn process_in(folder: &Path) -> Option<String> {
    let mut file = File::open(folder.join(LOCK_FILE)).ok()?;
    let mut owner = String::new();
    file.read_to_string(&mut owner).ok()?;
    let owner = owner.trim();
    // Testing takes a free lock for a moment, and a process that starts in this moment would be
    // refused. So the lock is tested only if the file contains an id.
    let is_taken =
        !owner.is_empty() && matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock));
    is_taken.then(|| owner.to_owned())
}

impl Drop for RunLock {
    fn drop(&mut self) {
        // Only the message of the next process depends on it.
        let _ = self.sign("");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acquire(folder: &Path) -> Result<RunLock> {
        RunLock::acquire(folder, &mut |_: &RunEvent<'_>| Ok(()))
    }

    #[test]
    fn a_lock_is_exclusive_and_tells_of_a_process_that_was_killed() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let first = acquire(folder.path()).expect("free");
        assert_eq!(first.killed, None);
        assert_eq!(process_in(folder.path()), Some(std::process::id().to_string()));
        let message = acquire(folder.path()).expect_err("taken").to_string();
        assert!(message.contains(&format!("process {}", std::process::id())), "{message}");
        drop(first);
        assert_eq!(process_in(folder.path()), None);
        assert_eq!(acquire(folder.path()).expect("free again").killed, None);
        std::fs::write(folder.path().join(LOCK_FILE), "4711\n").expect("write");
        assert_eq!(process_in(folder.path()), None, "nobody has the lock");
        assert_eq!(acquire(folder.path()).expect("stale").killed.as_deref(), Some("4711"));
    }
}
