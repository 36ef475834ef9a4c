//! Finds the texts to translate in subtitles, in the formats SubRip (SRT) and WebVTT. Numbers,
//! times, settings, notes and styles are not changed.

use std::ops::Range;

use crate::layout::{LONGEST_STAMP, LONGEST_STYLE, lines};
use crate::markup::{Tag, begins_tag, next_tag, paired};
use crate::references::decoded;
use crate::segment::{Layout, Piece, Segment};
use crate::syntax::Syntax;
use crate::words::{between_lines, has_letters, has_mark, without_marks};

/// Returns the segments of subtitles. The lines of a cue (a subtitle with its times) are one
/// segment, but the dash or the voice of a speaker begins a new segment.
///
/// In WebVTT, a blank line ends a cue. In SubRip, a blank line may also be between two texts of a
/// cue. There, the cue ends before the times of the next cue, or before the number of the next cue.
pub(super) fn segments(text: &str, is_vtt: bool) -> Vec<Segment> {
    let (mut segments, mut cue) = (Vec::new(), None);
    let lines = lines(text);
    for (number, range) in lines.iter().enumerate() {
        let line = text[range.clone()].trim();
        let is_number = || {
            let next = lines.get(number + 1);
            !is_vtt
                && line.bytes().all(|byte| byte.is_ascii_digit())
                && next.is_some_and(|next| is_timing(&text[next.clone()]))
        };
        if line.is_empty() {
            let is_within = cue.is_some() && !is_vtt;
            finish(text, cue.take(), is_vtt, &mut segments);
            cue = is_within.then(Vec::new);
        } else if is_timing(line) {
            finish(text, cue.take(), is_vtt, &mut segments);
            cue = Some(Vec::new());
        } else if is_number() {
            finish(text, cue.take(), is_vtt, &mut segments);
        } else if let Some(lines) = &mut cue {
            lines.push(range.clone());
        }
    }
    finish(text, cue, is_vtt, &mut segments);
    segments
}

/// True if a line has the times of a cue, which are two times with an arrow between them.
fn is_timing(line: &str) -> bool {
    let is_time = |part: &str| {
        part.starts_with(|first: char| first.is_ascii_digit())
            && part.chars().all(|one| one.is_ascii_digit() || ":.,".contains(one))
    };
    line.split_once("-->").is_some_and(|(from, to)| {
        is_time(from.trim()) && to.split_whitespace().next().is_some_and(is_time)
    })
}

/// Adds the segments of the lines of a cue.
fn finish(text: &str, cue: Option<Vec<Range<usize>>>, is_vtt: bool, segments: &mut Vec<Segment>) {
    let lines = cue.unwrap_or_default();
    let begins = |line: &str| has_mark(line) || is_vtt && begins_voice(line);
    let groups = lines.chunk_by(|_, next| !begins(&text[next.clone()]));
    let syntax = if is_vtt { Syntax::Xml } else { Syntax::Plain };
    for group in groups {
        let mut tags = Vec::new();
        let mut group = group.to_vec();
        if let [first, ..] = &mut group[..] {
            first.start = without_marks(text, first.clone()).start;
        }
        if let [.., last] = &mut group[..] {
            last.end = without_marks(text, last.clone()).end;
        }
        for (number, range) in group.iter().enumerate() {
            if number > 0 {
                let before = text[group[number - 1].clone()].trim_end();
                let between = between_lines(before, text[range.clone()].trim_start());
                tags.push((Piece::Text(between.to_owned(), range.start..range.start), None));
            }
            pieces(text, range.clone(), is_vtt, &mut tags);
        }
        let pieces = paired(tags);
        let has_text =
            pieces.iter().any(|piece| matches!(piece, Piece::Text(of, _) if has_letters(of)));
        if let (true, [first, .., last] | [first @ last]) = (has_text, group.as_slice())
            && let Some(segment) = Segment::in_place(pieces, syntax)
        {
            let edit = first.start..last.end;
            segments.push(Segment { edit, layout: Layout::Lines(group.len()), ..segment });
        }
    }
}

/// Whether a line of a cue of WebVTT begins with the tag of a voice, `<v Ann>`.
fn begins_voice(line: &str) -> bool {
    let name = line.trim_start().strip_prefix("<v");
    name.is_some_and(|name| name.starts_with([' ', '\t', '.', '>']))
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
        let rest = &line[at..];
        let until = |end: u8, longest| {
            rest.bytes().take(longest).position(|byte| byte == end).map(|end| at + end + 1)
        };
        // Times within a cue, and positions and styles of SubStation, such as `{\an8}`, are kept.
        let end = match rest.as_bytes() {
            [b'<', b'0'..=b'9', ..] if is_vtt => until(b'>', LONGEST_STAMP),
            [b'{', b'\\', ..] => until(b'}', LONGEST_STYLE),
            _ => None,
        };
        if let Some(end) = end {
            tags.push((Piece::Alone(at..end), None));
            at = end;
            continue;
        }
        if !begins_tag(rest.as_bytes()) {
            let first = rest.chars().next().map_or(0, char::len_utf8);
            let end = rest[first..].find(['<', '{']).map_or(range.end, |end| at + first + end);
            let content = &line[at..end];
            let content = if is_vtt { decoded(content) } else { content.to_owned() };
            tags.push((Piece::Text(content, at..end), None));
            at = end;
            continue;
        }
        let (tag, part) = next_tag(line, at);
        if !is_vtt && !line[part.clone()].ends_with('>') {
            // A `<` that begins no tag, which would hide the rest of the line.
            tags.push((Piece::Text("<".to_owned(), at..at + 1), None));
            at += 1;
            continue;
        }
        match tag {
            Tag::Open { name, is_empty: false, .. } => {
                let name = name.split('.').next().unwrap_or_default().to_owned();
                tags.push((Piece::Open(part.clone()), Some((name, true))));
            }
            Tag::Close(name) => tags.push((Piece::Close(part.clone()), Some((name, false)))),
            Tag::Text | Tag::Open { .. } | Tag::Other => {
                tags.push((Piece::Alone(part.clone()), None));
            }
        }
        at = part.end;
    }
}
