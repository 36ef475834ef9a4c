//! Reads files of records with named fields: tab-separated and comma-separated columns, JSON lines,
//! and Parquet.

mod csv;
mod lines;
mod named;
#[cfg_attr(not(feature = "parquet"), path = "without_parquet.rs")]
mod parquet;

use std::path::{Path, PathBuf};

use crate::file_names::uncompressed;
use crate::{Error, Format, Result};

use self::csv::CsvRecords;
use self::lines::LineRecords;
pub(crate) use self::named::Named;
use self::parquet::ParquetRecords;
pub(crate) use self::parquet::rows as parquet_rows;

/// Fields to read from each record. Their texts are returned in this order.
pub(crate) struct Wanted<'a> {
    /// Name of each requested field, for formats in which records have named fields.
    pub(crate) fields: Vec<Field>,
    pub(crate) columns: &'a FindColumns<'a>,
}

/// Function that finds the requested columns from the first row of a table. It also returns whether
/// this row is a header.
pub(crate) type FindColumns<'a> = dyn Fn(&[&str]) -> Result<(Columns, bool)> + 'a;

/// Field of a record with named fields.
#[derive(Debug, Clone)]
pub(crate) struct Field {
    /// Dotted paths to try, in order.
    pub(crate) paths: Vec<String>,
    /// True if numbers and truth values are accepted as text, for example in the field of labels.
    pub(crate) may_be_number: bool,
}

impl Field {
    /// Error for a record without this field; it lists the `present` fields.
    fn missing(&self, present: &[&str]) -> String {
        let paths = self.paths.join(" or ");
        match present {
            [] => format!("no field {paths}, nor any other: expected a record with named fields"),
            _ => format!(
                "no field {paths}; the record has {}; name one of these in data.fields",
                present.join(", ")
            ),
        }
    }

    /// Error for a record with the value `found` in the field `path`.
    fn no_text(path: &str, found: &dyn std::fmt::Display) -> String {
        format!("field {path:?} is {found}, not a string")
    }

    /// Error for a record with the value `null` in the field `path`.
    fn is_null(path: &str) -> String {
        format!("field {path:?} is null: leave out records that lack a text")
    }
}

/// Index of the column with this name in a header. Case and surrounding white space are ignored,
/// unless a column has exactly this name.
pub(crate) fn column_named(header: &[&str], name: &str) -> Option<usize> {
    let is_alike = |cell: &&str| cell.trim().to_lowercase() == name.trim().to_lowercase();
    let exact = header.iter().position(|cell| *cell == name);
    exact.or_else(|| header.iter().position(is_alike))
}

/// Indices of the requested columns, counted from 0, and the number of all columns of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Columns {
    pub(crate) places: Vec<usize>,
    /// Number of columns of the first line, which every other line must have, too. `None` if lines
    /// may have different numbers of columns.
    pub(crate) count: Option<usize>,
}

impl Columns {
    /// Texts of the chosen columns of `row`. `separator` is the name of the character between
    /// columns, such as `comma`; it is used only in errors.
    ///
    /// # Errors
    ///
    /// If the row is too short, or has more or fewer columns than the first line. The error
    /// describes the fault.
    fn texts_in(&self, row: &[&str], separator: &str) -> Result<Vec<String>, String> {
        let last = self.places.iter().max().copied().unwrap_or(0);
        if last >= row.len() {
            return Err(format!(
                "has {} {separator}-separated columns but data.fields needs column {}",
                row.len(),
                last + 1
            ));
        }
        match self.count {
            Some(count) if row.len() != count => Err(format!(
                "has {} {separator}-separated columns, but the first line has {count}: a text with a \
                 {separator} in it has to be {}",
                row.len(),
                if separator == "comma" { "in quotes" } else { "written without it" }
            )),
            _ => Ok(self.places.iter().map(|&place| row[place].to_owned()).collect()),
        }
    }
}

/// Format of a table according to its file name. The ending of a compressed file is ignored. `None`
/// if the name is not that of a table.
pub(crate) fn table_format(path: &Path) -> Option<Format> {
    Format::by_name(path).filter(|format| format.is_table())
}

/// Refuses a file that would be read as plain text although its name indicates another syntax:
/// JSON, comma-separated columns, Parquet, or a format of translation tools.
///
/// # Errors
///
/// [`Error::Malformed`] with advice.
pub fn require_plain_text(path: &Path) -> Result<()> {
    let has_syntax = match Format::by_name(path) {
        Some(Format::Tsv | Format::Zip) | None => is_json(path),
        Some(_) => true,
    };
    if !has_syntax {
        return Ok(());
    }
    let message = "is called as a file of records, whose syntax would be learned as words; write its \
                   texts into a file of lines, and call it .txt";
    Err(Error::Malformed { path: path.to_owned(), message: message.to_owned() })
}

/// True if the name of a file indicates a single JSON value.
pub(crate) fn is_json(path: &Path) -> bool {
    uncompressed(path).extension().is_some_and(|ending| ending.eq_ignore_ascii_case("json"))
}

/// Reader of the records of a table, one after the other.
pub(crate) enum Table {
    Lines(LineRecords),
    Csv(CsvRecords),
    Parquet(ParquetRecords),
}

impl Table {
    /// Opens a table, which for Parquet may be several files.
    ///
    /// # Errors
    ///
    /// If a file cannot be opened, or lacks columns that are requested.
    pub(crate) fn open(format: Format, files: &[PathBuf], wanted: Wanted<'_>) -> Result<Self> {
        Ok(match (format, files) {
            (Format::Csv, [file]) => Self::Csv(CsvRecords::open(file, &wanted)?),
            (Format::Tsv, [file]) => Self::Lines(LineRecords::open_columns(file, &wanted)?),
            (Format::Jsonl, [file]) => Self::Lines(LineRecords::open_json(file, wanted.fields)?),
            (_, files) => Self::Parquet(ParquetRecords::new(files.to_vec(), wanted.fields)),
        })
    }

    /// Requested texts of the next record; `None` after the last record.
    ///
    /// # Errors
    ///
    /// If the record lacks a requested text. The error contains the record's place in the file.
    pub(crate) fn next_record(&mut self) -> Result<Option<Vec<String>>> {
        match self {
            Self::Lines(records) => records.next_record(),
            Self::Csv(records) => records.next_record(),
            Self::Parquet(records) => records.next_record(),
        }
    }

    /// Bytes of the file that have been read so far; 0 for CSV and Parquet.
    pub(crate) fn bytes_read(&self) -> u64 {
        match self {
            Self::Lines(records) => records.bytes_read(),
            Self::Csv(_) | Self::Parquet(_) => 0,
        }
    }
}
