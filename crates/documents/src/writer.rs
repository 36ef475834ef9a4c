//! Writing of a translated line as a sequence of texts and tags.

use std::ops::Range;

use crate::element::{Markup, Side};
use crate::line_part::LinePart;
use crate::placement::Placed;

/// Writer of a translated line.
#[derive(Default)]
pub(crate) struct Writer<'a> {
    /// The line so far.
    pub(crate) parts: Vec<LinePart<'a>>,
    /// Text that a reader sees: the line without tags, with placeholders, not escaped.
    pub(crate) visible: String,
    /// Side after the last placeholder or markup with a side, if no text has been written since
    /// then, and whether it is an address.
    after: Option<(Side, bool)>,
}

impl<'a> Writer<'a> {
    /// Writes the bytes `range` of a text with the markup that is placed in them.
    pub(crate) fn write(&mut self, text: &'a str, placed: &[Placed<'a>], range: Range<usize>) {
        let mut at = range.start;
        for one in placed {
            self.text(&text[at..one.range.start]);
            self.element(text, one);
            at = one.range.end;
        }
        self.text(&text[at..range.end]);
    }

    fn element(&mut self, text: &'a str, placed: &Placed<'a>) {
        // A blank before the first placeholder of an element is written before the element.
        if let Some(side) = first_side(placed) {
            self.blank_after_last(side);
        }
        let [_, after] = placed.element.sides;
        match &placed.element.markup {
            Markup::Tags(open, close) => {
                self.mark(LinePart::Open(open));
                self.write(text, &placed.inner, placed.range.clone());
                self.mark(LinePart::Close(close));
            }
            Markup::Open(open) => {
                self.mark(LinePart::Begin(open));
                self.write(text, &placed.inner, placed.range.clone());
            }
            Markup::Close(close) => {
                self.write(text, &placed.inner, placed.range.clone());
                self.mark(LinePart::End(close));
            }
            Markup::Alone(raw) => self.mark(LinePart::Alone(raw)),
            Markup::Placeholder(shown, raw) => {
                self.mark(LinePart::Alone(raw));
                self.visible.push_str(shown);
                let is_address = shown.starts_with(char::is_alphanumeric)
                    && (shown.starts_with("www.") || shown.contains([':', '@']));
                self.after = Some((after, is_address));
                return;
            }
        }
        if after != Side::Joined {
            self.after = Some((after, false));
        }
    }

    fn mark(&mut self, mark: LinePart<'a>) {
        if !mark.raw().is_empty() {
            self.parts.push(mark);
        }
    }

    fn text(&mut self, text: &'a str) {
        let Some(first) = text.chars().next() else { return };
        // A letter directly after an address would be read as a part of it.
        let needs_blank = self.after.take().is_some_and(|(side, is_address)| {
            side.needs_blank_before(first)
                || is_address && side != Side::Joined && first.is_alphanumeric()
        });
        if needs_blank {
            self.blank();
        }
        self.parts.push(LinePart::Text(text));
        self.visible.push_str(text);
    }

    /// Writes a blank if markup with `side` before it needs one after the text so far.
    fn blank_after_last(&mut self, side: Side) {
        let Some(left) = self.visible.chars().next_back() else { return };
        let needs_blank = match self.after {
            None => side.needs_blank_after(left),
            Some((after, is_address)) => {
                let are_joined = [after, side] == [Side::Joined; 2];
                [after, side].contains(&Side::Blank) || is_address && !are_joined
            }
        };
        if needs_blank {
            self.blank();
        }
    }

    fn blank(&mut self) {
        self.parts.push(LinePart::Text(" "));
        self.visible.push(' ');
        self.after = None;
    }
}

/// Side before the placeholder, or markup with a side, with which markup begins; `None` if it
/// begins with text.
fn first_side(placed: &Placed<'_>) -> Option<Side> {
    let [side, _] = placed.element.sides;
    if side != Side::Joined || matches!(placed.element.markup, Markup::Placeholder(..)) {
        return Some(side);
    }
    let first = placed.inner.first();
    first_side(first.filter(|first| first.range.start == placed.range.start)?)
}
