//! Formats of documents. For each format, a submodule finds the texts to translate.

mod catalogs;
mod escaped_tags;
mod html;
mod markdown;
mod plain;
mod subtitles;
mod word;

use std::path::Path;

use crate::segment::Segment;
use crate::{Error, Result};

pub(crate) use word::BETWEEN;

/// Format of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DocumentFormat {
    /// Plain text, in paragraphs.
    Text,
    /// HTML, and XHTML.
    Html,
    /// Markdown (CommonMark with tables, footnotes and the like).
    Markdown,
    /// Subtitles of SubRip.
    Srt,
    /// Subtitles of the web, WebVTT.
    Vtt,
    /// A message catalog of gettext; strings without a translation are translated.
    Po,
    /// An XLIFF file, version 1.2 or 2; units without a translation are translated.
    Xliff,
    /// A document of Word (Office Open XML), as [`Docx`](crate::Docx) reads it.
    Docx,
}

/// Endings of file names, each with its format.
const ENDINGS: [(&str, DocumentFormat); 14] = [
    ("html", DocumentFormat::Html),
    ("htm", DocumentFormat::Html),
    ("xhtml", DocumentFormat::Html),
    ("md", DocumentFormat::Markdown),
    ("markdown", DocumentFormat::Markdown),
    ("srt", DocumentFormat::Srt),
    ("vtt", DocumentFormat::Vtt),
    ("po", DocumentFormat::Po),
    ("pot", DocumentFormat::Po),
    ("xlf", DocumentFormat::Xliff),
    ("xliff", DocumentFormat::Xliff),
    ("docx", DocumentFormat::Docx),
    ("txt", DocumentFormat::Text),
    ("text", DocumentFormat::Text),
];

impl DocumentFormat {
    /// Format of a file, by its name.
    ///
    /// # Errors
    ///
    /// If no format has this ending; the error lists the known endings.
    pub fn by_name(path: &Path) -> Result<Self> {
        let ending = path.extension().unwrap_or_default().to_string_lossy().to_lowercase();
        let format = ENDINGS.iter().find(|(known, _)| *known == ending).map(|&(_, format)| format);
        format.ok_or_else(|| {
            let known: Vec<String> = Self::endings().map(|known| format!(".{known}")).collect();
            Error::Document(format!(
                "its name does not say what it is: it must end in one of {}",
                known.join(", ")
            ))
        })
    }

    /// Endings of file names of all formats, in lower case and without the dot.
    pub fn endings() -> impl Iterator<Item = &'static str> {
        ENDINGS.iter().map(|&(ending, _)| ending)
    }

    /// Media type of files in this format.
    #[must_use]
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; charset=utf-8",
            Self::Html => "text/html; charset=utf-8",
            Self::Markdown => "text/markdown; charset=utf-8",
            Self::Srt => "application/x-subrip; charset=utf-8",
            Self::Vtt => "text/vtt; charset=utf-8",
            Self::Po => "text/x-gettext-translation; charset=utf-8",
            Self::Xliff => "application/xliff+xml; charset=utf-8",
            Self::Docx => "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
        }
    }

    /// Segments of a document, the texts to translate, in the order of the document.
    pub(crate) fn segments(self, text: &str) -> Result<Vec<Segment>> {
        Ok(match self {
            Self::Text => plain::segments(text),
            Self::Html => html::segments(text),
            Self::Markdown => markdown::segments(text),
            Self::Srt => subtitles::segments(text, false),
            Self::Vtt => subtitles::segments(text, true),
            Self::Po => catalogs::of_po(text)?,
            Self::Xliff => catalogs::of_xliff(text)?,
            Self::Docx => word::segments(text)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_the_format_or_which_ones_there_are() {
        for (name, format) in [
            ("a/page.HTML", DocumentFormat::Html),
            ("letter.docx", DocumentFormat::Docx),
            ("a.b.pot", DocumentFormat::Po),
            ("a.text", DocumentFormat::Text),
        ] {
            assert_eq!(DocumentFormat::by_name(Path::new(name)).expect(name), format);
        }
        for name in ["a.doc", "docx", ".docx", "", "page.html."] {
            let error = DocumentFormat::by_name(Path::new(name)).expect_err(name).to_string();
            let known = DocumentFormat::endings().all(|known| error.contains(&format!(".{known}")));
            assert!(known, "{name}: {error}");
        }
    }
}
