//! Turns a TOML or serde error into one line that names file, line and key.

use std::ops::Range;

use toml::de::{DeTable, DeValue};

use super::nearest::nearest;

/// One problem in a configuration text, ready to print.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Diagnosis {
    /// Line number, counted from 1, when the parser knows it.
    pub line: Option<usize>,
    /// What is wrong, naming the key and what was expected.
    pub message: String,
}

/// Explains `error`, which came from parsing `text`.
pub(crate) fn diagnose(text: &str, error: &toml::de::Error) -> Diagnosis {
    let span = error.span();
    let line = span.as_ref().map(|span| line_of(text, span.start));
    let path = span.as_ref().and_then(|span| key_path(text, span));
    Diagnosis { line, message: explain(error.message(), path.as_deref()) }
}

/// Rewrites serde's message so that it names the whole key, and for an unknown
/// key or value the nearest known one.
fn explain(message: &str, path: Option<&str>) -> String {
    let one_line = message.lines().collect::<Vec<_>>().join("; ");
    if let Some((kind, unknown, known)) = unknown_name(&one_line) {
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        return match kind {
            Unknown::Key => {
                let section = path
                    .and_then(|path| path.rsplit_once('.'))
                    .map(|(section, _)| format!("{section}."))
                    .unwrap_or_default();
                match nearest(&unknown, known.iter().copied()) {
                    Some(best) => {
                        format!(
                            "unknown key `{section}{unknown}`, did you mean `{section}{best}`? (known: {})",
                            known.join(", ")
                        )
                    }
                    None => format!("unknown key `{section}{unknown}`"),
                }
            }
            Unknown::Value => {
                let key = path.map(|path| format!("key `{path}`: ")).unwrap_or_default();
                match nearest(&unknown, known.iter().copied()) {
                    Some(best) => format!(
                        "{key}unknown value `{unknown}`, did you mean `{best}`? (known: {})",
                        known.join(", ")
                    ),
                    None => format!("{key}unknown value `{unknown}`"),
                }
            }
        };
    }
    match path {
        Some(path) => format!("key `{path}`: {one_line}"),
        None => one_line,
    }
}

enum Unknown {
    Key,
    Value,
}

/// Splits serde's ``unknown field `a`, expected one of `b`, `c` ``.
fn unknown_name(message: &str) -> Option<(Unknown, String, Vec<String>)> {
    let (kind, rest) = if let Some(rest) = message.strip_prefix("unknown field ") {
        (Unknown::Key, rest)
    } else {
        (Unknown::Value, message.strip_prefix("unknown variant ")?)
    };
    let mut quoted = rest.split('`').skip(1).step_by(2).map(str::to_owned);
    let unknown = quoted.next()?;
    Some((kind, unknown, quoted.collect()))
}

/// Line number of a byte offset, counted from 1.
fn line_of(text: &str, offset: usize) -> usize {
    let end = offset.min(text.len());
    1 + text.as_bytes()[..end].iter().filter(|&&b| b == b'\n').count()
}

/// Dotted path of the innermost key whose name or value covers `span`.
fn key_path(text: &str, span: &Range<usize>) -> Option<String> {
    let table = DeTable::parse(text).ok()?;
    let mut path = Vec::new();
    descend(table.get_ref(), span.start, &mut path);
    (!path.is_empty()).then(|| path.join("."))
}

fn descend(table: &DeTable<'_>, offset: usize, path: &mut Vec<String>) -> bool {
    for (key, value) in table {
        // A section's own span is only its header, so its children are asked first.
        if let DeValue::Table(inner) = value.get_ref() {
            path.push(key.get_ref().to_string());
            if descend(inner, offset, path) {
                return true;
            }
            path.pop();
        }
        if key.span().contains(&offset) || value.span().contains(&offset) {
            path.push(key.get_ref().to_string());
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::RunConfig;

    fn problem(text: &str) -> Diagnosis {
        let error = toml::from_str::<RunConfig>(text).expect_err("must fail");
        diagnose(text, &error)
    }

    #[test]
    fn unknown_key_names_line_and_nearest() {
        let found = problem("[model]\nd_model = 2\nhaeds = 4\n");
        assert_eq!(found.line, Some(3));
        assert!(found.message.contains("unknown key `model.haeds`"), "{found:?}");
        assert!(found.message.contains("`model.heads`"), "{found:?}");
    }

    #[test]
    fn mistyped_value_names_key_and_type() {
        let found = problem("[model]\n\nheads = \"four\"\n");
        assert_eq!(found.line, Some(3));
        assert!(found.message.contains("key `model.heads`"), "{found:?}");
        assert!(found.message.contains("usize"), "{found:?}");
    }

    #[test]
    fn broken_syntax_names_the_line() {
        assert_eq!(problem("[model]\nheads = = 3\n").line, Some(2));
    }
}
