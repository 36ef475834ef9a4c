//! Figures, which are described as data and drawn as SVG or PNG, and pages that contain figures in
//! a single HTML file.
//!
//! A [`Figure`] describes lines, points, bars or a heatmap, with titles and axes. [`Figure::draw`]
//! turns a figure into an [`Svg`]. The colours of the SVG are CSS variables, so it fits light and
//! dark pages alike. A [`Page`] is an HTML file that has figures and text in it and needs no
//! network.
//!
//! ```
//! use taper_plots::{Axis, Chart, Figure, Series};
//!
//! let loss = Series::line("training", vec![(1.0, 5.2), (10.0, 3.1), (100.0, 1.4)]);
//! let chart = Chart::new(Axis::log("update"), Axis::linear("loss"), vec![loss]);
//! let svg = Figure::new("Loss", "It falls from 5.2 to 1.4 in 100 updates.", chart).draw()?;
//! assert!(svg.standalone().starts_with("<svg"));
//! # Ok::<(), taper_plots::PlotError>(())
//! ```
//!
//! The library `plotters` draws SVG, and `resvg` renders it as PNG; neither needs a browser. In a
//! page, the JavaScript library uPlot draws the same values again. There, figures fill the window,
//! can be zoomed, and show the values at the pointer. uPlot adds 50 KB to a page, while larger
//! libraries would add hundreds. The module [`parts`] has the other components of pages. This crate
//! does not depend on models or on recorded trainings.
#![forbid(unsafe_code)]

mod colours;
mod draw;
mod error;
mod figure;
mod html;
mod page;
pub mod parts;
#[cfg_attr(not(feature = "png"), path = "without_png.rs")]
mod png;
mod scale;
mod svg;

pub use colours::Theme;
pub use error::PlotError;
pub use figure::{Axis, Bars, Chart, Figure, Heatmap, Mark, Plot, Series};
pub use html::escape;
pub use page::{Language, Page};
pub use svg::Svg;
