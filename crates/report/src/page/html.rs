//! Parts of pages.

use anyhow::Result;
use taper_plots::{Language, escape};

use crate::figures::NamedFigure;

/// A part of a page with a heading.
pub(crate) struct Section {
    /// Id that links refer to.
    pub(crate) id: &'static str,
    /// Heading, as plain text.
    pub(crate) title: &'static str,
    /// Content, as HTML.
    pub(crate) body: String,
}

impl Section {
    /// Links to the sections, followed by the sections.
    pub(crate) fn all(sections: &[Self], language: Language) -> String {
        let link = |one: &Self| format!("<li><a href=\"#{}\">{}</a></li>", one.id, one.title);
        let part = |one: &Self| {
            format!(
                "<section id=\"{0}\" aria-labelledby=\"{0}-title\">\n<h2 id=\"{0}-title\">{1}</h2>\
                 \n{2}\n</section>\n",
                one.id, one.title, one.body
            )
        };
        format!(
            "<nav aria-label=\"{}\"><ul>{}</ul></nav>\n{}",
            language.choose("Sections", "章节"),
            sections.iter().map(link).collect::<String>(),
            sections.iter().map(part).collect::<String>(),
        )
    }
}

/// Figures side by side.
///
/// # Errors
/// When one cannot be drawn.
pub(crate) fn figures(figures: &[NamedFigure]) -> Result<String> {
    let mut html = String::from("<div class=\"figures\">\n");
    for figure in figures {
        html += &format!("<figure>{}</figure>\n", figure.figure.draw()?.inline());
    }
    Ok(html + "</div>\n")
}

/// A table. The first column holds the names of rows; numbers are aligned to the right.
pub(crate) fn table<R: AsRef<[String]>>(head: &[&str], rows: &[R]) -> String {
    let is_number = |text: &str| {
        let text = text.trim_end_matches([' ', '%', '*']);
        !text.is_empty() && text.chars().all(|one| one.is_ascii_digit() || "+-−.,e".contains(one))
    };
    let head: String =
        head.iter().map(|title| format!("<th scope=\"col\">{}</th>", escape(title))).collect();
    let row = |cells: &R| {
        let cell = |(number, text): (usize, &String)| match number {
            0 => format!("<th scope=\"row\">{}</th>", escape(text)),
            _ if is_number(text) => format!("<td class=\"number\">{}</td>", escape(text)),
            _ => format!("<td>{}</td>", escape(text)),
        };
        let cells: String = cells.as_ref().iter().enumerate().map(cell).collect();
        format!("<tr>{cells}</tr>\n")
    };
    format!(
        "<div class=\"wide\"><table><thead><tr>{head}</tr></thead><tbody>\n{}</tbody></table>\
         </div>\n",
        rows.iter().map(row).collect::<String>()
    )
}

/// A remark.
pub(crate) fn note(text: &str) -> String {
    format!("<p class=\"muted\">{}</p>\n", escape(text))
}
