//! Destinations of pictures of runs.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use taper_plots::{Language, Theme};

use crate::features::png_path;

/// The language of a page.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum PageLanguage {
    /// English
    #[default]
    En,
    /// Chinese
    Zh,
}

impl From<PageLanguage> for Language {
    fn from(chosen: PageLanguage) -> Self {
        match chosen {
            PageLanguage::En => Self::English,
            PageLanguage::Zh => Self::Chinese,
        }
    }
}

/// Destinations and appearance of pictures.
#[derive(Debug, Args)]
pub(crate) struct Pictures {
    /// Also write every figure as SVG into this folder
    #[arg(long, value_name = "FOLDER")]
    pub(crate) svg: Option<PathBuf>,
    /// Also write every figure as PNG into this folder
    #[arg(long, value_name = "FOLDER", value_parser = png_path())]
    pub(crate) png: Option<PathBuf>,
    /// Dark colours in PNG files; SVG files and pages follow their reader's settings
    #[arg(long)]
    pub(crate) dark: bool,
    /// The language of pages and figures
    #[arg(long, value_enum, default_value_t)]
    pub(crate) language: PageLanguage,
}

impl Pictures {
    /// Returns the theme of PNG files.
    pub(crate) const fn theme(&self) -> Theme {
        if self.dark { Theme::Dark } else { Theme::Light }
    }
}
