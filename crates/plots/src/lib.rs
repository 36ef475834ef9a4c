//! Figures as data, drawn as SVG and PNG, and pages of a single file that contain them.
//!
//! A [`Figure`] describes lines, points, bars or a heatmap, with titles and axes. [`Figure::draw`]
//! turns it into an [`Svg`]. The colours of the SVG are CSS variables, so it suits light and dark
//! pages alike. [`Page`] puts figures and text into one HTML file that needs no network.
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
//! The library `plotters` draws SVG, and `resvg` renders it as PNG, without a browser. In pages the
//! JavaScript library uPlot draws the same values again, at the size of the window, with zoom and
//! values at the pointer; it adds 50 KB to a page, while larger libraries would add hundreds.
//! [`parts`] has the other components of pages. This crate knows no model and no run.
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
