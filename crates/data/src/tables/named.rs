//! Tables whose fields have default names. The table `[data.fields]` of a recipe (the TOML file
//! with all settings of a training) can set other names.

use std::path::Path;

use super::{Columns, Field, Table, Wanted, column_named};
use crate::{Error, Format, Result};

/// Field of a table, with its configured name and its default name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Named<'a> {
    /// Full key in a recipe, such as `data.fields.text`.
    pub(crate) key: &'static str,
    /// Value in the recipe: a name, the number of a column (counted from 1), or empty if the
    /// default name is used.
    pub(crate) chosen: &'a str,
    /// Default name.
    pub(crate) usual: &'static str,
    /// True if numbers and truth values are allowed.
    pub(crate) may_be_number: bool,
}

impl Named<'_> {
    fn name(&self) -> &str {
        if self.chosen.is_empty() { self.usual } else { self.chosen }
    }

    /// Index of the column, counted from 0, if the recipe chooses it by number; otherwise `None`.
    fn number(&self) -> Option<usize> {
        self.chosen.parse::<usize>().ok()?.checked_sub(1)
    }
}

impl Table {
    /// Opens a table of one file, from which the fields `named` are read.
    ///
    /// # Errors
    ///
    /// If the file cannot be opened, or its header lacks one of the fields.
    pub(crate) fn open_named(path: &Path, format: Format, named: &[Named<'_>]) -> Result<Self> {
        let field = |named: &Named<'_>| Field {
            paths: vec![named.name().to_owned()],
            may_be_number: named.may_be_number,
        };
        let columns = |first: &[&str]| columns(path, named, first);
        let wanted = Wanted { fields: named.iter().map(field).collect(), columns: &columns };
        Self::open(format, &[path.to_owned()], wanted)
    }
}

/// Finds the columns of the fields `named`. `first` is the first row of the table. Also returns
/// true if this row is a header: it is one unless all columns are chosen by number.
fn columns(path: &Path, named: &[Named<'_>], first: &[&str]) -> Result<(Columns, bool)> {
    let has_header = !named.iter().all(|named| named.number().is_some());
    let place = |named: &Named<'_>| {
        let found = named.number().or_else(|| column_named(first, named.name()));
        found.ok_or_else(|| Error::Record {
            path: path.to_owned(),
            unit: "line",
            line: 1,
            message: format!(
                "no column {:?} in the header ({}); set {} to a name there, or to the number of a \
                 column from 1",
                named.name(),
                first.join(", "),
                named.key
            ),
        })
    };
    let places = named.iter().map(place).collect::<Result<_>>()?;
    Ok((Columns { places, count: has_header.then_some(first.len()) }, has_header))
}
