//! Computes the lengths of the rows of the largest possible batch.

/// Number of rows (token sequences) of each length, for one side (source or target) of an epoch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Rows {
    /// At each index `i`, the number of rows with `i` ids, including special tokens.
    of_length: Vec<usize>,
}

impl Rows {
    /// Makes `rows` rows of `length` ids each.
    pub(crate) fn alike(rows: usize, length: usize) -> Self {
        let mut of_length = vec![0; length + 1];
        of_length[length] = rows;
        Self { of_length }
    }

    /// Adds `times` rows of `length` ids.
    pub(crate) fn push(&mut self, length: usize, times: usize) {
        if self.of_length.len() <= length {
            self.of_length.resize(length + 1, 0);
        }
        self.of_length[length] += times;
    }

    /// Number of all ids.
    pub(crate) fn tokens(&self) -> usize {
        self.of_length.iter().enumerate().map(|(length, rows)| length * rows).sum()
    }

    /// Lengths of the longest rows that fit into `tokens` tokens. The last row is shortened if only
    /// a part of it fits. There is always at least one whole row, as in training.
    pub(crate) fn longest(&self, tokens: usize) -> Vec<usize> {
        let mut lengths: Vec<usize> = Vec::new();
        let mut left = tokens;
        for (length, &rows) in self.of_length.iter().enumerate().rev() {
            for _ in 0..rows {
                if !lengths.is_empty() && left == 0 {
                    return lengths;
                }
                lengths.push(if lengths.is_empty() { length } else { length.min(left) });
                left = left.saturating_sub(length);
            }
        }
        lengths
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_batch_is_one_that_the_text_has() {
        let mut rows = Rows::default();
        for length in [2, 5, 2, 5, 2] {
            rows.push(length, 1);
        }
        assert_eq!(rows.tokens(), 16);
        assert_eq!(rows.longest(1), [5], "one row at least");
        assert_eq!(rows.longest(11), [5, 5, 1]);
        assert_eq!(rows.longest(1_000_000_000_000), [5, 5, 2, 2, 2]);
    }
}
