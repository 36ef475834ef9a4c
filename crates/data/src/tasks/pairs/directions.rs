//! Tokenizers of each corpus of a split, and the number of passes over each corpus in an epoch.

use std::collections::HashMap;
use std::hash::Hash;

use crate::{Corpora, DataConfig, Direction, Result, TokenizerPair};

/// The corpora of a split, with the information that a data set needs.
pub(crate) struct SplitCorpora {
    /// The corpora in their order.
    pub(crate) corpora: Vec<SplitCorpus>,
    /// Temperature with which the translation directions are mixed (see [`mix`]). With 1, the
    /// weights do not change.
    temperature: f64,
}

/// A corpus of a split.
#[derive(Debug, Clone)]
pub(crate) struct SplitCorpus {
    /// Direction of the corpus.
    pub(crate) direction: Direction,
    /// Tokenizers of the corpus. If there are several target languages, they add the token of the
    /// target language to each pair.
    pub(crate) tokenizers: TokenizerPair,
    /// Number of passes over the corpus in an epoch, before directions are mixed.
    weight: f64,
}

impl SplitCorpora {
    /// The corpora of `split`. The temperature is used only for training.
    ///
    /// # Errors
    ///
    /// If a vocabulary lacks the token of a language.
    pub(crate) fn new(
        config: &DataConfig,
        tokenizers: &TokenizerPair,
        split: &Corpora,
        is_training: bool,
    ) -> Result<Self> {
        let corpora = split.iter().map(|corpus| {
            let direction = config.direction_of(corpus);
            let tokenizers = tokenizers.toward(config, &direction)?;
            Ok(SplitCorpus { direction, tokenizers, weight: corpus.weight })
        });
        let corpora = corpora.collect::<Result<Vec<_>>>()?;
        let is_mixed = is_training && config.is_multilingual();
        Ok(Self { corpora, temperature: if is_mixed { config.languages.temperature } else { 1.0 } })
    }

    /// Number of passes over each corpus in an epoch. `pairs` has the number of pairs of each
    /// corpus.
    pub(crate) fn passes(&self, pairs: &[usize]) -> Vec<f64> {
        let sizes = self.corpora.iter().zip(pairs);
        let sizes: Vec<(&Direction, f64)> =
            sizes.map(|(one, &pairs)| (&one.direction, one.weight * pairs as f64)).collect();
        let factors = mix(&sizes, self.temperature);
        self.corpora.iter().zip(factors).map(|(one, factor)| one.weight * factor).collect()
    }
}

/// Factors by which the weights of corpora are multiplied. `corpora` has the direction and the size
/// of each corpus. With these factors, the share of a direction with n pairs is proportional to
/// n^(1/T), where T is the temperature, and the total size stays the same.
///
/// Arivazhagan et al. 2019, "Massively Multilingual Neural Machine Translation in the Wild",
/// section 4.2.
pub(crate) fn mix<D: Copy + Eq + Hash>(corpora: &[(D, f64)], temperature: f64) -> Vec<f64> {
    if temperature == 1.0 {
        return vec![1.0; corpora.len()];
    }
    let mut sizes: HashMap<D, f64> = HashMap::new();
    for (direction, size) in corpora {
        *sizes.entry(*direction).or_default() += size;
    }
    let all: f64 = corpora.iter().map(|(_, size)| size).sum();
    let share = |size: f64| if size > 0.0 { (size / all).powf(1.0 / temperature) } else { 0.0 };
    // The sum follows the order of the corpora, because the order of a map may change, and with it
    // the rounding of the sum.
    let mut summed = Vec::new();
    let mut shares = 0.0;
    for (direction, _) in corpora {
        if !summed.contains(direction) {
            summed.push(*direction);
            shares += share(sizes[direction]);
        }
    }
    let factor = |(direction, _): &(D, f64)| {
        let size = sizes[direction];
        if size > 0.0 { share(size) / shares * all / size } else { 1.0 }
    };
    corpora.iter().map(factor).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_follow_the_root_of_sizes() {
        let near = |factors: Vec<f64>, expected: &[f64]| {
            for (factor, expected) in factors.iter().zip(expected) {
                assert!((factor - expected).abs() < 1e-12, "{factors:?}");
            }
            assert_eq!(factors.len(), expected.len());
        };
        near(mix(&[("a", 9.0), ("b", 1.0)], 1.0), &[1.0, 1.0]);
        // 10 pairs are divided in the ratio √9 : √1.
        near(mix(&[("a", 9.0), ("b", 1.0)], 2.0), &[7.5 / 9.0, 2.5]);
        // The ratio of two corpora of the same direction does not change.
        near(mix(&[("a", 6.0), ("b", 1.0), ("a", 3.0)], 2.0), &[7.5 / 9.0, 2.5, 7.5 / 9.0]);
        near(mix(&[("a", 9.0), ("b", 1.0)], 1e15), &[5.0 / 9.0, 5.0]);
        near(mix(&[("a", 4.0), ("b", 0.0)], 2.0), &[1.0, 1.0]);
    }
}
