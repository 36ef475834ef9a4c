//! Text in drawings.

use plotters::prelude::{DrawingAreaErrorKind, FontTransform, IntoFont, TextStyle};
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::{Area, SCALE};
use crate::colours::{Colour, INK};

/// `plotters` divides font sizes by this number when it writes SVG. So sizes are multiplied by it
/// before.
const FONT_FACTOR: f64 = 1.24;

/// Horizontal alignment of a text: whether the text starts, ends or has its middle at its
/// coordinates.
#[derive(Clone, Copy)]
pub(super) struct Anchor(HPos);

impl Anchor {
    pub(super) const START: Self = Self(HPos::Left);
    pub(super) const MIDDLE: Self = Self(HPos::Center);
    pub(super) const END: Self = Self(HPos::Right);
}

/// A text to be written. Vertically, its middle is at its coordinates.
#[derive(Clone)]
pub(super) struct Label<'a> {
    pub(super) text: &'a str,
    /// Font size in CSS pixels.
    pub(super) size: i32,
    pub(super) colour: Colour,
    pub(super) anchor: Anchor,
    /// Whether the text reads from bottom to top.
    pub(super) upwards: bool,
}

impl<'a> Label<'a> {
    pub(super) const fn new(text: &'a str) -> Self {
        Self { text, size: 12, colour: INK, anchor: Anchor::MIDDLE, upwards: false }
    }

    pub(super) fn draw(
        &self,
        area: &Area<'_>,
        at: (i32, i32),
    ) -> Result<(), DrawingAreaErrorKind<std::io::Error>> {
        let style = style(self.size, self.colour).pos(Pos::new(self.anchor.0, VPos::Center));
        let style = if self.upwards { style.transform(FontTransform::Rotate270) } else { style };
        area.draw_text(self.text, &style, at)
    }
}

/// Makes a text style from a colour and a font size in CSS pixels.
pub(super) fn style(size: i32, colour: Colour) -> TextStyle<'static> {
    let font = ("sans-serif", f64::from(size * SCALE) * FONT_FACTOR).into_font();
    font.color(&colour.drawn())
}

/// Estimates the width of a text in CSS pixels. No font is read: each character has a typical
/// width.
pub(super) fn width(text: &str, size: i32) -> i32 {
    let em = |character: char| match character {
        // Combining marks stand on the character before them, so they take no room.
        '\u{300}'..='\u{36F}' | '\u{200D}' | '\u{FE00}'..='\u{FE0F}' => 0.0,
        'i' | 'j' | 'l' | 't' | 'f' | 'r' | ' ' | '.' | ',' | '\'' | '|' | ':' => 0.36,
        'm' | 'w' | 'M' | 'W' | '—' | '@' => 0.92,
        character if character < '\u{1100}' => 0.6,
        // East Asian characters and emoji are as wide as they are high.
        _ => 1.0,
    };
    (text.chars().map(em).sum::<f64>() * f64::from(size)).ceil() as i32
}

/// Returns the text. If it is wider than `most` CSS pixels, it is cut, and an ellipsis is put at
/// its end.
pub(super) fn shortened(text: &str, size: i32, most: i32) -> String {
    if width(text, size) <= most {
        return text.to_owned();
    }
    let mut kept = String::new();
    for character in text.chars() {
        kept.push(character);
        if width(&kept, size) + size > most {
            kept.pop();
            break;
        }
    }
    kept.push('…');
    kept
}
