//! Size of running text, estimated without reading all of it.

use std::path::Path;

use crate::tables::{Table, parquet_rows, table_format};
use crate::{DataConfig, Format, Result, text_size};

/// Number of rows of a Parquet file that are read to estimate the size of its texts.
const SAMPLE: u64 = 1000;

/// Returns the approximate number of bytes of the texts in a file of running text. For Parquet, it
/// is the number of rows in the footer times the mean length of the first 1000 texts, because the
/// file is compressed, and can have other columns. For other files, it is [`text_size`].
///
/// # Errors
///
/// Errors of [`text_size`], and if a Parquet file cannot be read or lacks the field
/// `data.fields.text`.
pub fn running_text_size(path: &Path, config: &DataConfig) -> Result<u64> {
    if table_format(path) != Some(Format::Parquet) {
        return text_size(path);
    }
    let rows = parquet_rows(path)?;
    let mut table = Table::open_named(path, Format::Parquet, &[config.fields.text()])?;
    let (mut read, mut bytes) = (0, 0);
    while read < SAMPLE
        && let Some(texts) = table.next_record()?
    {
        read += 1;
        bytes += texts.iter().map(|text| text.len() as u64).sum::<u64>();
    }
    Ok((bytes as f64 * rows as f64 / read.max(1) as f64) as u64)
}
