//! Special tokens of a vocabulary: the tokens of this project, or an imported model's, which its
//! tokenizer's file implies or its folder names.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tokenizers::ModelWrapper;

use crate::text::tokenizer::{END, PAD, SPECIAL_TOKENS, UNKNOWN};
use crate::{Error, Result};

/// Further tokens of encoders of texts: the beginning of a row, the end of each of its texts, and
/// the placeholder for a hidden token.
pub(crate) const MARKS: [&str; 3] = ["<cls>", "<sep>", "<mask>"];

/// End of a document in the vocabularies of GPT-2 and its descendants.
const END_OF_TEXT: &str = "<|endoftext|>";

/// Tokens of BERT's vocabulary for padding and for text that it cannot spell.
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
/// separator or two in the middle.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowMarks {
    pub(crate) class: u32,
    pub(crate) separator: u32,
    /// Separators between two texts.
    pub(crate) between: usize,
    /// Segment of the second text.
    pub(crate) second_segment: u32,
}

impl RowMarks {
    /// Number of marks of a row of one text.
    pub(crate) const SINGLE: usize = 2;

    /// Number of marks of a row of two texts.
    pub(crate) fn in_pair(self) -> usize {
        2 + self.between
    }

    /// Beginning of a row of two texts: everything before the second.
    pub(crate) fn before_second(self, first: &[u32]) -> Vec<u32> {
        let mut row = vec![self.class];
        row.extend(first);
        row.extend(std::iter::repeat_n(self.separator, self.between));
        row
    }
}

impl Marks {
    /// Marks with these names; `None` if one is missing.
    pub(crate) fn find(inner: &tokenizers::Tokenizer, names: [&str; 3]) -> Option<Self> {
        let [class, separator, mask] = names.map(|name| inner.token_to_id(name));
        Some(Self { class: class?, separator: separator?, mask: mask? })
    }
}

/// Special tokens of a vocabulary, by their roles.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpecialTokens {
    /// Padding, which Taper never needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pad: Option<u32>,
    /// Placeholder for text that the vocabulary cannot spell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown: Option<u32>,
    /// Beginning of a text; `None` if a text begins with the end of another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<u32>,
    /// Whether prompts begin with `start` too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub starts_prompts: bool,
    /// Tokens before every text of a translation, such as the token of its language.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<u32>,
    /// Tokens after the end of every source of a translation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<u32>,
    /// Ends of a text; the first ends a document.
    #[serde(default)]
    pub ends: Vec<u32>,
    /// First token of a row of an encoder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<u32>,
    /// Token after each text of a row of an encoder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub separator: Option<u32>,
    /// Whether two separators stand between two texts, as in RoBERTa.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub doubled_separator: bool,
    /// Whether both texts of a row are in segment 0 although the model has two segments.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shared_segment: bool,
    /// Placeholder for a hidden token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mask: Option<u32>,
    /// Tokens that the model never writes, according to an imported folder.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub never_written: Vec<u32>,
    /// All tokens that represent no text, ascending. The end may be missing here, because any token
    /// can be the end.
    #[serde(default)]
    pub no_text: Vec<u32>,
}

impl SpecialTokens {
    /// Special tokens implied by the spellings in a tokenizer, and whether they are those of this
    /// project, which are then [required](Error::SpecialToken).
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

    /// Whether a token represents no text.
    pub(crate) fn contains(&self, id: u32) -> bool {
        self.no_text.binary_search(&id).is_ok()
    }

    /// Marks, if all are known.
    pub(crate) fn marks(&self) -> Option<Marks> {
        Some(Marks { class: self.class?, separator: self.separator?, mask: self.mask? })
    }

    /// Largest id.
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

/// Placeholder for text that the model of a tokenizer cannot spell.
pub(crate) fn unknown_of(inner: &tokenizers::Tokenizer) -> Option<u32> {
    match inner.get_model() {
        ModelWrapper::BPE(model) => inner.token_to_id(model.unk_token.as_deref()?),
        ModelWrapper::WordPiece(model) => inner.token_to_id(&model.unk_token),
        ModelWrapper::WordLevel(model) => inner.token_to_id(&model.unk_token),
        // The library has no getter for it.
        ModelWrapper::Unigram(model) => {
            let id = serde_json::to_value(model).ok()?["unk_id"].as_u64()?;
            u32::try_from(id).ok()
        }
    }
}

/// Facts about tokens that the folder of an imported model has but `tokenizer.json` lacks. They are
/// kept in a file next to it, and are part of the identity of the tokenizer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FolderTokens {
    /// Rows of the model's embedding, which may exceed the number of tokens.
    pub vocabulary_size: usize,
    /// Number of the tokenizer's pieces beyond these rows; the model does not know their text.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub without_row: usize,
    /// Whether characters have the normal forms of SentencePiece, in cases where the library
    /// `tokenizers` makes other forms from the same map.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sentence_piece_forms: bool,
    /// Special tokens.
    pub special: SpecialTokens,
    /// Keys of the model's configuration that contain ids of tokens.
    #[serde(default)]
    pub ids: BTreeMap<String, serde_json::Value>,
    /// Contents of files about tokens, by name, for a later export.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    /// Contents of files that are not text, by name, in Base64.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub binary_files: BTreeMap<String, String>,
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

impl FolderTokens {
    /// Path of the file for the tokenizer at a path.
    pub(crate) fn path(tokenizer: &Path) -> PathBuf {
        tokenizer.with_extension("special.json")
    }

    /// Content of the file.
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
    /// If it has another format, or names a token beyond the vocabulary.
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
