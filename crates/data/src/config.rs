//! The `[data]` table of a recipe. Each default stands once, in a `Default` implementation here.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::tasks::pairs::reader::split_name;
use crate::{Error, Result, RunningTextConfig};

/// More tokens than any vocabulary in use has; the tokenizer's trainer reserves memory for as many
/// as it is asked for.
const LARGEST_VOCABULARY: usize = 1 << 22;

/// Where the text is and what becomes of it on the way to the model.
///
/// With `format = "text"` a split named `train` is the pair of files
/// `{dir}/train.{source_language}` and `{dir}/train.{target_language}`; each file may end in `.gz`
/// or `.zst`. In the other formats both sides are in one file, `{dir}/train.tsv`, `.jsonl` or
/// `.parquet`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DataConfig {
    /// The folder that holds the files.
    pub dir: PathBuf,
    /// The language translated from; the file extension in text format.
    pub source_language: String,
    /// The language translated into; the file extension in text format.
    pub target_language: String,
    /// The stem of the training split.
    pub train: String,
    /// The stem of the validation split; empty for none.
    pub validation: String,
    /// The stems of the test splits.
    pub test: Vec<String>,
    /// How the pairs are stored.
    pub format: Format,
    /// Apply Unicode normalisation form KC to the text before it is tokenised.
    pub nfkc: bool,
    /// Lowercase the text before it is tokenised.
    pub lowercase: bool,
    /// So many epochs, the first, teach both directions: each pair as it is and turned round, in
    /// batches of either (Ding, Wu and Tao 2021, section 3). Those that follow go in the
    /// direction that is wanted. Needs `tokenizer.joint`.
    pub bidirectional_epochs: u64,
    /// Which columns or fields hold the two sides, for every format but text.
    pub fields: FieldsConfig,
    /// The data set on the Hugging Face hub, for `format = "hub"`.
    pub hub: HubConfig,
    /// How running text is cut, for language models.
    #[serde(skip_serializing_if = "RunningTextConfig::is_default")]
    pub text: RunningTextConfig,
    /// Which pairs are left out.
    pub cleaning: CleaningConfig,
    /// How text becomes ids.
    pub tokenizer: TokenizerConfig,
    /// How pairs become batches.
    pub batching: BatchingConfig,
}

impl Default for DataConfig {
    fn default() -> Self {
        Self {
            dir: PathBuf::from("data"),
            source_language: "en".to_owned(),
            target_language: "de".to_owned(),
            train: "train".to_owned(),
            validation: "val".to_owned(),
            test: vec!["test".to_owned()],
            format: Format::Text,
            nfkc: false,
            lowercase: false,
            bidirectional_epochs: 0,
            fields: FieldsConfig::default(),
            hub: HubConfig::default(),
            text: RunningTextConfig::default(),
            cleaning: CleaningConfig::default(),
            tokenizer: TokenizerConfig::default(),
            batching: BatchingConfig::default(),
        }
    }
}

/// How sentence pairs are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Two files, one sentence a line.
    Text,
    /// One file of tab-separated columns.
    Tsv,
    /// One file with a JSON object a line.
    Jsonl,
    /// One Apache Parquet file.
    Parquet,
    /// A data set on the Hugging Face hub, in its Parquet form; a split's stem is its name there.
    Hub,
}

/// One side of a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// The side translated from.
    Source,
    /// The side translated into.
    Target,
}

/// Names the columns or fields of single-file formats.
///
/// In TSV a number is a column counted from 1 and a name is looked up in the first line, which is
/// then a header. In JSON lines, Parquet and hub data a dot enters a nested object:
/// `translation.de`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FieldsConfig {
    /// The source side. Empty: column 1 of TSV, elsewhere the field named like the language, or
    /// else `translation.` and the language.
    pub source: String,
    /// The target side. Empty: column 2 of TSV, elsewhere as for the source.
    pub target: String,
}

/// A data set on the Hugging Face hub.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HubConfig {
    /// The id, `owner/name`.
    pub dataset: String,
    /// The configuration (subset) of the data set; empty if it has one only.
    pub config: String,
}

/// Which pairs are dropped. A pair is dropped whole, so the sides stay aligned.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CleaningConfig {
    /// A side with fewer tokens drops its pair.
    pub min_tokens: usize,
    /// A side with more tokens drops its pair.
    pub max_tokens: usize,
    /// A pair whose longer side has more than this many times the tokens of its shorter is
    /// dropped; 0 for no such limit.
    pub max_ratio: f64,
    /// A side with more characters drops its pair before it is tokenised.
    pub max_characters: usize,
}

impl Default for CleaningConfig {
    fn default() -> Self {
        Self { min_tokens: 1, max_tokens: 250, max_ratio: 9.0, max_characters: 10_000 }
    }
}

/// The algorithm that segments text into subwords.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TokenizerKind {
    /// Byte-pair encoding.
    Bpe,
    /// The unigram language model.
    Unigram,
    /// Byte-pair encoding on bytes, with the word boundaries of GPT-2 (Radford et al. 2019, section
    /// 2.2): every text can be spelled, and comes back to the byte.
    Bytes,
    /// Every character of the training text is a token, and any other is unknown.
    Char,
}

/// How text becomes ids.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TokenizerConfig {
    /// The algorithm to train.
    pub kind: TokenizerKind,
    /// One vocabulary for both languages (needed for tied embeddings of encoder and decoder), or
    /// one each.
    pub joint: bool,
    /// The size of the vocabulary, special tokens and bytes included; of each, where there are
    /// two.
    pub vocabulary_size: usize,
    /// Spell characters that the vocabulary lacks as bytes, so that no text is unknown.
    pub byte_fallback: bool,
    /// The share of character occurrences in the training text that get a token of their own; the
    /// rarest rest is left to bytes.
    pub character_coverage: f64,
    /// At most this many training pairs, from the first, are used to train the tokenizer.
    pub max_pairs: u64,
    /// The probability with which a merge of BPE is left out when training text is segmented, anew
    /// in each epoch (Provilkov et al. 2020); 0 segments as ever. Batches are filled by the
    /// tokens of text without dropout.
    pub dropout: f64,
    /// The exponent with which segmentations of training text are drawn from a unigram model, anew
    /// in each epoch (Kudo 2018): the smaller, the more varied; 0 takes the best one. Batches
    /// are filled by the tokens of the best.
    pub sampling_alpha: f64,
    /// An existing `tokenizer.json` (for the source side where `target_path` is given) instead of
    /// training.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
    /// An existing `tokenizer.json` for the target side, if `joint` is false.
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

/// How pairs become batches.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BatchingConfig {
    /// The most tokens of a batch on either side, end marks included. Batches are packed, so each
    /// is a token of the text and none is padding. `"auto"` (here [`AUTO`]) leaves it to the
    /// program to find what fits into memory before training.
    #[serde(with = "tokens_or_auto")]
    #[schemars(schema_with = "tokens_or_auto::schema")]
    pub max_tokens: usize,
    /// The most sentence pairs of a batch; 0 for no such limit.
    pub max_sentences: usize,
    /// Draw a new order in each epoch; otherwise the order of the corpus, in each.
    pub shuffle: bool,
    /// Put pairs of similar length together.
    pub group_by_length: bool,
    /// How loosely: the spread of the random factor on a length before pairs are ordered by it.
    pub length_noise: f64,
    /// How many batches are assembled ahead of the trainer.
    pub prefetch: usize,
}

impl Default for BatchingConfig {
    fn default() -> Self {
        Self {
            max_tokens: 4096,
            max_sentences: 0,
            shuffle: true,
            group_by_length: true,
            length_noise: 0.2,
            prefetch: 4,
        }
    }
}

/// The token budget that is yet to be found.
pub const AUTO: usize = usize::MAX;

impl BatchingConfig {
    /// The token budget to plan with: the configured one, and the default until one has been found.
    #[must_use]
    pub fn planned_tokens(&self) -> usize {
        match self.max_tokens {
            AUTO => Self::default().max_tokens,
            tokens => tokens,
        }
    }
}

/// A number, or the word `"auto"`.
mod tokens_or_auto {
    use std::fmt;

    use schemars::{Schema, SchemaGenerator, json_schema};
    use serde::de::{Error, Unexpected, Visitor};
    use serde::{Deserializer, Serializer};

    pub(super) fn schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [{ "type": "integer", "minimum": 1 }, { "const": "auto" }] })
    }

    pub(super) fn serialize<S: Serializer>(
        tokens: &usize,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        if *tokens == super::AUTO {
            serializer.serialize_str("auto")
        } else {
            serializer.serialize_u64(*tokens as u64)
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<usize, D::Error> {
        struct Tokens;

        impl Visitor<'_> for Tokens {
            type Value = usize;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a number of tokens from 1, or \"auto\"")
            }

            fn visit_i64<E: Error>(self, tokens: i64) -> Result<usize, E> {
                u64::try_from(tokens)
                    .map_err(|_| E::invalid_value(Unexpected::Signed(tokens), &self))
                    .and_then(|tokens| self.visit_u64(tokens))
            }

            fn visit_u64<E: Error>(self, tokens: u64) -> Result<usize, E> {
                usize::try_from(tokens)
                    .map_err(|_| E::invalid_value(Unexpected::Unsigned(tokens), &self))
            }

            fn visit_str<E: Error>(self, word: &str) -> Result<usize, E> {
                if word == "auto" {
                    Ok(super::AUTO)
                } else {
                    Err(E::invalid_value(Unexpected::Str(word), &self))
                }
            }
        }

        deserializer.deserialize_any(Tokens)
    }
}

impl DataConfig {
    /// The language of a side.
    pub fn language(&self, side: Side) -> &str {
        match side {
            Side::Source => &self.source_language,
            Side::Target => &self.target_language,
        }
    }

    /// Refuses values and combinations that can work in no task.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] with the offending key.
    pub(crate) fn validate(&self) -> Result<()> {
        let wrong = |key, message: &str| Err(Error::Config { key, message: message.to_owned() });
        if self.train.is_empty() {
            return wrong("data.train", "is empty; name the training split, for example \"train\"");
        }
        if split_name(&self.train) == split_name(&self.validation) {
            return wrong(
                "data.validation",
                "would have the same name in the run's folder as data.train; rename one of the files",
            );
        }
        if self.batching.max_tokens == 0 {
            return wrong("data.batching.max_tokens", "must be at least 1");
        }
        if !(0.0..=1.0).contains(&self.batching.length_noise) {
            return wrong("data.batching.length_noise", "must lie between 0 and 1");
        }
        self.validate_tokenizer()
    }

    fn validate_tokenizer(&self) -> Result<()> {
        let wrong = |key, message: &str| Err(Error::Config { key, message: message.to_owned() });
        let tokenizer = &self.tokenizer;
        if tokenizer.vocabulary_size > LARGEST_VOCABULARY {
            return wrong(
                "data.tokenizer.vocabulary_size",
                &format!("must be at most {LARGEST_VOCABULARY}"),
            );
        }
        if tokenizer.max_pairs == 0 {
            return wrong("data.tokenizer.max_pairs", "must be at least 1");
        }
        if !(tokenizer.character_coverage > 0.0 && tokenizer.character_coverage <= 1.0) {
            return wrong("data.tokenizer.character_coverage", "must be above 0 and at most 1");
        }
        if !(0.0..1.0).contains(&tokenizer.dropout) {
            return wrong("data.tokenizer.dropout", "must be at least 0 and below 1");
        }
        if !(tokenizer.sampling_alpha >= 0.0 && tokenizer.sampling_alpha.is_finite()) {
            return wrong("data.tokenizer.sampling_alpha", "must be 0 (off) or a positive number");
        }
        // The kind of an existing tokenizer is known once it is read.
        if tokenizer.path.is_none() {
            let merges = matches!(tokenizer.kind, TokenizerKind::Bpe | TokenizerKind::Bytes);
            if tokenizer.dropout > 0.0 && !merges {
                return wrong(
                    "data.tokenizer.dropout",
                    "is for kind = \"bpe\" or \"bytes\"; with unigram, set data.tokenizer.sampling_alpha",
                );
            }
            if tokenizer.sampling_alpha > 0.0 && tokenizer.kind != TokenizerKind::Unigram {
                return wrong(
                    "data.tokenizer.sampling_alpha",
                    "is for kind = \"unigram\"; with bpe, set data.tokenizer.dropout",
                );
            }
            if tokenizer.target_path.is_some() {
                return wrong(
                    "data.tokenizer.target_path",
                    "needs data.tokenizer.path for the source side",
                );
            }
            return Ok(());
        }
        if self.nfkc || self.lowercase {
            return wrong(
                "data.tokenizer.path",
                "cannot be combined with data.nfkc or data.lowercase: an existing tokenizer brings its own normalizer",
            );
        }
        match (tokenizer.joint, tokenizer.target_path.is_some()) {
            (true, true) => wrong(
                "data.tokenizer.target_path",
                "cannot be given while data.tokenizer.joint is true",
            ),
            (false, false) => wrong(
                "data.tokenizer.target_path",
                "is needed besides data.tokenizer.path while data.tokenizer.joint is false",
            ),
            _ => Ok(()),
        }
    }
}
