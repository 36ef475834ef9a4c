//! Descriptions of the keys of a recipe (TOML file with the settings of a training): for a
//! terminal, for the manual, and as comments in a recipe. All of them are derived from the types of
//! the recipe, see [`keys`](super::keys).

use std::collections::HashSet;

use anyhow::{Result, bail};

use super::RunConfig;
use super::did_you_mean::did_you_mean;
use super::keys::{Key, Values, keys, lines};

/// Largest number of characters in a line of the output.
const WIDTH: usize = 100;

/// Describes the key or section `name` and every key in it, or all keys if `name` is `None`.
///
/// # Errors
/// When there is no such key; the message suggests a similar one if there is one.
pub fn explain(name: Option<&str>) -> Result<String> {
    let Some(name) = name else {
        return Ok(keys().iter().map(described).collect::<Vec<_>>().join("\n"));
    };
    let of_section = format!("{name}.");
    let asked = |key: &&Key| key.name == name || key.name.starts_with(&of_section);
    let explanations: Vec<String> = keys().iter().filter(asked).map(described).collect();
    if !explanations.is_empty() {
        return Ok(explanations.join("\n"));
    }
    match did_you_mean(name) {
        Some(meant) => bail!("there is no key `{name}`; did you mean {meant}?"),
        None => {
            let is_outer = |key: &&Key| key.is_section() && key.section().is_empty();
            let sections = keys().iter().filter(is_outer).map(|key| key.name.as_str());
            let sections = sections.collect::<Vec<_>>().join(", ");
            bail!("there is no key `{name}`; the sections are {sections}")
        }
    }
}

/// Description of one key or section, for a terminal.
fn described(key: &Key) -> String {
    let title = if key.is_section() { format!("[{}]", key.name) } else { key.name.clone() };
    let mut text = title + "\n";
    for paragraph in key.meaning.lines() {
        text += &wrapped(paragraph, "    ", "    ");
    }
    match &key.values {
        Values::Section => return text,
        Values::Choice(choices) => {
            for (name, meaning) in choices {
                text += &wrapped(&format!("\"{name}\": {meaning}"), "      ", "          ");
            }
        }
        values => text += &wrapped(&format!("Values: {values}."), "    ", "    "),
    }
    text += &wrapped(&format!("Default: {}.", default(key)), "    ", "    ");
    if let Some(idle) = idle(key) {
        text += &wrapped(&idle, "    ", "    ");
    }
    text
}

/// Reference of all keys in Markdown, section by section.
pub fn reference() -> String {
    let mut text = String::from("## Top-level keys\n\n");
    for key in keys().iter().filter(|key| !key.is_section() && key.section().is_empty()) {
        text += &entry(key);
    }
    for section in keys().iter().filter(|key| key.is_section()) {
        text += &format!("\n## [{}]\n\n", section.name);
        for paragraph in section.meaning.lines() {
            text += &(wrapped(paragraph, "", "") + "\n");
        }
        // The keys of a corpus form no section, because a corpus is the value of a key such as
        // `data.train`. They are listed after that key.
        let of_section = |key: &&Key| {
            !key.is_section()
                && key.name.starts_with(&format!("{}.", section.name))
                && owner(key) == section.name
        };
        for key in keys().iter().filter(of_section) {
            text += &entry(key);
        }
    }
    text
}

/// Name of the section under which `key` is listed; empty for the top level.
fn owner(key: &Key) -> &str {
    let mut name = key.section();
    while !name.is_empty() && !keys().iter().any(|key| key.name == name && key.is_section()) {
        name = name.rsplit_once('.').map_or("", |(outer, _)| outer);
    }
    name
}

/// Markdown list item that describes a key.
fn entry(key: &Key) -> String {
    let values = match &key.values {
        Values::Choice(_) => String::new(),
        values => format!(", {values}"),
    };
    let mut words = vec![format!("`{}`{values}; default {}.", key.name, code(&default(key)))];
    words.extend(key.meaning.lines().map(str::to_owned));
    words.extend(idle(key));
    let mut text = wrapped(&words.join(" "), "- ", "  ");
    if let Values::Choice(choices) = &key.values {
        for (name, meaning) in choices {
            text += &wrapped(&format!("`\"{name}\"`: {meaning}"), "  - ", "    ");
        }
    }
    text
}

fn code(default: &str) -> String {
    if default.contains(' ') && !default.starts_with(['"', '[', '{']) {
        default.to_owned()
    } else {
        format!("`{default}`")
    }
}

/// Writes `config` as TOML, with the description of each key in comments above it.
///
/// # Errors
/// When a value cannot be written as TOML.
pub fn annotated(config: &RunConfig) -> Result<String> {
    let written = config.to_toml()?;
    let mut explained = HashSet::new();
    let mut text = String::new();
    for (name, line) in lines(&written) {
        let key = name.and_then(|name| keys().iter().find(|key| key.name == name));
        if let Some(key) = key.filter(|key| explained.insert(&key.name)) {
            text += &comment(key);
        }
        text += line;
        text.push('\n');
    }
    Ok(text)
}

fn comment(key: &Key) -> String {
    let mut words: Vec<String> = key.meaning.lines().map(str::to_owned).collect();
    match &key.values {
        Values::Section => {}
        Values::Choice(choices) => {
            for (name, meaning) in choices {
                words.push(format!("\"{name}\": {meaning}"));
            }
        }
        values => {
            let last = words.last_mut().map(|last| last.pop()).is_some();
            let about = format!(" ({values}; default {}).", default(key));
            match words.last_mut().filter(|_| last) {
                Some(last) => last.push_str(&about),
                None => words.push(about),
            }
        }
    }
    words.extend(idle(key));
    words.iter().map(|words| wrapped(words, "# ", "# ")).collect()
}

/// Default value of a key as TOML, or the words `not set`.
fn default(key: &Key) -> String {
    match &key.default {
        None | Some(serde_json::Value::Null) => "not set".to_owned(),
        Some(value) => value.to_string(),
    }
}

/// Sentence about the conditions under which the key has no effect; `None` if it always has an
/// effect.
fn idle(key: &Key) -> Option<String> {
    let reasons: Vec<String> =
        key.idle.iter().map(|condition| condition.reason(key.section())).collect();
    (!reasons.is_empty()).then(|| format!("Has no effect if {}.", reasons.join(", or if ")))
}

/// Wraps `words` to lines of at most [`WIDTH`] columns. `first` is put before the first line, and
/// `rest` before each further line.
fn wrapped(words: &str, first: &str, rest: &str) -> String {
    let mut text = String::new();
    let mut line = first.to_owned();
    let mut is_begun = false;
    for word in words.split_whitespace() {
        if is_begun && line.chars().count() + 1 + word.chars().count() > WIDTH {
            text += line.trim_end();
            text.push('\n');
            line = rest.to_owned();
            is_begun = false;
        }
        if is_begun {
            line.push(' ');
        }
        line += word;
        is_begun = true;
    }
    text + &line + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_explained_with_values_default_and_where_it_has_no_effect() {
        let text = explain(Some("training.schedule.scale")).expect("a key");
        assert!(text.starts_with("training.schedule.scale\n    "), "{text}");
        assert!(text.contains("Values: a number above 0."), "{text}");
        assert!(text.contains("Default: 1.0."), "{text}");
        assert!(text.contains("Has no effect if training.schedule.kind is not"), "{text}");
        let section = explain(Some("training.schedule")).expect("a section");
        assert!(section.starts_with("[training.schedule]\n") && section.contains("warmup\n"));
        let error = explain(Some("lr")).expect_err("no key").to_string();
        assert!(error.contains("`training.schedule.learning_rate`"), "{error}");
        assert!(explain(Some("xyz")).is_err());
        let all = explain(None).expect("all");
        assert!(keys().iter().all(|key| all.contains(&key.name)));
        assert!(all.lines().all(|line| line.chars().count() <= WIDTH));
    }

    #[test]
    fn a_recipe_with_comments_is_the_same_recipe() {
        let mut config = RunConfig::default();
        config.data.train = serde_json::from_value(serde_json::json!([
            { "source": "a", "target": "b" }, { "stem": "c", "tag": "<c>" }
        ]))
        .expect("corpora");
        let text = annotated(&config).expect("TOML");
        assert_eq!(toml::from_str::<RunConfig>(&text).expect("a recipe"), config);
        // Keys that are not written when they have their defaults are left out.
        let whole = serde_json::to_value(&config).expect("a recipe");
        let is_written =
            |key: &&Key| whole.pointer(&format!("/{}", key.name.replace('.', "/"))).is_some();
        for key in keys().iter().filter(is_written) {
            let first = key.meaning.split_whitespace().next().unwrap_or_default();
            assert!(text.contains(&format!("# {first}")), "{key:?}");
        }
    }
}
