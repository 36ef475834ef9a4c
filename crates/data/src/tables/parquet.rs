//! Reads the records of Parquet files row by row. Only the columns that the caller requests are
//! read.

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::reader::RowIter;
use parquet::record::{Field, Row};
use parquet::schema::types::Type;

use super::Field as Wanted;
use crate::{Error, Result};

/// Reads records from one Parquet file after another.
pub(crate) struct ParquetRecords {
    /// Files that have not been opened yet, in reverse order.
    files: Vec<PathBuf>,
    current: Option<(PathBuf, RowIter<'static>, u64)>,
    wanted: Vec<Wanted>,
}

impl ParquetRecords {
    pub(super) fn new(mut files: Vec<PathBuf>, wanted: Vec<Wanted>) -> Self {
        files.reverse();
        Self { files, current: None, wanted }
    }

    /// Texts of the wanted columns of the next row; `None` after the last row.
    pub(super) fn next_record(&mut self) -> Result<Option<Vec<String>>> {
        loop {
            if let Some((path, rows, number)) = &mut self.current {
                if let Some(row) = surviving(path, || rows.next().transpose())? {
                    *number += 1;
                    let text = |wanted: &Wanted| {
                        row_text(&row, wanted).map_err(|message| Error::Record {
                            path: path.clone(),
                            unit: "row",
                            line: *number,
                            message,
                        })
                    };
                    return self.wanted.iter().map(text).collect::<Result<_>>().map(Some);
                }
                self.current = None;
            }
            let Some(path) = self.files.pop() else {
                return Ok(None);
            };
            let rows = self.open(&path)?;
            self.current = Some((path, rows, 0));
        }
    }

    fn open(&self, path: &Path) -> Result<RowIter<'static>> {
        let file = File::open(path).map_err(|source| Error::io(path, source))?;
        let reader = surviving(path, || SerializedFileReader::new(file))?;
        let schema = reader.metadata().file_metadata().schema();
        // Top-level columns are read whole: a group such as `translation` is read with both its
        // languages.
        let paths = || self.wanted.iter().flat_map(|wanted| &wanted.paths);
        let roots: Vec<&str> = paths().map(|path| root(path)).collect();
        let is_wanted = |name: &str| roots.contains(&name) || paths().any(|path| path == name);
        let wanted: Vec<Arc<Type>> =
            schema.get_fields().iter().filter(|field| is_wanted(field.name())).cloned().collect();
        if wanted.is_empty() {
            let present: Vec<&str> = schema.get_fields().iter().map(|f| f.name()).collect();
            return Err(Error::Malformed {
                path: path.to_owned(),
                message: format!(
                    "no column {}; the file has {}; name the right columns in data.fields",
                    roots.join(" or "),
                    present.join(", ")
                ),
            });
        }
        let name = schema.name().to_owned();
        surviving(path, || {
            let projection = Type::group_type_builder(&name).with_fields(wanted).build()?;
            RowIter::from_file_into(Box::new(reader)).project(Some(projection))
        })
    }
}

/// Number of rows of a Parquet file, from its footer.
///
/// # Errors
///
/// If the file cannot be read.
pub(crate) fn rows(path: &Path) -> Result<u64> {
    let file = File::open(path).map_err(|source| Error::io(path, source))?;
    let reader = surviving(path, || SerializedFileReader::new(file))?;
    Ok(u64::try_from(reader.metadata().file_metadata().num_rows()).unwrap_or(0))
}

/// Calls `read`, which uses the Parquet library, and converts an error or panic to an error about
/// `path`. The library panics for some damaged files instead of refusing them.
fn surviving<T>(path: &Path, read: impl FnOnce() -> parquet::errors::Result<T>) -> Result<T> {
    let reason = match catch_unwind(AssertUnwindSafe(read)) {
        Ok(Ok(found)) => return Ok(found),
        Ok(Err(error)) => error.to_string(),
        Err(_) => "the library gave up on it".to_owned(),
    };
    Err(Error::Malformed {
        path: path.to_owned(),
        message: format!("not a readable Parquet file ({reason}); fetch it again"),
    })
}

fn root(path: &str) -> &str {
    path.split('.').next().unwrap_or(path)
}

fn row_text(row: &Row, wanted: &Wanted) -> Result<String, String> {
    for path in &wanted.paths {
        match field(row, path) {
            Some(Field::Str(text)) => return Ok(text.clone()),
            Some(Field::Null) => return Err(Wanted::is_null(path)),
            Some(
                value @ (Field::Bool(_)
                | Field::Byte(_)
                | Field::Short(_)
                | Field::Int(_)
                | Field::Long(_)
                | Field::UByte(_)
                | Field::UShort(_)
                | Field::UInt(_)
                | Field::ULong(_)
                | Field::Float16(_)
                | Field::Float(_)
                | Field::Double(_)
                | Field::Decimal(_)),
            ) if wanted.may_be_number => return Ok(value.to_string()),
            Some(other) => return Err(Wanted::no_text(path, other)),
            None => {}
        }
    }
    let present: Vec<&str> = row.get_column_iter().map(|(name, _)| name.as_str()).collect();
    Err(wanted.missing(&present))
}

/// The field of a row at a dotted path. A column whose name contains the dots itself takes
/// precedence over nested columns.
fn field<'a>(row: &'a Row, path: &str) -> Option<&'a Field> {
    let named = |name: &str| {
        row.get_column_iter().find(|(column, _)| *column == name).map(|(_, field)| field)
    };
    if let Some(whole) = named(path) {
        return Some(whole);
    }
    let (name, rest) = path.split_once('.')?;
    match named(name)? {
        Field::Group(inner) => field(inner, rest),
        Field::Null => Some(&Field::Null),
        _ => None,
    }
}
