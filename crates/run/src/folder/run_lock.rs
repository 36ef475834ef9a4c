//! Lock of a run's folder: only one process at a time trains in it.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::event::{FolderNotice, RunEvent, RunObserver};

/// Name of the lock's file within the run.
pub(crate) const LOCK_FILE: &str = "run.lock";

/// Exclusive right to write to a run, which ends when it is dropped.
///
/// The operating system holds the lock, and releases it however the process ends, so a lock cannot
/// outlive its process and need not be cleaned up. The file contains the id of the process, for
/// people. An orderly end empties the file, so an id in a file without a lock is that of a process
/// that was killed.
#[derive(Debug)]
pub struct RunLock {
    file: File,
    /// Id of the process that held the lock before, if it was killed.
    pub killed: Option<String>,
}

impl RunLock {
    /// Takes the lock of the run in `folder`, which must exist.
    ///
    /// # Errors
    /// When another process holds the lock; the message names the process. Also when the file
    /// cannot be made.
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
        // The content is only for the message, so it may be unreadable.
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

    /// Empties the file in `folder`, as an orderly end does. This is for a process that is about to
    /// end and cannot reach its lock.
    pub fn sign_off(folder: &Path) {
        // If the system forbids it, only the id stays in the file.
        let _ = OpenOptions::new().write(true).truncate(true).open(folder.join(LOCK_FILE));
    }

    /// True if `path` is still the path of the locked file. After this process opened the file and
    /// before it locked it, the last owner may have removed the file, and a third process may have
    /// locked a new file at this path.
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

/// Id of the process that trains the run in `folder`; `None` if there is none, or it was killed.
pub(super) fn process_in(folder: &Path) -> Option<String> {
    let mut file = File::open(folder.join(LOCK_FILE)).ok()?;
    let mut owner = String::new();
    file.read_to_string(&mut owner).ok()?;
    let owner = owner.trim();
    // To test a free lock means to hold it for a moment, in which another process could not take
    // it. So the lock is tested only if the file contains an id.
    let is_taken =
        !owner.is_empty() && matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock));
    is_taken.then(|| owner.to_owned())
}

impl Drop for RunLock {
    fn drop(&mut self) {
        // An error is ignored, because only the message of the next process depends on this.
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
