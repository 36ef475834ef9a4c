//! Parts of pages as HTML: sections, important numbers, tables, figures side by side.

mod sections;
mod stats;
mod tables;

pub use sections::Section;
pub use stats::{Change, Stat, stats};
pub use tables::table;

use crate::error::PlotError;
use crate::figure::Figure;
use crate::html::escape;

/// Figures in a grid that fills the window.
///
/// # Errors
/// When a figure cannot be drawn.
pub fn figures<'a>(figures: impl IntoIterator<Item = &'a Figure>) -> Result<String, PlotError> {
    grid("figures", figures)
}

/// Figures as small multiples: many in a row, without axis names.
///
/// # Errors
/// When a figure cannot be drawn.
pub fn small_multiples<'a>(
    figures: impl IntoIterator<Item = &'a Figure>,
) -> Result<String, PlotError> {
    grid("figures is-small", figures)
}

fn grid<'a>(
    class: &str,
    figures: impl IntoIterator<Item = &'a Figure>,
) -> Result<String, PlotError> {
    let of_one = if class.contains("is-small") { " class=\"is-small\"" } else { "" };
    let mut html = format!("<div class=\"{class}\">\n");
    for figure in figures {
        html += &format!("<figure{of_one}>{}</figure>\n", figure.draw()?.inline());
    }
    Ok(html + "</div>\n")
}

/// A remark.
#[must_use]
pub fn note(text: &str) -> String {
    format!("<p class=\"muted\">{}</p>\n", escape(text))
}

/// A panel with a title, as plain text, and content, as HTML.
#[must_use]
pub fn panel(title: &str, body: &str) -> String {
    format!("<div class=\"panel\"><h3>{}</h3>\n{body}</div>\n", escape(title))
}

/// Panels side by side, if there is room.
#[must_use]
pub fn panels(panels: &[String]) -> String {
    format!("<div class=\"panels\">\n{}</div>\n", panels.concat())
}

/// Lines for several names over several quantities (parallel coordinates): values of each quantity
/// are in the order of the names. The page's script draws them.
#[must_use]
pub fn parallel_coordinates(
    title: &str,
    names: &[String],
    quantities: &[(String, Vec<String>)],
) -> String {
    let axes: Vec<_> = quantities
        .iter()
        .map(|(label, values)| serde_json::json!({ "label": label, "values": values }))
        .collect();
    let data = serde_json::json!({ "names": names, "axes": axes });
    format!(
        "<div class=\"panel\" data-title=\"{}\" data-parallel=\"{}\"></div>\n",
        escape(title),
        escape(&data.to_string())
    )
}
