//! Parts of a text that a translation must not change: placeholders of programs, and addresses.

use std::ops::Range;

use crate::scripts::is_spaced_letter;

/// Largest number of bytes of a placeholder. A longer text in braces is ordinary text.
const LONGEST: usize = 80;

/// Largest number of bytes of a part of a template (`{{…}}` or `{%…%}`).
const LONGEST_TEMPLATE: usize = 400;
/// Largest number of bytes of a message with several forms (`{n, plural, …}`).
const LONGEST_FORMS: usize = 4000;

/// Largest number of bytes of the local part of an e-mail address, which is the part before the `@`
/// (RFC 5321, section 4.5.3.1).
const LONGEST_PERSON: usize = 64;
/// Largest number of bytes of the host of an e-mail address, which is the part after the `@`
/// (RFC 5321, section 4.5.3.1).
const LONGEST_HOST: usize = 255;

/// Byte ranges of placeholders (`{name}`, `${name}`, `%s`, `%1$d`, `%(name)s`, `%name%` and `%%`),
/// parts of templates (`{{…}}`, `{%…%}`), forms of ICU messages (`{n, plural, …}`), URLs and e-mail
/// addresses, in order.
///
/// ```
/// let text = "Hi {name}, 50 % of %(n)d: https://a.b/c?d.";
/// let found = taper_documents::placeholders(text);
/// let found: Vec<&str> = found.into_iter().map(|range| &text[range]).collect();
/// assert_eq!(found, ["{name}", "%(n)d", "https://a.b/c?d"]);
/// ```
#[must_use]
pub fn placeholders(text: &str) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    let mut at = 0;
    while let Some(character) = text[at..].chars().next() {
        let rest = &text[at..];
        let is_word_start = !text[..at].ends_with(is_spaced_letter);
        let length = match character {
            '{' => braces(rest),
            '$' if rest.starts_with("${") => braces(&rest[1..]).map(|length| length + 1),
            '%' => percent(rest),
            _ if is_word_start => address(rest),
            _ => None,
        };
        match length {
            Some(length) => {
                ranges.push(at..at + length);
                at += length;
            }
            None => at += character.len_utf8(),
        }
    }
    ranges
}

/// Length of the placeholder in braces with which `text` begins: a name, a number or a format in
/// braces; a part of a template; or the forms of a message. `None` if there is none.
fn braces(text: &str) -> Option<usize> {
    for (start, end) in [("{{{", "}}}"), ("{{", "}}"), ("{%", "%}"), ("{#", "#}")] {
        let Some(inner) = text.strip_prefix(start) else { continue };
        let inner = &inner[..inner.floor_char_boundary(LONGEST_TEMPLATE)];
        if let Some(length) = inner.find(end).filter(|&length| !inner[..length].contains('\n')) {
            return Some(start.len() + length + end.len());
        }
    }
    let Some(end) = text.bytes().take(LONGEST).position(|byte| byte == b'}') else {
        return forms(text);
    };
    let inner = text[..end].trim_start_matches('{');
    let is_inner = |character: char| {
        character.is_ascii_alphanumeric()
            || matches!(
                character,
                '_' | '.' | ':' | '-' | '!' | '[' | ']' | '#' | '$' | ',' | '%' | '<' | '>'
            )
    };
    match inner.chars().all(is_inner) {
        true => Some(end + 1),
        false => forms(text),
    }
}

/// Length of the forms of a message (ICU) with which `text` begins: `{n, plural, one {# file} other
/// {# files}}`. They are not translated, because a model would also translate the names of forms,
/// and the result would not be a message. `None` if `text` does not begin with such forms.
fn forms(text: &str) -> Option<usize> {
    let text = &text[..text.floor_char_boundary(LONGEST_FORMS)];
    let mut fields = text[1..].splitn(3, ',').map(str::trim);
    let (name, kind) = (fields.next()?, fields.next()?);
    let is_name = |character: char| character.is_alphanumeric() || character == '_';
    let is_forms = matches!(kind, "plural" | "select" | "selectordinal" | "choice");
    if !is_forms || name.is_empty() || !name.chars().all(is_name) || fields.next().is_none() {
        return None;
    }
    let mut depth = 0_usize;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' if depth == 1 => return Some(at + 1),
            b'}' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// Length of a conversion of `printf`, or of a name between two percent signs; `None` if the text
/// begins with neither.
fn percent(text: &str) -> Option<usize> {
    let rest = &text[1..];
    if rest.starts_with('%') {
        return Some(2);
    }
    let name = rest.find(|character: char| !character.is_ascii_alphanumeric() && character != '_');
    let is_name = |&name: &usize| {
        let behind = rest[name..].strip_prefix('%');
        name > 1 && behind.is_some_and(|behind| !behind.starts_with(is_spaced_letter))
    };
    if let Some(name) = name.filter(is_name) {
        return Some(name + 2);
    }
    let mut at = 0;
    if rest.starts_with('(') {
        let end = rest.bytes().take(LONGEST).position(|byte| byte == b')');
        at = end.filter(|&end| end > 1)? + 1;
    }
    let is_flag = |character: char| {
        character.is_ascii_digit() || matches!(character, '$' | '-' | '+' | '#' | '.' | '*' | '\'')
    };
    at += rest[at..].find(|character: char| !is_flag(character))?;
    at += rest[at..]
        .find(|character: char| !matches!(character, 'h' | 'l' | 'L' | 'z' | 'j' | 't'))?;
    let conversion = rest[at..].chars().next()?;
    let is_conversion = "diouxXeEfFgGaAcsSpn@".contains(conversion);
    // `100 % sure` has a percentage, and the `%de` of `5 %de` is a word. So no letter or digit may
    // follow a conversion. There are exceptions where it can only be a conversion: with a name
    // (`%(n)s`), with a position (`%1$s`), and in `%dx%d`.
    let behind = &rest[at + conversion.len_utf8()..];
    let ends = !behind.starts_with(is_spaced_letter)
        || rest[..at].contains([')', '$'])
        || behind.starts_with("x%");
    (is_conversion && ends).then_some(1 + at + 1)
}

/// Length of a URL or an e-mail address; `None` if the text begins with neither.
fn address(text: &str) -> Option<usize> {
    let schemes = ["http://", "https://", "ftp://", "mailto:", "www."];
    if let Some(scheme) = schemes.iter().find(|scheme| text.starts_with(**scheme)) {
        let word = word(text);
        return (word.len() > scheme.len()).then_some(word.len());
    }
    let is_person = |byte: u8| byte.is_ascii_alphanumeric() || b"._-+".contains(&byte);
    // The search ends after the largest possible length of a local part. Otherwise it could go
    // through a long text that has no address.
    let person = text.bytes().take(LONGEST_PERSON + 1).position(|byte| !is_person(byte))?;
    let host = text[person..].strip_prefix('@').filter(|_| person > 0)?;
    let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b".-".contains(&byte);
    let end = host.bytes().take(LONGEST_HOST + 1).position(|byte| !is_host(byte));
    let end = end.or((host.len() <= LONGEST_HOST).then_some(host.len()))?;
    // A letter after the host is a part of it, so that this is no address.
    let is_cut = host[end..].starts_with(is_spaced_letter);
    let host = host[..end].trim_end_matches(['.', '-']);
    (!is_cut && host.contains('.')).then_some(person + 1 + host.len())
}

/// Beginning of a text up to a blank, a quote, an angle bracket or punctuation that is not ASCII,
/// such as a Chinese comma, and without punctuation at its end.
fn word(text: &str) -> &str {
    let is_blank = |character: char| {
        character.is_whitespace()
            || matches!(character, '<' | '>' | '"')
            || !character.is_ascii() && !character.is_alphanumeric()
    };
    let word = &text[..text.find(is_blank).unwrap_or(text.len())];
    word.trim_end_matches(|last: char| {
        matches!(last, '.' | ',' | ';' | ':' | '!' | '?' | ')' | ']' | '\'')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_told_from_text() {
        for (text, expected) in [
            ("%s and %1$d, %-5.2f%%", &["%s", "%1$d", "%-5.2f", "%%"][..]),
            ("{0} {{ user }} ${x} {a b c} {}", &["{0}", "{{ user }}", "${x}", "{}"]),
            ("100% sure, 5 % de", &[]),
            ("%USER% %(count)s %ld", &["%USER%", "%(count)s", "%ld"]),
            ("(see www.a.org/b), me@b-c.org. a@b", &["www.a.org/b", "me@b-c.org"]),
            ("mailto:x@y.z <http://q>", &["mailto:x@y.z", "http://q"]),
            ("{unclosed %", &[]),
            // Addresses between characters of a script without blanks, and before its punctuation.
            ("请看https://a.b/c，或写信给me@b.org。好", &["https://a.b/c", "me@b.org"]),
            ("共%d个%NAME%的", &["%d", "%NAME%"]),
            ("«https://a.b/Köln», me@köln.de me@a.köln", &["https://a.b/Köln"]),
            ("%(size)sMB %1$sMB %dx%d 5%%", &["%(size)s", "%1$s", "%d", "%d", "%%"]),
            ("{{ a|b(\"c\") }} {{{raw}}} {{/if}}", &["{{ a|b(\"c\") }}", "{{{raw}}}", "{{/if}}"]),
            (
                "{% if x == 1 %}a{% endif %} {# no #}",
                &["{% if x == 1 %}", "{% endif %}", "{# no #}"],
            ),
            (
                "{n, plural, =0 {no} other {# of {m}}} left, {a, b}",
                &["{n, plural, =0 {no} other {# of {m}}}"],
            ),
        ] {
            let found: Vec<&str> =
                placeholders(text).into_iter().map(|range| &text[range]).collect();
            assert_eq!(found, expected, "{text}");
        }
        let long = format!("{{n, plural, one {{{}}} other {{#}}}}", "a word ".repeat(30));
        assert_eq!(placeholders(&long), vec![0..long.len()]);
    }
}
