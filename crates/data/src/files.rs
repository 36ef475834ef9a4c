//! How files come to be whole or not at all: written under a temporary name, flushed, renamed.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::{Error, Result};

/// A file under a temporary name, removed unless it was renamed.
pub(crate) struct Partial(pub(crate) PathBuf);

impl Partial {
    /// A name beside `path`.
    pub(crate) fn beside(path: &Path) -> Self {
        let mut name = path.as_os_str().to_owned();
        // Two processes that prepare the same run do not write into one file.
        name.push(format!(".{}.partial", std::process::id()));
        Self(PathBuf::from(name))
    }

    /// Gives the file its name, and makes that durable.
    pub(crate) fn rename(&self, path: &Path) -> Result<()> {
        std::fs::rename(&self.0, path).map_err(|error| Error::io(path, error))?;
        // Makes the name durable too. Only Unix lets a directory be opened for this.
        match path.parent().filter(|parent| cfg!(unix) && !parent.as_os_str().is_empty()) {
            Some(parent) => File::open(parent)
                .and_then(|directory| directory.sync_all())
                .map_err(|error| Error::io(parent, error)),
            None => Ok(()),
        }
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // Gone already if it was renamed; otherwise what failed has been reported.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Writes a small file so that it is whole under its name or not there.
pub(crate) fn write_atomically(path: &Path, bytes: &[u8]) -> Result<()> {
    let partial = Partial::beside(path);
    let mut file = File::create(&partial.0).map_err(|error| Error::io(&partial.0, error))?;
    file.write_all(bytes)
        .and_then(|()| file.sync_all())
        .map_err(|error| Error::io(&partial.0, error))?;
    partial.rename(path)
}
