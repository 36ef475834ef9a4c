//! JSON as Python's `json.dumps` writes it, for the filter `tojson` of chat templates.

use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{Error, ErrorKind};

/// Largest indentation of JSON, in spaces.
const MOST_INDENT: usize = 64;
/// Deepest nesting of a value that is written.
const MOST_DEPTH: usize = 64;
/// Largest number of values within a value that is written.
const MOST_VALUES: usize = 1 << 20;

/// Refuses a value that is nested too deeply, perhaps because it contains itself, or that has too
/// many parts. It is called before a value is written.
pub(super) fn require_bounded(value: &Value) -> Result<(), Error> {
    fn walk(value: &Value, depth: usize, left: &mut usize) -> Result<(), Error> {
        let refuse = |message| Err(Error::new(ErrorKind::InvalidOperation, message));
        if depth > MOST_DEPTH {
            return refuse("a value is nested too deeply");
        }
        let is_map = match value.kind() {
            ValueKind::Map => true,
            ValueKind::Seq | ValueKind::Iterable => false,
            _ => return Ok(()),
        };
        for item in value.try_iter()? {
            if *left == 0 {
                return refuse("a value has too many parts");
            }
            *left -= 1;
            let item = if is_map { value.get_item(&item)? } else { item };
            walk(&item, depth + 1, left)?;
        }
        Ok(())
    }
    let mut left = MOST_VALUES;
    walk(value, 0, &mut left)
}

/// Writes a value as Python's `json.dumps` does, for example with a space after each comma. Models
/// have been trained on conversations with JSON in this format. `options` may contain the arguments
/// `indent`, `ensure_ascii`, `separators` and `sort_keys` of `json.dumps`.
///
/// # Errors
/// When a part of the value has no form in JSON, for example because it is undefined, or the value
/// is too large.
pub(super) fn to_json(value: &Value, options: Kwargs) -> Result<String, Error> {
    let indent: Option<usize> = options.get("indent")?;
    let is_ascii: Option<bool> = options.get("ensure_ascii")?;
    let sort_keys: Option<bool> = options.get("sort_keys")?;
    let separators: Option<Vec<String>> = options.get("separators")?;
    options.assert_all_used()?;
    if indent.is_some_and(|indent| indent > MOST_INDENT) {
        let message = format!("tojson: indent must be at most {MOST_INDENT}");
        return Err(Error::new(ErrorKind::InvalidOperation, message));
    }
    let after_item = if indent.is_some() { "," } else { ", " };
    let separators = separators.unwrap_or_else(|| vec![after_item.to_owned(), ": ".to_owned()]);
    let separators = <[String; 2]>::try_from(separators).map_err(|_| {
        Error::new(ErrorKind::InvalidOperation, "tojson: separators must be two texts")
    })?;
    require_bounded(value)?;
    let mut text = String::new();
    let (is_ascii, sorts) = (is_ascii == Some(true), sort_keys == Some(true));
    let layout = Layout { indent, is_ascii, sorts, separators };
    layout.write(value, 0, &mut text)?;
    Ok(text)
}

struct Layout {
    indent: Option<usize>,
    is_ascii: bool,
    sorts: bool,
    /// Texts after an item of a list and after a key.
    separators: [String; 2],
}

/// Error for a value without a form in JSON.
fn no_json(value: &Value) -> Error {
    let message = format!("tojson: a value of the kind {} has no form in JSON", value.kind());
    Error::new(ErrorKind::InvalidOperation, message)
}

/// Formats a value other than a text, a list or a map.
///
/// # Errors
/// When the value has no form in JSON.
fn scalar(value: &Value) -> Result<String, Error> {
    Ok(match value.kind() {
        ValueKind::None => "null".to_owned(),
        ValueKind::Bool => if value.is_true() { "true" } else { "false" }.to_owned(),
        ValueKind::Number if value.is_integer() => value.to_string(),
        ValueKind::Number => float(f64::try_from(value.clone())?),
        _ => return Err(no_json(value)),
    })
}

/// Formats a number, which is not an integer, as Python does.
fn float(number: f64) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if !(-4..16).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.unsigned_abs());
    }
    let plain = number.to_string();
    if plain.contains('.') { plain } else { plain + ".0" }
}

impl Layout {
    fn write(&self, value: &Value, depth: usize, text: &mut String) -> Result<(), Error> {
        match value.kind() {
            ValueKind::Map => {
                let mut keys: Vec<Value> = value.try_iter()?.collect();
                if self.sorts {
                    keys.sort();
                }
                self.list(("{", "}"), keys.len(), depth, text, |at, text| {
                    let key = &keys[at];
                    match key.as_str() {
                        Some(key) => self.string(key, text),
                        None => *text += &format!("\"{}\"", scalar(key)?),
                    }
                    *text += &self.separators[1];
                    self.write(&value.get_item(key)?, depth + 1, text)
                })
            }
            ValueKind::Seq | ValueKind::Iterable => {
                let items: Vec<Value> = value.try_iter()?.collect();
                self.list(("[", "]"), items.len(), depth, text, |at, text| {
                    self.write(&items[at], depth + 1, text)
                })
            }
            ValueKind::String => {
                self.string(value.as_str().unwrap_or_default(), text);
                Ok(())
            }
            _ => {
                *text += &scalar(value)?;
                Ok(())
            }
        }
    }

    fn list(
        &self,
        (begin, end): (&str, &str),
        count: usize,
        depth: usize,
        text: &mut String,
        mut write: impl FnMut(usize, &mut String) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let line =
            |depth: usize| self.indent.map(|indent| format!("\n{}", " ".repeat(indent * depth)));
        *text += begin;
        for at in 0..count {
            if at > 0 {
                *text += &self.separators[0];
            }
            *text += &line(depth + 1).unwrap_or_default();
            write(at, text)?;
        }
        if count > 0 {
            *text += &line(depth).unwrap_or_default();
        }
        *text += end;
        Ok(())
    }

    fn string(&self, string: &str, text: &mut String) {
        // This does not fail, because every string can be written as JSON.
        let json = serde_json::to_string(string).unwrap_or_default();
        if !self.is_ascii {
            *text += &json;
            return;
        }
        let mut units = [0; 2];
        for character in json.chars() {
            // Python also escapes the control character U+007F, although it is ASCII.
            match character.is_ascii() && character != '\u{7f}' {
                true => text.push(character),
                false => {
                    for unit in character.encode_utf16(&mut units) {
                        *text += &format!("\\u{unit:04x}");
                    }
                }
            }
        }
    }
}
