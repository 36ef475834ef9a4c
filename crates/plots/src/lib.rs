//! Figures as data, drawn as SVG and PNG, and pages of one file that hold them.
//!
//! A [`Figure`] describes lines, points, bars or a heatmap, with titles and axes. [`Figure::draw`]
//! makes an [`Svg`] of it, whose colours are CSS variables: it suits light and dark pages alike.
//! [`Page`] puts figures and text into one HTML file that needs no network.
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
//! The library `plotters` draws. A JavaScript charting library was rejected: it would add hundreds
//! of kilobytes to each page, and its charts could not be written as pictures without a browser.
//! This crate knows no model and no run.
#![forbid(unsafe_code)]

mod colours;
mod draw;
mod error;
mod figure;
mod html;
mod page;
#[cfg(feature = "png")]
mod png;
mod scale;
mod svg;

pub use colours::Theme;
pub use error::PlotError;
pub use figure::{Axis, Bars, Chart, Figure, Heatmap, Mark, Plot, Series};
pub use html::escape;
pub use page::{Language, Page};
pub use svg::Svg;
