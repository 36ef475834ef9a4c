//! Which tokens of a vocabulary stand for no text: ours, or those of the models of others.

use crate::text::tokenizer::{END, SPECIAL_TOKENS, UNKNOWN};

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
    /// Those with these names; none where one is missing.
    pub(crate) fn of(inner: &tokenizers::Tokenizer, names: [&str; 3]) -> Option<Self> {
        let [class, separator, mask] = names.map(|name| inner.token_to_id(name));
        Some(Self { class: class?, separator: separator?, mask: mask? })
    }
}

/// The special tokens of a vocabulary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SpecialTokens {
    /// [`SPECIAL_TOKENS`] at their ids.
    Ours,
    /// GPT-2's, which is what ends a document alone.
    EndOfText(u32),
    /// BERT's.
    Bert { pad: u32, unknown: u32, marks: Marks },
}

impl SpecialTokens {
    /// Those that a vocabulary has; ours, which are to be [required](crate::Error::SpecialToken),
    /// where it has no others.
    pub(crate) fn of(inner: &tokenizers::Tokenizer) -> Self {
        if SPECIAL_TOKENS.iter().any(|token| inner.token_to_id(token).is_some()) {
            return Self::Ours;
        }
        if let Some(end) = inner.token_to_id(END_OF_TEXT) {
            return Self::EndOfText(end);
        }
        let [pad, unknown] = BERT_OTHERS.map(|name| inner.token_to_id(name));
        match (pad, unknown, Marks::of(inner, BERT_MARKS)) {
            (Some(pad), Some(unknown), Some(marks)) => Self::Bert { pad, unknown, marks },
            _ => Self::Ours,
        }
    }

    pub(crate) fn are_ours(&self) -> bool {
        *self == Self::Ours
    }

    pub(crate) fn contains(&self, id: u32) -> bool {
        match *self {
            Self::Ours => (id as usize) < SPECIAL_TOKENS.len(),
            Self::EndOfText(end) => id == end,
            Self::Bert { pad, unknown, marks: Marks { class, separator, mask } } => {
                [pad, unknown, class, separator, mask].contains(&id)
            }
        }
    }

    /// What stands for text that the vocabulary cannot spell.
    pub(crate) fn unknown(&self) -> Option<u32> {
        match *self {
            Self::Ours => Some(UNKNOWN),
            Self::EndOfText(_) => None,
            Self::Bert { unknown, .. } => Some(unknown),
        }
    }

    /// What ends a document.
    pub(crate) fn end(&self) -> u32 {
        match *self {
            Self::Ours => END,
            Self::EndOfText(end) => end,
            Self::Bert { marks, .. } => marks.separator,
        }
    }

    /// The marks that belong to them.
    pub(crate) fn marks(&self) -> Option<Marks> {
        match *self {
            Self::Bert { marks, .. } => Some(marks),
            Self::Ours | Self::EndOfText(_) => None,
        }
    }
}
