//! Conversion of errors of the TOML parser and of serde to one line, with the line number and the
//! key.

use std::ops::Range;

use toml::de::{DeTable, DeValue};

use super::did_you_mean::{did_you_mean, did_you_mean_section, nearest};
use super::keys::{self, Key, Values};

/// One problem in a configuration text, ready to print.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Diagnosis {
    /// Line number, counted from 1; `None` if the parser does not report it.
    pub line: Option<usize>,
    /// Message that names the key, the error and the expected value.
    pub message: String,
}

/// Explains `error`, which occurred when the configuration `text` was parsed.
pub(crate) fn diagnose(text: &str, error: &toml::de::Error) -> Diagnosis {
    let span = error.span();
    let line = span.as_ref().map(|span| line_of(text, span.start));
    let place = span.as_ref().and_then(|span| Place::locate(text, span));
    Diagnosis { line, message: explain(error.message(), place.as_ref()) }
}

/// Rewrites `message`, which comes from serde. The result has the key with its sections and, for an
/// unknown key or value, the known one that was probably intended.
fn explain(message: &str, place: Option<&Place>) -> String {
    let one_line = message.lines().collect::<Vec<_>>().join("; ");
    let key = place.map(|place| format!("key `{}`: ", place.path)).unwrap_or_default();
    let Some((kind, unknown, known)) = unknown_name(&one_line) else {
        let known = place.and_then(|place| keys::key(&place.path));
        return format!("{key}{}", mistyped(&one_line, known).unwrap_or(one_line));
    };
    let known_names = known.join(", ");
    match kind {
        Unknown::Key => {
            let name = place.map_or(unknown.as_str(), |place| place.path.as_str());
            let (noun, meant) = match place.map(|place| &place.table) {
                Some(Some(first)) => ("section", did_you_mean_section(name, first.as_deref())),
                _ => ("key", did_you_mean(name)),
            };
            match meant {
                Some(meant) => format!("unknown {noun} `{name}`, did you mean {meant}?"),
                None => format!("unknown {noun} `{name}` (known there: {known_names})"),
            }
        }
        Unknown::Value => {
            let known: Vec<&str> = known.iter().map(String::as_str).collect();
            match nearest(&unknown, known.iter().copied()) {
                Some(best) => format!(
                    "{key}unknown value `{unknown}`, did you mean `{best}`? (known: {known_names})"
                ),
                None => format!("{key}unknown value `{unknown}`"),
            }
        }
    }
}

/// Rewrites serde's message about a value of the wrong type or a value out of range, in terms of
/// TOML instead of Rust; `None` for other messages. `key` is the key with the value, if it is
/// known.
fn mistyped(message: &str, key: Option<&Key>) -> Option<String> {
    let rest = message
        .strip_prefix("invalid type: ")
        .or_else(|| message.strip_prefix("invalid value: "))?;
    let (given, expected) = rest.rsplit_once(", expected ")?;
    let values = match (key.map(|key| &key.values), expected) {
        (Some(Values::Section), _) => "a section of keys".to_owned(),
        // If a value can have several forms, serde's message already describes them.
        (Some(Values::Other(_)), _) => expected.to_owned(),
        (Some(values), "u32") if !given.contains('-') => format!("{values} to {}", u32::MAX),
        (Some(values), _) => values.to_string(),
        (None, "u32" | "u64" | "usize") => "an integer from 0".to_owned(),
        (None, "f64") => "a number".to_owned(),
        (None, "a boolean") => "true or false".to_owned(),
        (None, "a string" | "path string") => "text".to_owned(),
        (None, "a sequence") => "a list".to_owned(),
        (None, expected) if expected.starts_with("struct ") => "a section of keys".to_owned(),
        (None, expected) => expected.to_owned(),
    };
    Some(format!("expected {values}, found {}", in_toml(given)))
}

/// Converts serde's description of a value, such as `string "a"`, to terms of TOML.
fn in_toml(given: &str) -> String {
    let quoted =
        |kind: &str| given.strip_prefix(kind).map(|rest| rest.trim().trim_matches('`').to_owned());
    if let Some(text) = quoted("string ") {
        return format!("the text {text}");
    }
    if let Some(number) = quoted("floating point ") {
        // Large numbers are written with an exponent, because serde writes them with hundreds of
        // digits.
        let short = number.parse::<f64>().map_or(number, |number| format!("{number:?}"));
        return format!("the number {short}");
    }
    if let Some(number) = quoted("integer ") {
        return format!("the number {number}");
    }
    match given {
        "map" => "a section of keys".to_owned(),
        "sequence" => "a list".to_owned(),
        other => quoted("boolean ").unwrap_or_else(|| other.to_owned()),
    }
}

enum Unknown {
    Key,
    Value,
}

/// Splits a message such as ``unknown field `a`, expected one of `b`, `c` `` into what is unknown,
/// its name, and the known names; `None` for other messages of serde.
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

/// Number of the line, counted from 1, with the byte at `offset` in `text`.
fn line_of(text: &str, offset: usize) -> usize {
    let end = offset.min(text.len());
    1 + text.as_bytes()[..end].iter().filter(|&&b| b == b'\n').count()
}

/// Innermost key whose name or value contains the position at which an error occurred.
struct Place {
    /// Key with its sections, separated by dots.
    path: String,
    /// Path of the first key in the table that is the value of the key. `None` if the value is not
    /// a table, and `Some(None)` if the table is empty.
    table: Option<Option<String>>,
}

impl Place {
    fn locate(text: &str, span: &Range<usize>) -> Option<Self> {
        let table = DeTable::parse(text).ok()?;
        descend(table.get_ref(), span.start, "")
    }
}

fn descend(table: &DeTable<'_>, offset: usize, section: &str) -> Option<Place> {
    for (key, value) in table {
        let path = join(section, key.get_ref());
        let inner = match value.get_ref() {
            DeValue::Table(inner) => Some(inner),
            _ => None,
        };
        // The range that the parser reports for a section covers only its header, so the keys in
        // the section are searched first.
        if let Some(place) = inner.and_then(|inner| descend(inner, offset, &path)) {
            return Some(place);
        }
        if key.span().contains(&offset) || value.span().contains(&offset) {
            let first = |inner: &DeTable<'_>| {
                let first = inner.iter().min_by_key(|(key, _)| key.span().start);
                first.map(|(key, _)| join(&path, key.get_ref()))
            };
            return Some(Place { table: inner.map(first), path });
        }
    }
    None
}

fn join(section: &str, key: &str) -> String {
    if section.is_empty() { key.to_owned() } else { format!("{section}.{key}") }
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
        let diagnosis = problem("[model]\nd_model = 2\nhaeds = 4\n");
        assert_eq!(diagnosis.line, Some(3));
        assert!(diagnosis.message.contains("unknown key `model.haeds`"), "{diagnosis:?}");
        assert!(diagnosis.message.contains("`model.heads`"), "{diagnosis:?}");
    }

    #[test]
    fn an_unknown_section_is_called_one() {
        let diagnosis = problem("[optim]\nlr = 1\n");
        assert_eq!(
            diagnosis.message,
            "unknown section `optim`, did you mean `training.schedule.learning_rate`?"
        );
        let diagnosis = problem("[trainig]\nseed = 1\n");
        assert_eq!(
            diagnosis.message,
            "unknown section `trainig`, did you mean the section `training`?"
        );
    }

    #[test]
    fn mistyped_value_names_key_and_type() {
        let diagnosis = problem("[model]\n\nheads = \"four\"\n");
        assert_eq!(diagnosis.line, Some(3));
        assert!(diagnosis.message.contains("key `model.heads`"), "{diagnosis:?}");
        assert_eq!(
            diagnosis.message,
            "key `model.heads`: expected an integer from 1, found the text \"four\""
        );
    }

    #[test]
    fn values_are_spoken_of_as_toml_has_them() {
        for (text, message) in [
            ("[model]\nd_ff = 1.5\n", "expected an integer from 1, found the number 1.5"),
            ("[model]\nd_ff = -3\n", "expected an integer from 1, found the number -3"),
            ("[model]\nd_ff = 1e308\n", "expected an integer from 1, found the number 1e308"),
            ("model = 3\n", "key `model`: expected a section of keys, found the number 3"),
            ("name = { a = 1 }\n", "key `name`: expected text, found a section of keys"),
            ("[model]\nbiases = \"yes\"\n", "expected true or false, found the text \"yes\""),
            ("[training]\nclip_norm = [1]\n", "expected a number from 0, found a list"),
            ("[data]\ndir = 3\n", "key `data.dir`: expected text, found the number 3"),
            ("[training.early_stopping]\npatience = 5000000000\n", "from 0 to 4294967295, found"),
            ("[data]\ntrain = 3\n", "{ file = \"table.tsv\" }, found the number 3"),
            ("[data.batching]\nmax_tokens = \"many\"\n", "or \"auto\", found the text \"many\""),
        ] {
            let diagnosis = problem(text);
            assert!(diagnosis.message.contains(message), "{text}: {diagnosis:?}");
        }
        assert_eq!(
            mistyped("invalid type: sequence, expected usize", None).as_deref(),
            Some("expected an integer from 0, found a list")
        );
    }

    #[test]
    fn a_column_may_be_a_number() {
        let config: RunConfig =
            toml::from_str("[data.fields]\nsource = 2\ntarget = \"de\"\n").expect("columns");
        assert_eq!(
            (config.data.fields.source.as_str(), config.data.fields.target.as_str()),
            ("2", "de")
        );
    }

    #[test]
    fn broken_syntax_names_the_line() {
        assert_eq!(problem("[model]\nheads = = 3\n").line, Some(2));
    }
}
