//! Writes files atomically: each is written under a temporary name, then flushed and renamed. Reads
//! whole regular files that have at most a given size.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use crate::{Error, Result};

/// Description of a path that exists but is not a regular file; `None` for regular files and
/// missing paths.
#[must_use]
pub fn not_a_file(path: &Path) -> Option<&'static str> {
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(_) if !path.is_symlink() => return None,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Some("a link that leads nowhere");
        }
        Err(_) => return Some("a link that cannot be followed; it may lead back to itself"),
    };
    let kind = metadata.file_type();
    if kind.is_file() {
        return None;
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        if kind.is_fifo() {
            return Some("a pipe");
        }
        if kind.is_char_device() || kind.is_block_device() {
            return Some("a device");
        }
        if kind.is_socket() {
            return Some("a socket");
        }
    }
    Some(if kind.is_dir() { "a folder" } else { "no regular file" })
}

/// Reads a whole regular file of at most `most` bytes. Other paths are refused, so that no large
/// file exhausts the memory and no pipe blocks.
///
/// # Errors
/// If the path is not a regular file, or the file is larger or cannot be read.
pub fn read_regular(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let refused = |reason: String| io::Error::new(io::ErrorKind::InvalidInput, reason);
    if let Some(kind) = not_a_file(path) {
        return Err(refused(format!("{kind}, where a regular file is expected")));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(refused(format!("larger than {most} bytes, the largest size of such a file")));
    }
    Ok(bytes)
}

/// A file with a temporary name. It is deleted when this value is dropped, unless it was renamed.
#[derive(Debug)]
pub(crate) struct Partial(pub(crate) PathBuf);

impl Partial {
    /// Makes a temporary name in the folder of `path`.
    pub(crate) fn beside(path: &Path) -> Self {
        let mut name = path.as_os_str().to_owned();
        // The name has the process's id, because two processes that prepare the same run must not
        // write into one file.
        name.push(format!(".{}.partial", std::process::id()));
        Self(PathBuf::from(name))
    }

    /// Renames the file to `path`, and flushes the new name to the disk.
    pub(crate) fn rename(&self, path: &Path) -> Result<()> {
        rename(&self.0, path).map_err(|error| Error::io(path, error))
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // The file is already gone if it was renamed; otherwise the failure has been reported.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Writes a small file atomically: either the whole file appears under its name, or nothing does.
pub(crate) fn write_atomically(path: &Path, bytes: &[u8]) -> Result<()> {
    write_whole(path, |file| file.write_all(bytes))
}

/// Writes a file of any size atomically, as [`fill_whole`] does. Errors name the file.
///
/// # Errors
/// If the folder cannot be written to, or `fill` fails.
pub fn write_whole(
    path: &Path,
    fill: impl FnOnce(&mut BufWriter<&File>) -> io::Result<()>,
) -> Result<()> {
    fill_whole(path, fill).map_err(|error| Error::io(path, error))
}

/// Writes a file of any size atomically: `fill` writes its content under a temporary name, and the
/// file is renamed once it is on the disk. If `path` is a link, the file that it points to is
/// replaced, or made if there is none. The new file has the permissions of the file that it
/// replaces. Content for a device or a pipe is written into it, because it cannot be replaced.
///
/// # Errors
/// If the folder cannot be written to, or `fill` fails. The error does not name the file.
pub fn fill_whole<E: From<io::Error>>(
    path: &Path,
    fill: impl FnOnce(&mut BufWriter<&File>) -> Result<(), E>,
) -> Result<(), E> {
    let found = std::fs::metadata(path).ok();
    if found.as_ref().is_some_and(|found| !found.is_file() && !found.is_dir()) {
        let device = File::options().write(true).open(path)?;
        let mut writer = BufWriter::new(&device);
        fill(&mut writer)?;
        return Ok(writer.flush()?);
    }
    let path = &std::fs::canonicalize(path).or_else(|_| end_of_links(path))?;
    let partial = Partial::beside(path);
    let file = File::create(&partial.0)?;
    // On Windows, a file that is read only cannot be renamed to replace another.
    if let Some(found) = found.filter(|found| cfg!(unix) && found.is_file()) {
        // Not all file systems keep permissions.
        let _ = file.set_permissions(found.permissions());
    }
    let mut writer = BufWriter::new(&file);
    fill(&mut writer)?;
    writer.flush()?;
    Ok(put_in_place(&file, &partial.0, path)?)
}

/// Returns the path at the end of the links that begin at `path`. There need not be a file.
///
/// # Errors
/// If the links lead back to themselves.
fn end_of_links(path: &Path) -> io::Result<PathBuf> {
    /// Largest number of links that are followed, as in Linux.
    const MOST: usize = 40;
    let mut end = path.to_owned();
    for _ in 0..MOST {
        let Ok(target) = std::fs::read_link(&end) else { return Ok(end) };
        end = end.parent().unwrap_or(Path::new("")).join(target);
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "links that lead back to themselves"))
}

/// Moves a complete file into its place: makes sure that `file`, whose name is `partial`, is on the
/// disk, and renames it to `path`.
///
/// # Errors
/// If the file cannot be renamed, or is not on the disk.
pub fn put_in_place(file: &File, partial: &Path, path: &Path) -> io::Result<()> {
    file.sync_all()?;
    rename(partial, path)
}

/// Moves a complete file into its place, as [`put_in_place`] does, but replaces nothing: a file
/// that has appeared at `path` stays, and so does `partial`.
///
/// # Errors
/// [`io::ErrorKind::AlreadyExists`] if there is something at `path`; also if the file cannot be
/// moved, or is not on the disk.
pub fn put_in_new_place(file: &File, partial: &Path, path: &Path) -> io::Result<()> {
    file.sync_all()?;
    match std::fs::hard_link(partial, path) {
        Ok(()) => {
            // The file is in its place, and a second name does no harm.
            let _ = std::fs::remove_file(partial);
            flush_folder(path)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(error),
        // Some file systems have no hard links. There, a file that appears between the check and
        // the renaming is replaced.
        Err(_) if path.symlink_metadata().is_ok() => Err(io::ErrorKind::AlreadyExists.into()),
        Err(_) => rename(partial, path),
    }
}

/// Writes the new file `path` atomically, with the content `bytes`. It replaces nothing.
///
/// # Errors
/// [`io::ErrorKind::AlreadyExists`] if there is something at `path`; also if the folder cannot be
/// written to. The error does not name the file.
pub fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let partial = Partial::beside(path);
    let mut file = File::create(&partial.0)?;
    file.write_all(bytes)?;
    put_in_new_place(&file, &partial.0, path)
}

/// Renames a file, and makes its new name durable, too.
fn rename(partial: &Path, path: &Path) -> io::Result<()> {
    std::fs::rename(partial, path)?;
    flush_folder(path)
}

/// Makes the name of a file durable by flushing its folder. Only Unix allows a folder to be opened
/// for this.
fn flush_folder(path: &Path) -> io::Result<()> {
    match path.parent().filter(|parent| cfg!(unix) && !parent.as_os_str().is_empty()) {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

/// Fills all of `bytes` with the content of the file from its byte `at` on; several threads can do
/// so at once.
#[cfg(unix)]
pub(crate) fn read_at(file: &File, bytes: &mut [u8], at: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, at)
}

/// Fills all of `bytes` with the content of the file from its byte `at` on; several threads can do
/// so at once.
#[cfg(windows)]
pub(crate) fn read_at(file: &File, mut bytes: &mut [u8], mut at: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, bytes, at) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                bytes = &mut bytes[count..];
                at += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Fills all of `bytes` with the content of the file from its byte `at` on. This version moves the
/// position of the file, which is safe because WebAssembly has only one thread.
#[cfg(not(any(unix, windows)))]
pub(crate) fn read_at(mut file: &File, bytes: &mut [u8], at: u64) -> io::Result<()> {
    io::Seek::seek(&mut file, io::SeekFrom::Start(at))?;
    io::Read::read_exact(&mut file, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_of_some_size_are_read() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("file"), "12345").expect("write");
        assert_eq!(read_regular(&path("file"), 5).expect("it fits"), b"12345");
        let message_for =
            |name: &str| read_regular(&path(name), 4).expect_err("refused").to_string();
        assert!(message_for("file").contains("larger than 4 bytes"));
        assert!(message_for(".").contains("a folder"));
        assert_eq!(
            read_regular(&path("absent"), 4).expect_err("none").kind(),
            io::ErrorKind::NotFound
        );
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink("round", path("round")).expect("link");
            assert!(message_for("round").contains("lead back to itself"));
            std::os::unix::fs::symlink("absent", path("dangling")).expect("link");
            assert!(message_for("dangling").contains("leads nowhere"));
            assert_eq!(not_a_file(Path::new("/dev/null")), Some("a device"));
        }
    }

    #[test]
    fn a_new_file_replaces_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let [path, partial] = ["file", "file.part"].map(|name| folder.path().join(name));
        let names = || std::fs::read_dir(folder.path()).unwrap().count();
        let refused = |result: io::Result<()>| {
            assert_eq!(result.unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        };
        write_new(&path, b"first").unwrap();
        assert_eq!((std::fs::read(&path).unwrap(), names()), (b"first".to_vec(), 1));
        refused(write_new(&path, b"second"));
        std::fs::write(&partial, "third").unwrap();
        let file = File::open(&partial).unwrap();
        refused(put_in_new_place(&file, &partial, &path));
        assert_eq!((std::fs::read(&path).unwrap(), names()), (b"first".to_vec(), 2));
        std::fs::remove_file(&path).unwrap();
        put_in_new_place(&file, &partial, &path).unwrap();
        assert_eq!((std::fs::read(&path).unwrap(), names()), (b"third".to_vec(), 1));
        #[cfg(unix)]
        {
            let link = folder.path().join("link");
            std::os::unix::fs::symlink("absent", &link).unwrap();
            refused(write_new(&link, b"fourth"));
        }
    }

    #[test]
    #[cfg(unix)]
    fn links_and_devices_stay_what_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let [file, link, device] = ["file", "link", "device"].map(|name| folder.path().join(name));
        std::fs::write(&file, "old").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        // The test writes to a link to `/dev/null`. If the code wrongly replaced its target, it
        // would replace the link and not the device of this machine.
        std::os::unix::fs::symlink("/dev/null", &device).unwrap();
        write_atomically(&link, b"new").unwrap();
        write_atomically(&device, b"nowhere").unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "new");
        assert!(link.is_symlink() && device.is_symlink());
        // The file at the end of links is made if it does not exist.
        let [first, second] = ["first", "second"].map(|name| folder.path().join(name));
        std::os::unix::fs::symlink("second", &first).unwrap();
        std::os::unix::fs::symlink(folder.path().join("made"), &second).unwrap();
        write_atomically(&first, b"new").unwrap();
        assert_eq!(std::fs::read_to_string(folder.path().join("made")).unwrap(), "new");
        assert!(first.is_symlink() && second.is_symlink());
        let round = folder.path().join("round");
        std::os::unix::fs::symlink("round", &round).unwrap();
        assert!(write_atomically(&round, b"new").is_err() && round.is_symlink());
    }

    #[test]
    #[cfg(unix)]
    fn a_replaced_file_keeps_its_permissions() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        for mode in [0o600, 0o640, 0o444] {
            let _ = std::fs::remove_file(&path);
            std::fs::write(&path, "old").unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            write_atomically(&path, b"new").unwrap();
            assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, mode);
            assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
        }
    }
}
