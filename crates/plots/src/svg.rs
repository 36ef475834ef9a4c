//! Finished drawings as SVG, for use in pages, files and pictures.

use std::fmt::Write as _;

use serde_json::Value;

use crate::colours::{self, Theme};
use crate::figure::Figure;
use crate::html::escape;
use crate::scale::SCALE;

/// Width of the lines that will be dashed, in drawing units. A CSS pixel has [`SCALE`] drawing
/// units. `plotters` draws these lines without dashes. No other line has this width. So the lines
/// can be found in the output of `plotters`, and dashes are added to them there.
pub(crate) const DASHED_WIDTH: u32 = 9;

/// A finished drawing.
///
/// Each element names its colour twice. An attribute is for programs that do not read CSS. A class
/// sets the colour from a CSS variable, such as `--plot-series-1`.
#[derive(Debug, Clone)]
pub struct Svg {
    title: String,
    description: String,
    size: (u32, u32),
    /// Elements within `<svg>`.
    elements: String,
    /// Values from which a page draws an interactive figure.
    data: Value,
}

impl Svg {
    /// Makes a drawing from the output of `plotters`.
    pub(crate) fn new(figure: &Figure, written: &str, data: Value) -> Self {
        let inner = written.split_once('>').map_or("", |(_, rest)| rest);
        let inner = inner.trim_end().trim_end_matches("</svg>");
        let dashed = format!("stroke-width=\"{DASHED_WIDTH}\"");
        let broken = "stroke-width=\"7\" stroke-dasharray=\"24 16\"";
        Self {
            title: figure.title.clone(),
            description: figure.description.clone(),
            size: figure.size,
            // `plotters` writes line breaks before and after a text. A browser would show them as
            // spaces.
            elements: inner.replace(&dashed, broken).replace(">\n", ">").replace("\n<", "<"),
            data,
        }
    }

    /// Returns a standalone SVG file. Its background is transparent, and its colours are those of
    /// the theme that the reader prefers, light or dark.
    #[must_use]
    pub fn standalone(&self) -> String {
        let (width, height) = self.size;
        let mut dark = String::new();
        for colour in colours::all() {
            // Writing to a string does not fail.
            let _ = write!(dark, "{}:{};", colour.variable, colour.hex(Theme::Dark));
        }
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {} {}\" role=\"img\" aria-labelledby=\"title description\">\n\
             <title id=\"title\">{}</title>\n<desc id=\"description\">{}</desc>\n\
             <style>{}@media (prefers-color-scheme:dark){{svg:root{{{dark}}}}}</style>\n{}</svg>\n",
            width * SCALE as u32,
            height * SCALE as u32,
            escape(&self.title),
            escape(&self.description),
            class_rules(),
            self.with_classes(),
        )
    }

    /// Returns the drawing as a part of a [`Page`](crate::Page). The script of the page draws the
    /// values again as an interactive figure. This drawing is for printers and for browsers without
    /// scripts.
    #[must_use]
    pub fn inline(&self) -> String {
        let (width, height) = self.size;
        format!(
            "<svg class=\"plot\" viewBox=\"0 0 {1} {2}\" width=\"{width}\" height=\"{height}\" \
             role=\"img\" aria-label=\"{0}. {3}\" data-title=\"{0}\" data-plot=\"{4}\">{5}</svg>",
            escape(&self.title),
            width * SCALE as u32,
            height * SCALE as u32,
            escape(&self.description),
            escape(&self.data.to_string()),
            self.with_classes(),
        )
    }

    /// Returns the drawing as a PNG in the colours of `theme`, with a background. Each CSS pixel
    /// becomes a square of `zoom` by `zoom` pixels.
    ///
    /// # Errors
    /// If the program was built without PNG, if the system has no fonts, or if the picture is too
    /// large.
    pub fn png(&self, theme: Theme, zoom: f32) -> Result<Vec<u8>, crate::PlotError> {
        crate::png::picture(&self.with_ground(theme), self.size, zoom)
    }

    /// Returns the drawing in the colours of a theme, with a background.
    fn with_ground(&self, theme: Theme) -> String {
        let (width, height) = (self.size.0 * SCALE as u32, self.size.1 * SCALE as u32);
        let mut elements = self.elements.clone();
        if theme == Theme::Dark {
            for colour in colours::all() {
                elements = elements.replace(
                    &format!("\"{}\"", colour.hex(Theme::Light)),
                    &format!("\"{}\"", colour.hex(theme)),
                );
            }
        }
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\">\
             <rect width=\"100%\" height=\"100%\" fill=\"{}\"/>{elements}</svg>",
            colours::GROUND.hex(theme),
        )
    }

    fn with_classes(&self) -> String {
        let mut elements = self.elements.clone();
        for colour in colours::all() {
            let hex = colour.hex(Theme::Light);
            for attribute in ["fill", "stroke"] {
                let plain = format!("{attribute}=\"{hex}\"");
                let class = class_of(attribute, colour.variable);
                elements = elements.replace(&plain, &format!("{plain} class=\"{class}\""));
            }
        }
        elements
    }
}

fn class_of(attribute: &str, variable: &str) -> String {
    format!("{attribute}{}", variable.trim_start_matches("--plot"))
}

/// CSS rules for the classes of a drawing.
pub(crate) fn class_rules() -> String {
    let rule = |attribute: &str, colour: colours::Colour| {
        let (class, hex) = (class_of(attribute, colour.variable), colour.hex(Theme::Light));
        format!(".{class}{{{attribute}:var({},{hex})}}", colour.variable)
    };
    colours::all().map(|colour| rule("fill", colour) + &rule("stroke", colour)).collect()
}
