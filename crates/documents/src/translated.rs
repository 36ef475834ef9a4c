//! Translations of lines.

use std::ops::Range;

/// Translation of a line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Translated {
    /// The text.
    pub text: String,
    /// Links between words of the line and words of `text`. Each link is the byte range of a word
    /// in the line, and the byte range of its translation in `text`. They determine the places of
    /// markup. Without links, markup is placed in proportion to the lengths of the two texts.
    pub links: Vec<(Range<usize>, Range<usize>)>,
}
