//! Markup of a line, as a tree.

use std::ops::Range;

use crate::scripts::{is_chinese_or_japanese, is_spaced_letter};

/// Markup of a line, with the markup that is inside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Element {
    /// Bytes of the line inside the markup. Empty for markup that stands alone.
    pub(crate) range: Range<usize>,
    pub(crate) markup: Markup,
    /// Neighbours before and after the markup in the source.
    pub(crate) sides: [Side; 2],
    /// Markup inside this markup, in the order of the source.
    pub(crate) inner: Vec<Element>,
}

/// Kind of markup, with its spelling.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Markup {
    /// Opening and closing tag.
    Tags(String, String),
    /// Opening tag of an element that extends beyond the end of the line. No other markup follows
    /// it on its level.
    Open(String),
    /// Closing tag of an element that began before the line. It is the first markup on its level.
    Close(String),
    /// Markup that stands alone.
    Alone(String),
    /// Placeholder, or a part of a placeholder: its text, and its spelling in the document.
    Placeholder(String, String),
}

/// Neighbour of markup in the source, which decides whether a blank separates the markup from its
/// neighbour in the translation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// The markup belongs to its neighbour. No blank is added.
    Joined,
    /// The neighbour is no word. A blank is added if the new neighbour is a word.
    Apart,
    /// The neighbour is a blank, and the text of the line may lack this blank.
    Blank,
}

impl Element {
    /// Makes markup from its range and kind, with nothing inside it.
    pub(crate) fn new(range: Range<usize>, markup: Markup) -> Self {
        Self { range, markup, sides: [Side::Joined; 2], inner: Vec::new() }
    }

    /// True for a time within a cue of WebVTT, such as `<00:01.500>`.
    pub(crate) fn is_time(&self) -> bool {
        let Markup::Alone(raw) = &self.markup else { return false };
        matches!(raw.as_bytes(), [b'<', b'0'..=b'9', ..])
    }
}

impl Side {
    /// Side of a placeholder next to the character `neighbour`; `None` at the edge of a line.
    pub(crate) fn of_placeholder(neighbour: Option<char>) -> Self {
        match neighbour {
            Some(blank) if blank.is_whitespace() => Self::Blank,
            Some(letter) if is_spaced_letter(letter) => Self::Joined,
            _ => Self::Apart,
        }
    }

    /// True if a blank must be written between `left` and markup that has this side before it.
    pub(crate) fn needs_blank_after(self, left: char) -> bool {
        match self {
            Self::Joined => false,
            Self::Apart => is_spaced_letter(left),
            Self::Blank => !left.is_whitespace() && !opens(left) && !is_wide_mark(left),
        }
    }

    /// True if a blank must be written between markup that has this side after it and `right`.
    pub(crate) fn needs_blank_before(self, right: char) -> bool {
        match self {
            Self::Joined => false,
            Self::Apart => is_spaced_letter(right),
            Self::Blank => right.is_alphanumeric() || opens(right),
        }
    }
}

/// True for Chinese and Japanese punctuation, which has its blank within itself.
fn is_wide_mark(character: char) -> bool {
    is_chinese_or_japanese(character) && !character.is_alphanumeric()
}

/// True for a bracket or quote that begins something, so that no blank follows it.
pub(crate) fn opens(character: char) -> bool {
    "([{«“„‘‚‹¿¡（［｛「『《〈【".contains(character)
}
