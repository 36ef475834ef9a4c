//! Parts of pages, as HTML: sections, important numbers, tables, and figures side by side.

mod sections;
mod stats;
mod tables;

pub use sections::Section;
pub use stats::{Change, Stat, stats};
pub use tables::table;

use crate::error::PlotError;
use crate::figure::Figure;
use crate::html::escape;

/// Makes a grid of figures that fills the window.
///
/// # Errors
/// If a figure cannot be drawn.
pub fn figures<'a>(figures: impl IntoIterator<Item = &'a Figure>) -> Result<String, PlotError> {
    grid("figures", figures)
}

/// Makes a grid of figures as small multiples. They are shown small, with many in a row and without
/// the names of axes.
///
/// # Errors
/// If a figure cannot be drawn.
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

/// Makes a remark from plain text.
#[must_use]
pub fn note(text: &str) -> String {
    format!("<p class=\"muted\">{}</p>\n", escape(text))
}

/// Makes a panel. `title` is plain text, and `body` is HTML.
#[must_use]
pub fn panel(title: &str, body: &str) -> String {
    format!("<div class=\"panel\"><h3>{}</h3>\n{body}</div>\n", escape(title))
}

/// Puts panels side by side, if there is room.
#[must_use]
pub fn panels(panels: &[String]) -> String {
    format!("<div class=\"panels\">\n{}</div>\n", panels.concat())
}

/// Makes a chart in parallel coordinates. The HTML has only the data; the script of the page draws
/// the chart. Each quantity is an axis, and each of `names` is a line that crosses all axes. A
/// quantity is given by its label and by its values, one for each name.
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
