//! Stands for [`ParquetRecords`] in a build without the cargo feature `parquet`.

use std::path::{Path, PathBuf};

use super::Field as Wanted;
use crate::{Error, Result};

/// Parquet files, which are refused.
pub(crate) struct ParquetRecords {
    files: Vec<PathBuf>,
}

impl ParquetRecords {
    pub(super) fn new(files: Vec<PathBuf>, _wanted: Vec<Wanted>) -> Self {
        Self { files }
    }

    /// Refuses the first file.
    pub(super) fn next_record(&mut self) -> Result<Option<Vec<String>>> {
        Err(refusal(self.files.first().cloned().unwrap_or_default()))
    }
}

/// Refuses the file.
pub(crate) fn rows(path: &Path) -> Result<u64> {
    Err(refusal(path.to_owned()))
}

fn refusal(path: PathBuf) -> Error {
    let message = "this program was built without Parquet; build it with the cargo feature \
                   `parquet`, or convert the file to JSON lines";
    Error::Malformed { path, message: message.to_owned() }
}
