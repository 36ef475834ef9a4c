//! Atomic writing of files: a file is first written under another name, and renamed when it is
//! complete.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use taper_data::fill_whole;
pub use taper_data::put_in_place;

/// Writes `bytes` to the file `path`, so that they survive a crash of the system. The file appears
/// under this name only when it is complete.
///
/// # Errors
/// When the folder cannot be written to.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<()> {
    write_whole(path, |file| Ok(file.write_all(bytes)?))
}

/// Writes the file `path`, so that it survives a crash of the system. The function `write` writes
/// the content, and may do so part by part. The file appears under the name `path` only when it is
/// complete. If `path` is a link, the file that it points to is replaced. A device or a pipe, such
/// as `/dev/null` or `/dev/stdout`, cannot be replaced: the content is written into it.
///
/// # Errors
/// When the folder cannot be written to, or `write` fails.
pub fn write_whole(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<&File>) -> Result<()>,
) -> Result<()> {
    fill_whole(path, write).with_context(|| format!("cannot write {}", path.display()))
}

/// Checks that `folder` is empty or does not exist.
///
/// # Errors
/// When `folder` exists and is not an empty folder.
pub fn require_free(folder: &Path) -> Result<()> {
    let is_taken = || fs::read_dir(folder).map_or(true, |mut entries| entries.next().is_some());
    if folder.exists() && is_taken() {
        bail!("{} exists already and is left as it is", folder.display());
    }
    Ok(())
}

/// Path in the same folder as `path`, with `suffix` at the end of the file name. It is used for
/// incomplete files, for example.
pub fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(suffix);
    path.with_file_name(name)
}

/// Whether `path` is still the path of the open `file`. A process that opens a file and then locks
/// it must ask this: in between, another process may have renamed or removed the file, and a third
/// process could lock a new file at this path.
#[cfg(unix)]
pub fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let identity = |metadata: std::io::Result<fs::Metadata>| {
        metadata.map(|metadata| (metadata.dev(), metadata.ino())).ok()
    };
    let own_identity = identity(file.metadata());
    own_identity.is_some() && own_identity == identity(fs::metadata(path))
}

/// Whether `path` exists. On systems other than Unix, it cannot be told whether it is the path of
/// the open file.
#[cfg(not(unix))]
pub fn is_at(_file: &File, path: &Path) -> bool {
    path.exists()
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_and_devices_stay_what_they_are() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let [file, link, device] = ["file", "link", "device"].map(|name| folder.path().join(name));
        fs::write(&file, "old")?;
        symlink(&file, &link)?;
        // The test writes to a link and not to the device itself, so that a fault in the code can
        // only replace the link, and not the device.
        symlink("/dev/null", &device)?;
        write_atomically(&link, b"new")?;
        write_atomically(&device, b"nowhere")?;
        assert_eq!(fs::read_to_string(&file)?, "new");
        assert!(link.is_symlink() && device.is_symlink());
        assert_eq!(fs::read_dir(folder.path())?.count(), 3, "nothing is left behind");
        Ok(())
    }
}
