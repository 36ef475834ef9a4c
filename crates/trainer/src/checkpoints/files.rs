//! Writes files so that they appear on the disk as a whole or not at all, and verifies that files
//! are unchanged when it reads them.

use std::borrow::Cow;
use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

use sha2::{Digest, Sha256};

use crate::{CheckpointError, FileEntry};

/// Extension of a file or directory while it is being written.
const TEMPORARY: &str = "tmp";
/// Extension of a directory that was renamed to make room for a new one.
const REPLACED: &str = "replaced";

/// Largest accepted size, in bytes, of a state file (`state.json`) or a pointer file (which names a
/// checkpoint).
const MOST_BYTES: u64 = 1 << 24;

/// Number of bytes that are read at a time.
const PIECE: u64 = 1 << 16;

/// Adds the attempted action and its path to an I/O error.
pub(crate) fn failed(
    action: &'static str,
    path: &Path,
) -> impl FnOnce(io::Error) -> CheckpointError {
    let path = path.to_owned();
    move |source| CheckpointError::Io { action, path, source }
}

/// SHA-256 in hexadecimal.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    hexadecimal(&Sha256::digest(bytes))
}

fn hexadecimal(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Largest number of pieces that have been written but not yet hashed.
const WAITING: usize = 8;

/// File that is hashed while it is written, one piece after the other.
pub(crate) struct HashedFile<'a> {
    path: &'a Path,
    file: File,
    hash: Hash,
    bytes: u64,
}

/// Hash of the pieces written so far.
enum Hash {
    Here(Sha256),
    /// A second thread computes the hash while the thread that writes the file continues.
    Beside {
        pieces: SyncSender<Vec<u8>>,
        thread: JoinHandle<Sha256>,
    },
}

impl<'a> HashedFile<'a> {
    pub(crate) fn create(path: &'a Path) -> Result<Self, CheckpointError> {
        let file = File::create(path).map_err(failed("create", path))?;
        Ok(Self { path, file, hash: Hash::Here(Sha256::new()), bytes: 0 })
    }

    /// Creates a file that is hashed by another thread, for large files.
    pub(crate) fn create_large(path: &'a Path) -> Result<Self, CheckpointError> {
        let created = Self::create(path)?;
        let (pieces, received) = sync_channel::<Vec<u8>>(WAITING);
        let hash = move || {
            received.into_iter().fold(Sha256::new(), |hash, piece| hash.chain_update(piece))
        };
        Ok(match std::thread::Builder::new().name("hash".to_owned()).spawn(hash) {
            Ok(thread) => Self { hash: Hash::Beside { pieces, thread }, ..created },
            // If no thread can be started, this thread computes the hash, which takes longer.
            Err(_) => created,
        })
    }

    pub(crate) fn write<'b>(
        &mut self,
        piece: impl Into<Cow<'b, [u8]>>,
    ) -> Result<(), CheckpointError> {
        let piece = piece.into();
        self.file.write_all(&piece).map_err(failed("write", self.path))?;
        self.bytes += piece.len() as u64;
        match &mut self.hash {
            Hash::Here(hash) => hash.update(piece),
            // Sending fails only if the hashing thread has panicked, which `finish` reports.
            Hash::Beside { pieces, .. } => drop(pieces.send(piece.into_owned())),
        }
        Ok(())
    }

    /// Waits until the file is on the disk, and returns its hash and size.
    pub(crate) fn finish(self) -> Result<FileEntry, CheckpointError> {
        self.file.sync_all().map_err(failed("flush", self.path))?;
        let hash = match self.hash {
            Hash::Here(hash) => hash,
            Hash::Beside { pieces, thread } => {
                drop(pieces);
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            }
        };
        Ok(FileEntry { sha256: hexadecimal(&hash.finalize()), bytes: self.bytes })
    }
}

/// Writes a file and waits until it is on the disk.
pub(crate) fn write_synced(path: &Path, bytes: &[u8]) -> Result<FileEntry, CheckpointError> {
    let mut file = HashedFile::create(path)?;
    file.write(bytes)?;
    file.finish()
}

/// Replaces a small file in one step: readers see either the old content or the new content.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<(), CheckpointError> {
    replace_by(path, |temporary| write_synced(temporary, bytes)).map(|_| ())
}

/// Replaces a file in one step by the file that `write` makes at a temporary path. `write` must
/// wait until this file is on the disk. Returns the result of `write`.
pub(super) fn replace_by<R>(
    path: &Path,
    write: impl FnOnce(&Path) -> Result<R, CheckpointError>,
) -> Result<R, CheckpointError> {
    let temporary = temporary_sibling(path);
    let written = write(&temporary).and_then(|result| {
        fs::rename(&temporary, path).map_err(failed("replace", path))?;
        Ok(result)
    });
    if written.is_err() {
        // An error of the removal is ignored, because the first error is returned.
        let _ = fs::remove_file(&temporary);
    }
    let result = written?;
    sync_parent(path)?;
    Ok(result)
}

/// Copies a file, waits until the copy is on the disk, and verifies that its content has not
/// changed since the original was written.
pub(super) fn copy_verified(
    from: &Path,
    entry: &FileEntry,
    to: &Path,
) -> Result<(), CheckpointError> {
    let (original, mut copy) = (open_whole(from, entry)?, HashedFile::create_large(to)?);
    let mut piece = Vec::new();
    while (&original).take(PIECE).read_to_end(&mut piece).map_err(failed("read", from))? > 0 {
        copy.write(std::mem::take(&mut piece))?;
    }
    require_hash(from, &copy.finish()?.sha256, entry)
}

/// Makes a directory in an existing parent directory, unless it exists already.
///
/// A missing parent directory is an error. If the folder of a run was removed or unmounted, it must
/// not be made again, because the other files of the run would be missing there.
pub(crate) fn create_directory(path: &Path) -> Result<(), CheckpointError> {
    match fs::create_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists || !path.is_dir() => {
            Err(failed("create", path)(error))
        }
        _ => Ok(()),
    }
}

/// Makes the directory `path` with the content that `fill` writes. It appears at `path` only when
/// it is complete; `fill` gets a temporary path.
///
/// An existing directory is replaced. A process that is killed during the replacement leaves
/// directories with hidden names, which [`recover`] removes or renames back.
pub(crate) fn commit_directory(
    path: &Path,
    fill: impl FnOnce(&Path) -> Result<(), CheckpointError>,
) -> Result<(), CheckpointError> {
    let temporary = temporary_sibling(path);
    remove_directory(&temporary)?;
    create_directory(&temporary)?;
    let filled = fill(&temporary).and_then(|()| sync_directory(&temporary));
    if filled.is_err() {
        // An error of the removal is ignored, because the first error is returned.
        let _ = fs::remove_dir_all(&temporary);
    }
    filled?;
    // A rename cannot replace a directory with content, so an older directory is renamed first.
    let replaced = temporary.with_extension(REPLACED);
    remove_directory(&replaced)?;
    if path.exists() {
        fs::rename(path, &replaced).map_err(failed("move aside", path))?;
    }
    fs::rename(&temporary, path).map_err(failed("create", path))?;
    sync_parent(path)?;
    remove_directory(&replaced)
}

/// Repairs `directory` after a process was killed: removes unfinished files and directories. If the
/// process had renamed a directory to make room for a new one, but the new one did not appear, the
/// old one gets its name back.
pub(crate) fn recover(directory: &Path) -> Result<(), CheckpointError> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(failed("read", directory))?,
    };
    for entry in entries {
        let path = entry.map_err(failed("read", directory))?.path();
        let hidden =
            path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.strip_prefix('.'));
        let extension = path.extension().and_then(|extension| extension.to_str());
        let (Some(name), Some(TEMPORARY | REPLACED)) = (hidden, extension) else { continue };
        let home = path.with_file_name(name);
        if extension == Some(REPLACED) && !home.exists() {
            fs::rename(&path, &home).map_err(failed("restore", &home))?;
        } else if path.is_dir() {
            remove_directory(&path)?;
        } else {
            fs::remove_file(&path).map_err(failed("remove", &path))?;
        }
    }
    sync_directory(directory)
}

/// Removes a directory made by [`commit_directory`]. The directory is renamed to a hidden name
/// first, so that a killed process never leaves an incomplete directory at `path`.
pub(crate) fn discard_directory(path: &Path) -> Result<(), CheckpointError> {
    let temporary = temporary_sibling(path);
    remove_directory(&temporary)?;
    match fs::rename(path, &temporary) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed("remove", path)(error)),
        Ok(()) => remove_directory(&temporary),
    }
}

/// Removes a file, if it exists.
pub(crate) fn remove_file(path: &Path) -> Result<(), CheckpointError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("remove", path)(error)),
        _ => Ok(()),
    }
}

/// Removes a directory with its content, if it exists.
pub(crate) fn remove_directory(path: &Path) -> Result<(), CheckpointError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("remove", path)(error)),
        _ => Ok(()),
    }
}

/// Reads a whole small file; if it is missing, the error is [`CheckpointError::Missing`].
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, CheckpointError> {
    let file = open_regular(path)?;
    let mut bytes = Vec::new();
    file.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(failed("read", path))?;
    if bytes.len() as u64 > MOST_BYTES {
        let reason = format!(
            "it is larger than {MOST_BYTES} bytes, which is impossible for such \
                              a file"
        );
        return Err(CheckpointError::Corrupt { path: path.to_owned(), reason });
    }
    Ok(bytes)
}

/// Opens a regular file. Pipes are an error, because reading them can block, and so are devices,
/// because they can be endless.
fn open_regular(path: &Path) -> Result<File, CheckpointError> {
    let metadata = fs::metadata(path).map_err(|error| cannot_read(path, error))?;
    if !metadata.is_file() {
        let reason = "it is a folder, a pipe or a device, not a regular file".to_owned();
        return Err(CheckpointError::Corrupt { path: path.to_owned(), reason });
    }
    File::open(path).map_err(|error| cannot_read(path, error))
}

fn cannot_read(path: &Path, error: io::Error) -> CheckpointError {
    match error.kind() {
        io::ErrorKind::NotFound => CheckpointError::Missing { path: path.to_owned() },
        _ => failed("read", path)(error),
    }
}

/// Opens a file, and verifies that its content has not changed since it was written.
pub(crate) fn open_verified(path: &Path, entry: &FileEntry) -> Result<File, CheckpointError> {
    let mut file = open_whole(path, entry)?;
    verify(&file, path, entry)?;
    file.rewind().map_err(failed("read", path))?;
    Ok(file)
}

/// Opens a file, and checks that it is not shorter than when it was written. This check is fast; a
/// longer file has another hash.
pub(super) fn open_whole(path: &Path, entry: &FileEntry) -> Result<File, CheckpointError> {
    let file = open_regular(path)?;
    let got = file.metadata().map_err(failed("read", path))?.len();
    if got < entry.bytes {
        return Err(CheckpointError::Truncated {
            path: path.to_owned(),
            expected: entry.bytes,
            got,
        });
    }
    Ok(file)
}

/// Verifies that the content of a file has not changed since it was written.
pub(super) fn verify(file: &File, path: &Path, entry: &FileEntry) -> Result<(), CheckpointError> {
    let (mut hash, mut piece) = (Sha256::new(), Vec::new());
    while file.take(PIECE).read_to_end(&mut piece).map_err(failed("read", path))? > 0 {
        hash.update(&piece);
        piece.clear();
    }
    require_hash(path, &hexadecimal(&hash.finalize()), entry)
}

/// Returns an error if `hash`, the hash of a file's present content, differs from the hash in
/// `entry`, which was recorded when the file was written.
fn require_hash(path: &Path, hash: &str, entry: &FileEntry) -> Result<(), CheckpointError> {
    if hash != entry.sha256 {
        let reason = format!("its SHA-256 is {hash}, but {} was saved", entry.sha256);
        return Err(CheckpointError::Corrupt { path: path.to_owned(), reason });
    }
    Ok(())
}

/// Path with a hidden name next to `path`. It is on the same file system, so that a rename to
/// `path` is atomic.
fn temporary_sibling(path: &Path) -> PathBuf {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    path.with_file_name(format!(".{name}.{TEMPORARY}"))
}

fn sync_parent(path: &Path) -> Result<(), CheckpointError> {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).map_or(Ok(()), sync_directory)
}

/// Waits until the names in a directory are on the disk. Does nothing on systems other than Unix,
/// which cannot open a directory for this.
fn sync_directory(path: &Path) -> Result<(), CheckpointError> {
    if cfg!(unix) {
        File::open(path)
            .and_then(|directory| directory.sync_all())
            .map_err(failed("flush", path))?;
    }
    Ok(())
}
