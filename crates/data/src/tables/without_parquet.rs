//! Replaces the reader of Parquet files in WebAssembly, where Parquet is not read.

use std::path::PathBuf;

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
        Err(Error::Malformed {
            path: self.files.first().cloned().unwrap_or_default(),
            message: "Parquet is not read in WebAssembly; convert it to JSON lines".to_owned(),
        })
    }
}
