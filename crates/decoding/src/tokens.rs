//! Ids with a special role in a search. All vocabularies that this project makes have the same
//! special ids. The vocabularies of imported models have other special ids.

use std::borrow::Cow;

/// `<pad>`: padding; not used in decoding, and never produced.
pub const PAD: u32 = 0;
/// `<unk>`: stands for text that the vocabulary cannot represent; produced only if the
/// configuration allows it.
pub const UNKNOWN: u32 = 1;
/// `<s>`: first input of the decoder; never produced.
pub const START: u32 = 2;
/// `</s>`: end of a sentence. A search produces it to end an output.
pub const END: u32 = 3;

/// The ids of a vocabulary that have a special role in the search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecialIds {
    /// First input of the decoder.
    start: u32,
    /// Id that ends an output, and is forced at the length limit.
    end: u32,
    /// Other ids that end an output.
    other_ends: Cow<'static, [u32]>,
    /// End ids that are also part of the text. If a continuation of a prompt ends with such an id,
    /// the continuation contains the id.
    text_ends: Cow<'static, [u32]>,
    /// Id that stands for text that the vocabulary cannot represent; produced only if the
    /// configuration allows it.
    unknown: Option<u32>,
    /// Ids that are never produced, ascending.
    never: Cow<'static, [u32]>,
}

/// Special ids of the vocabularies of this project.
pub(crate) static OURS: SpecialIds = SpecialIds {
    start: START,
    end: END,
    other_ends: Cow::Borrowed(&[]),
    text_ends: Cow::Borrowed(&[]),
    unknown: Some(UNKNOWN),
    never: Cow::Borrowed(&[PAD, START]),
};

impl SpecialIds {
    /// Returns the special ids of the vocabularies of this project; ids in `never` are never
    /// produced either.
    #[must_use]
    pub fn ours(never: impl IntoIterator<Item = u32>) -> Self {
        let never = [PAD, START].into_iter().chain(never);
        Self { unknown: Some(UNKNOWN), ..Self::new(END, &[], never) }
    }

    /// Returns the special ids of a vocabulary in which `end` and each of `other_ends` end an
    /// output, and the ids in `never` are never produced.
    #[must_use]
    pub fn new(end: u32, other_ends: &[u32], never: impl IntoIterator<Item = u32>) -> Self {
        let mut never: Vec<u32> = never.into_iter().collect();
        never.sort_unstable();
        never.dedup();
        let mut other_ends = other_ends.to_vec();
        other_ends.retain(|&other| other != end);
        Self {
            start: START,
            end,
            other_ends: other_ends.into(),
            text_ends: Cow::Borrowed(&[]),
            unknown: None,
            never: never.into(),
        }
    }

    /// Declares that the end ids in `text_ends` are also part of the text. If a continuation of a
    /// prompt ends with such an id, the continuation contains the id.
    #[must_use]
    pub fn with_text_ends(self, text_ends: Vec<u32>) -> Self {
        Self { text_ends: text_ends.into(), ..self }
    }

    /// Makes `start` the first input of the decoder.
    #[must_use]
    pub fn with_start(self, start: u32) -> Self {
        Self { start, ..self }
    }

    /// Sets the id that stands for text that the vocabulary cannot represent. It is produced only
    /// if the configuration allows it.
    #[must_use]
    pub fn with_unknown(self, unknown: Option<u32>) -> Self {
        Self { unknown, ..self }
    }

    /// Returns the first input of the decoder.
    #[must_use]
    pub fn start(&self) -> u32 {
        self.start
    }

    /// Returns the end id that is forced at the length limit.
    #[must_use]
    pub fn end(&self) -> u32 {
        self.end
    }

    /// True if `token` ends an output.
    #[must_use]
    pub fn is_end(&self, token: u32) -> bool {
        token == self.end || self.other_ends.contains(&token)
    }

    /// Returns true if `token` is an end id that is also part of the text: a continuation of a
    /// prompt that ends with `token` contains it.
    pub(crate) fn is_text_end(&self, token: u32) -> bool {
        self.text_ends.contains(&token)
    }

    /// Ids that a shortlist always contains: the ends and the unknown token.
    pub(crate) fn candidates(&self) -> impl Iterator<Item = u32> {
        [self.end].into_iter().chain(self.other_ends.iter().copied()).chain(self.unknown)
    }

    /// Number of ids that end an output.
    pub(crate) fn ends(&self) -> usize {
        1 + self.other_ends.len()
    }

    pub(crate) fn is_unknown(&self, token: u32) -> bool {
        self.unknown == Some(token)
    }

    /// True if `token` is never produced.
    pub(crate) fn is_never(&self, token: u32) -> bool {
        self.never.binary_search(&token).is_ok()
    }

    /// True if no output can contain `token`.
    pub(crate) fn is_no_output(&self, token: u32) -> bool {
        self.is_never(token) || (self.is_end(token) && !self.is_text_end(token))
    }

    /// Returns an upper bound of the number of ids that a search refuses because of their special
    /// roles.
    pub(crate) fn count(&self) -> usize {
        self.ends() + self.never.len() + usize::from(self.unknown.is_some())
    }
}
