//! Every key of a recipe (TOML file with the settings of a training) with its properties. The
//! properties are derived from the types into which a recipe is parsed: from their doc comments,
//! ranges and defaults.

use std::fmt;
use std::sync::LazyLock;

use schemars::generate::SchemaSettings;
use serde_json::Value;

use super::RunConfig;
use super::conditions::{CONDITIONS, Condition};

/// Key of the training split. The corpora of all three splits have the same keys, so these keys are
/// listed only here, under the training split.
const CORPORA: &str = "data.train";

/// Key of a recipe, or a section, with its properties.
#[derive(Debug)]
pub(crate) struct Key {
    /// Dotted name from the root: `training.schedule.warmup`.
    pub name: String,
    /// Meaning and unit, in Markdown: one line for each paragraph.
    pub meaning: String,
    /// Allowed values.
    pub values: Values,
    /// Value if a recipe does not set the key; `None` for a section, and for a key without a
    /// default.
    pub default: Option<Value>,
    /// Names of the setting in other toolkits, in lower case with underscores (see
    /// [`plain`](super::did_you_mean::plain)).
    pub names_elsewhere: Vec<String>,
    /// Rule on whether a run that has begun can continue with another value.
    pub change: Change,
    /// Relations of the key to trained weights.
    weights: Vec<Weights>,
    /// Conditions under which the key has no effect.
    pub idle: Vec<&'static Condition>,
}

/// Rule for changing a key in a run that has begun, given as the schema extension `x-change` at the
/// key's field. A key without a rule has the rule of its section.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Change {
    /// Change is allowed: neither weights nor the order of data depend on the value.
    #[default]
    Free,
    /// Change is allowed if the user accepts that the run is then not the same as before.
    Accepted,
    /// Change is never allowed: the whole random state, or the meaning of every embedding, would
    /// change.
    Never,
}

impl Change {
    fn named(name: &str) -> Option<Self> {
        match name {
            "free" => Some(Self::Free),
            "accepted" => Some(Self::Accepted),
            "never" => Some(Self::Never),
            _ => None,
        }
    }
}

/// Relation of a key of `[model]` to trained weights, given as the schema extension `x-weights` at
/// the key's field or its section. Without a relation, the weights depend on the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Weights {
    /// The key affects only training, or the initial weights, which trained weights replace.
    NoPart,
    /// Only parameters that are not shared by models of different tasks depend on the key.
    OtherPart,
    /// The same trained weights can be used with another value of the key.
    Changeable,
}

impl Weights {
    fn named(name: &str) -> Option<Self> {
        match name {
            "no-part" => Some(Self::NoPart),
            "other-part" => Some(Self::OtherPart),
            "changeable" => Some(Self::Changeable),
            _ => None,
        }
    }
}

/// Allowed values of a key.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Values {
    /// The key is a section and contains other keys.
    Section,
    /// True or false.
    Switch,
    /// Integer in this range.
    Whole(Range),
    /// Number in this range.
    Number(Range),
    /// Any text.
    Text,
    /// One of these names, each with its meaning.
    Choice(Vec<(String, String)>),
    /// Other values, which these words describe.
    Other(String),
}

/// Bounds of a number; `None` for a bound that does not exist.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Range {
    /// Smallest allowed value.
    pub minimum: Option<f64>,
    /// Number that the value must be greater than.
    pub above: Option<f64>,
    /// Largest allowed value.
    pub maximum: Option<f64>,
    /// Number that the value must be less than.
    pub below: Option<f64>,
}

impl Key {
    /// Part of the name after its last dot.
    pub(crate) fn leaf(&self) -> &str {
        self.name.rsplit('.').next().unwrap_or(&self.name)
    }

    /// True if the key is a section.
    pub(crate) fn is_section(&self) -> bool {
        self.values == Values::Section
    }

    /// Name of the section of the key; empty at the root.
    pub(super) fn section(&self) -> &str {
        self.name.rsplit_once('.').map_or("", |(section, _)| section)
    }

    /// True if the key has the relation `relation` to trained weights.
    pub(crate) fn has(&self, relation: Weights) -> bool {
        self.weights.contains(&relation)
    }

    /// True if the key has no effect, because of other keys of `config`.
    pub(crate) fn is_idle(&self, config: &RunConfig) -> bool {
        self.idle.iter().any(|condition| condition.holds(config, self.section()))
    }
}

impl Range {
    fn from_schema(schema: &Value) -> Self {
        let bound = |name: &str| schema.get(name).and_then(Value::as_f64);
        Self {
            minimum: bound("minimum"),
            above: bound("exclusiveMinimum"),
            maximum: bound("maximum"),
            below: bound("exclusiveMaximum"),
        }
    }
}

impl fmt::Display for Range {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.minimum, self.above) {
            (Some(minimum), _) => write!(formatter, " from {minimum}")?,
            (None, Some(above)) => write!(formatter, " above {above}")?,
            (None, None) => {}
        }
        match (self.maximum, self.below) {
            (Some(maximum), _) => write!(formatter, " to {maximum}"),
            (None, Some(below)) => write!(formatter, ", below {below}"),
            (None, None) => Ok(()),
        }
    }
}

impl fmt::Display for Values {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Section => formatter.write_str("a section"),
            Self::Switch => formatter.write_str("true or false"),
            Self::Whole(range) => write!(formatter, "an integer{range}"),
            Self::Number(range) => write!(formatter, "a number{range}"),
            Self::Text => formatter.write_str("text"),
            Self::Choice(choices) => {
                let names: Vec<String> =
                    choices.iter().map(|(name, _)| format!("\"{name}\"")).collect();
                match names.split_last() {
                    Some((last, rest)) if !rest.is_empty() => {
                        write!(formatter, "{} or {last}", rest.join(", "))
                    }
                    _ => formatter.write_str(&names.concat()),
                }
            }
            Self::Other(words) => formatter.write_str(words),
        }
    }
}

/// All keys and sections of a recipe, in the order in which a recipe is written. Each section comes
/// before its keys.
pub(crate) fn keys() -> &'static [Key] {
    static KEYS: LazyLock<Vec<Key>> = LazyLock::new(|| {
        let mut keys = collect(&root(), schema().as_value());
        let written = written_order();
        keys.sort_by_key(|key| place(&key.name, &written));
        keys
    });
    &KEYS
}

/// Key or section with this name; `None` if there is none.
pub(crate) fn key(name: &str) -> Option<&'static Key> {
    keys().iter().find(|key| key.name == name)
}

/// Key with this name or, if there is no such key, the innermost section or list that contains the
/// name. This is needed for names inside lists of corpora, which are not keys of their own.
pub(crate) fn key_around(name: &str) -> Option<&'static Key> {
    let mut name = name;
    loop {
        match (key(name), name.rsplit_once('.')) {
            (Some(key), _) => return Some(key),
            (None, Some((section, _))) => name = section,
            (None, None) => return None,
        }
    }
}

/// JSON Schema of a recipe, with which editors complete and check recipes.
pub fn schema() -> schemars::Schema {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
    });
    settings.into_generator().into_root_schema_for::<RunConfig>()
}

/// Section without a name that contains all keys.
fn root() -> Key {
    Key {
        name: String::new(),
        meaning: String::new(),
        values: Values::Section,
        default: None,
        names_elsewhere: Vec::new(),
        change: Change::default(),
        weights: Vec::new(),
        idle: Vec::new(),
    }
}

/// Keys of `section`, which has the JSON Schema `schema`. A key that is itself a section is
/// followed by its own keys.
fn collect(section: &Key, schema: &Value) -> Vec<Key> {
    let mut keys = Vec::new();
    for (leaf, schema_of_key) in schema["properties"].as_object().into_iter().flatten() {
        let key = described(section, leaf, schema_of_key, &schema[format!("x-idle-{leaf}")]);
        let mut inner = collect(&key, schema_of_key);
        if key.name == CORPORA {
            let forms = schema_of_key["anyOf"].as_array().into_iter().flatten();
            forms.for_each(|form| inner.extend(collect(&key, form)));
        }
        keys.push(key);
        keys.append(&mut inner);
    }
    keys
}

/// Key called `leaf` in `section`, with the JSON Schema `schema`. The key inherits properties of
/// the section, such as the section's conditions. `idle` has further conditions that the section
/// sets for this key alone.
fn described(section: &Key, leaf: &str, schema: &Value, idle: &Value) -> Key {
    let name = match section.name.as_str() {
        "" => leaf.to_owned(),
        section => format!("{section}.{leaf}"),
    };
    let words = |value: &Value| -> Vec<String> {
        let words = value.as_array().into_iter().flatten().filter_map(Value::as_str);
        words.map(str::to_owned).collect()
    };
    let values = values(schema);
    let conditions: Vec<String> = [words(&schema["x-idle"]), words(idle)].concat();
    let is_idle = |condition: &&Condition| {
        conditions.iter().any(|name| name == condition.name)
            || section.idle.iter().any(|of_section| of_section.name == condition.name)
    };
    let own_weights = words(&schema["x-weights"]);
    let own_weights = own_weights.iter().filter_map(|name| Weights::named(name));
    let names = schema["x-names"].as_str().unwrap_or_default();
    Key {
        meaning: meaning(schema),
        default: schema.get("default").filter(|_| values != Values::Section).cloned(),
        values,
        names_elsewhere: names.split_whitespace().map(str::to_owned).collect(),
        change: schema["x-change"].as_str().and_then(Change::named).unwrap_or(section.change),
        weights: section.weights.iter().copied().chain(own_weights).collect(),
        idle: CONDITIONS.iter().filter(is_idle).collect(),
        name,
    }
}

fn values(schema: &Value) -> Values {
    if schema.get("properties").is_some() {
        return Values::Section;
    }
    if let Some(words) = schema["x-values"].as_str() {
        return Values::Other(words.to_owned());
    }
    if let Some(choices) = schema["oneOf"].as_array() {
        let choice = |choice: &Value| Some((choice["const"].as_str()?.to_owned(), meaning(choice)));
        return Values::Choice(choices.iter().filter_map(choice).collect());
    }
    // The schema gives the type of an optional value as a list: its type and null.
    let kind = match &schema["type"] {
        Value::Array(kinds) => kinds.iter().find_map(|kind| kind.as_str().filter(|k| *k != "null")),
        kind => kind.as_str(),
    };
    match kind {
        Some("boolean") => Values::Switch,
        Some("integer") => Values::Whole(Range::from_schema(schema)),
        Some("number") => Values::Number(Range::from_schema(schema)),
        _ => Values::Text,
    }
}

/// Meaning of a key: its doc comment, with each paragraph on one line, and with links replaced by
/// their text.
fn meaning(schema: &Value) -> String {
    let text = schema["description"].as_str().unwrap_or_default();
    let paragraphs = text
        .split("\n\n")
        .map(|paragraph| paragraph.lines().map(str::trim).collect::<Vec<_>>().join(" "));
    without_links(&paragraphs.collect::<Vec<_>>().join("\n"))
}

/// Replaces `` [`A`](b) `` and `` [`A`] `` by `` `A` ``.
fn without_links(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("[`") {
        plain.push_str(&rest[..at]);
        let Some((inside, after)) = rest[at + 1..].split_once(']') else { break };
        plain.push_str(inside);
        rest = match after.strip_prefix('(').and_then(|link| link.split_once(')')) {
            Some((_, after)) => after,
            None => after,
        };
    }
    plain + rest
}

/// Names of keys and sections in the order in which a recipe is written.
fn written_order() -> Vec<String> {
    // Writing the defaults does not fail; a test checks this.
    let text = RunConfig::default().to_toml().unwrap_or_default();
    lines(&text).into_iter().filter_map(|(name, _)| name).collect()
}

/// Lines of a written recipe, each with the name of the key or section that begins there; `None`
/// for other lines.
pub(super) fn lines(text: &str) -> Vec<(Option<String>, &str)> {
    let mut section = String::new();
    let name = |line: &str| {
        if let Some(header) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = header.trim_matches(['[', ']']).to_owned();
            return Some(section.clone());
        }
        let (key, _) = line.split_once(" = ")?;
        // An indented line continues the value of a key, and begins no other key.
        let is_key = key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        is_key.then(|| if section.is_empty() { key.to_owned() } else { format!("{section}.{key}") })
    };
    let mut name = name;
    text.lines().map(|line| (name(line), line)).collect()
}

/// Value by which a name is sorted: its index in `written`. A name that is not in `written` is
/// sorted after the last key of its section or, if no key of the section is written, after the
/// section. If the section is not written either, the one around it counts.
fn place(name: &str, written: &[String]) -> (usize, String) {
    let at = |name: &str| written.iter().position(|other| other == name);
    if let Some(place) = at(name) {
        return (place, String::new());
    }
    let outer = |name: &str| name.rsplit_once('.').map(|(section, _)| section.to_owned());
    let mut sections = std::iter::successors(outer(name), |section| outer(section));
    let last = |section: &String| {
        let of_section = |other: &String| outer(other).as_ref() == Some(section);
        written.iter().rposition(of_section).or_else(|| at(section))
    };
    let last = sections.find_map(|section| last(&section));
    (last.unwrap_or(written.len()), name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_every_section_are_there_and_say_what_they_mean() {
        for (name, values) in [
            ("name", Values::Text),
            ("training", Values::Section),
            ("training.schedule", Values::Section),
            ("data.tokenizer.path", Values::Text),
            ("data.batching.shuffle", Values::Switch),
        ] {
            assert_eq!(key(name).map(|key| &key.values), Some(&values), "{name}");
        }
        for key in keys() {
            assert!(!key.meaning.is_empty() && !key.meaning.contains("[`"), "{key:?}");
        }
        let warmup = key("training.schedule.warmup").expect("a key");
        assert_eq!(warmup.values.to_string(), "an integer from 0");
        assert_eq!(warmup.default, Some(4000.into()));
    }

    #[test]
    fn a_section_comes_before_its_keys_and_keys_as_they_are_written() {
        let names: Vec<&str> = keys().iter().map(|key| key.name.as_str()).collect();
        let at = |name: &str| names.iter().position(|other| *other == name).expect(name);
        assert_eq!(at("name"), 0);
        let order = ["data", "data.train", "data.train.tag", "data.validation", "data.tokenizer"];
        assert!(order.windows(2).all(|pair| at(pair[0]) < at(pair[1])));
        assert_eq!(at("data.tokenizer.target_path"), at("data.tokenizer.path") + 1);
        assert!(at("data.tokenizer.path") < at("data.batching"));
        // Sections that are not written if they have their defaults, one in the other.
        let order = ["decoding", "decoding.reranking", "decoding.reranking.pruning", "evaluation"];
        assert!(order.windows(2).all(|pair| at(pair[0]) < at(pair[1])));
    }

    #[test]
    fn links_into_the_code_are_plain() {
        assert_eq!(
            without_links("see [`A`](crate::A) and [`B`], not [c]"),
            "see `A` and `B`, not [c]"
        );
    }
}
