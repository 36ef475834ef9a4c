//! Figures, drawn with `plotters` into SVG elements.
//!
//! Everything is drawn [`SCALE`] times as large as it is shown, because `plotters` rounds
//! coordinates to integers.

mod axes;
mod bars;
mod chart;
mod heatmap;
mod legend;
mod text;
mod thinning;

use std::fmt::Display;

use plotters::coord::Shift;
use plotters::prelude::{DrawingArea, IntoDrawingArea, SVGBackend};
use serde_json::Value;

use crate::error::PlotError;
use crate::figure::{Figure, Plot};
use crate::scale::SCALE;
use crate::svg::Svg;
use text::{Anchor, Label};

/// Height of a title, in CSS pixels.
const TITLE: i32 = 32;
/// Margin on each side, in CSS pixels.
const MARGIN: i32 = 12;

/// Drawing area that is written as SVG.
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Converts CSS pixels to drawing units, which are the coordinates of the enlarged drawing.
const fn units(pixels: i32) -> i32 {
    pixels * SCALE
}

impl Figure {
    /// Draws the figure.
    ///
    /// # Errors
    /// If there is nothing to show, or if the numbers of rows, columns or categories do not match
    /// the numbers of values.
    pub fn draw(&self) -> Result<Svg, PlotError> {
        let figure = self;
        let mut elements = String::new();
        let (width, height) = figure.size;
        let size = (width * SCALE as u32, height * SCALE as u32);
        let data = {
            let root = SVGBackend::with_string(&mut elements, size).into_drawing_area();
            let pen = Pen { figure };
            pen.title(&root)?;
            let data = match &figure.plot {
                Plot::Chart(chart) => chart::draw(&pen, &root, chart)?,
                Plot::Bars(bars) => bars::draw(&pen, &root, bars)?,
                Plot::Heatmap(map) => heatmap::draw(&pen, &root, map)?,
            };
            root.present().map_err(|error| pen.failed(error))?;
            data
        };
        Ok(Svg::new(figure, &elements, data))
    }
}

/// A figure that is being drawn. Its methods draw what all kinds of plots share, and they make
/// errors that name the figure.
struct Pen<'a> {
    figure: &'a Figure,
}

impl Pen<'_> {
    /// Makes the error for a failure of the drawing library.
    fn failed(&self, cause: impl Display) -> PlotError {
        PlotError::Drawing { title: self.figure.title.clone(), cause: cause.to_string() }
    }

    /// Makes the error for a figure without anything to show.
    fn nothing(&self) -> PlotError {
        PlotError::Nothing { title: self.figure.title.clone() }
    }

    /// Checks that as many values are given as there are rows, columns or categories. `given` is
    /// the number of values, and `expected` is the number that there should be. `what` says which
    /// of the three are counted.
    fn check(&self, what: &'static str, expected: usize, given: usize) -> Result<(), PlotError> {
        let title = || self.figure.title.clone();
        match expected == given {
            true => Ok(()),
            false => Err(PlotError::Shape { title: title(), what, expected, found: given }),
        }
    }

    fn title(&self, root: &Area<'_>) -> Result<(), PlotError> {
        let label = Label { size: 15, anchor: Anchor::START, ..Label::new(&self.figure.title) };
        self.write(root, &label, (units(MARGIN), units(TITLE / 2)))
    }

    /// Writes a label at the point `at`, which is in drawing units.
    fn write(&self, root: &Area<'_>, label: &Label<'_>, at: (i32, i32)) -> Result<(), PlotError> {
        label.draw(root, at).map_err(|error| self.failed(error))
    }
}

/// Values of a figure as JSON, from which the script of a page draws the figure again.
type Data = Value;
