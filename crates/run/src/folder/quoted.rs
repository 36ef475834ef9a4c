//! Display of paths and names that others have chosen, in text for people. In commands that a
//! reader may copy, such a path is quoted. In a terminal or a log, the characters of such a name
//! must not end a line, colour it or reverse its direction.

use std::borrow::Cow;
use std::path::Path;

/// Quotes a path so that a shell reads it as one argument.
#[must_use]
pub fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain =
        |character: char| character.is_ascii_alphanumeric() || "_-./=+:,@%".contains(character);
    if !text.is_empty() && text.chars().all(plain) {
        text
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

/// True if a character is invisible but affects the terminal, the line, or the order of the text
/// after it (Unicode 16.0, `Cc`, `Bidi_Control`, `Zl` and `Zp`).
fn is_active(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{61c}'
                | '\u{200e}'
                | '\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2066}'..='\u{2069}'
        )
}

/// Makes a name safe to print: control characters, line ends and characters that change the
/// direction of text are escaped as in Rust.
///
/// ```
/// assert_eq!(taper_run::folder::visible("a\u{202e}b\n"), "a\\u{202e}b\\n");
/// ```
#[must_use]
pub fn visible(text: &str) -> Cow<'_, str> {
    escaped(text, |character, escaped| escaped.extend(character.escape_default()))
}

/// Escapes the same characters as [`visible`] in JSON text. The value that the JSON text describes
/// stays the same.
#[must_use]
pub fn visible_json(json: &str) -> Cow<'_, str> {
    escaped(json, |character, escaped| match character {
        // These characters can only be white space between values, because JSON text has them
        // escaped within strings.
        '\n' | '\r' | '\t' => escaped.push(character),
        // All other characters that are escaped have code points below 2^16, so four hexadecimal
        // digits suffice.
        _ => *escaped += &format!("\\u{:04x}", u32::from(character)),
    })
}

fn escaped(text: &str, escape: impl Fn(char, &mut String)) -> Cow<'_, str> {
    if !text.contains(is_active) {
        return text.into();
    }
    let mut escaped = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        if is_active(character) { escape(character, &mut escaped) } else { escaped.push(character) }
    }
    escaped.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_acts_unseen_is_escaped_and_nothing_else() {
        for plain in ["runs/a b", "Wörter 日本 שלום", "it's \\u{1b} \"", ""] {
            assert!(matches!(visible(plain), Cow::Borrowed(text) if text == plain));
            assert!(matches!(visible_json(plain), Cow::Borrowed(text) if text == plain));
        }
        let active = "a\u{1b}[31m\r\n\t\u{7f}\u{85}\u{202e}\u{2066}\u{61c}\u{2028}";
        assert_eq!(
            visible(active),
            "a\\u{1b}[31m\\r\\n\\t\\u{7f}\\u{85}\\u{202e}\\u{2066}\\u{61c}\\u{2028}"
        );
        let json = serde_json::to_string_pretty(&[active]).expect("JSON");
        let visible = visible_json(&json);
        assert!(!visible.contains(['\u{1b}', '\u{7f}', '\u{85}', '\u{202e}', '\u{2028}']));
        assert_eq!(serde_json::from_str::<[String; 1]>(&visible).expect("JSON"), [active]);
    }

    #[test]
    fn only_what_a_shell_would_divide_is_quoted() {
        assert_eq!(quoted(Path::new("runs/a-b_1.x")), "runs/a-b_1.x");
        assert_eq!(quoted(Path::new("my run")), "'my run'");
        assert_eq!(quoted(Path::new("it's")), "'it'\\''s'");
        assert_eq!(quoted(Path::new("")), "''");
    }
}
