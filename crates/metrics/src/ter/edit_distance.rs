//! Edit distance between a hypothesis, rearranged again and again, and one reference.
//!
//! As in sacreBLEU, each row of the matrix is only computed in a beam around the diagonal.
//! The beam depends on the two lengths alone, which rearranging does not change, so a row
//! depends on the words before it alone: a rearrangement starts from the row of the first
//! word that it changes.

use std::ops::Range;

/// Half the width of the beam.
const BEAM_WIDTH: usize = 25;

/// The distance of a cell outside the beam.
const UNREACHED: u32 = 1 << 30;

/// A row of the matrix.
#[derive(Debug)]
struct Row {
    /// The columns that are computed.
    beam: Range<usize>,
    /// The columns that are kept: those, and what the row below looks at besides.
    kept: Range<usize>,
    /// Where they begin in the matrix.
    start: usize,
}

/// The matrix of one hypothesis and reference, and space to try rearrangements.
#[derive(Debug, Default)]
pub(crate) struct EditDistance {
    /// Columns of the matrix: reference words and one.
    columns: usize,
    /// Row i has seen i words of the hypothesis.
    rows: Vec<Row>,
    /// Distances, row by row, of the columns that are kept: a whole matrix of two documents would
    /// not fit into memory.
    matrix: Vec<u32>,
    /// Two rows of a rearrangement, of all columns.
    row: Vec<u32>,
    next_row: Vec<u32>,
    /// Where a word that follows the first k of the reference goes in the hypothesis, by k.
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

    /// The distance between the two.
    pub(crate) fn total(&self) -> u32 {
        self.matrix[self.matrix.len() - 1]
    }

    /// The distance of a rearranged hypothesis that agrees with the matrix's own on the
    /// words before `first_changed`.
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

    /// Aligns the two along the cheapest edits, substitutions first, then words of the
    /// hypothesis dropped, then words of the reference inserted.
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

    /// Where a word that follows the first `count` of the reference goes in the hypothesis.
    pub(crate) fn insertion_point(&self, count: usize) -> usize {
        self.insertion_points[count]
    }

    /// Which words of the hypothesis have no equal in the alignment.
    pub(crate) fn hypothesis_errors(&self) -> &[bool] {
        &self.hypothesis_errors
    }

    /// Which words of the reference have no equal in the alignment.
    pub(crate) fn reference_errors(&self) -> &[bool] {
        &self.reference_errors
    }

    /// Lays the beam along the diagonal, wide enough that neighbouring rows overlap, and returns
    /// how many cells are kept. The first row is known in all columns.
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

/// Computes the cells of a row that lie in the beam; the others are unreached already. Each row
/// comes with its cells, from the first that is kept.
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
