//! Character references of HTML and WebVTT, read as browsers do.

/// Largest number of bytes of a character reference, with its semicolon.
const LONGEST: usize = 33;

/// Names of references that need no semicolon (HTML standard, section 13.5).
const WITHOUT_SEMICOLON: [&str; 106] = [
    "AElig", "AMP", "Aacute", "Acirc", "Agrave", "Aring", "Atilde", "Auml", "COPY", "Ccedil",
    "ETH", "Eacute", "Ecirc", "Egrave", "Euml", "GT", "Iacute", "Icirc", "Igrave", "Iuml", "LT",
    "Ntilde", "Oacute", "Ocirc", "Ograve", "Oslash", "Otilde", "Ouml", "QUOT", "REG", "THORN",
    "Uacute", "Ucirc", "Ugrave", "Uuml", "Yacute", "aacute", "acirc", "acute", "aelig", "agrave",
    "amp", "aring", "atilde", "auml", "brvbar", "ccedil", "cedil", "cent", "copy", "curren", "deg",
    "divide", "eacute", "ecirc", "egrave", "eth", "euml", "frac12", "frac14", "frac34", "gt",
    "iacute", "icirc", "iexcl", "igrave", "iquest", "iuml", "laquo", "lt", "macr", "micro",
    "middot", "nbsp", "not", "ntilde", "oacute", "ocirc", "ograve", "ordf", "ordm", "oslash",
    "otilde", "ouml", "para", "plusmn", "pound", "quot", "raquo", "reg", "sect", "shy", "sup1",
    "sup2", "sup3", "szlig", "thorn", "times", "uacute", "ucirc", "ugrave", "uml", "uuml",
    "yacute", "yen", "yuml",
];

/// Characters for the numeric references 128 to 159, in order, as in the encoding Windows-1252. At
/// the places of `\0`, Windows-1252 has no character. There, a reference stands for the control
/// character whose code point is the number of the reference.
const WINDOWS: &str = "€\0‚ƒ„…†‡ˆ‰Š‹Œ\0Ž\0\0‘’“”•–—˜™š›œ\0žŸ";

/// Returns a text with its character references replaced by characters. Invalid references stay.
pub(crate) fn decoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        match reference(rest) {
            Some((characters, length)) => {
                out.push_str(&characters);
                rest = &rest[length..];
            }
            None => out.push('&'),
        }
    }
    out + rest
}

/// Returns the number of bytes of the reference with which `text` begins, including its `&`; `None`
/// if there is no valid reference.
pub(crate) fn reference_length(text: &str) -> Option<usize> {
    reference(text.strip_prefix('&')?).map(|(_, length)| 1 + length)
}

/// Reads the reference whose `&` is directly before `text`. Returns the characters that it stands
/// for, and the number of bytes of `text` that belong to it; `None` if there is no valid reference.
fn reference(text: &str) -> Option<(String, usize)> {
    if let Some(number) = text.strip_prefix('#') {
        return numeric(number).map(|(character, length)| (character.to_string(), 1 + length));
    }
    let end = text.bytes().take(LONGEST - 1).position(|byte| byte == b';');
    if let Some(end) = end
        && let Some(characters) = quick_xml::escape::resolve_html5_entity(&text[..end])
    {
        return Some((characters.to_owned(), end + 1));
    }
    let names = WITHOUT_SEMICOLON.iter().filter(|name| text.starts_with(**name));
    let name = names.max_by_key(|name| name.len())?;
    quick_xml::escape::resolve_html5_entity(name).map(|of| (of.to_owned(), name.len()))
}

/// Reads the number of a numeric reference. Returns the character with this number, and the number
/// of bytes that were read, including the semicolon if there is one; `None` if there are no digits.
fn numeric(text: &str) -> Option<(char, usize)> {
    let (radix, start) = if text.starts_with(['x', 'X']) { (16, 1) } else { (10, 0) };
    let digits = &text[start..];
    let digits = &digits[..digits.find(|one: char| !one.is_digit(radix)).unwrap_or(digits.len())];
    if digits.is_empty() {
        return None;
    }
    let end = start + digits.len();
    let length = end + usize::from(text[end..].starts_with(';'));
    let number = u32::from_str_radix(digits, radix).unwrap_or(u32::MAX);
    let character = match number {
        0 => char::REPLACEMENT_CHARACTER,
        128..160 => {
            let windows = WINDOWS.chars().nth(number as usize - 128).filter(|&one| one != '\0');
            windows.or(char::from_u32(number))?
        }
        _ => char::from_u32(number).unwrap_or(char::REPLACEMENT_CHARACTER),
    };
    Some((character, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected texts are those of Python's `html.unescape`.
    #[test]
    fn references_are_read_as_browsers_do() {
        for (text, expected) in [
            ("&copy 2024 &copy; A&nbspB", "© 2024 © A\u{a0}B"),
            ("it&#146;s 3&#150;4 &#133 &#x80;&#129;", "it’s 3–4 … €\u{81}"),
            ("&notit; &notin; &not &lt;b&gt &ampamp;", "¬it; ∉ ¬ <b> &amp;"),
            ("&#0; &#xD800; &#99999999999; &#x1F642", "\u{fffd} \u{fffd} \u{fffd} 🙂"),
            ("A & B &; &# &#x; &unknown; &é &hellip &", "A & B &; &# &#x; &unknown; &é &hellip &"),
        ] {
            assert_eq!(decoded(text), expected, "{text}");
        }
    }

    #[test]
    fn names_without_semicolon_are_known() {
        for name in WITHOUT_SEMICOLON {
            assert!(quick_xml::escape::resolve_html5_entity(name).is_some(), "{name}");
        }
        assert_eq!(WINDOWS.chars().count(), 32);
    }
}
