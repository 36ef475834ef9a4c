//! A document, divided into texts to translate and the bytes around them.

use crate::division::{Part, divide};
use crate::emphasis::{Shared, have_same_marks};
use crate::formats::DocumentFormat;
use crate::layout::{laid_out, line_end};
use crate::line::Line;
use crate::scripts::is_chinese_or_japanese;
use crate::segment::Segment;
use crate::syntax::Syntax;
use crate::translated::Translated;
use crate::{Error, Result};

/// Document whose sentences, which are called lines, can be replaced by translations.
#[derive(Debug, Clone)]
pub struct Document {
    /// True if the document begins with a byte-order mark.
    has_mark: bool,
    source: String,
    segments: Vec<(Segment, Vec<Part>)>,
    lines: Vec<Line>,
}

impl Document {
    /// Reads the document `source`. Its texts are divided into sentences by the rules of
    /// `language`.
    ///
    /// # Errors
    ///
    /// If the format is PO, XLIFF or DOCX, and `source` does not have this format. An error in a
    /// line contains its number. HTML, Markdown, subtitles and plain text are always accepted.
    pub fn parse(source: String, format: DocumentFormat, language: &str) -> Result<Self> {
        let without_mark = source.strip_prefix('\u{feff}').map(str::to_owned);
        let has_mark = without_mark.is_some();
        let source = without_mark.unwrap_or(source);
        let mut lines = Vec::new();
        let mut segments = format.segments(&source)?;
        segments.sort_by_key(|segment| segment.edit.start);
        if segments.windows(2).any(|pair| pair[0].edit.end > pair[1].edit.start) {
            return Err(Error::Document("has texts within texts".to_owned()));
        }
        let divided = |segment: Segment| {
            let parts = divide(&source, &segment, language, &mut lines);
            (segment, parts)
        };
        let segments = segments.into_iter().map(divided).collect();
        Ok(Self { has_mark, source, segments, lines })
    }

    /// Sentences to translate, in their order.
    #[must_use]
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// Replaces the line with the index `number` by another form of the same sentence, such as
    /// [`Line::without_placeholders`].
    pub fn replace(&mut self, number: usize, line: Line) {
        self.lines[number] = line;
    }

    /// Returns the document with translations of its lines. A line whose translation is `None`
    /// stays as it is. If no line of a segment (a paragraph or another block of text) changes, the
    /// segment stays identical byte for byte. Everything between segments stays identical, too.
    ///
    /// If the translation is written to another place than its source, such as to the target of an
    /// XLIFF unit, it is written only if all lines of the segment have one. Otherwise the unit
    /// would seem to be translated.
    #[must_use]
    pub fn write(&self, translations: &[Option<Translated>]) -> String {
        let mut out = String::with_capacity(self.source.len());
        if self.has_mark {
            out.push('\u{feff}');
        }
        let (mut at, line_end) = (0, line_end(&self.source));
        for (segment, parts) in &self.segments {
            let raw = &self.source[segment.edit.clone()];
            out.push_str(&self.source[at..segment.edit.start]);
            at = segment.edit.end;
            let translation = |number: usize| translations.get(number).and_then(Option::as_ref);
            let mut of_parts = parts.iter().filter_map(|part| match part {
                Part::Line(number) => Some((&self.lines[*number], translation(*number))),
                Part::Kept(_) | Part::Mark(..) => None,
            });
            let is_changed = match segment.is_copy {
                true => of_parts.clone().next().is_some() && of_parts.all(|(_, to)| to.is_some()),
                false => of_parts.any(|(line, to)| to.is_some_and(|to| to.text != line.text())),
            };
            if !is_changed {
                out.push_str(raw);
                continue;
            }
            let mut text = self.joined(segment.syntax, parts, &translation, Shared::Delimiters);
            let is_markdown = matches!(segment.syntax, Syntax::Markdown { .. });
            if is_markdown && text.contains(['*', '_', '~']) {
                let with_tags = self.joined(segment.syntax, parts, &translation, Shared::Tags);
                if text != with_tags && !have_same_marks(&text, &with_tags) {
                    text = with_tags;
                }
            }
            out.push_str(&segment.around[0]);
            out.push_str(&laid_out(&text, &segment.layout, segment.syntax, line_end));
            out.push_str(&segment.around[1]);
        }
        out.push_str(&self.source[at..]);
        out
    }

    /// Text of a segment with the translations of its lines. `shared`: spelling of an emphasis that
    /// several lines share.
    fn joined<'t>(
        &self,
        syntax: Syntax,
        parts: &[Part],
        translation: &impl Fn(usize) -> Option<&'t Translated>,
        shared: Shared,
    ) -> String {
        let mut text = String::new();
        // Translation of the last line, if nothing has been written after it.
        let mut last: Option<&Translated> = None;
        let mut is_after_text = false;
        for part in parts {
            let next = match part {
                Part::Kept(raw) => {
                    last = last.filter(|_| raw.is_empty());
                    raw.clone()
                }
                Part::Mark(raw, is_open) => {
                    last = last.filter(|_| raw.is_empty());
                    shared.spelling(raw, *is_open).to_owned()
                }
                Part::Line(number) => {
                    let line = &self.lines[*number];
                    let to = translation(*number);
                    if last.zip(to).is_some_and(|(left, right)| lack_blank(left, right)) {
                        text.push(' ');
                    }
                    last = to;
                    match to {
                        Some(to) => line.rendered(to, shared),
                        None => {
                            let text = line.text().to_owned();
                            line.rendered(&Translated { text, links: Vec::new() }, shared)
                        }
                    }
                }
            };
            // Text and markup of the source that follow each other stay as they are.
            if !(is_after_text && matches!(part, Part::Mark(..))) && syntax.join(&text, &next) {
                text.push(' ');
            }
            is_after_text = matches!(part, Part::Kept(raw) if !raw.is_empty());
            text.push_str(&next);
        }
        text
    }
}

/// True if a blank is missing between two sentences that have no blank between them in the source,
/// as in Chinese, but whose translations are in a language with blanks.
fn lack_blank(left: &Translated, right: &Translated) -> bool {
    // Quotes and dashes belong to the script of the character next to them.
    let is_shared = |one: &char| matches!(one, '—' | '…' | '‘'..='”');
    let is_apart = |one: Option<char>| {
        one.is_some_and(|one| !one.is_whitespace() && !is_chinese_or_japanese(one))
    };
    is_apart(left.text.chars().rev().find(|one| !is_shared(one)))
        && is_apart(right.text.chars().find(|one| !is_shared(one)))
}
