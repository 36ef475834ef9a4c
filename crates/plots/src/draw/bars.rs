//! Bars over categories.

use std::ops::Range;

use plotters::prelude::Rectangle;
use plotters::style::Color as _;
use serde_json::json;

use super::axes::Scale;
use super::chart::plane;
use super::legend::{self, Sample};
use super::text::{Anchor, Label, shortened, width};
use super::{Area, Data, Pen, SCALE, TITLE, units};
use crate::colours::{AXIS, Colour, series_colour};
use crate::error::PlotError;
use crate::figure::{Axis, Bars};

/// Share of a category's width that its bars fill.
const FILLED: f64 = 0.76;
/// Font size of the names of categories, in CSS pixels.
const SIZE: i32 = 11;

/// Draws bars.
pub(super) fn draw(pen: &Pen<'_>, root: &Area<'_>, bars: &Bars) -> Result<Data, PlotError> {
    let count = bars.categories.len();
    for (_, values) in &bars.series {
        pen.check("categories", count, values.len())?;
    }
    let values = || bars.series.iter().flat_map(|(_, values)| values).copied();
    if count == 0 || !values().any(|value| bars.y.takes(value)) {
        return Err(pen.nothing());
    }
    // Bars begin at 0. On a logarithmic axis, which has no 0, they begin at its lower end.
    let foot = (!bars.y.logarithmic).then_some(0.0);
    let y = Scale::new(&bars.y, values().chain(foot)).ok_or_else(|| pen.nothing())?;
    let x_axis = Axis::linear(&bars.label).between(0.0, count as f64);
    let mut x =
        Scale::new(&x_axis, [0.0, count as f64].into_iter()).ok_or_else(|| pen.nothing())?;
    x.ticks.clear();
    let entries: Vec<(&str, Colour, Sample)> = bars
        .series
        .iter()
        .enumerate()
        .filter(|(_, (name, _))| !name.is_empty())
        .map(|(number, (name, _))| (name.as_str(), series_colour(number), Sample::Square))
        .collect();
    let top = legend::draw(pen, root, &entries, TITLE)?;
    let mut plane = plane(pen, root, (&x, &y), (&x_axis, &bars.y), top)?;
    let one = FILLED / bars.series.len() as f64;
    let base = foot.and_then(|foot| y.place(foot)).unwrap_or(y.range.start);
    for (number, (_, values)) in bars.series.iter().enumerate() {
        let ink = series_colour(number).drawn();
        let bar = |(category, &value): (usize, &f64)| {
            let left = category as f64 + (1.0 - FILLED) / 2.0 + one * number as f64;
            let high = y.place(value)?;
            Some(Rectangle::new([(left, high), (left + one * 0.94, base)], ink.filled()))
        };
        let rectangles = values.iter().enumerate().filter_map(bar);
        plane.draw_series(rectangles).map_err(|error| pen.failed(error))?;
    }
    let (across, down) = plane.plotting_area().get_pixel_range();
    write_names(pen, root, bars, &across, down.end + units(13))?;
    let series = bars.series.iter().enumerate().map(|(number, (name, values))| {
        json!({ "name": name, "colour": series_colour(number).variable, "values": values })
    });
    Ok(json!({
        "kind": "bars", "label": bars.label, "categories": bars.categories,
        "y": { "label": bars.y.label, "log": bars.y.logarithmic },
        "series": series.collect::<Vec<_>>(),
    }))
}

/// Writes the names of categories. If there is no room for all of them, some are left out.
fn write_names(
    pen: &Pen<'_>,
    root: &Area<'_>,
    bars: &Bars,
    across: &Range<i32>,
    below: i32,
) -> Result<(), PlotError> {
    let each = f64::from(across.end - across.start) / bars.categories.len() as f64;
    let room = (each / f64::from(SCALE)) as i32;
    // If not all names fit, only every second, third, … name is written.
    let widest = bars.categories.iter().map(|name| width(name, SIZE)).max().unwrap_or(0);
    let every = step_of_names(widest, room);
    for (category, name) in bars.categories.iter().enumerate().step_by(every) {
        let at = across.start + ((category as f64 + 0.5) * each) as i32;
        let name = shortened(name, SIZE, room * every as i32);
        let label = Label { size: SIZE, colour: AXIS, anchor: Anchor::MIDDLE, ..Label::new(&name) };
        pen.write(root, &label, (at, below))?;
    }
    Ok(())
}

/// Number n, so that every n-th name is written. `widest` is the width of the widest name, and
/// `room` is the width of a category, in CSS pixels. Wide names are shortened.
fn step_of_names(widest: i32, room: i32) -> usize {
    let needed = (widest + 8).min(90) as usize;
    needed.div_ceil(room.max(1) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_names_are_written_if_they_just_fit() {
        assert_eq!([41, 40, 39].map(|room| step_of_names(32, room)), [1, 1, 2]);
        assert_eq!([20, 19].map(|room| step_of_names(32, room)), [2, 3]);
        assert_eq!((step_of_names(0, 50), step_of_names(500, 45), step_of_names(0, 0)), (1, 2, 8));
    }
}
