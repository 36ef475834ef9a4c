//! Settings of tokenizers: the `[data.tokenizer]` table of a recipe (the TOML file with all
//! settings of a training).

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// Largest size of a vocabulary, far above any vocabulary in use. It is limited because the trainer
/// of tokenizers allocates memory for the requested size.
const LARGEST_VOCABULARY: usize = 1 << 22;

/// The algorithm that segments text into subwords.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TokenizerKind {
    /// Byte-pair encoding.
    Bpe,
    /// The unigram language model.
    Unigram,
    /// Byte-pair encoding on bytes, with the word boundaries of GPT-2 (Radford et al. 2019, section
    /// 2.2): every text can be spelled, and decodes to the same bytes.
    Bytes,
    /// Characters: each character of the training text is a token, and others are unknown.
    Char,
}

/// Conversion of text to ids.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TokenizerConfig {
    /// Kind of the tokenizer to train.
    #[schemars(
        extend("x-names" = "tokenizer_type subword subword_type"),
        extend("x-idle" = ["no-text", "tokenizer-given"])
    )]
    pub kind: TokenizerKind,
    /// Whether both languages share one vocabulary (needed for tied embeddings of encoder and
    /// decoder), or have separate ones.
    #[schemars(
        extend("x-names" = "joined_dictionary share_vocab shared_vocab joint_vocab \
            joint_vocabulary"),
        extend("x-idle" = ["not-translation"])
    )]
    pub joint: bool,
    /// The size of the vocabulary, special tokens and bytes included; the size of each, if there
    /// are two vocabularies.
    #[schemars(range(max = 4_194_304))]
    #[schemars(
        extend("x-names" = "vocab vocab_size vocabulary voc_limit src_vocab_size tgt_vocab_size \
            num_words"),
        extend("x-idle" = ["no-text", "characters", "tokenizer-given"])
    )]
    pub vocabulary_size: usize,
    /// Whether characters outside the vocabulary are spelled as bytes, so that no text is unknown.
    #[schemars(extend("x-idle" = ["no-text", "characters", "bytes", "tokenizer-given"]))]
    pub byte_fallback: bool,
    /// Share of the characters of the training text that have separate tokens. The rarest
    /// characters, beyond this share, are spelled as bytes.
    #[schemars(range(max = 1.0), extend("exclusiveMinimum" = 0.0))]
    #[schemars(extend("x-idle" = ["no-text", "characters", "bytes", "tokenizer-given"]))]
    pub character_coverage: f64,
    /// Largest number of training pairs, counted from the first, that the tokenizer is trained on.
    #[schemars(range(min = 1))]
    #[schemars(extend("x-idle" = ["no-text", "tokenizer-given"]))]
    pub max_pairs: u64,
    /// Probability that a merge of BPE is skipped when training text is segmented (Provilkov et al.
    /// 2020). The merges are drawn anew in each epoch; 0 skips none. Batches are planned by the
    /// tokens of text without dropout.
    #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1.0))]
    #[schemars(
        extend("x-names" = "bpe_dropout"),
        extend("x-change" = "accepted"),
        extend("x-idle" = ["no-text"])
    )]
    pub dropout: f64,
    /// Exponent of the probabilities with which a unigram model draws segmentations of training
    /// text (Kudo 2018), anew in each epoch. With smaller values, segmentations vary more; 0 always
    /// takes the best segmentation. Batches are planned by the tokens of the best segmentation.
    #[schemars(range(min = 0.0))]
    #[schemars(
        extend("x-names" = "sentencepiece_alpha spm_alpha subword_alpha"),
        extend("x-change" = "accepted"),
        extend("x-idle" = ["no-text"])
    )]
    pub sampling_alpha: f64,
    /// An existing `tokenizer.json` instead of training; with `target_path`, it is for the source
    /// side only.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-names" = "tokenizer_path tokenizer_file tokenizer_name"))]
    pub path: Option<PathBuf>,
    /// An existing `tokenizer.json` for the target side, if `joint` is false, or if both sides have
    /// a tokenizer of their own with one vocabulary, as in an imported MarianMT.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_path: Option<PathBuf>,
}

impl Default for TokenizerConfig {
    fn default() -> Self {
        Self {
            kind: TokenizerKind::Bpe,
            joint: true,
            vocabulary_size: 8000,
            byte_fallback: true,
            character_coverage: 0.9998,
            max_pairs: 2_000_000,
            dropout: 0.0,
            sampling_alpha: 0.0,
            path: None,
            target_path: None,
        }
    }
}

impl TokenizerConfig {
    /// Refuses settings, and combinations of settings, that are impossible whatever the task is.
    /// `is_changed` is true if the recipe normalises or lowercases text before it is tokenised.
    pub(super) fn validate(&self, is_changed: bool) -> Result<()> {
        let wrong = |key, message: &str| Err(Error::Config { key, message: message.to_owned() });
        if self.vocabulary_size > LARGEST_VOCABULARY {
            return wrong(
                "data.tokenizer.vocabulary_size",
                &format!("must be at most {LARGEST_VOCABULARY}"),
            );
        }
        if self.max_pairs == 0 {
            return wrong("data.tokenizer.max_pairs", "must be at least 1");
        }
        if !(self.character_coverage > 0.0 && self.character_coverage <= 1.0) {
            return wrong("data.tokenizer.character_coverage", "must be above 0 and at most 1");
        }
        if !(0.0..1.0).contains(&self.dropout) {
            return wrong("data.tokenizer.dropout", "must be at least 0 and below 1");
        }
        if !(self.sampling_alpha >= 0.0 && self.sampling_alpha.is_finite()) {
            return wrong("data.tokenizer.sampling_alpha", "must be 0 (off) or a positive number");
        }
        // The kind of an existing tokenizer is known only after its file was read, so settings that
        // depend on the kind are checked only for a new tokenizer here.
        if self.path.is_none() {
            return self.validate_new();
        }
        if is_changed {
            return wrong(
                "data.tokenizer.path",
                "cannot be combined with data.nfkc or data.lowercase: an existing tokenizer has \
                 its own normalizer",
            );
        }
        if !self.joint && self.target_path.is_none() {
            return wrong(
                "data.tokenizer.target_path",
                "is needed besides data.tokenizer.path while data.tokenizer.joint is false",
            );
        }
        Ok(())
    }

    /// Refuses settings that are impossible for a tokenizer that will be trained.
    fn validate_new(&self) -> Result<()> {
        let wrong = |key, message: &str| Err(Error::Config { key, message: message.to_owned() });
        let merges = matches!(self.kind, TokenizerKind::Bpe | TokenizerKind::Bytes);
        if self.dropout > 0.0 && !merges {
            return wrong(
                "data.tokenizer.dropout",
                "is for kind = \"bpe\" or \"bytes\"; with unigram, set \
                 data.tokenizer.sampling_alpha",
            );
        }
        if self.sampling_alpha > 0.0 && self.kind != TokenizerKind::Unigram {
            return wrong(
                "data.tokenizer.sampling_alpha",
                "is for kind = \"unigram\"; with bpe, set data.tokenizer.dropout",
            );
        }
        if self.target_path.is_some() {
            return wrong(
                "data.tokenizer.target_path",
                "needs data.tokenizer.path for the source side",
            );
        }
        Ok(())
    }
}
