//! A table as a heatmap.

use std::ops::Range;

use plotters::prelude::Rectangle;
use plotters::style::Color as _;
use serde_json::json;

use super::axes::number;
use super::text::{Anchor, Label, shortened, width};
use super::{Area, Data, MARGIN, Pen, SCALE, TITLE, units};
use crate::colours::{AXIS, GRID, SERIES};
use crate::error::PlotError;
use crate::figure::Heatmap;

/// Font size of the labels, in CSS pixels.
const SIZE: i32 = 12;
/// Largest room that the labels of rows or columns can take, in CSS pixels.
const MOST: i32 = 130;
/// Room for the title of an axis, in CSS pixels.
const WHAT: i32 = 20;

/// Draws a heatmap.
pub(super) fn draw(pen: &Pen<'_>, root: &Area<'_>, map: &Heatmap) -> Result<Data, PlotError> {
    pen.check("rows", map.rows.len(), map.values.len())?;
    for row in &map.values {
        pen.check("columns", map.columns.len(), row.len())?;
    }
    let finite = map.values.iter().flatten().copied().filter(|value| value.is_finite());
    let largest = finite.map(f64::abs).reduce(f64::max).ok_or_else(|| pen.nothing())?;
    let strongest = map.strongest.unwrap_or(largest).max(f64::MIN_POSITIVE);
    let widest = |labels: &[String]| {
        labels.iter().map(|label| width(label, SIZE)).max().unwrap_or(0).min(MOST) + 8
    };
    let (total_width, total_height) = (pen.figure.size.0 as i32, pen.figure.size.1 as i32);
    let left = MARGIN + WHAT + widest(&map.rows);
    let room = (total_width - left - MARGIN) / map.columns.len() as i32;
    // If a label is wider than a column, the labels of columns are written from bottom to top.
    let upwards = widest(&map.columns) > room;
    let head = if upwards { widest(&map.columns) } else { SIZE + 8 };
    let top = TITLE + WHAT + head;
    let grid = Grid {
        across: units(left)..units(total_width - MARGIN),
        down: units(top)..units(total_height - 30),
        columns: map.columns.len(),
        rows: map.rows.len(),
    };
    grid.draw_cells(pen, root, map, strongest)?;
    grid.write_names(pen, root, map, upwards)?;
    let Grid { across, down, .. } = grid;
    let what = |text, upwards| Label { size: SIZE, colour: AXIS, upwards, ..Label::new(text) };
    let (centre, middle) =
        (i32::midpoint(across.start, across.end), i32::midpoint(down.start, down.end));
    pen.write(root, &what(&map.column_label, false), (centre, units(TITLE + WHAT / 2)))?;
    pen.write(root, &what(&map.row_label, true), (units(MARGIN + 4), middle))?;
    legend(pen, root, map, strongest, (across.start, units(total_height - 15)))?;
    let strongest = map.strongest;
    Ok(json!({
        "kind": "heatmap", "rowLabel": map.row_label, "columnLabel": map.column_label,
        "rows": map.rows, "columns": map.columns, "values": map.values, "strongest": strongest,
    }))
}

/// Area of the heatmap's cells: its ranges of horizontal and vertical coordinates. There are
/// [`SCALE`] units of these coordinates in a CSS pixel.
struct Grid {
    across: Range<i32>,
    down: Range<i32>,
    columns: usize,
    rows: usize,
}

impl Grid {
    /// Returns the left edge of column `number`, which is also the right edge of the column before
    /// it.
    fn column(&self, number: usize) -> i32 {
        edge(&self.across, self.columns, number)
    }

    /// Returns the upper edge of row `number`, which is also the lower edge of the row above it.
    fn row(&self, number: usize) -> i32 {
        edge(&self.down, self.rows, number)
    }

    fn draw_cells(
        &self,
        pen: &Pen<'_>,
        root: &Area<'_>,
        map: &Heatmap,
        strongest: f64,
    ) -> Result<(), PlotError> {
        for (y, values) in map.values.iter().enumerate() {
            for (x, &value) in values.iter().enumerate().filter(|(_, value)| value.is_finite()) {
                let colour = if value < 0.0 { SERIES[1] } else { SERIES[0] };
                let strength = (value.abs() / strongest).min(1.0);
                let corners =
                    [(self.column(x), self.row(y)), (self.column(x + 1), self.row(y + 1))];
                let cell = Rectangle::new(corners, colour.drawn().mix(strength).filled());
                root.draw(&cell).map_err(|error| pen.failed(error))?;
            }
        }
        let Self { across, down, .. } = self;
        let frame = Rectangle::new(
            [(across.start, down.start), (across.end, down.end)],
            GRID.drawn().stroke_width(SCALE as u32),
        );
        root.draw(&frame).map_err(|error| pen.failed(error))
    }

    /// Writes the names of rows and columns. If there is no room for all of them, some are left
    /// out.
    fn write_names(
        &self,
        pen: &Pen<'_>,
        root: &Area<'_>,
        map: &Heatmap,
        upwards: bool,
    ) -> Result<(), PlotError> {
        let Self { across, down, .. } = self;
        let every = |count: usize, extent: i32| {
            (count * (SIZE as usize + 2)).div_ceil((extent / SCALE).max(1) as usize).max(1)
        };
        let step = every(self.rows, down.end - down.start);
        for (number, name) in map.rows.iter().enumerate().step_by(step) {
            let name = shortened(name, SIZE, MOST);
            let label = Label { size: SIZE, anchor: Anchor::END, ..Label::new(&name) };
            let middle = i32::midpoint(self.row(number), self.row(number + 1));
            pen.write(root, &label, (across.start - units(5), middle))?;
        }
        let step = if upwards { every(self.columns, across.end - across.start) } else { 1 };
        for (number, name) in map.columns.iter().enumerate().step_by(step) {
            let name = shortened(name, SIZE, MOST);
            let anchor = if upwards { Anchor::START } else { Anchor::MIDDLE };
            let label = Label { size: SIZE, anchor, upwards, ..Label::new(&name) };
            let middle = i32::midpoint(self.column(number), self.column(number + 1));
            let above = if upwards { 5 } else { 5 + SIZE / 2 };
            pen.write(root, &label, (middle, down.start - units(above)))?;
        }
        Ok(())
    }
}

/// Returns the edge where part `number` begins, if `range` is divided into `count` equal parts.
fn edge(range: &Range<i32>, count: usize, number: usize) -> i32 {
    range.start + (i64::from(range.end - range.start) * number as i64 / count as i64) as i32
}

/// Draws the scale of colours, with the values at its two ends.
fn legend(
    pen: &Pen<'_>,
    root: &Area<'_>,
    map: &Heatmap,
    strongest: f64,
    (left, middle): (i32, i32),
) -> Result<(), PlotError> {
    let has_negative = map.values.iter().flatten().any(|&value| value < 0.0);
    let steps: i32 = 8;
    let shades: Vec<i32> =
        if has_negative { (-steps..=steps).collect() } else { (0..=steps).collect() };
    let text = |value: f64| number(value);
    let lowest = text(if has_negative { -strongest } else { 0.0 });
    let size = SIZE - 1;
    let label = |text| Label { size, colour: AXIS, anchor: Anchor::START, ..Label::new(text) };
    pen.write(root, &label(&lowest), (left, middle))?;
    let mut at = left + units(width(&lowest, size) + 4);
    for shade in shades {
        let colour = if shade < 0 { SERIES[1] } else { SERIES[0] };
        let strength = f64::from(shade.abs()) / f64::from(steps);
        let cell = Rectangle::new(
            [(at, middle - units(5)), (at + units(8), middle + units(5))],
            colour.drawn().mix(strength).filled(),
        );
        root.draw(&cell).map_err(|error| pen.failed(error))?;
        at += units(8);
    }
    pen.write(root, &label(&text(strongest)), (at + units(4), middle))
}
