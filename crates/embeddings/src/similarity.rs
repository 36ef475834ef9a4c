//! Agreement of vectors with human judgements of word similarity.

use std::path::Path;

use ahash::AHashMap;
use taper_data::{LineReader, words};

use crate::{Error, Result, WordVectors};

/// Set of pairs of words with human judgements of their similarity. Examples of such sets are
/// WordSim-353 (Finkelstein et al. 2002) and SimLex-999 (Hill et al. 2015).
#[derive(Debug, Clone, PartialEq)]
pub struct SimilaritySet {
    /// Pairs: two words, and the human judgement of their similarity.
    pub pairs: Vec<(String, String, f64)>,
}

/// Agreement of vectors with human judgements.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Agreement {
    /// Spearman's rank correlation of cosines and judgements.
    pub spearman: f64,
    /// Number of pairs in which both words have a vector. Only these pairs are scored.
    pub pairs: usize,
    /// Number of pairs in which at least one word has no vector.
    pub out_of_vocabulary: usize,
}

impl SimilaritySet {
    /// Reads a file of pairs: two words and a number on each line, separated by tabs, commas or
    /// spaces. The judgement is the first number after the words. Other columns, such as those of
    /// SimLex-999, are skipped. Lines that begin with `#`, empty lines, and one line of headings
    /// are skipped, too.
    ///
    /// # Errors
    /// When the file cannot be read, a line does not have two words and a number, or there is no
    /// pair.
    pub fn read(path: &Path) -> Result<Self> {
        let mut lines = LineReader::open(path)?;
        let mut pairs = Vec::new();
        let mut may_be_headings = true;
        while let Some(line) = lines.next_line()? {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            match pair_of(line) {
                Some(pair) => pairs.push(pair),
                None if may_be_headings => {}
                None => {
                    let place = format!(", line {}", lines.line());
                    let message = "two words and a number are expected, between tabs, commas or \
                                   spaces";
                    return Err(Error::malformed(path, &place, message));
                }
            }
            may_be_headings = false;
        }
        if pairs.is_empty() {
            return Err(Error::malformed(path, "", "there is no pair of words with a number"));
        }
        Ok(Self { pairs })
    }

    /// Compares the cosines of vectors with the judgements. Words are looked up without regard to
    /// case. If several words with vectors differ only in case, the first of them is used, which is
    /// usually the most frequent.
    ///
    /// # Errors
    /// When fewer than two pairs have vectors.
    pub fn agreement(&self, vectors: &WordVectors) -> Result<Agreement> {
        let mut rows = AHashMap::with_capacity(vectors.words().len());
        for (row, word) in vectors.words().iter().enumerate() {
            rows.entry(word.to_uppercase()).or_insert(row);
        }
        let row = |word: &str| rows.get(&word.to_uppercase()).copied();
        let (mut judged, mut cosines) = (Vec::new(), Vec::new());
        for (a, b, judgement) in &self.pairs {
            if let (Some(a), Some(b)) = (row(a), row(b)) {
                judged.push(*judgement);
                cosines.push(vectors.cosine(a, b));
            }
        }
        let (pairs, all) = (judged.len(), self.pairs.len());
        if pairs < 2 {
            let message = format!(
                "only {pairs} of {all} pairs have vectors for both words, and a rank correlation \
                 needs two; were the vectors trained on a text of this language?"
            );
            return Err(Error::Text { message });
        }
        let spearman = spearman(&judged, &cosines);
        Ok(Agreement { spearman, pairs, out_of_vocabulary: all - pairs })
    }
}

/// Returns the two words of a line and the first number after them; `None` if the line does not
/// have all three.
fn pair_of(line: &str) -> Option<(String, String, f64)> {
    let fields: Vec<&str> = if line.contains('\t') {
        line.split('\t').map(str::trim).collect()
    } else if line.contains(',') {
        line.split(',').map(str::trim).collect()
    } else {
        words(line).collect()
    };
    let (words, rest) = fields.split_at_checked(2)?;
    let judgement =
        rest.iter().find_map(|field| field.parse().ok().filter(|x: &f64| x.is_finite()))?;
    if words.iter().any(|word| word.is_empty()) {
        return None;
    }
    Some((words[0].to_owned(), words[1].to_owned(), judgement))
}

/// Computes Spearman's rank correlation of `a` and `b`, which is Pearson's correlation of their
/// ranks. Equal values share the mean of their ranks. The result is 0 if all values of `a`, or all
/// values of `b`, are equal.
///
/// # Panics
/// If `a` and `b` differ in length.
#[must_use]
pub fn spearman(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len(), "one value of each side for each pair");
    let (a, b) = (ranks(a), ranks(b));
    let mean = (a.len() as f64 + 1.0) / 2.0;
    let product = |a: &[f64], b: &[f64]| -> f64 {
        a.iter().zip(b).map(|(a, b)| (a - mean) * (b - mean)).sum()
    };
    let scale = (product(&a, &a) * product(&b, &b)).sqrt();
    if scale == 0.0 { 0.0 } else { product(&a, &b) / scale }
}

/// Computes ranks from 1; equal values share the mean of their ranks.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut ranks = vec![0.0; values.len()];
    let mut first = 0;
    for equal in order.chunk_by(|&a, &b| values[a] == values[b]) {
        let rank = first as f64 + (equal.len() as f64 + 1.0) / 2.0;
        for &index in equal {
            ranks[index] = rank;
        }
        first += equal.len();
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_either_set_are_understood() {
        let expected = Some(("tiger".to_owned(), "cat".to_owned(), 7.35));
        for line in
            ["tiger\tcat\t7.35", "tiger,cat,7.35", "tiger cat 7.35 9 9", "tiger\tcat\tN\t7.35\t4"]
        {
            assert_eq!(pair_of(line), expected, "{line}");
        }
        for line in ["Word 1,Word 2,Human (mean)", "tiger\t\t7.35", "tiger cat", "a\tb\tNaN"] {
            assert_eq!(pair_of(line), None, "{line}");
        }
    }

    #[test]
    fn ties_share_their_ranks() {
        assert_eq!(ranks(&[3.0, 1.0, 3.0, 2.0]), [3.5, 1.0, 3.5, 2.0]);
        assert_eq!(spearman(&[1.0, 2.0, 3.0], &[10.0, 20.0, 15.0]), 0.5);
        assert_eq!(spearman(&[1.0, 1.0], &[1.0, 2.0]), 0.0);
    }
}
