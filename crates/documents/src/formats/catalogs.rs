//! Finds the texts to translate in PO files (message catalogs of gettext) and XLIFF files. Only
//! entries without a translation are translated; everything else stays unchanged.

use std::ops::Range;

use crate::Result;
use crate::bilingual::{Content, PoString, form_of_one, parse_po, parse_xliff};
use crate::formats::escaped_tags::{tags, with_escaped_tags};
use crate::markup::paired;
use crate::segment::{Layout, Piece, Segment};
use crate::syntax::Syntax;
use crate::words::has_letters;

/// Segments of a catalog: the strings without a translation. If a message has several plural forms,
/// the form for one thing is translated from `msgid`, and all other forms are translated from
/// `msgid_plural`. The header determines the form for one thing; by default it is the first. If the
/// language has only one form, it is translated from `msgid_plural`.
pub(super) fn of_po(text: &str) -> Result<Vec<Segment>> {
    let mut segments = Vec::new();
    let messages = parse_po(text)?;
    let form_of_one = form_of_one(&messages);
    for message in messages.iter().filter(|message| !message.is_header()) {
        let several = message.translations.len() > 1;
        let empty = message.translations.iter().enumerate().filter(|(_, one)| one.text.is_empty());
        for (form, translation) in empty {
            let id: &PoString = match &message.plural {
                Some(plural) if form_of_one != Some(form) || !several => plural,
                _ => &message.id,
            };
            if has_letters(&id.text) {
                segments.push(Segment {
                    edit: first_string(text, translation),
                    around: Default::default(),
                    between: None,
                    is_copy: true,
                    own_text: Some(id.text.clone()),
                    pieces: pieces(&id.text),
                    syntax: Syntax::Po,
                    layout: Layout::Quoted,
                });
            }
        }
    }
    Ok(segments)
}

/// Pieces of a message: text, and tags of HTML, which many programs have in their messages. A tag
/// without a counterpart stands alone, because a message is complete.
fn pieces(text: &str) -> Vec<Piece> {
    let alone = |piece| match piece {
        Piece::Begin(range) | Piece::End(range) => Piece::Alone(range),
        other => other,
    };
    paired(tags(text)).into_iter().map(alone).collect()
}

/// Bytes of an empty string that its translation replaces. If the string has several parts with
/// comments between them, this is its first part, so that the comments stay.
fn first_string(text: &str, empty: &PoString) -> Range<usize> {
    let raw = &text[empty.range.clone()];
    let has_comments = raw.lines().any(|line| line.trim_start().starts_with('#'));
    match has_comments {
        true => empty.range.start..empty.range.start + "\"\"".len(),
        false => empty.range.clone(),
    }
}

/// Segments of an XLIFF file: the units without a translation.
pub(super) fn of_xliff(text: &str) -> Result<Vec<Segment>> {
    let mut segments = Vec::new();
    for (_, unit) in parse_xliff(text)?.units {
        let has_text = has_letters(&unit.source.text);
        if !unit.is_translatable || unit.is_translated() || !has_text {
            continue;
        }
        // The target's element gets the same namespace prefix as the source's.
        let tag = &text[unit.source.whole.start + 1..];
        let name = tag
            [..tag.find(|one: char| one.is_whitespace() || matches!(one, '>' | '/')).unwrap_or(0)]
            .replace("source", "target");
        let (edit, around) = match &unit.target {
            Some(Content { range, whole, .. }) if range == whole => {
                let tag = text[whole.clone()].trim_end_matches("/>").trim_end();
                (whole.clone(), [format!("{tag}>"), format!("</{name}>")])
            }
            Some(target) => (target.range.clone(), Default::default()),
            None => {
                let before = &text[..unit.source.whole.start];
                let blanks = &before[before.trim_end_matches([' ', '\t', '\n', '\r']).len()..];
                let end = unit.end;
                (end..end, [format!("{blanks}<{name}>"), format!("</{name}>")])
            }
        };
        segments.push(Segment {
            edit,
            around,
            between: None,
            is_copy: true,
            own_text: None,
            pieces: with_escaped_tags(unit.source.parts),
            syntax: Syntax::Xml,
            layout: Layout::Free,
        });
    }
    Ok(segments)
}
