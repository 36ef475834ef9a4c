//! Legends. A legend lists the names of series above a drawing, in as many rows as they need.

use plotters::prelude::{Circle, PathElement, Rectangle};
use plotters::style::Color as _;

use super::text::{Anchor, Label, shortened, width};
use super::{Area, MARGIN, Pen, units};
use crate::colours::Colour;
use crate::error::PlotError;

/// Height of a row, in CSS pixels.
const ROW: i32 = 20;
/// Width of the mark before a name, in CSS pixels.
const MARK: i32 = 22;
/// Room after a name, in CSS pixels.
const GAP: i32 = 18;
const SIZE: i32 = 12;
/// Largest width of a name, in CSS pixels. Longer names are cut.
const MOST: i32 = 260;

/// Mark before a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sample {
    /// A line of this width, in drawing units. A CSS pixel has `SCALE` drawing units.
    Line(u32),
    Dot,
    Square,
}

/// Draws the legend from the height `top` downwards, and returns the height at which the legend
/// ends. Heights are distances from the upper edge of the figure, in CSS pixels.
pub(super) fn draw(
    pen: &Pen<'_>,
    root: &Area<'_>,
    entries: &[(&str, Colour, Sample)],
    top: i32,
) -> Result<i32, PlotError> {
    let most = pen.figure.size.0 as i32 - MARGIN;
    let (mut left, mut row) = (MARGIN, top);
    for &(name, colour, sample) in entries {
        let name = shortened(name, SIZE, MOST);
        let needed = MARK + width(&name, SIZE);
        if left > MARGIN && left + needed > most {
            (left, row) = (MARGIN, row + ROW);
        }
        let (middle, ink) = (units(row + ROW / 2), colour.drawn());
        match sample {
            Sample::Line(width) => root.draw(&PathElement::new(
                vec![(units(left), middle), (units(left + MARK - 6), middle)],
                ink.stroke_width(width),
            )),
            Sample::Dot => {
                root.draw(&Circle::new((units(left + 8), middle), units(3), ink.filled()))
            }
            Sample::Square => root.draw(&Rectangle::new(
                [(units(left + 2), middle - units(5)), (units(left + 12), middle + units(5))],
                ink.filled(),
            )),
        }
        .map_err(|error| pen.failed(error))?;
        let label = Label { size: SIZE, anchor: Anchor::START, ..Label::new(&name) };
        pen.write(root, &label, (units(left + MARK), middle))?;
        left += needed + GAP;
    }
    Ok(if entries.is_empty() { top } else { row + ROW })
}
