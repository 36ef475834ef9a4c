//! Atomic writing of files, first under another name.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// Writes a file durably; it appears only when it is complete.
///
/// # Errors
/// When the folder cannot be written to.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<()> {
    write_whole(path, |file| Ok(file.write_all(bytes)?))
}

/// Writes a file durably, part by part; it appears only when it is complete.
///
/// # Errors
/// When the folder cannot be written to, or `write` fails.
pub fn write_whole(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> Result<()>,
) -> Result<()> {
    let partial = with_suffix(path, ".partial");
    let write = || -> Result<()> {
        let mut file = BufWriter::new(File::create(&partial)?);
        write(&mut file)?;
        file.flush()?;
        Ok(put_in_place(file.get_ref(), &partial, path)?)
    };
    let written = write();
    if written.is_err() {
        // The failure is reported; the part that was written would only take up space.
        let _ = fs::remove_file(&partial);
    }
    written.with_context(|| format!("cannot write {}", path.display()))
}

/// Refuses a folder that is not empty.
///
/// # Errors
/// When it is not a folder, or not empty.
pub fn require_free(folder: &Path) -> Result<()> {
    let is_taken = || fs::read_dir(folder).map_or(true, |mut entries| entries.next().is_some());
    if folder.exists() && is_taken() {
        bail!("{} exists already and is left as it is", folder.display());
    }
    Ok(())
}

/// Name next to `path` for a file that is still incomplete.
pub fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(suffix);
    path.with_file_name(name)
}

/// Renames `file`, complete under the name `partial`, to `path`, durably.
///
/// # Errors
/// When the file cannot be renamed or synchronised.
pub fn put_in_place(file: &File, partial: &Path, path: &Path) -> std::io::Result<()> {
    file.sync_all()?;
    fs::rename(partial, path)?;
    // Makes the name durable too. Only Unix can open a directory for this.
    match path.parent().filter(|parent| cfg!(unix) && !parent.as_os_str().is_empty()) {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}
