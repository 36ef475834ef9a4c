//! Changes training pairs differently in each epoch: their text, and its segmentation into
//! subwords.

use crate::tasks::pairs::modifiers::PairModifiers;
use crate::tasks::pairs::modifiers::word_pairs::WordPairs;
use crate::tasks::pairs::subwords::PairSampler;
use crate::{DataConfig, Epoch, Pair, PairReader, Result, TokenizerPair};

/// Number of pairs at the start of the training text from which words and their translations are
/// learned.
const WORDS_FROM: usize = 50_000;

/// Changes the pairs of a training split differently in each epoch.
#[derive(Debug)]
pub(crate) struct PairVariation {
    modifiers: Option<PairModifiers>,
    sampler: Option<PairSampler>,
    /// Largest number of tokens of a side after a change.
    pub(crate) max_tokens: usize,
}

impl PairVariation {
    /// Makes the configured variation. `None` if pairs are the same in all epochs.
    ///
    /// # Errors
    ///
    /// If the tokenizers do not suit the settings of sampling, or the text for learning words
    /// cannot be read.
    pub(crate) fn new(config: &DataConfig, tokenizers: &TokenizerPair) -> Result<Option<Self>> {
        let max_tokens = config.cleaning.max_tokens;
        let sampler = PairSampler::new(tokenizers, &config.tokenizer, max_tokens)?;
        let words = match config.modifiers.single_words > 0.0 {
            true => Some(word_pairs(config)?),
            false => None,
        };
        let modifiers = PairModifiers::new(&config.modifiers, words, max_tokens);
        let varies = sampler.is_some() || modifiers.is_some();
        Ok(varies.then_some(Self { modifiers, sampler, max_tokens }))
    }

    /// The pair as it is in an epoch: first its text is changed, and then it is segmented. `next`
    /// returns the next pair of the corpus, which may be appended. If the source begins with `tag`,
    /// it still does afterwards.
    ///
    /// # Errors
    ///
    /// If `next` or a tokenizer fails.
    pub(crate) fn vary(
        &self,
        mut pair: Pair,
        next: impl FnOnce() -> Result<Option<Pair>>,
        (tokenizers, tag): (&TokenizerPair, &str),
        epoch: Epoch,
    ) -> Result<Pair> {
        if let Some(modifiers) = &self.modifiers {
            pair = modifiers.modify(pair, next, (tokenizers, tag), epoch)?;
        }
        Ok(match &self.sampler {
            Some(sampler) => sampler.segment(pair, epoch),
            None => pair,
        })
    }
}

/// Learns words whose translations are nearly certain. They depend only on the training text, so
/// they are the same in every process and after every start.
fn word_pairs(config: &DataConfig) -> Result<WordPairs> {
    let reader = PairReader::open(config, &config.train)?.without_tags();
    let texts = reader.take(WORDS_FROM).map(|pair| pair.map(|pair| (pair.source, pair.target)));
    Ok(WordPairs::learn(&texts.collect::<Result<Vec<_>>>()?))
}
