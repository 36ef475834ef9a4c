//! Drawings rendered as PNG, with the fonts of the system.

use std::sync::{Arc, LazyLock};

use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::fontdb::Database;
use resvg::usvg::{Options, Tree};

use crate::error::PlotError;
use crate::scale::SCALE;

/// Common sans-serif fonts, the most usual first. If the chosen font lacks a glyph, the glyph is
/// taken from any other font that has it.
const SANS_SERIF: [&str; 8] = [
    "Noto Sans",
    "DejaVu Sans",
    "Liberation Sans",
    "Helvetica Neue",
    "Helvetica",
    "Segoe UI",
    "Arial",
    "Noto Sans CJK SC",
];

/// Fonts of this system. They are searched for when they are first used.
static FONTS: LazyLock<Arc<Database>> = LazyLock::new(|| {
    let mut fonts = Database::new();
    fonts.load_system_fonts();
    let has = |fonts: &Database, name: &str| {
        fonts.faces().any(|face| face.families.iter().any(|(family, _)| family == name))
    };
    let any = fonts.faces().next().and_then(|face| Some(face.families.first()?.0.clone()));
    let usual = SANS_SERIF.into_iter().find(|name| has(&fonts, name)).map(str::to_owned);
    if let Some(name) = usual.or(any) {
        fonts.set_sans_serif_family(name);
    }
    Arc::new(fonts)
});

/// Renders an SVG drawing as PNG. The drawing has a width and a height of `size` CSS pixels, and
/// each CSS pixel becomes a square of `zoom` by `zoom` pixels.
///
/// # Errors
/// If the system has no fonts, or if the picture is too large.
pub(crate) fn picture(svg: &str, size: (u32, u32), zoom: f32) -> Result<Vec<u8>, PlotError> {
    let fontdb = Arc::clone(&FONTS);
    if fontdb.is_empty() {
        return Err(PlotError::NoFonts);
    }
    let options = Options { fontdb, ..Options::default() };
    let tree =
        Tree::from_str(svg, &options).map_err(|error| PlotError::Picture(error.to_string()))?;
    let pixels = |extent: u32| (extent as f32 * zoom).round() as u32;
    let mut picture = Pixmap::new(pixels(size.0), pixels(size.1)).ok_or_else(|| {
        PlotError::Picture(format!("{} x {} pixels", pixels(size.0), pixels(size.1)))
    })?;
    let factor = zoom / SCALE as f32;
    resvg::render(&tree, Transform::from_scale(factor, factor), &mut picture.as_mut());
    picture.encode_png().map_err(|error| PlotError::Picture(error.to_string()))
}
