//! Vectors of words, and their neighbours.

use ahash::AHashMap;

use crate::{Error, Result};

/// Words, each with a vector.
#[derive(Debug, Clone)]
pub struct WordVectors {
    words: Vec<String>,
    /// Row of each word.
    rows: AHashMap<String, usize>,
    /// Values, `(words, dimensions)`, row after row.
    values: Vec<f32>,
    dimensions: usize,
    /// Euclidean lengths of the vectors.
    lengths: Vec<f64>,
}

impl WordVectors {
    /// Makes the vectors of `words` from rows of `dimensions` numbers.
    ///
    /// # Errors
    /// When the number of rows is not the number of words, or a word occurs twice.
    ///
    /// # Shapes
    /// `values` is `(words, dimensions)`.
    pub fn new(words: Vec<String>, values: Vec<f32>, dimensions: usize) -> Result<Self> {
        let text = |message| Error::Text { message };
        if dimensions == 0 || Some(values.len()) != words.len().checked_mul(dimensions) {
            return Err(text(format!(
                "{} numbers are not {} vectors of {dimensions} dimensions",
                values.len(),
                words.len()
            )));
        }
        let mut rows = AHashMap::with_capacity(words.len());
        for (row, word) in words.iter().enumerate() {
            if let Some(first) = rows.insert(word.clone(), row) {
                return Err(text(format!(
                    "the word {word:?} has two vectors, number {} and number {}; remove one",
                    first + 1,
                    row + 1
                )));
            }
        }
        let length = |row: &[f32]| dot(row, row).sqrt();
        let lengths = values.chunks_exact(dimensions).map(length).collect();
        Ok(Self { words, rows, values, dimensions, lengths })
    }

    /// Returns the words in the order of the rows. In files of word2vec, gensim and this crate, the
    /// most frequent words come first.
    #[must_use]
    pub fn words(&self) -> &[String] {
        &self.words
    }

    /// Returns the number of dimensions of a vector.
    #[must_use]
    pub fn dimensions(&self) -> usize {
        self.dimensions
    }

    /// Returns the row of `word`; `None` if it has no vector.
    #[must_use]
    pub fn row_of(&self, word: &str) -> Option<usize> {
        self.rows.get(word).copied()
    }

    /// Returns the vector in the row `row`.
    #[must_use]
    pub fn row(&self, row: usize) -> &[f32] {
        &self.values[row * self.dimensions..][..self.dimensions]
    }

    /// Returns the vector of `word`; `None` if it has none.
    #[must_use]
    pub fn get(&self, word: &str) -> Option<&[f32]> {
        self.row_of(word).map(|row| self.row(row))
    }

    /// Computes the cosine of the angle between the vectors of two rows; 0 if either vector is
    /// zero.
    #[must_use]
    pub fn cosine(&self, a: usize, b: usize) -> f64 {
        over(dot(self.row(a), self.row(b)), self.lengths[a] * self.lengths[b])
    }

    /// Computes the cosine of the vectors of each pair of `words`.
    ///
    /// # Errors
    /// When a word has no vector.
    ///
    /// # Shapes
    /// `(words, words)`, symmetric.
    pub fn similarities<S: AsRef<str>>(&self, words: &[S]) -> Result<Vec<Vec<f64>>> {
        let row = |word: &S| self.row_of(word.as_ref()).ok_or_else(|| self.unknown(word.as_ref()));
        let rows: Vec<usize> = words.iter().map(row).collect::<Result<_>>()?;
        let with_all = |&a: &usize| rows.iter().map(|&b| self.cosine(a, b)).collect();
        Ok(rows.iter().map(with_all).collect())
    }

    /// Finds the `count` words whose vectors have the largest cosine with the mean direction of
    /// `words`, best first. `words` themselves are left out.
    ///
    /// # Errors
    /// When a word has no vector.
    pub fn nearest(&self, words: &[&str], count: usize) -> Result<Vec<(&str, f64)>> {
        let terms: Vec<(f64, &str)> = words.iter().map(|word| (1.0, *word)).collect();
        self.nearest_to(&terms, count)
    }

    /// Finds the `count` words that are to `c` as `b` is to `a`: the words nearest to b − a + c,
    /// computed with vectors of length 1 (3CosAdd; Mikolov, Yih and Zweig 2013, "Linguistic
    /// regularities in continuous space word representations"). `a`, `b` and `c` are left out.
    ///
    /// # Errors
    /// When a word has no vector.
    pub fn analogy(&self, [a, b, c]: [&str; 3], count: usize) -> Result<Vec<(&str, f64)>> {
        self.nearest_to(&[(1.0, b), (1.0, c), (-1.0, a)], count)
    }

    /// Finds the `count` words whose vectors have the largest cosine with the sum of `terms`. A
    /// term is a factor and a word: it adds the factor times the word's vector, scaled to length 1.
    /// The words of `terms` are left out.
    fn nearest_to(&self, terms: &[(f64, &str)], count: usize) -> Result<Vec<(&str, f64)>> {
        let mut sum = vec![0.0_f64; self.dimensions];
        let mut asked = Vec::new();
        for (factor, word) in terms {
            let row = self.row_of(word).ok_or_else(|| self.unknown(word))?;
            let factor = over(*factor, self.lengths[row]);
            for (sum, value) in sum.iter_mut().zip(self.row(row)) {
                *sum += factor * f64::from(*value);
            }
            asked.push(row);
        }
        let sum: Vec<f32> = sum.into_iter().map(|value| value as f32).collect();
        let length = dot(&sum, &sum).sqrt();
        let mut found: Vec<(usize, f64)> = (0..self.words.len())
            .filter(|row| !asked.contains(row))
            .map(|row| (row, over(dot(self.row(row), &sum), self.lengths[row] * length)))
            .collect();
        let by_cosine =
            |a: &(usize, f64), b: &(usize, f64)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
        let count = count.min(found.len());
        if count < found.len() {
            found.select_nth_unstable_by(count, by_cosine);
            found.truncate(count);
        }
        found.sort_unstable_by(by_cosine);
        Ok(found.into_iter().map(|(row, cosine)| (self.words[row].as_str(), cosine)).collect())
    }

    /// Makes the error that `word` has no vector, with known words that differ only in case.
    fn unknown(&self, word: &str) -> Error {
        let lower = word.to_lowercase();
        let same = |known: &&String| known.to_lowercase() == lower;
        let near: Vec<&str> = self.words.iter().filter(same).take(3).map(String::as_str).collect();
        let near = match near.as_slice() {
            [] => String::new(),
            near => format!("; there is one for {}", near.join(", ")),
        };
        Error::Unknown { word: word.to_owned(), near }
    }
}

/// Computes `a / b`, and 0 if `b` is 0.
fn over(a: f64, b: f64) -> f64 {
    if b == 0.0 { 0.0 } else { a / b }
}

/// Computes `Σ aᵢ·bᵢ` in f64, because squares of large f32 values would be infinite in f32. It is
/// computed in eight partial sums, so that the compiler can vectorise the loop.
fn dot(a: &[f32], b: &[f32]) -> f64 {
    let product = |a: f32, b: f32| f64::from(a) * f64::from(b);
    let mut sums = [0.0_f64; 8];
    let (a, b) = (a.chunks_exact(8), b.chunks_exact(8));
    let rest: f64 = a.remainder().iter().zip(b.remainder()).map(|(a, b)| product(*a, *b)).sum();
    for (a, b) in a.zip(b) {
        for lane in 0..8 {
            sums[lane] += product(a[lane], b[lane]);
        }
    }
    sums.iter().sum::<f64>() + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vectors_of(rows: &[(&str, [f32; 2])]) -> WordVectors {
        let words = rows.iter().map(|(word, _)| (*word).to_owned()).collect();
        WordVectors::new(words, rows.iter().flat_map(|(_, row)| *row).collect(), 2).expect("rows")
    }

    #[test]
    fn neighbours_are_ordered_by_angle_and_leave_out_what_is_asked() {
        let vectors = vectors_of(&[
            ("a", [2.0, 0.0]),
            ("b", [1.0, 1.0]),
            ("c", [0.0, 3.0]),
            ("zero", [0.0, 0.0]),
        ]);
        let near = vectors.nearest(&["a"], 9).expect("known");
        assert_eq!(near.iter().map(|(word, _)| *word).collect::<Vec<_>>(), ["b", "c", "zero"]);
        assert!((near[0].1 - 0.5_f64.sqrt()).abs() < 1e-6 && near[2].1 == 0.0);
        assert_eq!(vectors.nearest(&["a", "c"], 1).expect("known")[0].0, "b");
        let error = vectors.nearest(&["B"], 1).expect_err("unknown").to_string();
        assert_eq!(error, "no vector for \"B\"; there is one for b");
    }

    #[test]
    fn similarities_are_cosines_of_all_pairs() {
        let vectors = vectors_of(&[("a", [2.0, 0.0]), ("b", [1.0, 1.0]), ("c", [0.0, 3.0])]);
        let found = vectors.similarities(&["a", "b", "c"]).expect("known");
        let half = 0.5_f64.sqrt();
        let expected = [[1.0, half, 0.0], [half, 1.0, half], [0.0, half, 1.0]];
        for (row, wanted) in found.iter().zip(expected) {
            assert!(row.iter().zip(wanted).all(|(one, other)| (one - other).abs() < 1e-6));
        }
        assert!(vectors.similarities(&["a", "d"]).is_err());
    }

    #[test]
    fn an_analogy_adds_the_difference() {
        let vectors = vectors_of(&[
            ("man", [1.0, 0.1]),
            ("woman", [1.0, 0.9]),
            ("king", [5.0, 0.5]),
            ("queen", [5.0, 4.0]),
            ("apple", [-1.0, 0.0]),
        ]);
        assert_eq!(vectors.analogy(["man", "woman", "king"], 1).expect("known")[0].0, "queen");
    }

    #[test]
    fn words_that_come_twice_and_rows_that_are_missing_are_refused() {
        let error = |words: &[&str], values| {
            let words = words.iter().map(|word| (*word).to_owned()).collect();
            WordVectors::new(words, values, 2).expect_err("refused").to_string()
        };
        assert!(error(&["a", "a"], vec![0.0; 4]).contains("\"a\" has two vectors"));
        assert!(error(&["a", "b"], vec![0.0; 3]).contains("3 numbers are not 2 vectors"));
    }
}
