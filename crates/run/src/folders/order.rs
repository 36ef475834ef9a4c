//! Orders of the values in the tensors of a folder of the library Transformers. They are converted
//! from and to the order in a run (a model of Taper with its files).

/// Order of the values in a tensor of a folder.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Order {
    /// The same order as in a run.
    Same,
    /// The order of the transposed matrix.
    Transposed,
    /// Rows grouped by head: the rows for query, key and value of the first head, then those of the
    /// second head, and so on. A run has first the rows of all queries, then of all keys, then of
    /// all values.
    ByHead { heads: usize },
}

impl Order {
    /// Reorders the `values` of a folder's tensor into the order of a run. `shape` is the shape in
    /// the folder.
    pub(super) fn read(self, values: Vec<f32>, shape: &[usize]) -> Vec<f32> {
        match (self, shape) {
            (Self::Transposed, &[_, columns]) => transposed(&values, columns),
            (Self::ByHead { heads }, &[rows, ..]) => exchanged(&values, rows, (heads, 3)),
            _ => values,
        }
    }

    /// Reorders `values`, which are in the order of a run, into the order of a folder's tensor.
    /// `shape` is the shape in the folder.
    pub(super) fn written(self, values: Vec<f32>, shape: &[usize]) -> Vec<f32> {
        match (self, shape) {
            (Self::Transposed, &[columns, _]) => transposed(&values, columns),
            (Self::ByHead { heads }, &[rows, ..]) => exchanged(&values, rows, (3, heads)),
            _ => values,
        }
    }
}

/// Reorders the rows of a matrix with `rows` rows, which consists of `outer` groups of `inner`
/// blocks of rows each. In the result, the first blocks of all groups come first, then the second
/// blocks, and so on: `inner` groups of `outer` blocks each.
fn exchanged(values: &[f32], rows: usize, (outer, inner): (usize, usize)) -> Vec<f32> {
    let block = (values.len() / rows.max(1)) * (rows / (outer * inner).max(1));
    let places = (0..inner).flat_map(|one| (0..outer).map(move |other| other * inner + one));
    places.flat_map(|place| &values[place * block..][..block]).copied().collect()
}

/// Transposes a matrix with `columns` columns. A few rows are processed at a time, so that the part
/// of the output that is written stays in the cache.
pub(crate) fn transposed(values: &[f32], columns: usize) -> Vec<f32> {
    const ROWS: usize = 16;
    let rows = values.len() / columns.max(1);
    let mut turned = vec![0.0; values.len()];
    for (block, some) in values.chunks(ROWS * columns.max(1)).enumerate() {
        for column in 0..columns {
            let to = &mut turned[column * rows + block * ROWS..];
            let from = some.iter().skip(column).step_by(columns);
            to.iter_mut().zip(from).for_each(|(to, &from)| *to = from);
        }
    }
    turned
}
