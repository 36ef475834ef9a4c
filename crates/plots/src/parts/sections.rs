//! Sections of a page, and the links to them.

use crate::html::escape;
use crate::page::Language;

/// A part of a page that has a heading.
#[derive(Debug, Clone)]
pub struct Section {
    /// Id to which links refer.
    pub id: String,
    /// Heading, as plain text.
    pub title: String,
    /// Content, as HTML.
    pub body: String,
}

impl Section {
    /// Makes a section.
    pub fn new(id: impl Into<String>, title: impl Into<String>, body: String) -> Self {
        Self { id: id.into(), title: title.into(), body }
    }

    /// Makes sections, and before them a list of links to them. The list stays at the top of the
    /// window.
    #[must_use]
    pub fn all(sections: &[Self], language: Language) -> String {
        let link = |one: &Self| {
            format!("<li><a href=\"#{}\">{}</a></li>", escape(&one.id), escape(&one.title))
        };
        let part = |one: &Self| {
            format!(
                "<section id=\"{0}\" aria-labelledby=\"{0}-title\">\n<h2 id=\"{0}-title\">{1}</h2>\
                 \n{2}\n</section>\n",
                escape(&one.id),
                escape(&one.title),
                one.body
            )
        };
        format!(
            "<nav class=\"sections\" aria-label=\"{}\"><ul>{}</ul></nav>\n{}",
            language.choose("Sections", "章节"),
            sections.iter().map(link).collect::<String>(),
            sections.iter().map(part).collect::<String>(),
        )
    }
}
