//! Subtitles: SubRip (SRT) and WebVTT. Numbers, times, settings, notes and styles stay.

use std::ops::Range;

use crate::markup::{Tag, decoded, next_tag, paired};
use crate::segment::{Layout, Piece, Segment};
use crate::syntax::Syntax;
use crate::words::has_letters;

/// Segments of subtitles. Lines of a cue are one text, unless they begin with the dashes of a
/// dialogue.
pub(super) fn segments(text: &str, is_vtt: bool) -> Vec<Segment> {
    let mut segments = Vec::new();
    let mut cue: Option<Vec<Range<usize>>> = None;
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let content = line.trim_end_matches(['\n', '\r']);
        let range = at..at + content.len();
        at += line.len();
        if content.trim().is_empty() {
            finish(text, cue.take(), is_vtt, &mut segments);
        } else if content.contains("-->") {
            finish(text, cue.take(), is_vtt, &mut segments);
            cue = Some(Vec::new());
        } else if let Some(lines) = &mut cue {
            lines.push(range);
        }
    }
    finish(text, cue, is_vtt, &mut segments);
    segments
}

fn finish(text: &str, cue: Option<Vec<Range<usize>>>, is_vtt: bool, segments: &mut Vec<Segment>) {
    let lines = cue.unwrap_or_default();
    let is_dialogue =
        |range: &Range<usize>| text[range.clone()].trim_start().starts_with(['-', '–', '—', '‐']);
    let groups: Vec<&[Range<usize>]> = match lines.len() > 1 && lines.iter().any(is_dialogue) {
        true => lines.chunks(1).collect(),
        false => vec![&lines],
    };
    let syntax = if is_vtt { Syntax::Xml } else { Syntax::Plain };
    for group in groups {
        let mut tags = Vec::new();
        for (number, range) in group.iter().enumerate() {
            if number > 0 {
                tags.push((Piece::Text(" ".to_owned(), range.start..range.start), None));
            }
            pieces(text, range.clone(), is_vtt, &mut tags);
        }
        let pieces = paired(tags);
        let has_text =
            pieces.iter().any(|piece| matches!(piece, Piece::Text(of, _) if has_letters(of)));
        if let (true, [first, .., last] | [first @ last]) = (has_text, group)
            && let Some(segment) = Segment::in_place(pieces, syntax)
        {
            let edit = first.start..last.end;
            segments.push(Segment { edit, layout: Layout::Lines(group.len()), ..segment });
        }
    }
}

/// Pieces of a line of a cue.
fn pieces(
    text: &str,
    range: Range<usize>,
    is_vtt: bool,
    tags: &mut Vec<(Piece, Option<(String, bool)>)>,
) {
    let line = &text[..range.end];
    let mut at = range.start;
    while at < range.end {
        let (tag, part) = next_tag(line, at);
        // Times within a cue.
        let stamp = line[at..].starts_with('<')
            && line[at + 1..].starts_with(|one: char| one.is_ascii_digit());
        if is_vtt
            && stamp
            && let Some(end) = line[at..].find('>')
        {
            tags.push((Piece::Alone(at..at + end + 1), None));
            at += end + 1;
            continue;
        }
        match tag {
            Tag::Text => {
                let mut end = part.end;
                let first = line[at..].chars().next().map_or(0, char::len_utf8);
                if let Some(next) = line[at + first..end].find(['<', '{']) {
                    end = at + first + next;
                }
                // Position and style of SubStation: `{\an8}`.
                if line[at..].starts_with("{\\")
                    && let Some(close) = line[at..].find('}')
                {
                    end = at + close + 1;
                    tags.push((Piece::Alone(at..end), None));
                } else {
                    let of = &line[at..end];
                    let of = if is_vtt { decoded(of) } else { of.to_owned() };
                    tags.push((Piece::Text(of, at..end), None));
                }
                at = end;
                continue;
            }
            Tag::Open { name, is_empty: false, .. } => {
                let name = name.split('.').next().unwrap_or_default().to_owned();
                tags.push((Piece::Open(part.clone()), Some((name, true))));
            }
            Tag::Close(name) => tags.push((Piece::Close(part.clone()), Some((name, false)))),
            Tag::Open { .. } | Tag::Other => tags.push((Piece::Alone(part.clone()), None)),
        }
        at = part.end;
    }
}
