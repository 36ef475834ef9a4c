//! Edit distance between many rearrangements of a hypothesis and one reference.
//!
//! The edit distance is computed by dynamic programming in a matrix. The cell in row i and column j
//! has the distance between the first i words of the hypothesis and the first j words of the
//! reference. As in sacreBLEU, each row is computed only in a beam, which is a range of columns
//! around the diagonal. The beam depends only on the lengths of hypothesis and reference, which do
//! not change if words are rearranged. So row i depends only on the first i words of the
//! hypothesis. After a rearrangement, only the rows from the first changed word on are computed
//! again.

use std::ops::Range;

/// Half the number of columns in the beam. The beam is wider if the diagonal advances by more than
/// 50 columns from one row to the next.
const BEAM_WIDTH: usize = 25;

/// Value of cells outside the beam, which is larger than any distance.
const UNREACHED: u32 = 1 << 30;

/// A row of the matrix.
#[derive(Debug)]
struct Row {
    /// Columns that are computed.
    beam: Range<usize>,
    /// Columns that are kept in memory: the columns that are computed, and columns outside the beam
    /// that the next row reads.
    kept: Range<usize>,
    /// Index in the matrix at which the kept columns begin.
    start: usize,
}

/// Matrix of one hypothesis and reference, with working space for rearrangements.
#[derive(Debug, Default)]
pub(crate) struct EditDistance {
    /// Number of columns of the matrix: reference words plus one.
    columns: usize,
    /// Rows; row i covers the first i words of the hypothesis.
    rows: Vec<Row>,
    /// Distances of the kept columns, row by row. The whole matrix of two long documents would not
    /// fit into memory.
    matrix: Vec<u32>,
    /// Two rows of the matrix of a rearranged hypothesis, with all columns.
    row: Vec<u32>,
    next_row: Vec<u32>,
    /// For each k, the position in the hypothesis at which to insert a word that follows the first
    /// k words of the reference.
    insertion_points: Vec<usize>,
    hypothesis_errors: Vec<bool>,
    reference_errors: Vec<bool>,
}

impl EditDistance {
    /// Computes the matrix of a hypothesis and a reference.
    pub(crate) fn start(&mut self, hypothesis: &[u32], reference: &[u32]) {
        self.columns = reference.len() + 1;
        let cells = self.lay_beam(hypothesis.len(), reference.len());
        self.matrix.clear();
        self.matrix.extend(0..self.columns as u32);
        self.matrix.resize(cells, UNREACHED);
        for (&word, rows) in hypothesis.iter().zip(self.rows.windows(2)) {
            let [above, row] = rows else { continue };
            let (done, rest) = self.matrix.split_at_mut(row.start);
            fill_row(
                word,
                reference,
                (above, &done[above.start..]),
                (row, &mut rest[..row.kept.len()]),
            );
        }
    }

    /// Edit distance between hypothesis and reference.
    pub(crate) fn total(&self) -> u32 {
        self.matrix[self.matrix.len() - 1]
    }

    /// Edit distance of a rearranged hypothesis, which equals the hypothesis of the matrix before
    /// the word `first_changed`.
    pub(crate) fn total_from(
        &mut self,
        rearranged: &[u32],
        reference: &[u32],
        first_changed: usize,
    ) -> u32 {
        self.row.resize(self.columns, UNREACHED);
        self.next_row.resize(self.columns, UNREACHED);
        let first = &self.rows[first_changed];
        self.row[first.kept.clone()]
            .copy_from_slice(&self.matrix[first.start..first.start + first.kept.len()]);
        for (&word, rows) in rearranged.iter().zip(self.rows.windows(2)).skip(first_changed) {
            let [above, row] = rows else { continue };
            let cells = &mut self.next_row[row.kept.clone()];
            cells.fill(UNREACHED);
            fill_row(word, reference, (above, &self.row[above.kept.clone()]), (row, cells));
            std::mem::swap(&mut self.row, &mut self.next_row);
        }
        self.row[self.columns - 1]
    }

    /// Aligns hypothesis and reference along the cheapest edits. Among edits of equal cost,
    /// substitutions are preferred, then deletions from the hypothesis, then insertions from the
    /// reference.
    pub(crate) fn align(&mut self, hypothesis: &[u32], reference: &[u32]) {
        self.insertion_points.clear();
        self.insertion_points.resize(self.columns, 0);
        self.hypothesis_errors.clear();
        self.hypothesis_errors.resize(hypothesis.len(), true);
        self.reference_errors.clear();
        self.reference_errors.resize(reference.len(), true);
        let cell = |row: usize, column: usize| {
            let Row { kept, start, .. } = &self.rows[row];
            if kept.contains(&column) {
                self.matrix[start + column - kept.start]
            } else {
                UNREACHED
            }
        };
        let (mut row, mut column) = (hypothesis.len(), reference.len());
        while column > 0 {
            self.insertion_points[column] = row;
            if row == 0 {
                column -= 1;
                continue;
            }
            let here = cell(row, column);
            let same = hypothesis[row - 1] == reference[column - 1];
            if here == cell(row - 1, column - 1) + u32::from(!same) {
                (row, column) = (row - 1, column - 1);
                self.hypothesis_errors[row] = !same;
                self.reference_errors[column] = !same;
            } else if here == cell(row - 1, column) + 1 {
                row -= 1;
            } else {
                column -= 1;
            }
        }
    }

    /// Position in the hypothesis at which to insert a word that follows the first `count` words of
    /// the reference.
    pub(crate) fn insertion_point(&self, count: usize) -> usize {
        self.insertion_points[count]
    }

    /// For each word of the hypothesis, false if it is aligned with an equal word of the reference.
    pub(crate) fn hypothesis_errors(&self) -> &[bool] {
        &self.hypothesis_errors
    }

    /// For each word of the reference, false if it is aligned with an equal word of the hypothesis.
    pub(crate) fn reference_errors(&self) -> &[bool] {
        &self.reference_errors
    }

    /// Lays the beam along the diagonal, wide enough for neighbouring rows to overlap, and returns
    /// the number of kept cells. The first row has all columns.
    fn lay_beam(&mut self, rows: usize, columns: usize) -> usize {
        let ratio = if rows == 0 { 1.0 } else { columns as f64 / rows as f64 };
        let half_step = ratio / 2.0;
        let width = if half_step > BEAM_WIDTH as f64 {
            (half_step + BEAM_WIDTH as f64).ceil() as usize
        } else {
            BEAM_WIDTH
        };
        let beam = |row: usize| {
            let diagonal = (row as f64 * ratio).floor() as usize;
            let end = if row == rows { columns + 1 } else { (columns + 1).min(diagonal + width) };
            if row == 0 { 0..columns + 1 } else { diagonal.saturating_sub(width)..end }
        };
        let mut cells = 0;
        self.rows.clear();
        self.rows.extend((0..=rows).map(|row| {
            let beam_here = beam(row);
            let kept = if row == rows {
                beam_here.clone()
            } else {
                let below = beam(row + 1);
                beam_here.start.min(below.start.saturating_sub(1))..beam_here.end.max(below.end)
            };
            let start = cells;
            cells += kept.len();
            Row { beam: beam_here, kept, start }
        }));
        cells
    }
}

/// Computes the cells of a row inside the beam. The other cells are already marked as not reached.
/// Each row is given with a slice of its cells, which begins with its first kept column.
fn fill_row(
    word: u32,
    reference: &[u32],
    (above, cells_above): (&Row, &[u32]),
    (row, cells): (&Row, &mut [u32]),
) {
    let mut left = UNREACHED;
    let Range { mut start, end } = row.beam.clone();
    if start == 0 {
        left = cells_above[0] + 1;
        cells[0] = left;
        start = 1;
    }
    let cells = cells[start - row.kept.start..end - row.kept.start]
        .iter_mut()
        .zip(&reference[start - 1..end - 1]);
    let pairs_above = cells_above[start - 1 - above.kept.start..end - above.kept.start].windows(2);
    for ((cell, &other), above) in cells.zip(pairs_above) {
        let substituted = above[0] + u32::from(word != other);
        left = substituted.min(above[1] + 1).min(left + 1).min(UNREACHED);
        *cell = left;
    }
}
