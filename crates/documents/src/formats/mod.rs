//! Formats of documents: where their texts are.

mod catalogs;
mod html;
mod markdown;
mod plain;
mod subtitles;
mod word;

use std::path::Path;

use crate::Result;
use crate::segment::Segment;

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
    /// A message catalog of gettext, of which untranslated messages are translated.
    Po,
    /// An XLIFF file, version 1.2 or 2, of which units without a target are translated.
    Xliff,
    /// A document of Word (Office Open XML), as [`Docx`](crate::Docx) reads it.
    Docx,
}

impl DocumentFormat {
    /// Format of a file by its name; `None` for others.
    #[must_use]
    pub fn by_name(path: &Path) -> Option<Self> {
        let ending = path.extension()?.to_string_lossy().to_lowercase();
        Some(match ending.as_str() {
            "txt" | "text" => Self::Text,
            "html" | "htm" | "xhtml" => Self::Html,
            "md" | "markdown" => Self::Markdown,
            "srt" => Self::Srt,
            "vtt" => Self::Vtt,
            "po" | "pot" => Self::Po,
            "xlf" | "xliff" => Self::Xliff,
            "docx" => Self::Docx,
            _ => return None,
        })
    }

    /// Segments of a text, in its order.
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
