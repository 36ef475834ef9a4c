//! Everything that can go wrong while decoding.

use thiserror::Error;

/// Why decoding failed. A `sentence` is a 0-based index into the sources of the call that failed,
/// unless a caller has put its own number there.
#[derive(Debug, Error)]
pub enum DecodingError {
    /// A configuration value is out of range.
    #[error("decoding.{key} = {value} is not usable: {expected}")]
    Config {
        /// The key, as written in a configuration file.
        key: &'static str,
        /// The refused value.
        value: String,
        /// What would be accepted.
        expected: String,
    },

    /// The vocabulary lacks the special tokens.
    #[error(
        "the model has a target vocabulary of {size} tokens, too few to hold \
         <pad> 0, <unk> 1, <s> 2 and </s> 3"
    )]
    Vocabulary {
        /// The size that the model reported.
        size: usize,
    },

    /// A source does not end with `</s>`.
    #[error(
        "source {sentence} ends with token {last} where </s> (3) was expected; \
         append </s> to every source before decoding"
    )]
    SourceWithoutEnd {
        /// Which source.
        sentence: usize,
        /// Its last token.
        last: u32,
    },

    /// There is nothing to go on with.
    #[error("prompt {sentence} has no token; begin with at least one")]
    EmptyPrompt {
        /// Which prompt.
        sentence: usize,
    },

    /// Sources and targets do not pair up.
    #[error("{sources} sources but {targets} targets; give one target per source")]
    UnequalCounts {
        /// Number of sources.
        sources: usize,
        /// Number of targets.
        targets: usize,
    },

    /// The model attends to nothing, so that nothing says which tokens belong together.
    #[error(
        "the model has no attention to the source, by which tokens are aligned; ask for no \
         alignments"
    )]
    NoAttention,

    /// A target to score, or to begin with, holds an id that no translation can hold.
    #[error(
        "target {sentence} holds token {token} at position {position}; give ids below {vocabulary} \
         without <pad> (0), <s> (2) and </s> (3), which decoding adds itself"
    )]
    Target {
        /// Which target.
        sentence: usize,
        /// The 0-based position of the token.
        position: usize,
        /// The refused token.
        token: u32,
        /// The size of the target vocabulary.
        vocabulary: usize,
    },

    /// A target to begin with is longer than the model's outputs can be.
    #[error(
        "the prefix of sentence {sentence} has {tokens} tokens, but the model has positions for \
         outputs of {longest}; shorten it"
    )]
    LongPrefix {
        /// Which sentence.
        sentence: usize,
        /// The prefix's tokens.
        tokens: usize,
        /// The most that an output can have.
        longest: usize,
    },

    /// The model returned an unexpected number of values.
    #[error(
        "the model returned {got} values for {rows} rows over a vocabulary of {vocabulary} tokens, \
         expected {expected}"
    )]
    WrongShape {
        /// Rows that were stepped.
        rows: usize,
        /// The vocabulary size.
        vocabulary: usize,
        /// `rows * vocabulary`.
        expected: usize,
        /// Values returned.
        got: usize,
    },

    /// The model's output cannot be normalised: it holds a NaN or `+inf`, or only `-inf`.
    #[error(
        "the model's output for sentence {sentence} at target position {position} is not a \
         distribution (NaN, +inf, or nothing possible); the weights may have diverged: try an \
         earlier checkpoint"
    )]
    NotADistribution {
        /// Which sentence.
        sentence: usize,
        /// The 0-based target position being predicted.
        position: usize,
    },

    /// A number of the answer is NaN or infinite.
    #[error(
        "the computation gave a value that is not finite (NaN or infinite) in {what} of sentence \
         {sentence}; the weights may have diverged, or the text be unlike all that they learned \
         from: look at both, or try an earlier checkpoint"
    )]
    NotFinite {
        /// What was computed.
        what: &'static str,
        /// Of which sentence.
        sentence: usize,
    },

    /// Every continuation that the search may take has probability zero.
    #[error(
        "no translation of sentence {sentence} has a probability above zero within its limits; \
         lower decoding.min_length, raise decoding.no_repeat_ngram or set it to 0, allow <unk>, or shorten the forced prefix"
    )]
    DeadEnd {
        /// Which sentence.
        sentence: usize,
    },

    /// Models that cannot decide together.
    #[error("an ensemble needs models with one target vocabulary; these have {sizes:?} tokens")]
    Ensemble {
        /// The size of each model's target vocabulary.
        sizes: Vec<usize>,
    },

    /// The model itself failed.
    #[error("the model failed to {action}")]
    Model {
        /// What it was asked to do, as in "failed to step".
        action: &'static str,
        /// Its own error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl DecodingError {
    /// Wraps the error of a [`StepModel`](crate::StepModel) that failed to do `action`.
    pub fn model(
        action: &'static str,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        let source = source.into();
        Self::Model { action, source }
    }

    /// Which sentence it is about, where it is about one; a caller puts the number there that its
    /// own reader knows the sentence by.
    pub fn sentence_mut(&mut self) -> Option<&mut usize> {
        match self {
            Self::NotADistribution { sentence, .. }
            | Self::NotFinite { sentence, .. }
            | Self::DeadEnd { sentence }
            | Self::SourceWithoutEnd { sentence, .. }
            | Self::Target { sentence, .. }
            | Self::EmptyPrompt { sentence }
            | Self::LongPrefix { sentence, .. } => Some(sentence),
            _ => None,
        }
    }

    /// Translates a sentence index within a batch to one within the whole call.
    pub(crate) fn in_batch(mut self, indices: &[usize]) -> Self {
        if let Some(sentence) = self.sentence_mut() {
            *sentence = indices.get(*sentence).copied().unwrap_or(*sentence);
        }
        self
    }
}
