//! Lock of a run, the folder to which a training writes: only one process at a time trains in it.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::event::{FolderNotice, RunEvent, RunObserver};
use crate::folder::files::is_at;

/// Name of the file within the run that is locked.
pub(crate) const LOCK_FILE: &str = "run.lock";

/// Exclusive right of this process to write to a run. Dropping this value gives the right up.
///
/// The operating system holds the lock, and releases it however the process ends, so a lock cannot
/// outlive its process and need not be cleaned up. The locked file contains the id of the process,
/// for messages. A process that ends in an orderly way empties the file. So if a file that is not
/// locked has an id, that process was killed.
#[derive(Debug)]
pub struct RunLock {
    file: File,
    /// Id of the last process that held the lock, if it was killed; otherwise `None`.
    pub killed: Option<String>,
}

impl RunLock {
    /// Takes the lock of the run in `folder`; the folder must exist.
    ///
    /// # Errors
    /// When another process holds the lock; the message names the process. Also when the file for
    /// the lock cannot be made.
    pub fn acquire(folder: &Path, observer: &mut dyn RunObserver) -> Result<Self> {
        let path = folder.join(LOCK_FILE);
        let lock = Self::take(folder, &path, observer)?;
        if is_at(&lock.file, &path) {
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
        // The content is needed only for a message, so it does not matter if it cannot be read.
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

    /// Empties the lock's file in `folder`, as dropping the lock does. It is for a process that is
    /// about to end and cannot drop its [`RunLock`].
    pub fn sign_off(folder: &Path) {
        // If this fails, the id stays in the file, with no other effect.
        let _ = OpenOptions::new().write(true).truncate(true).open(folder.join(LOCK_FILE));
    }

    fn sign(&mut self, text: &str) -> std::io::Result<()> {
        self.file.set_len(0)?;
        self.file.seek(SeekFrom::Start(0))?;
        self.file.write_all(text.as_bytes())
    }
}

/// Id of the process that trains the run in `folder`; `None` if no process does, or the last one
/// was killed.
pub(super) fn process_in(folder: &Path) -> Option<String> {
    let mut file = File::open(folder.join(LOCK_FILE)).ok()?;
    let mut owner = String::new();
    file.read_to_string(&mut owner).ok()?;
    let owner = owner.trim();
    // Testing a free lock means to hold it for a moment, during which another process could not
    // take it. So the lock is tested only if the file contains an id.
    let is_taken =
        !owner.is_empty() && matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock));
    is_taken.then(|| owner.to_owned())
}

impl Drop for RunLock {
    fn drop(&mut self) {
        // An error is ignored, because the content of the file only affects a message of the next
        // process.
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
