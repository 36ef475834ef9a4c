//! Which tokens a search treats apart: those of the vocabularies of this project, which are the same
//! in each, or those that a model of others came with.

use std::borrow::Cow;

/// `<pad>`: padding; unused in decoding and never produced.
pub const PAD: u32 = 0;
/// `<unk>`: text that the vocabulary cannot spell; produced only if the configuration allows it.
pub const UNKNOWN: u32 = 1;
/// `<s>`: first input of the decoder; never produced.
pub const START: u32 = 2;
/// `</s>`: end of a sentence; every finished hypothesis ends with it.
pub const END: u32 = 3;

/// The tokens of a vocabulary that a search treats apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecialIds {
    /// The end that is forced at the length limit.
    end: u32,
    /// Further tokens that end an output where they come.
    other_ends: Cow<'static, [u32]>,
    /// Stands for text that the vocabulary cannot spell; produced only where configured.
    unknown: Option<u32>,
    /// Tokens that are never produced, ascending.
    never: Cow<'static, [u32]>,
}

/// Those of the vocabularies of this project.
pub(crate) static OURS: SpecialIds = SpecialIds {
    end: END,
    other_ends: Cow::Borrowed(&[]),
    unknown: Some(UNKNOWN),
    never: Cow::Borrowed(&[PAD, START]),
};

impl SpecialIds {
    /// Those of the vocabularies of this project; the tokens in `never` are never produced either.
    #[must_use]
    pub fn ours(never: impl IntoIterator<Item = u32>) -> Self {
        let never = [PAD, START].into_iter().chain(never);
        Self { unknown: Some(UNKNOWN), ..Self::of(END, &[], never) }
    }

    /// Those of a vocabulary in which `end` and each of `other_ends` end an output, and none of
    /// `never` is produced.
    #[must_use]
    pub fn of(end: u32, other_ends: &[u32], never: impl IntoIterator<Item = u32>) -> Self {
        let mut never: Vec<u32> = never.into_iter().collect();
        never.sort_unstable();
        never.dedup();
        let mut other_ends = other_ends.to_vec();
        other_ends.retain(|&other| other != end);
        Self { end, other_ends: other_ends.into(), unknown: None, never: never.into() }
    }

    /// The end that is forced at the length limit.
    #[must_use]
    pub fn end(&self) -> u32 {
        self.end
    }

    /// Whether a token ends an output.
    #[must_use]
    pub fn is_end(&self, token: u32) -> bool {
        token == self.end || self.other_ends.contains(&token)
    }

    /// How many tokens end an output.
    pub(crate) fn ends(&self) -> usize {
        1 + self.other_ends.len()
    }

    pub(crate) fn is_unknown(&self, token: u32) -> bool {
        self.unknown == Some(token)
    }

    /// Whether a token is never produced.
    pub(crate) fn is_never(&self, token: u32) -> bool {
        self.never.binary_search(&token).is_ok()
    }

    /// How many tokens may be likelier than one that a search takes, and are themselves refused.
    pub(crate) fn count(&self) -> usize {
        self.ends() + self.never.len() + usize::from(self.unknown.is_some())
    }
}
