//! Elements that are open at a place of a page, by the rules of the HTML standard for building the
//! tree of a page (section 13.2.6). Many closing tags can be left out: an element then ends where
//! another element begins or where an outer one ends.

use std::collections::HashMap;

/// Largest number of open elements that are tracked, as in browsers. Deeper elements are only
/// counted.
const DEEPEST: usize = 512;

/// Elements at which the search for an open element ends, for most elements ("scope").
const SCOPE: [&str; 9] =
    ["applet", "caption", "html", "table", "td", "th", "marquee", "object", "template"];

/// Elements whose beginning ends an open paragraph.
const BLOCKS: [&str; 42] = [
    "address",
    "article",
    "aside",
    "blockquote",
    "center",
    "dd",
    "details",
    "dialog",
    "dir",
    "div",
    "dl",
    "dt",
    "fieldset",
    "figcaption",
    "figure",
    "footer",
    "form",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "header",
    "hgroup",
    "hr",
    "li",
    "listing",
    "main",
    "menu",
    "nav",
    "ol",
    "p",
    "plaintext",
    "pre",
    "search",
    "section",
    "summary",
    "table",
    "ul",
    "xmp",
    "body",
];

const HEADINGS: [&str; 6] = ["h1", "h2", "h3", "h4", "h5", "h6"];

/// Further elements at which the search for an open element with an uncommon name ends ("special"
/// elements that are neither in [`SCOPE`] nor in [`BLOCKS`] and have a closing tag).
const SPECIAL: [&str; 20] = [
    "button", "col", "colgroup", "frameset", "head", "iframe", "noembed", "noframes", "noscript",
    "script", "select", "style", "tbody", "textarea", "tfoot", "thead", "title", "tr", "frame",
    "link",
];

/// Elements that end without a closing tag where an outer element ends or a similar one begins.
const IMPLIED: [&str; 10] = ["dd", "dt", "li", "optgroup", "option", "p", "rb", "rp", "rt", "rtc"];

/// Elements of format, whose closing tags can cross other elements.
const FORMATS: [&str; 14] = [
    "a", "b", "big", "code", "em", "font", "i", "nobr", "s", "small", "strike", "strong", "tt", "u",
];

/// Elements that can be in the head of a page. Any other one begins the body.
const OF_HEAD: [&str; 11] = [
    "base", "basefont", "bgsound", "link", "meta", "noframes", "noscript", "script", "style",
    "template", "title",
];

const ROW_GROUPS: [&str; 3] = ["tbody", "thead", "tfoot"];
const CELLS: [&str; 2] = ["td", "th"];

/// Effect of a tag on the open elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    /// Only this number of elements stay open.
    Keep(usize),
    /// The element with this index ends, but elements inside it go on.
    Remove(usize),
}

/// Open elements, from the outermost to the innermost.
#[derive(Debug, Default)]
pub(super) struct OpenElements {
    names: Vec<String>,
    /// Number of open elements with each name.
    counts: HashMap<String, usize>,
    /// Numbers of elements deeper than [`DEEPEST`], by name.
    deeper: HashMap<String, usize>,
}

impl OpenElements {
    /// Adds an element. Returns its index; `None` if it is too deep.
    pub(super) fn push(&mut self, name: String) -> Option<usize> {
        if self.names.len() >= DEEPEST {
            *self.deeper.entry(name).or_default() += 1;
            return None;
        }
        *self.counts.entry(name.clone()).or_default() += 1;
        self.names.push(name);
        Some(self.names.len() - 1)
    }

    /// Applies the effect of a tag.
    pub(super) fn apply(&mut self, effect: Effect) {
        let ended = match effect {
            Effect::Keep(count) => self.names.split_off(count.min(self.names.len())),
            Effect::Remove(index) => vec![self.names.remove(index)],
        };
        for name in ended {
            if let Some(count) = self.counts.get_mut(&name) {
                *count -= 1;
            }
        }
        if self.names.is_empty() {
            self.deeper.clear();
        }
    }

    fn has(&self, name: &str) -> bool {
        self.counts.get(name).is_some_and(|&count| count > 0)
    }

    /// Index of the innermost open element for which `is` holds, unless an element for which `ends`
    /// holds is further inside.
    fn find(&self, is: impl Fn(&str) -> bool, ends: impl Fn(&str) -> bool) -> Option<usize> {
        for (index, name) in self.names.iter().enumerate().rev() {
            if is(name) {
                return Some(index);
            }
            if ends(name) {
                return None;
            }
        }
        None
    }

    /// Index of an open element with this name in the scope of the innermost element. `more`:
    /// further elements that end the scope.
    fn in_scope(&self, name: &str, more: &[&str]) -> Option<usize> {
        if !self.has(name) {
            return None;
        }
        self.find(|one| one == name, |one| SCOPE.contains(&one) || more.contains(&one))
    }

    /// Index of the first element inside the innermost open table, or 0 outside of all tables.
    fn begin_of_table(&self) -> usize {
        let table = self.find(|one| matches!(one, "table" | "template"), |_| false);
        table.map_or(0, |table| table + 1)
    }

    /// Index of the outermost element of the innermost open table that has one of these names.
    fn in_table(&self, names: &[&str]) -> Option<usize> {
        let begin = self.begin_of_table();
        let is = |name: &String| names.contains(&name.as_str());
        self.names[begin..].iter().position(is).map(|index| begin + index)
    }

    /// Effect of text that is not blank. It ends the head of a page and a group of columns.
    pub(super) fn before_text(&self) -> Effect {
        let ends = matches!(self.names.last().map(String::as_str), Some("head" | "colgroup"));
        Effect::Keep(self.names.len() - usize::from(ends))
    }

    /// Effect of the opening tag of an element on the elements that are open before it.
    pub(super) fn before_open(&self, name: &str) -> Effect {
        let all = self.names.len();
        let last = self.names.last().map_or("", String::as_str);
        let mut keep = all;
        if last == "head" && !OF_HEAD.contains(&name)
            || last == "colgroup" && !matches!(name, "col" | "template")
        {
            keep -= 1;
        }
        let ended = match name {
            "td" | "th" => self
                .in_table(&CELLS)
                .or(self.in_table(&["tr"]).map(|row| row + 1))
                .or(self.in_table(&["caption"])),
            "tr" => self
                .in_table(&["tr"])
                .or(self.in_table(&ROW_GROUPS).map(|group| group + 1))
                .or(self.in_table(&["td", "th", "caption", "colgroup"])),
            "tbody" | "thead" | "tfoot" | "caption" | "colgroup" | "col" => {
                let parts = ["tbody", "thead", "tfoot", "tr", "td", "th", "caption", "colgroup"];
                let parts = &parts[..parts.len() - usize::from(name == "col")];
                self.in_table(parts)
            }
            // Without a cell, a table cannot contain a table.
            "table" if self.in_table(&["td", "th", "caption"]).is_none() => {
                let table = self.begin_of_table().checked_sub(1);
                table.filter(|&table| self.names[table] == "table")
            }
            "li" => self.item(&["li"]),
            "dd" | "dt" => self.item(&["dd", "dt"]),
            "option" if last == "option" => Some(all - 1),
            "optgroup" | "hr" if self.has("select") => self
                .find(|one| one == "optgroup", |one| one != "option")
                .or_else(|| self.find(|one| one == "option", |_| true)),
            "optgroup" if last == "option" => Some(all - 1),
            "rb" | "rtc" => self.end_of_implied("ruby", &[]),
            "rp" | "rt" => self.end_of_implied("ruby", &["rtc"]),
            "button" => self.in_scope("button", &[]),
            "a" | "nobr" => self.in_scope(name, &[]).filter(|&index| !self.has_special(index)),
            "body" => self.in_scope("head", &[]),
            _ => None,
        };
        keep = keep.min(ended.unwrap_or(all));
        if BLOCKS.contains(&name)
            && let Some(paragraph) = self.in_scope("p", &["button"])
        {
            keep = keep.min(paragraph);
        }
        if HEADINGS.contains(&name)
            && keep.checked_sub(1).is_some_and(|last| HEADINGS.contains(&self.names[last].as_str()))
        {
            keep -= 1;
        }
        Effect::Keep(keep)
    }

    /// Index of the open item of a list with one of these names, which the next item ends.
    fn item(&self, names: &[&str]) -> Option<usize> {
        if !names.iter().any(|name| self.has(name)) {
            return None;
        }
        let ends = |one: &str| is_special(one) && !matches!(one, "address" | "div" | "p");
        self.find(|one| names.contains(&one), ends)
    }

    /// Index of the first of the innermost open elements that end by themselves, except those in
    /// `except`, if an element `outer` is open.
    fn end_of_implied(&self, outer: &str, except: &[&str]) -> Option<usize> {
        self.in_scope(outer, &[])?;
        let is_implied =
            |name: &&String| IMPLIED.contains(&name.as_str()) && !except.contains(&name.as_str());
        Some(self.names.len() - self.names.iter().rev().take_while(is_implied).count())
    }

    /// True if a special element is open inside the element with this index.
    fn has_special(&self, index: usize) -> bool {
        self.names[index + 1..].iter().any(|name| is_special(name))
    }

    /// Effect of a closing tag.
    pub(super) fn on_close(&mut self, name: &str) -> Effect {
        let all = Effect::Keep(self.names.len());
        if let Some(count) = self.deeper.get_mut(name).filter(|count| **count > 0) {
            *count -= 1;
            return all;
        }
        let found = match name {
            // The body goes on after its closing tag.
            "body" | "html" => None,
            "p" => self.in_scope("p", &["button"]),
            "li" => self.in_scope("li", &["ol", "ul"]),
            _ if HEADINGS.contains(&name) => {
                let is_scope = |one: &str| SCOPE.contains(&one);
                self.find(|one| HEADINGS.contains(&one), is_scope)
            }
            "table" | "template" if self.has(name) => self.find(|one| one == name, |_| false),
            "tr" | "td" | "th" | "tbody" | "thead" | "tfoot" | "caption" | "colgroup" => {
                self.in_table(&[name])
            }
            _ if FORMATS.contains(&name) => {
                let index = self.in_scope(name, &[]);
                if let Some(index) = index.filter(|&index| self.has_special(index)) {
                    return Effect::Remove(index);
                }
                index
            }
            _ if is_special(name) => self.in_scope(name, &[]),
            _ if self.has(name) => self.find(|one| one == name, is_special),
            _ => None,
        };
        found.map_or(all, Effect::Keep)
    }
}

/// True for elements that structure a page: blocks, tables, lists of choices and their parts.
pub(super) fn is_structure(name: &str) -> bool {
    is_special(name) || IMPLIED.contains(&name)
}

fn is_special(name: &str) -> bool {
    BLOCKS.contains(&name) || SCOPE.contains(&name) || SPECIAL.contains(&name)
}
