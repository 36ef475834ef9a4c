//! Which tokens of a vocabulary are special: ours, or those of the models of others, as the file of
//! their tokenizer implies them or the folder that it came with says.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tokenizers::ModelWrapper;

use crate::text::tokenizer::{END, PAD, SPECIAL_TOKENS, UNKNOWN};
use crate::{Error, Result};

/// The tokens that encoders of texts have besides the special tokens: what begins a row, what ends
/// each of its texts, and what stands for a hidden token.
pub(crate) const MARKS: [&str; 3] = ["<cls>", "<sep>", "<mask>"];

/// What ends a document in GPT-2's vocabulary and its descendants'.
const END_OF_TEXT: &str = "<|endoftext|>";

/// What BERT's vocabulary has for padding and for what it cannot spell.
const BERT_OTHERS: [&str; 2] = ["[PAD]", "[UNK]"];
/// What it has for [`MARKS`].
const BERT_MARKS: [&str; 3] = ["[CLS]", "[SEP]", "[MASK]"];

/// The ids of the marks in a vocabulary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Marks {
    pub(crate) class: u32,
    pub(crate) separator: u32,
    pub(crate) mask: u32,
}

impl Marks {
    /// Those with these names; `None` where one is missing.
    pub(crate) fn of(inner: &tokenizers::Tokenizer, names: [&str; 3]) -> Option<Self> {
        let [class, separator, mask] = names.map(|name| inner.token_to_id(name));
        Some(Self { class: class?, separator: separator?, mask: mask? })
    }
}

/// The special tokens of a vocabulary, by what they are for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpecialTokens {
    /// Fills rows up; nothing here is filled up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pad: Option<u32>,
    /// Stands for text that the vocabulary cannot spell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown: Option<u32>,
    /// Begins a text; where `None`, a text begins after the end of another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<u32>,
    /// Whether a prompt begins with `start` too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub starts_prompts: bool,
    /// End a text; the first ends a document.
    #[serde(default)]
    pub ends: Vec<u32>,
    /// Begins what an encoder reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<u32>,
    /// Ends each text that an encoder reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub separator: Option<u32>,
    /// Stands for a hidden token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mask: Option<u32>,
    /// All tokens that stand for no text, ascending. An end may be missing here: any token can end
    /// what a model writes.
    #[serde(default)]
    pub no_text: Vec<u32>,
}

impl SpecialTokens {
    /// Those that the file of a tokenizer implies, and whether they are ours, which are then to be
    /// [required](Error::SpecialToken): the spelling of others tells what they are.
    pub(crate) fn implied(inner: &tokenizers::Tokenizer) -> (Self, bool) {
        let ours = || Self {
            pad: Some(PAD),
            unknown: Some(UNKNOWN),
            ends: vec![END],
            no_text: (0..SPECIAL_TOKENS.len() as u32).collect(),
            ..Self::default()
        };
        if SPECIAL_TOKENS.iter().any(|token| inner.token_to_id(token).is_some()) {
            return (ours(), true);
        }
        if let Some(end) = inner.token_to_id(END_OF_TEXT) {
            return (Self { ends: vec![end], no_text: vec![end], ..Self::default() }, false);
        }
        let [pad, unknown] = BERT_OTHERS.map(|name| inner.token_to_id(name));
        match (pad, unknown, Marks::of(inner, BERT_MARKS)) {
            (Some(pad), Some(unknown), Some(Marks { class, separator, mask })) => {
                let mut no_text = vec![pad, unknown, class, separator, mask];
                no_text.sort_unstable();
                let of_bert = Self {
                    pad: Some(pad),
                    unknown: Some(unknown),
                    ends: vec![separator],
                    class: Some(class),
                    separator: Some(separator),
                    mask: Some(mask),
                    no_text,
                    ..Self::default()
                };
                (of_bert, false)
            }
            _ => (ours(), true),
        }
    }

    /// Whether a token stands for no text.
    pub(crate) fn contains(&self, id: u32) -> bool {
        self.no_text.binary_search(&id).is_ok()
    }

    /// The marks among them.
    pub(crate) fn marks(&self) -> Option<Marks> {
        Some(Marks { class: self.class?, separator: self.separator?, mask: self.mask? })
    }

    /// The largest id among them.
    fn largest(&self) -> Option<u32> {
        let Self { pad, unknown, start, class, separator, mask, .. } = self;
        let roles = [pad, unknown, start, class, separator, mask].into_iter().flatten();
        roles.chain(&self.ends).chain(&self.no_text).copied().max()
    }
}

/// What the model of a tokenizer makes of text that it cannot spell.
pub(crate) fn unknown_of(inner: &tokenizers::Tokenizer) -> Option<u32> {
    match inner.get_model() {
        ModelWrapper::BPE(model) => inner.token_to_id(model.unk_token.as_deref()?),
        ModelWrapper::WordPiece(model) => inner.token_to_id(&model.unk_token),
        ModelWrapper::WordLevel(model) => inner.token_to_id(&model.unk_token),
        // The library shows it in its file alone.
        ModelWrapper::Unigram(model) => {
            let id = serde_json::to_value(model).ok()?["unk_id"].as_u64()?;
            u32::try_from(id).ok()
        }
    }
}

/// What the folder of a model says of its tokens beside the file of their tokenizer. It is kept
/// beside that file, and belongs to what tells a tokenizer from others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FolderTokens {
    /// Rows of the model's embedding, which may be more than there are tokens.
    pub vocabulary_size: usize,
    /// The special tokens.
    pub special: SpecialTokens,
    /// The ids of tokens as the configuration of the model has them, by their keys.
    #[serde(default)]
    pub ids: BTreeMap<String, serde_json::Value>,
    /// Files about the tokens, by name, as they were: an export gives them back.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
}

impl FolderTokens {
    /// The file beside that of a tokenizer.
    pub(crate) fn path(tokenizer: &Path) -> PathBuf {
        tokenizer.with_extension("special.json")
    }

    /// As its file has them.
    pub(crate) fn to_json(&self) -> Result<String> {
        let written = serde_json::to_string_pretty(self);
        written.map(|json| json + "\n").map_err(|error| Error::Tokenizer {
            action: "write its special tokens",
            message: error.to_string(),
        })
    }

    /// Reads the content `json` of the file `path`.
    ///
    /// # Errors
    ///
    /// If it is not that, or names a token beyond the vocabulary.
    pub(crate) fn from_json(json: &str, path: &Path) -> Result<Self> {
        let malformed = |message: String| Error::Malformed { path: path.to_owned(), message };
        let mut read: Self = serde_json::from_str(json)
            .map_err(|error| malformed(format!("not the special tokens of a run ({error})")))?;
        read.special.no_text.sort_unstable();
        read.special.no_text.dedup();
        match read.special.largest() {
            Some(id) if id as usize >= read.vocabulary_size => Err(malformed(format!(
                "names the token {id}, but the vocabulary has {}",
                read.vocabulary_size
            ))),
            _ if read.special.ends.is_empty() => {
                Err(malformed("names no token that ends a text".to_owned()))
            }
            _ => Ok(read),
        }
    }
}
