//! Special tokens of a vocabulary. They belong to this project or to an imported model. The special
//! tokens of an imported model follow from the names of tokens in its tokenizer, or are stated in
//! the files of its folder.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tokenizers::ModelWrapper;

use crate::text::tokenizer::{END, PAD, SPECIAL_TOKENS, UNKNOWN};
use crate::{Error, Result};

/// Marks: special tokens that only encoders of texts need. They are the beginning of a row, the end
/// of each text of a row, and the placeholder for a hidden token.
pub(crate) const MARKS: [&str; 3] = ["<cls>", "<sep>", "<mask>"];

/// End of a document in the vocabularies of GPT-2 and its descendants.
const END_OF_TEXT: &str = "<|endoftext|>";

/// Tokens of BERT's vocabulary for padding and for text that the vocabulary cannot spell.
const BERT_OTHERS: [&str; 2] = ["[PAD]", "[UNK]"];
/// Tokens of BERT's vocabulary for [`MARKS`].
const BERT_MARKS: [&str; 3] = ["[CLS]", "[SEP]", "[MASK]"];

/// The ids of the marks in a vocabulary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Marks {
    pub(crate) class: u32,
    pub(crate) separator: u32,
    pub(crate) mask: u32,
}

/// Marks of a row of an encoder: `<cls> text <sep>`, or `<cls> first <sep> second <sep>` with one
/// or two separators between the texts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowMarks {
    pub(crate) class: u32,
    pub(crate) separator: u32,
    /// Number of separators between two texts.
    pub(crate) between: usize,
    /// Segment of the second text.
    pub(crate) second_segment: u32,
}

impl RowMarks {
    /// Number of marks in a row with one text.
    pub(crate) const SINGLE: usize = 2;

    /// Number of marks in a row with two texts.
    pub(crate) fn in_pair(self) -> usize {
        2 + self.between
    }

    /// Beginning of a row of two texts, up to the second text. `first` has the ids of the first
    /// text.
    pub(crate) fn before_second(self, first: &[u32]) -> Vec<u32> {
        let mut row = vec![self.class];
        row.extend(first);
        row.extend(std::iter::repeat_n(self.separator, self.between));
        row
    }
}

impl Marks {
    /// Finds the marks with the names `names`; `None` if one of them is missing.
    pub(crate) fn find(inner: &tokenizers::Tokenizer, names: [&str; 3]) -> Option<Self> {
        let [class, separator, mask] = names.map(|name| inner.token_to_id(name));
        Some(Self { class: class?, separator: separator?, mask: mask? })
    }
}

/// Special tokens of a vocabulary, by their roles.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpecialTokens {
    /// Token that fills up rows to the same length. Taper never needs it, because its batches are
    /// not padded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pad: Option<u32>,
    /// Placeholder for text that the vocabulary cannot spell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown: Option<u32>,
    /// Token at the beginning of a text; `None` if a text begins with the end token of the previous
    /// text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<u32>,
    /// True if prompts begin with `start` too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub starts_prompts: bool,
    /// Tokens before every text of a translation, such as the token of its language.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<u32>,
    /// Tokens after the end of every source of a translation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<u32>,
    /// Tokens that end a text. The first of them ends a document.
    #[serde(default)]
    pub ends: Vec<u32>,
    /// First token of a row of an encoder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<u32>,
    /// Token after each text of a row of an encoder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub separator: Option<u32>,
    /// True if there are two separators between two texts, as in RoBERTa.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub doubled_separator: bool,
    /// True if both texts of a row are in segment 0 although the model has two segments.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shared_segment: bool,
    /// Placeholder for a hidden token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mask: Option<u32>,
    /// Tokens that the model never writes, according to the files of its folder.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub never_written: Vec<u32>,
    /// All tokens that represent no text, in ascending order. An end token may be missing here,
    /// because an ordinary token can be the end of a text.
    #[serde(default)]
    pub no_text: Vec<u32>,
}

impl SpecialTokens {
    /// Special tokens that follow from the names of tokens in a tokenizer. Also returns true if
    /// they are the special tokens of this project; then the tokenizer is
    /// [required](Error::SpecialToken) to have all of them.
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
        match (pad, unknown, Marks::find(inner, BERT_MARKS)) {
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

    /// True if a token represents no text.
    pub(crate) fn contains(&self, id: u32) -> bool {
        self.no_text.binary_search(&id).is_ok()
    }

    /// Ids of the marks; `None` unless all are known.
    pub(crate) fn marks(&self) -> Option<Marks> {
        Some(Marks { class: self.class?, separator: self.separator?, mask: self.mask? })
    }

    /// Largest id of all special tokens.
    fn largest(&self) -> Option<u32> {
        let Self { pad, unknown, start, class, separator, mask, .. } = self;
        let roles = [pad, unknown, start, class, separator, mask].into_iter().flatten();
        roles
            .chain(&self.ends)
            .chain(&self.never_written)
            .chain(&self.before)
            .chain(&self.after)
            .chain(&self.no_text)
            .copied()
            .max()
    }
}

/// Id of the token for text that the tokenizer `inner` cannot spell.
pub(crate) fn unknown_of(inner: &tokenizers::Tokenizer) -> Option<u32> {
    match inner.get_model() {
        ModelWrapper::BPE(model) => inner.token_to_id(model.unk_token.as_deref()?),
        ModelWrapper::WordPiece(model) => inner.token_to_id(&model.unk_token),
        ModelWrapper::WordLevel(model) => inner.token_to_id(&model.unk_token),
        // The `tokenizers` library has no getter for this id.
        ModelWrapper::Unigram(model) => {
            let id = serde_json::to_value(model).ok()?["unk_id"].as_u64()?;
            u32::try_from(id).ok()
        }
    }
}

/// Facts about tokens that are in the folder of an imported model but not in its `tokenizer.json`.
/// They are stored in a file next to the `tokenizer.json`. The [hash](crate::Tokenizer::hash) of
/// the tokenizer includes this file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FolderTokens {
    /// Number of rows of the model's embedding, which may exceed the number of tokens.
    pub vocabulary_size: usize,
    /// Number of tokens whose ids are not below `vocabulary_size`. The model has no embedding for
    /// them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub without_row: usize,
    /// True if characters are normalised as in SentencePiece. In some cases, the library
    /// `tokenizers` makes other normal forms from the same map of characters.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sentence_piece_forms: bool,
    /// Special tokens of the model.
    pub special: SpecialTokens,
    /// Entries of the model's configuration whose values are ids of tokens.
    #[serde(default)]
    pub ids: BTreeMap<String, serde_json::Value>,
    /// Contents of files about tokens, by file name, for a later export.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    /// Contents of binary files about tokens in Base64, by file name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub binary_files: BTreeMap<String, String>,
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

impl FolderTokens {
    /// Path of the file of facts for the tokenizer with the path `tokenizer`.
    pub(crate) fn path(tokenizer: &Path) -> PathBuf {
        tokenizer.with_extension("special.json")
    }

    /// Content of the file of facts.
    pub(crate) fn to_json(&self) -> Result<String> {
        let written = serde_json::to_string_pretty(self);
        written.map(|json| json + "\n").map_err(|error| Error::Tokenizer {
            action: "write its special tokens",
            message: error.to_string(),
        })
    }

    /// Parses the content `json` of the file `path`.
    ///
    /// # Errors
    ///
    /// If the content has another format, names a token beyond the vocabulary, or names no end
    /// token.
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
