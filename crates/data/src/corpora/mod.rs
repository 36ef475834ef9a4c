//! Places from which the sentence pairs of a split are read. A corpus is a name in the corpus
//! folder, a pair of files, or a table; a split may have several corpora.

mod corpus;
mod directions;
mod expansion;
mod files;
mod patterns;

use std::fmt;
use std::ops::Deref;
use std::path::PathBuf;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use self::corpus::Corpus;
pub(crate) use self::expansion::{expand_pairs, expand_texts};
pub use self::files::FileList;
pub(crate) use self::patterns::{NO_MATCH, is_pattern};
use crate::{Error, Result};

/// Corpora of a split, in order; may be empty.
///
/// In a recipe (the TOML file with all settings of a training), a single corpus is a name or a
/// table, and several corpora are a list of names and tables.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Corpora(pub Vec<Corpus>);

impl Corpora {
    /// Name of the split: the names of its corpora, joined by `+`.
    pub fn name(&self) -> String {
        self.iter().map(Corpus::name).collect::<Vec<_>>().join("+")
    }

    /// All paths of the corpora, so that the caller can resolve relative paths.
    pub fn paths_mut(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        self.0.iter_mut().flat_map(Corpus::files_mut).flat_map(|files| files.iter_mut())
    }

    /// Copy of the corpora without their paths.
    #[must_use]
    pub fn without_paths(&self) -> Self {
        let mut plain = self.clone();
        for files in plain.0.iter_mut().flat_map(Corpus::files_mut) {
            *files = FileList::default();
        }
        plain
    }

    /// Refuses impossible corpora without reading any file. `key` is the key of the split. A weight
    /// other than 1 is allowed only if `of_training` is true.
    pub(crate) fn validate(&self, key: &'static str, of_training: bool) -> Result<()> {
        self.iter().try_for_each(|corpus| corpus.validate(key, of_training))
    }

    /// Refuses corpora that set other keys than `stem`, `file` and `name`, because the other keys
    /// are only for sentence pairs. `instead` is the end of the error message, which says what is
    /// allowed in this task.
    pub(crate) fn require_plain(&self, key: &'static str, instead: &str) -> Result<()> {
        let plain = |corpus: &Corpus| Corpus {
            stem: corpus.stem.clone(),
            file: corpus.file.clone(),
            name: corpus.name.clone(),
            ..Corpus::default()
        };
        if self.iter().all(|corpus| *corpus == plain(corpus)) {
            return Ok(());
        }
        Err(Error::Config {
            key,
            message: format!("has a key that is only for sentence pairs; {instead}"),
        })
    }
}

impl Deref for Corpora {
    type Target = [Corpus];

    fn deref(&self) -> &[Corpus] {
        &self.0
    }
}

impl From<&str> for Corpora {
    /// Makes a single corpus with the stem `stem`, or no corpus if `stem` is empty.
    fn from(stem: &str) -> Self {
        Self(if stem.is_empty() { Vec::new() } else { vec![Corpus::of_stem(stem)] })
    }
}

impl From<&String> for Corpora {
    fn from(stem: &String) -> Self {
        Self::from(stem.as_str())
    }
}

impl From<&Corpus> for Corpora {
    fn from(corpus: &Corpus) -> Self {
        Self(vec![corpus.clone()])
    }
}

impl From<&Corpora> for Corpora {
    fn from(corpora: &Corpora) -> Self {
        corpora.clone()
    }
}

impl Serialize for Corpora {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let stem = |corpus: &Corpus| {
            (*corpus == Corpus::of_stem(&corpus.stem)).then(|| corpus.stem.clone())
        };
        match self.0.as_slice() {
            [] => serializer.serialize_str(""),
            [one] => match stem(one) {
                Some(stem) => serializer.serialize_str(&stem),
                None => one.serialize(serializer),
            },
            several => match several.iter().map(stem).collect::<Option<Vec<String>>>() {
                Some(stems) => stems.serialize(serializer),
                None => several.serialize(serializer),
            },
        }
    }
}

impl<'de> Deserialize<'de> for Corpora {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Several;

        impl<'de> Visitor<'de> for Several {
            type Value = Corpora;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a corpus, or a list of them: ")?;
                One.expecting(formatter)
            }

            fn visit_str<E: serde::de::Error>(self, stem: &str) -> Result<Corpora, E> {
                Ok(Corpora::from(stem))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Corpora, A::Error> {
                One.visit_map(map).map(|corpus| Corpora(vec![corpus.0]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Corpora, A::Error> {
                let mut corpora = Vec::new();
                while let Some(Named(corpus)) = list.next_element()? {
                    corpora.push(corpus);
                }
                Ok(Corpora(corpora))
            }
        }

        deserializer.deserialize_any(Several)
    }
}

/// A corpus as it is written in a list of a recipe: a name or a table.
struct Named(Corpus);

impl<'de> Deserialize<'de> for Named {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(One)
    }
}

struct One;

impl<'de> Visitor<'de> for One {
    type Value = Named;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(
            "a name in data.dir, { source = \"a.txt\", target = \"b.txt\" }, or { file = \
             \"table.tsv\" }",
        )
    }

    fn visit_str<E: serde::de::Error>(self, stem: &str) -> Result<Named, E> {
        if stem.is_empty() {
            return Err(E::custom("a corpus in a list has a name"));
        }
        Ok(Named(Corpus::of_stem(stem)))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Named, A::Error> {
        Corpus::deserialize(MapAccessDeserializer::new(map)).map(Named)
    }
}

impl JsonSchema for Corpora {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Corpora".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let corpus = generator.subschema_for::<Corpus>();
        let one = json_schema!({ "anyOf": [{ "type": "string" }, corpus] });
        json_schema!({
            "x-values": "a corpus or a list of them",
            "anyOf": [{ "type": "string" }, corpus, { "type": "array", "items": one }]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DataConfig, Format};

    fn train(value: serde_json::Value) -> Result<Corpora, String> {
        serde_json::from_value(value).map_err(|error| error.to_string())
    }

    #[test]
    fn a_name_a_table_and_a_list_are_corpora_and_are_written_as_they_were() {
        for value in [
            serde_json::json!("train"),
            serde_json::json!(""),
            serde_json::json!(["a", "b"]),
            serde_json::json!({ "source": "a.txt", "target": "b.txt" }),
            serde_json::json!({ "source": ["a.txt", "c.txt"], "target": ["b.*", "d"] }),
            serde_json::json!([
                { "file": ["a.tsv", "c.tsv"], "weight": 2.0, "tag": "<a>" },
                { "stem": "b", "fields": { "source": "3", "target": "1" } }
            ]),
        ] {
            let corpora = train(value.clone()).unwrap();
            assert_eq!(serde_json::to_value(&corpora).unwrap(), value);
        }
        assert!(train(serde_json::json!({ "sorce": "a" })).unwrap_err().contains("sorce"));
        assert!(train(serde_json::json!(3)).unwrap_err().contains("{ file = \"table.tsv\" }"));
    }

    #[test]
    fn each_corpus_has_a_name_and_a_format() {
        let config = DataConfig::default();
        let corpora = train(serde_json::json!([
            "sub/train",
            { "source": "x/a.en.gz", "target": "x/a.de.gz" },
            { "file": "pairs.csv.zst" },
            { "file": "pairs.csv", "name": "mine" },
            { "source": ["news.00.en", "news.01.en"], "target": ["a", "b"] },
            { "file": ["1.csv.gz", "2.csv"] }
        ]))
        .unwrap();
        assert_eq!(corpora.name(), "sub/train+a+pairs+mine+news+1");
        let formats: Vec<Format> =
            corpora.iter().map(|corpus| corpus.format(&config).unwrap()).collect();
        assert_eq!(
            formats,
            [Format::Text, Format::Text, Format::Csv, Format::Csv, Format::Text, Format::Csv]
        );
        let mixed =
            Corpus { file: vec!["a.csv".into(), "b.tsv".into()].into(), ..Corpus::default() };
        let message = mixed.format(&config).unwrap_err().to_string();
        assert!(message.contains("b.tsv: is another kind of file than a.csv"), "{message}");
        let unknown = Corpus { file: "pairs.dat".into(), ..Corpus::default() };
        assert!(unknown.format(&config).unwrap_err().to_string().contains(".jsonl"));
        let config = DataConfig { format: Format::Tsv, ..config };
        assert_eq!(unknown.format(&config).unwrap(), Format::Tsv);
    }

    #[test]
    fn what_cannot_be_a_corpus_is_refused() {
        for (value, phrase) in [
            (serde_json::json!({ "source": "a.txt" }), "needs both"),
            (serde_json::json!({ "stem": "a", "file": "b.tsv" }), "needs one place"),
            (serde_json::json!({ "weight": 2.0 }), "needs one place"),
            (serde_json::json!({ "source": "a", "target": "a" }), "the same file"),
            (serde_json::json!({ "source": ["a", "b"], "target": ["c", "b"] }), "the same file"),
            (
                serde_json::json!({ "source": ["a", "b"], "target": "c" }),
                "source names 2 files, but target names 1",
            ),
            (serde_json::json!({ "stem": "a", "weight": 0.0 }), "above 0"),
            (serde_json::json!({ "stem": "a", "tag": "news" }), "angle brackets"),
            (serde_json::json!({ "stem": "a", "tag": "<s>" }), "no special token"),
        ] {
            let error = train(value).unwrap().validate("data.train", true).unwrap_err().to_string();
            assert!(error.starts_with("data.train: ") && error.contains(phrase), "{error}");
        }
        let heavy = train(serde_json::json!({ "stem": "a", "weight": 2.0 })).unwrap();
        assert!(heavy.validate("data.train", true).is_ok());
        assert!(heavy.validate("data.test", false).is_err());
    }
}
