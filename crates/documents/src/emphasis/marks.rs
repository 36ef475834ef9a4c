//! Checks that a line of Markdown has the intended marks (such as emphasis and links) when the
//! library `pulldown-cmark` parses it.

use pulldown_cmark::{BrokenLink, CowStr, Event, LinkType, Options, Parser, Tag as Block, TagEnd};

use crate::line_part::LinePart;

/// Extensions of CommonMark that are enabled.
pub(crate) const OPTIONS: Options = Options::ENABLE_TABLES
    .union(Options::ENABLE_FOOTNOTES)
    .union(Options::ENABLE_STRIKETHROUGH)
    .union(Options::ENABLE_TASKLISTS)
    .union(Options::ENABLE_MATH)
    .union(Options::ENABLE_GFM)
    .union(Options::ENABLE_HEADING_ATTRIBUTES)
    .union(Options::ENABLE_DEFINITION_LIST)
    .union(Options::ENABLE_YAML_STYLE_METADATA_BLOCKS)
    .union(Options::ENABLE_PLUSES_DELIMITED_METADATA_BLOCKS);

/// Kind of a mark around text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Mark {
    Emphasis,
    Strong,
    Strike,
    Link,
}

/// Marks in a line. Marks without text between them form a group. Each mark has a flag: true if it
/// opens, and false if it closes. The order of marks within a group is ignored, because they may be
/// nested in any order.
#[derive(Debug, Default)]
struct Marks {
    groups: Vec<Vec<(bool, Mark)>>,
    /// True if no text has followed the last mark yet, so that another mark belongs to its group.
    is_beside: bool,
}

impl Marks {
    fn add(&mut self, mark: Option<(bool, Mark)>) {
        match (mark, self.groups.last_mut().filter(|_| self.is_beside)) {
            (Some(mark), Some(group)) => group.push(mark),
            (Some(mark), None) => self.groups.push(vec![mark]),
            (None, _) => {}
        }
        self.is_beside = mark.is_some();
    }

    fn sorted(mut self) -> Vec<Vec<(bool, Mark)>> {
        self.groups.iter_mut().for_each(|group| group.sort_unstable());
        self.groups
    }
}

/// True if parsing `line` gives the same marks as those in `parts`, the parts from which the line
/// was written.
pub(super) fn reads_marks(line: &str, parts: &[LinePart<'_>]) -> bool {
    let mut expected = Marks::default();
    for part in parts {
        expected.add(match part {
            LinePart::Open(raw) => mark_of(raw).map(|mark| (true, mark)),
            LinePart::Close(raw) => mark_of(raw).map(|mark| (false, mark)),
            LinePart::Text(_) | LinePart::Begin(_) | LinePart::End(_) | LinePart::Alone(_) => None,
        });
    }
    marks_in(line, false) == expected.sorted()
}

/// True if two texts have the same marks around the same texts. Tags of HTML for emphasis count as
/// marks.
pub(crate) fn have_same_marks(one: &str, other: &str) -> bool {
    marks_in(one, true) == marks_in(other, true)
}

/// Marks that are read in `text`. `has_tags`: whether tags of HTML for emphasis count.
fn marks_in(text: &str, has_tags: bool) -> Vec<Vec<(bool, Mark)>> {
    // A word before the text makes it a paragraph.
    let text = format!("a {text}");
    let (mut read, mut kept) = (Marks::default(), 0);
    for event in Parser::new_with_broken_link_callback(&text, OPTIONS, Some(defined)) {
        let mark = match (kept, &event) {
            (0, Event::Start(block)) if is_kept(block) => {
                kept = 1;
                None
            }
            (0, Event::Start(Block::Paragraph) | Event::End(TagEnd::Paragraph)) => continue,
            (0, Event::Start(block)) => kind_of(block.to_end()).map(|mark| (true, mark)),
            (0, Event::End(block)) => kind_of(*block).map(|mark| (false, mark)),
            (0, Event::InlineHtml(tag)) if has_tags => tag_of(tag),
            (_, Event::Start(_)) => {
                kept += 1;
                None
            }
            (_, Event::End(_)) => {
                kept -= 1;
                None
            }
            _ => None,
        };
        read.add(mark);
    }
    read.sorted()
}

/// Mark of a tag of HTML; `None` if it is no tag for emphasis.
fn tag_of(tag: &str) -> Option<(bool, Mark)> {
    Some(match tag {
        "<em>" => (true, Mark::Emphasis),
        "</em>" => (false, Mark::Emphasis),
        "<strong>" => (true, Mark::Strong),
        "</strong>" => (false, Mark::Strong),
        "<del>" => (true, Mark::Strike),
        "</del>" => (false, Mark::Strike),
        _ => return None,
    })
}

/// Address and title of a link. All labels of links are treated as defined, because their
/// definitions are elsewhere in the document.
fn defined<'a>(link: BrokenLink<'a>) -> Option<(CowStr<'a>, CowStr<'a>)> {
    let is_note = link.reference.starts_with('^');
    (!is_note).then_some((CowStr::Borrowed("/"), CowStr::Borrowed("")))
}

/// Kind of the mark with the spelling `raw`; `None` if it is no mark.
fn mark_of(raw: &str) -> Option<Mark> {
    Some(match raw {
        "*" | "_" => Mark::Emphasis,
        "**" | "__" => Mark::Strong,
        "~" | "~~" => Mark::Strike,
        link if link.starts_with(['[', ']']) => Mark::Link,
        _ => return None,
    })
}

fn kind_of(block: TagEnd) -> Option<Mark> {
    Some(match block {
        TagEnd::Emphasis => Mark::Emphasis,
        TagEnd::Strong => Mark::Strong,
        TagEnd::Strikethrough => Mark::Strike,
        TagEnd::Link => Mark::Link,
        _ => return None,
    })
}

/// True if an inline element is kept with all its content, and not translated.
pub(crate) fn is_kept(block: &Block<'_>) -> bool {
    matches!(
        block,
        Block::Link { link_type: LinkType::Autolink | LinkType::Email, .. } | Block::Image { .. }
    )
}
