//! Errors of decoding.

use thiserror::Error;

/// A failure of decoding. The field `sentence` of a variant is the index of a sentence, from 0,
/// among the sources of the failed call. A caller can [replace](Self::sentence_mut) the index by
/// its own number.
#[derive(Debug, Error)]
pub enum DecodingError {
    /// A configuration value is out of range.
    #[error("decoding.{key} = {value} is not usable: {expected}")]
    Config {
        /// The key, as written in a configuration file.
        key: &'static str,
        /// The rejected value.
        value: String,
        /// Values that are accepted.
        expected: String,
    },

    /// The expected lengths of translations, which `shortfall_penalty` needs, have not been
    /// measured.
    #[error(
        "decoding.expected_length.ratio = 0.0 is not usable: expected the tokens of a translation \
         for each token of its source, since shortfall_penalty is above 0: they are measured when a \
         run begins with it, or is tuned"
    )]
    UnknownLength,

    /// The model's vocabulary is too small to contain all special tokens.
    #[error(
        "the model has a target vocabulary of {size} tokens, too few to hold \
         <pad> 0, <unk> 1, <s> 2 and </s> 3"
    )]
    Vocabulary {
        /// Number of tokens in the model's vocabulary.
        size: usize,
    },

    /// A source does not contain the end token of the vocabulary.
    #[error(
        "source {sentence} ends with token {last}, but the end token is {end}; append it to every \
         source before decoding"
    )]
    SourceWithoutEnd {
        /// Index of the source.
        sentence: usize,
        /// Last token of the source.
        last: u32,
        /// End token of the vocabulary.
        end: u32,
    },

    /// A prompt has no tokens that could be continued.
    #[error("prompt {sentence} has no token; begin with at least one")]
    EmptyPrompt {
        /// Index of the prompt.
        sentence: usize,
    },

    /// The number of sources differs from the number of targets.
    #[error("{sources} sources but {targets} targets; give one target per source")]
    UnequalCounts {
        /// Number of sources.
        sources: usize,
        /// Number of targets.
        targets: usize,
    },

    /// The model's decoder does not attend to the source, so there are no alignments.
    #[error(
        "the model has no attention to the source, by which tokens are aligned; ask for no \
         alignments"
    )]
    NoAttention,

    /// A target to score, or a prefix, contains an id that no translation can contain.
    #[error(
        "target {sentence} holds token {token} at position {position}; give ids below {vocabulary} \
         without <pad> (0), <s> (2) and </s> (3), which decoding adds itself"
    )]
    Target {
        /// Index of the target.
        sentence: usize,
        /// Position of the token, from 0.
        position: usize,
        /// The rejected token.
        token: u32,
        /// Size of the target vocabulary.
        vocabulary: usize,
    },

    /// A prefix is longer than the longest output that the model can produce.
    #[error(
        "the prefix of sentence {sentence} has {tokens} tokens, but the model has positions for \
         outputs of {longest}; shorten it"
    )]
    LongPrefix {
        /// Index of the sentence.
        sentence: usize,
        /// Number of tokens in the prefix.
        tokens: usize,
        /// Largest number of tokens in an output.
        longest: usize,
    },

    /// The model returned an unexpected number of values.
    #[error(
        "the model returned {got} values for {rows} rows over a vocabulary of {vocabulary} tokens, \
         expected {expected}"
    )]
    WrongShape {
        /// Number of rows in the step.
        rows: usize,
        /// Size of the vocabulary.
        vocabulary: usize,
        /// Number of values expected: `rows * vocabulary`.
        expected: usize,
        /// Number of values returned.
        got: usize,
    },

    /// The model's output is not a distribution: it contains NaN or `+inf`, or consists only of
    /// `-inf`.
    #[error(
        "the model's output for sentence {sentence} at target position {position} is not a \
         distribution (NaN, +inf, or nothing possible); the weights may have diverged: try an \
         earlier checkpoint"
    )]
    NotADistribution {
        /// Index of the sentence.
        sentence: usize,
        /// Position of the predicted token in the target, from 0.
        position: usize,
    },

    /// A number that was computed is NaN or infinite.
    #[error(
        "the computation gave a value that is not finite (NaN or infinite) in {quantity} of sentence \
         {sentence}; the weights may have diverged, or the text may differ too much from the \
         training data: check both, or try an earlier checkpoint"
    )]
    NotFinite {
        /// Name of the number, for the message.
        quantity: &'static str,
        /// Index of the sentence.
        sentence: usize,
    },

    /// The constraints of the search allow only continuations with probability zero.
    #[error(
        "no translation of sentence {sentence} has a probability above zero within its limits; \
         lower decoding.min_length, raise decoding.no_repeat_ngram or set it to 0, allow <unk>, or shorten the forced prefix"
    )]
    DeadEnd {
        /// Index of the sentence.
        sentence: usize,
    },

    /// The models cannot be combined in an ensemble, because there are none or their vocabularies
    /// differ in size.
    #[error("an ensemble needs models with one target vocabulary; these have {sizes:?} tokens")]
    Ensemble {
        /// Size of each model's target vocabulary.
        sizes: Vec<usize>,
    },

    /// The model itself failed.
    #[error("the model failed to {action}")]
    Model {
        /// The call that failed, such as "step". It completes the message "failed to …".
        action: &'static str,
        /// Error of the model.
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

    /// Returns the index of the sentence that caused the error; `None` if no sentence did. A caller
    /// can replace the index by a number that its own users know.
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

    /// True if the search for a single sentence failed. The searches for other sentences are
    /// independent of it.
    pub(crate) fn is_of_search(&self) -> bool {
        matches!(self, Self::NotADistribution { .. } | Self::DeadEnd { .. })
    }

    /// Replaces the index of the sentence in its batch by its index in the whole call, which is
    /// `indices[i]` for sentence `i` of the batch.
    pub(crate) fn in_batch(mut self, indices: &[usize]) -> Self {
        if let Some(sentence) = self.sentence_mut() {
            *sentence = indices.get(*sentence).copied().unwrap_or(*sentence);
        }
        self
    }
}
