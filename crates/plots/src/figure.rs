//! Descriptions of figures as data, before they are drawn.

/// A plot with its title and size.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// Title above the drawing.
    pub title: String,
    /// Description in words, for readers who cannot see the drawing.
    pub description: String,
    /// Width and height, in CSS pixels.
    pub size: (u32, u32),
    /// Content of the drawing.
    pub plot: Plot,
}

impl Figure {
    /// Makes a figure of the usual size.
    pub fn new(
        title: impl Into<String>,
        description: impl Into<String>,
        plot: impl Into<Plot>,
    ) -> Self {
        let plot = plot.into();
        let size = plot.usual_size();
        Self { title: title.into(), description: description.into(), size, plot }
    }

    /// Returns the figure with another size, in CSS pixels.
    #[must_use]
    pub const fn sized(mut self, width: u32, height: u32) -> Self {
        self.size = (width, height);
        self
    }
}

/// Kinds of drawings.
#[derive(Debug, Clone, PartialEq)]
pub enum Plot {
    /// Lines and points between two axes.
    Chart(Chart),
    /// Bars over categories.
    Bars(Bars),
    /// A table as a heatmap.
    Heatmap(Heatmap),
}

impl Plot {
    /// Usual size of this kind of drawing, in CSS pixels.
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
    /// Quantity on the axis, with its unit.
    pub label: String,
    /// Whether the axis is logarithmic. On a logarithmic axis, equal distances mean equal ratios.
    pub logarithmic: bool,
    /// Values at the two ends of the axis. With `None`, the axis contains all points, with some
    /// room on both sides.
    pub range: Option<(f64, f64)>,
    /// Labels that are written instead of numbers. Each element is a value and its label. If the
    /// list is empty, the labels are numbers.
    pub names: Vec<(f64, String)>,
}

impl Axis {
    /// Makes a linear axis.
    pub fn linear(label: impl Into<String>) -> Self {
        Self { label: label.into(), logarithmic: false, range: None, names: Vec::new() }
    }

    /// Makes a logarithmic axis. A point is omitted if its value on this axis is not positive.
    pub fn log(label: impl Into<String>) -> Self {
        Self { logarithmic: true, ..Self::linear(label) }
    }

    /// Returns the axis with the values `low` and `high` at its ends.
    #[must_use]
    pub const fn between(mut self, low: f64, high: f64) -> Self {
        self.range = Some((low, high));
        self
    }

    /// Returns the axis with labels instead of numbers. Each element of `names` is a value, and the
    /// label that is written at this value.
    #[must_use]
    pub fn named(mut self, names: Vec<(f64, String)>) -> Self {
        self.names = names;
        self
    }

    /// Whether the axis can show a value.
    #[must_use]
    pub fn takes(&self, value: f64) -> bool {
        value.is_finite() && (!self.logarithmic || value > 0.0)
    }
}

/// Ways of drawing the points of a series.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Mark {
    /// Points joined by a line.
    Line,
    /// Points joined by a dashed line.
    Dashes,
    /// Single dots.
    Dots,
    /// Points joined by a line, with a coloured area between the line and the height `base`. Ridges
    /// of one colour belong together and have one entry in the legend. The entry has the name of
    /// the first of these ridges that has a name.
    Ridge {
        /// Height of the lower end of the area.
        base: f64,
    },
}

/// Points that belong together.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Name in the legend. A series without a name is not in the legend.
    pub name: String,
    /// Points in the order of the line. Points that are not finite are omitted.
    pub points: Vec<(f64, f64)>,
    /// Way in which the points are drawn.
    pub mark: Mark,
    /// Index of the colour among the colours for series. With `None`, the index of the series in
    /// the chart is used.
    pub colour: Option<usize>,
}

impl Series {
    /// Makes a series of points joined by a line.
    pub fn line(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), points, mark: Mark::Line, colour: None }
    }

    /// Makes a series of single dots.
    pub fn dots(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self { mark: Mark::Dots, ..Self::line(name, points) }
    }

    /// Makes a series of points joined by a dashed line.
    pub fn dashes(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self { mark: Mark::Dashes, ..Self::line(name, points) }
    }

    /// Makes a series that is a curve, with a coloured area between the curve and the height
    /// `base`.
    pub fn ridge(name: impl Into<String>, base: f64, points: Vec<(f64, f64)>) -> Self {
        Self { mark: Mark::Ridge { base }, ..Self::line(name, points) }
    }

    /// Returns the series with the colour of index `number`. With this, a fitted curve can have the
    /// same colour as its points.
    #[must_use]
    pub const fn coloured(mut self, number: usize) -> Self {
        self.colour = Some(number);
        self
    }
}

/// Lines and points between two axes.
#[derive(Debug, Clone, PartialEq)]
pub struct Chart {
    /// Horizontal axis.
    pub x: Axis,
    /// Vertical axis.
    pub y: Axis,
    /// Series in the order in which they are drawn; later ones cover earlier ones.
    pub series: Vec<Series>,
}

impl Chart {
    /// Makes a chart of series between two axes.
    #[must_use]
    pub const fn new(x: Axis, y: Axis, series: Vec<Series>) -> Self {
        Self { x, y, series }
    }
}

/// Bars over categories, side by side if there are several series.
#[derive(Debug, Clone, PartialEq)]
pub struct Bars {
    /// Title of the categories.
    pub label: String,
    /// Names of the categories, written under each group of bars.
    pub categories: Vec<String>,
    /// Axis of the heights.
    pub y: Axis,
    /// Series, each with its name and one value for each category. For a value that is not finite,
    /// no bar is drawn.
    pub series: Vec<(String, Vec<f64>)>,
}

/// A table whose values are shown as shades. The larger the absolute value, the stronger its
/// colour. Negative values have another colour than positive ones.
#[derive(Debug, Clone, PartialEq)]
pub struct Heatmap {
    /// Title of the rows.
    pub row_label: String,
    /// Title of the columns.
    pub column_label: String,
    /// Labels of the rows, the first at the top.
    pub rows: Vec<String>,
    /// Labels of the columns.
    pub columns: Vec<String>,
    /// One value for each column of each row. The cell of a value that is not finite remains empty.
    pub values: Vec<Vec<f64>>,
    /// Absolute value that is shown with the full colour. `None` means the largest absolute value
    /// in the table.
    pub strongest: Option<f64>,
}
