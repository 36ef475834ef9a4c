//! Source and target texts of a split.

use anyhow::Result;
use taper_data::{Corpora, DataConfig, RawPair, read_pairs};

/// Source and target texts of a split, line by line.
#[derive(Debug, Clone, Default)]
pub struct ParallelText {
    /// Texts to translate.
    pub sources: Vec<String>,
    /// Translations of the sources. They are in lower case if the configuration lowercases the
    /// data, because the model then does not learn the case.
    pub references: Vec<String>,
}

impl ParallelText {
    /// Reads all pairs of a split; none are filtered out.
    ///
    /// # Errors
    /// When the split cannot be read.
    pub fn read(data: &DataConfig, split: impl Into<Corpora>) -> Result<Self> {
        let mut text = Self::default();
        for RawPair { source, target, .. } in read_pairs(data, split)? {
            text.sources.push(source);
            // Only the case is changed. The tokenizer's normalizer may change more, but the
            // signature of a score can report only the case.
            text.references.push(if data.lowercase {
                target.chars().flat_map(char::to_lowercase).collect()
            } else {
                target
            });
        }
        Ok(text)
    }

    /// Copy with at most `count` pairs, evenly spread over the split.
    pub fn spread(self, count: usize) -> Self {
        let total = self.sources.len();
        if total <= count {
            return self;
        }
        let chosen = |lines: Vec<String>| -> Vec<String> {
            (0..count).map(|index| lines[index * total / count].clone()).collect()
        };
        Self { sources: chosen(self.sources), references: chosen(self.references) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_keeps_pairs_together() {
        let lines = |prefix: &str| (0..10).map(|i| format!("{prefix}{i}")).collect();
        let text = ParallelText { sources: lines("s"), references: lines("t") }.spread(3);
        assert_eq!(text.sources, ["s0", "s3", "s6"]);
        assert_eq!(text.references, ["t0", "t3", "t6"]);
    }
}
