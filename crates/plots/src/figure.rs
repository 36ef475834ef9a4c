//! Figures as data.

use crate::error::PlotError;
use crate::svg::Svg;

/// What is to be drawn, with its title.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// Above the drawing.
    pub title: String,
    /// What it shows in words, for those who do not see it.
    pub description: String,
    /// Width and height, in CSS pixels.
    pub size: (u32, u32),
    /// What is drawn.
    pub plot: Plot,
}

impl Figure {
    /// A figure of the usual size.
    pub fn new(
        title: impl Into<String>,
        description: impl Into<String>,
        plot: impl Into<Plot>,
    ) -> Self {
        let plot = plot.into();
        let size = plot.usual_size();
        Self { title: title.into(), description: description.into(), size, plot }
    }

    /// The same in another size.
    #[must_use]
    pub const fn sized(mut self, width: u32, height: u32) -> Self {
        self.size = (width, height);
        self
    }

    /// Draws it.
    ///
    /// # Errors
    /// When there is nothing to show, or rows and columns do not match the values.
    pub fn draw(&self) -> Result<Svg, PlotError> {
        crate::draw::draw(self)
    }
}

/// The kinds of drawings.
#[derive(Debug, Clone, PartialEq)]
pub enum Plot {
    /// Lines and points between two axes.
    Chart(Chart),
    /// Bars over categories.
    Bars(Bars),
    /// A table as shades.
    Heatmap(Heatmap),
}

impl Plot {
    /// As large as it is readable, in CSS pixels.
    fn usual_size(&self) -> (u32, u32) {
        match self {
            Self::Chart(_) => (720, 400),
            Self::Bars(bars) => (720, if bars.categories.len() > 12 { 440 } else { 400 }),
            Self::Heatmap(map) => {
                let side = |count: usize| (count as u32).saturating_mul(30).clamp(180, 1200);
                (side(map.columns.len()) + 170, side(map.rows.len()) + 170)
            }
        }
    }
}

impl From<Chart> for Plot {
    fn from(chart: Chart) -> Self {
        Self::Chart(chart)
    }
}

impl From<Bars> for Plot {
    fn from(bars: Bars) -> Self {
        Self::Bars(bars)
    }
}

impl From<Heatmap> for Plot {
    fn from(heatmap: Heatmap) -> Self {
        Self::Heatmap(heatmap)
    }
}

/// An axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    /// What is measured, with its unit.
    pub label: String,
    /// Whether equal distances are equal ratios.
    pub logarithmic: bool,
    /// The values at its ends; none: those of the points, with some room.
    pub range: Option<(f64, f64)>,
}

impl Axis {
    /// Equal distances are equal differences.
    pub fn linear(label: impl Into<String>) -> Self {
        Self { label: label.into(), logarithmic: false, range: None }
    }

    /// Equal distances are equal ratios; points that are not positive are left out.
    pub fn log(label: impl Into<String>) -> Self {
        Self { logarithmic: true, ..Self::linear(label) }
    }

    /// The same between these values.
    #[must_use]
    pub const fn between(mut self, low: f64, high: f64) -> Self {
        self.range = Some((low, high));
        self
    }

    /// Whether a value has a place on it.
    pub(crate) fn takes(&self, value: f64) -> bool {
        value.is_finite() && (!self.logarithmic || value > 0.0)
    }
}

/// How points are marked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// Joined by a line.
    Line,
    /// Joined by a broken line.
    Dashes,
    /// A dot each.
    Dots,
}

/// Points that belong together.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// What the legend calls them; without a name they are not in it.
    pub name: String,
    /// The points, in the order of the line. Those that are not finite are left out.
    pub points: Vec<(f64, f64)>,
    /// How they are marked.
    pub mark: Mark,
    /// The number of the colour; none: that of the series' own place.
    pub colour: Option<usize>,
}

impl Series {
    /// Joined by a line.
    pub fn line(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), points, mark: Mark::Line, colour: None }
    }

    /// A dot each.
    pub fn dots(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self { mark: Mark::Dots, ..Self::line(name, points) }
    }

    /// Joined by a broken line.
    pub fn dashes(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self { mark: Mark::Dashes, ..Self::line(name, points) }
    }

    /// The same in the colour of this number: a fit has that of its points.
    #[must_use]
    pub const fn coloured(mut self, number: usize) -> Self {
        self.colour = Some(number);
        self
    }
}

/// Lines and points between two axes.
#[derive(Debug, Clone, PartialEq)]
pub struct Chart {
    /// From left to right.
    pub x: Axis,
    /// From bottom to top.
    pub y: Axis,
    /// What is drawn, the first at the bottom.
    pub series: Vec<Series>,
}

impl Chart {
    /// Series between two axes.
    #[must_use]
    pub const fn new(x: Axis, y: Axis, series: Vec<Series>) -> Self {
        Self { x, y, series }
    }
}

/// Bars over categories, side by side where there are several series.
#[derive(Debug, Clone, PartialEq)]
pub struct Bars {
    /// What the categories are.
    pub label: String,
    /// Under each group of bars.
    pub categories: Vec<String>,
    /// How high they are.
    pub y: Axis,
    /// Names and one value for each category. A value that is not finite has no bar.
    pub series: Vec<(String, Vec<f64>)>,
}

/// A table as shades: the larger a value, the stronger its colour; negative ones have another.
#[derive(Debug, Clone, PartialEq)]
pub struct Heatmap {
    /// What the rows are.
    pub row_label: String,
    /// What the columns are.
    pub column_label: String,
    /// Left of each row, the first at the top.
    pub rows: Vec<String>,
    /// Above each column.
    pub columns: Vec<String>,
    /// A value for each column of each row. Those that are not finite are left empty.
    pub values: Vec<Vec<f64>>,
    /// The amount that has the full colour; none: the largest there is.
    pub strongest: Option<f64>,
}
