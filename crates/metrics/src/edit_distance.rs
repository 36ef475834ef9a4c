//! Edit distance between a hypothesis, rearranged again and again, and one reference.
//!
//! As in sacreBLEU, each row of the matrix is only computed in a beam around the diagonal.
//! The beam depends on the two lengths alone, which rearranging does not change, so a row
//! depends on the words before it alone: a rearrangement starts from the row of the first
//! word that it changes.

/// Half the width of the beam.
const BEAM_WIDTH: usize = 25;

/// The distance of a cell outside the beam.
const UNREACHED: u32 = 1 << 30;

/// The matrix of one hypothesis and reference, and space to try rearrangements.
#[derive(Debug, Default)]
pub(crate) struct EditDistance {
    /// Columns of the matrix: reference words and one.
    columns: usize,
    /// Columns in the beam, from and to, for each row.
    beam: Vec<(usize, usize)>,
    /// Distances, row by row; row i has seen i words of the hypothesis.
    matrix: Vec<u32>,
    /// Two rows of a rearrangement.
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
        self.set_beam(hypothesis.len(), reference.len());
        self.matrix.clear();
        self.matrix.extend(0..self.columns as u32);
        self.matrix.resize(self.columns * (hypothesis.len() + 1), UNREACHED);
        for (index, &word) in hypothesis.iter().enumerate() {
            let (done, rest) = self.matrix.split_at_mut(self.columns * (index + 1));
            fill_row(word, reference, self.beam[index + 1], &done[self.columns * index..], &mut rest[..self.columns]);
        }
    }

    /// The distance between the two.
    pub(crate) fn total(&self) -> u32 {
        self.matrix[self.matrix.len() - 1]
    }

    /// The distance of a rearranged hypothesis that agrees with the matrix's own on the
    /// words before `first_changed`.
    pub(crate) fn total_from(&mut self, rearranged: &[u32], reference: &[u32], first_changed: usize) -> u32 {
        let start = self.columns * first_changed;
        self.row.clear();
        self.row.extend_from_slice(&self.matrix[start..start + self.columns]);
        self.next_row.resize(self.columns, UNREACHED);
        for (index, &word) in rearranged.iter().enumerate().skip(first_changed) {
            self.next_row.fill(UNREACHED);
            fill_row(word, reference, self.beam[index + 1], &self.row, &mut self.next_row);
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
        let cell = |row: usize, column: usize| self.matrix[self.columns * row + column];
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

    /// Lays the beam along the diagonal, wide enough that neighbouring rows overlap.
    fn set_beam(&mut self, rows: usize, columns: usize) {
        let ratio = if rows == 0 { 1.0 } else { columns as f64 / rows as f64 };
        let half_step = ratio / 2.0;
        let width = if half_step > BEAM_WIDTH as f64 { (half_step + BEAM_WIDTH as f64).ceil() as usize } else { BEAM_WIDTH };
        self.beam.clear();
        self.beam.extend((0..=rows).map(|row| {
            let diagonal = (row as f64 * ratio).floor() as usize;
            let end = if row == rows { columns + 1 } else { (columns + 1).min(diagonal + width) };
            (diagonal.saturating_sub(width), end)
        }));
    }
}

/// Computes the cells of a row that lie in the beam; the others are unreached already.
fn fill_row(word: u32, reference: &[u32], (from, to): (usize, usize), above: &[u32], row: &mut [u32]) {
    let mut left = UNREACHED;
    let mut start = from;
    if from == 0 {
        left = above[0] + 1;
        row[0] = left;
        start = 1;
    }
    let cells = row[start..to].iter_mut().zip(&reference[start - 1..to - 1]);
    for ((cell, &other), above) in cells.zip(above[start - 1..to].windows(2)) {
        let substituted = above[0] + u32::from(word != other);
        left = substituted.min(above[1] + 1).min(left + 1).min(UNREACHED);
        *cell = left;
    }
}
