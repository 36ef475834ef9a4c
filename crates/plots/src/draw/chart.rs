//! Lines and points between two axes.

use plotters::prelude::{
    Cartesian2d, ChartBuilder, ChartContext, Circle, PathElement, Polygon, SVGBackend,
};
use plotters::style::{Color as _, TRANSPARENT};
use serde_json::json;

use super::axes::Scale;
use super::legend::{self, Sample};
use super::text::{style, width};
use super::thinning::thinned;
use super::{Area, Data, MARGIN, Pen, SCALE, TITLE, units};
use crate::colours::{AXIS, Colour, GRID, INK, series_colour};
use crate::error::PlotError;
use crate::figure::{Axis, Chart, Mark, Series};
use crate::svg::DASHED_WIDTH;

/// Width of a line, in drawing units. A CSS pixel has `SCALE` drawing units.
const LINE_WIDTH: u32 = 7;

/// Opacity of the area under a ridge, which is a curve with a coloured area below it. It is low
/// enough for the ridges behind the area to remain visible.
const AREA_OPACITY: f64 = 0.3;

/// Drawing area between two axes. Its coordinates are places on the axes (see [`Scale`]).
pub(super) type Plane<'a> = ChartContext<'a, SVGBackend<'a>, Cartesian2d<Scale, Scale>>;

/// Draws a chart.
pub(super) fn draw<'a>(pen: &Pen<'_>, root: &Area<'a>, chart: &Chart) -> Result<Data, PlotError> {
    let all = || chart.series.iter().flat_map(|series| &series.points);
    let whole = || all().filter(|at| chart.x.takes(at.0) && chart.y.takes(at.1));
    let x = Scale::new(&chart.x, whole().map(|at| at.0)).ok_or_else(|| pen.nothing())?;
    let y = Scale::new(&chart.y, whole().map(|at| at.1)).ok_or_else(|| pen.nothing())?;
    let top = legend::draw(pen, root, &entries(chart), TITLE)?;
    let mut plane = plane(pen, root, (&x, &y), (&chart.x, &chart.y), top)?;
    let mut told = Vec::new();
    for (number, series) in chart.series.iter().enumerate() {
        let points: Vec<(f64, f64)> = series
            .points
            .iter()
            .filter_map(|&(left, up)| Some((x.place(left)?, y.place(up)?)))
            .collect();
        let ink = colour_of(series, number);
        let placed = match series.mark {
            Mark::Ridge { base } => Mark::Ridge { base: y.place(base).unwrap_or(y.range.start) },
            other => other,
        };
        mark(pen, &mut plane, placed, &points, ink)?;
        let mut of_series = json!({
            "name": series.name,
            "colour": ink.variable,
            "mark": match series.mark {
                Mark::Line => "line",
                Mark::Dashes => "dashes",
                Mark::Dots => "dots",
                Mark::Ridge { .. } => "ridge",
            },
            "points": told_points(series, &x, &y),
        });
        if let Mark::Ridge { base } = series.mark {
            of_series["base"] = json!(base);
        }
        told.push(of_series);
    }
    let axis = |axis: &Axis| {
        let mut of_axis =
            json!({ "label": axis.label, "log": axis.logarithmic, "range": axis.range });
        if !axis.names.is_empty() {
            of_axis["names"] = json!(axis.names);
        }
        of_axis
    };
    Ok(json!({
        "kind": "chart", "x": axis(&chart.x), "y": axis(&chart.y), "series": told,
    }))
}

/// Returns the entries of the legend. Ridges of one colour share one entry.
fn entries(chart: &Chart) -> Vec<(&str, Colour, Sample)> {
    let mut entries: Vec<(&str, Colour, Sample)> = Vec::new();
    for (number, series) in chart.series.iter().enumerate() {
        let sample = match series.mark {
            Mark::Line => Sample::Line(LINE_WIDTH),
            Mark::Dashes => Sample::Line(DASHED_WIDTH),
            Mark::Dots => Sample::Dot,
            Mark::Ridge { .. } => Sample::Square,
        };
        let colour = colour_of(series, number);
        let is_shared = sample == Sample::Square
            && entries.iter().any(|&(_, other, mark)| (other, mark) == (colour, sample));
        if !series.name.is_empty() && !is_shared {
            entries.push((series.name.as_str(), colour, sample));
        }
    }
    entries
}

/// Returns the colour of a series; `number` is its index in the chart.
fn colour_of(series: &Series, number: usize) -> Colour {
    series_colour(series.colour.unwrap_or(number))
}

/// Returns the points that an interactive page gets for a series. They are the points that are
/// drawn, rounded to six digits. Lines of many points are thinned; dots are not.
fn told_points(series: &Series, x: &Scale, y: &Scale) -> Vec<(f64, f64)> {
    let is_shown = |at: &&(f64, f64)| x.place(at.0).is_some() && y.place(at.1).is_some();
    let shown: Vec<(f64, f64)> = series.points.iter().filter(is_shown).copied().collect();
    let points = if series.mark == Mark::Dots { shown } else { thinned(&shown) };
    // The x values of ridges come from a computation, so they are rounded too. Other x values may
    // be exact counts, such as numbers of updates, so they are not rounded.
    let is_ridge = matches!(series.mark, Mark::Ridge { .. });
    let across = |value: f64| if is_ridge { six_digits(value) } else { value };
    points.into_iter().map(|at| (across(at.0), six_digits(at.1))).collect()
}

/// Rounds a number to six digits, which keeps JSON short.
fn six_digits(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

/// Draws two axes with a grid, numbers and labels. They lie below `top`, which is given in CSS
/// pixels.
pub(super) fn plane<'a>(
    pen: &Pen<'_>,
    root: &Area<'a>,
    (x, y): (&Scale, &Scale),
    (across, up): (&Axis, &Axis),
    top: i32,
) -> Result<Plane<'a>, PlotError> {
    let longest = up.names.iter().map(|(_, name)| width(name, 11) + 12).max().unwrap_or(46);
    let of_label = if up.label.is_empty() { 0 } else { 18 };
    let mut plane = ChartBuilder::on(root)
        .margin_top(units(top + 6))
        .margin_left(units(MARGIN - 6))
        .margin_right(units(MARGIN + 8))
        .margin_bottom(units(6))
        .x_label_area_size(units(if across.label.is_empty() { 26 } else { 44 }))
        .y_label_area_size(units(longest + of_label))
        .build_cartesian_2d(x.clone(), y.clone())
        .map_err(|error| pen.failed(error))?;
    plane
        .configure_mesh()
        .x_labels(x.ticks.len().max(1))
        .y_labels(y.ticks.len().max(1))
        .x_desc(&across.label)
        .y_desc(&up.label)
        .axis_style(AXIS.drawn().stroke_width(SCALE as u32))
        .bold_line_style(GRID.drawn().stroke_width(SCALE as u32))
        .light_line_style(TRANSPARENT)
        .label_style(style(11, AXIS))
        .axis_desc_style(style(12, INK))
        .set_all_tick_mark_size(units(4))
        .draw()
        .map_err(|error| pen.failed(error))?;
    Ok(plane)
}

/// Draws `points` with the mark `mark`. The points are given as places on the axes.
fn mark(
    pen: &Pen<'_>,
    plane: &mut Plane<'_>,
    mark: Mark,
    points: &[(f64, f64)],
    colour: Colour,
) -> Result<(), PlotError> {
    let ink = colour.drawn();
    // A line through a single point would be invisible, so a single point is drawn as a dot.
    if mark == Mark::Dots || points.len() == 1 {
        let dots = points.iter().map(|&at| Circle::new(at, units(3), ink.mix(0.8).filled()));
        plane.draw_series(dots).map_err(|error| pen.failed(error))?;
    } else {
        if let (Mark::Ridge { base }, [first, .., last]) = (mark, points) {
            let ends = [(last.0, base), (first.0, base)];
            let area: Vec<(f64, f64)> = points.iter().copied().chain(ends).collect();
            let area = Polygon::new(area, ink.mix(AREA_OPACITY).filled());
            plane.draw_series(std::iter::once(area)).map_err(|error| pen.failed(error))?;
        }
        let width = if mark == Mark::Dashes { DASHED_WIDTH } else { LINE_WIDTH };
        let path = PathElement::new(thinned(points), ink.stroke_width(width));
        plane.draw_series(std::iter::once(path)).map_err(|error| pen.failed(error))?;
    }
    Ok(())
}
