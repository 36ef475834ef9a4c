//! Where pairs of sentences lie: a name in the corpus folder, two files, one table, or several of
//! these.

use std::fmt;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{DataConfig, Error, FieldsConfig, Format, Result};

/// Endings of compressed files, which are read as what is in them.
pub(crate) const COMPRESSED: [&str; 2] = ["gz", "zst"];

/// The weight that counts as one pass over a corpus an epoch.
const ONCE: f64 = 1.0;

/// More often than this an epoch goes through no corpus.
const HEAVIEST: f64 = 1000.0;

/// One corpus of sentence pairs: where it lies, and how training takes it.
///
/// It lies in the files of a `stem` in `data.dir`, in two files `source` and `target` with a
/// sentence a line, or in one table `file`. Compressed files may end in `.gz` or `.zst`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Corpus {
    /// The stem of its files in `data.dir`, which a name in place of this table says as well.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub stem: String,
    /// The file with the sentences to translate, one a line.
    #[serde(skip_serializing_if = "is_empty")]
    pub source: PathBuf,
    /// The file with their translations, one a line.
    #[serde(skip_serializing_if = "is_empty")]
    pub target: PathBuf,
    /// A table with both sides: `.tsv`, `.csv`, `.jsonl` or `.parquet`.
    #[serde(skip_serializing_if = "is_empty")]
    pub file: PathBuf,
    /// The columns or fields of the table; where these name none, `data.fields` does.
    #[serde(skip_serializing_if = "FieldsConfig::is_default")]
    pub fields: FieldsConfig,
    /// What it is called in reports, and what its translations are called. Empty: the stem, or the
    /// name of the table or of the source file.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// How often an epoch goes through this corpus, if it is one of training: 2 takes each pair
    /// twice, 0.25 a quarter of them, drawn anew in each epoch.
    #[serde(skip_serializing_if = "is_once")]
    #[schemars(range(max = 1000.0), extend("exclusiveMinimum" = 0.0))]
    pub weight: f64,
    /// A mark such as `<news>` that stands before each source sentence, so that the model can tell
    /// this corpus from others, and a text to translate can say which it is like (Kobus et al.
    /// 2017, "Domain Control for Neural Machine Translation"). A tokenizer that is trained here
    /// has a token for it. Empty for none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub tag: String,
    /// A file with the word links of each pair, a line for each, such as `0-0 1-2`: words of the
    /// source and of the target, counted from 0 and divided by white space. For
    /// `training.guided_alignment`.
    #[serde(skip_serializing_if = "is_empty")]
    pub links: PathBuf,
}

impl Default for Corpus {
    fn default() -> Self {
        Self {
            stem: String::new(),
            source: PathBuf::new(),
            target: PathBuf::new(),
            file: PathBuf::new(),
            fields: FieldsConfig::default(),
            name: String::new(),
            weight: ONCE,
            tag: String::new(),
            links: PathBuf::new(),
        }
    }
}

fn is_empty(path: &Path) -> bool {
    path.as_os_str().is_empty()
}

fn is_once(weight: &f64) -> bool {
    *weight == ONCE
}

impl Corpus {
    /// The corpus in the files of `stem` in the corpus folder.
    pub fn of_stem(stem: &str) -> Self {
        Self { stem: stem.to_owned(), ..Self::default() }
    }

    /// What it is called.
    pub fn name(&self) -> String {
        if !self.name.is_empty() {
            return self.name.clone();
        }
        if !self.stem.is_empty() {
            return self.stem.clone();
        }
        let file = if is_empty(&self.file) { &self.source } else { &self.file };
        let plain = uncompressed(file);
        plain.file_stem().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Whether its pairs have word links.
    pub fn has_links(&self) -> bool {
        !is_empty(&self.links)
    }

    /// How its pairs are stored.
    ///
    /// # Errors
    ///
    /// [`Error::Malformed`] where neither the name of the table nor the configuration says it.
    pub(crate) fn format(&self, config: &DataConfig) -> Result<Format> {
        if !is_empty(&self.source) {
            return Ok(Format::Text);
        }
        if is_empty(&self.file) {
            return Ok(config.format);
        }
        let plain = uncompressed(&self.file);
        let of_name = plain.extension().and_then(|extension| extension.to_str());
        match (of_name.map(str::to_lowercase).as_deref(), config.format) {
            (Some("tsv" | "tab"), _) => Ok(Format::Tsv),
            (Some("csv"), _) => Ok(Format::Csv),
            (Some("jsonl" | "ndjson"), _) => Ok(Format::Jsonl),
            (Some("parquet"), _) => Ok(Format::Parquet),
            (_, Format::Text | Format::Hub) => Err(Error::Malformed {
                path: self.file.clone(),
                message: "its name does not say what kind of table it is: call it .tsv, .csv, .jsonl or .parquet, or set data.format; two files with a sentence a line are { source = \"…\", target = \"…\" }".to_owned(),
            }),
            (_, format) => Ok(format),
        }
    }

    /// The columns or fields of its table.
    pub(crate) fn fields<'a>(&'a self, config: &'a DataConfig) -> &'a FieldsConfig {
        if self.fields.is_default() { &config.fields } else { &self.fields }
    }

    /// Refuses what cannot be a corpus; `key` is where it stands, and only training has weights.
    fn validate(&self, key: &'static str, of_training: bool) -> Result<()> {
        let wrong = |message: String| Err(Error::Config { key, message });
        let given = [!self.stem.is_empty(), !is_empty(&self.source), !is_empty(&self.file)];
        if is_empty(&self.source) != is_empty(&self.target) {
            return wrong(
                "names one of source and target; a corpus of two files needs both".to_owned(),
            );
        }
        if given.iter().filter(|given| **given).count() != 1 {
            return wrong(
                "each corpus needs one place: a name in data.dir, { source = \"a.txt\", target = \"b.txt\" }, or { file = \"table.tsv\" }".to_owned(),
            );
        }
        if !is_empty(&self.source) && self.source == self.target {
            return wrong("source and target are the same file".to_owned());
        }
        if !(self.weight > 0.0 && self.weight <= HEAVIEST) {
            return wrong(format!(
                "weight = {:?}: it must be above 0 and at most {HEAVIEST}",
                self.weight
            ));
        }
        if self.weight != ONCE && !of_training {
            return wrong(
                "weights are for data.train: each pair of this set counts once".to_owned(),
            );
        }
        let inner = self.tag.strip_prefix('<').and_then(|rest| rest.strip_suffix('>'));
        let is_mark = inner.is_some_and(|inner| {
            !inner.is_empty()
                && !inner.contains(['<', '>'])
                && !inner.contains(char::is_whitespace)
                && crate::text::tokenizer::is_text(&self.tag)
        });
        if !self.tag.is_empty() && !is_mark {
            return wrong(format!(
                "tag = {:?}: a tag is a word in angle brackets, such as \"<news>\", and no \
                 special token",
                self.tag
            ));
        }
        Ok(())
    }
}

/// A path without the ending of a compressed file.
fn uncompressed(path: &Path) -> PathBuf {
    let is_compressed = path.extension().is_some_and(|extension| {
        COMPRESSED.iter().any(|compressed| extension.eq_ignore_ascii_case(compressed))
    });
    if is_compressed { path.with_extension("") } else { path.to_owned() }
}

/// The corpora of a split, one after the other; none where the list is empty.
///
/// A recipe writes one as a name or as a table, and several as a list of these.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Corpora(pub Vec<Corpus>);

impl Corpora {
    /// What the split is called: the names of its corpora.
    pub fn name(&self) -> String {
        self.iter().map(Corpus::name).collect::<Vec<_>>().join("+")
    }

    /// The paths in it, for whoever knows what they are relative to.
    pub fn paths_mut(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        let paths = self.0.iter_mut().flat_map(|corpus| {
            let Corpus { source, target, file, links, .. } = corpus;
            [source, target, file, links]
        });
        paths.filter(|path| !is_empty(path))
    }

    /// Refuses what cannot be read, before any file is touched.
    pub(crate) fn validate(&self, key: &'static str, of_training: bool) -> Result<()> {
        self.iter().try_for_each(|corpus| corpus.validate(key, of_training))
    }

    /// Refuses corpora that say more than which file they are, as those of sentence pairs may.
    /// `instead` is what this task has.
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
        Err(Error::Config { key, message: format!("names what is for sentence pairs; {instead}") })
    }
}

impl Deref for Corpora {
    type Target = [Corpus];

    fn deref(&self) -> &[Corpus] {
        &self.0
    }
}

impl From<&str> for Corpora {
    /// The one corpus of this stem; none where it is empty.
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

/// A corpus as it stands in a list.
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
            serde_json::json!([
                { "file": "a.tsv", "weight": 2.0, "tag": "<a>" },
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
            { "file": "pairs.csv", "name": "mine" }
        ]))
        .unwrap();
        assert_eq!(corpora.name(), "sub/train+a+pairs+mine");
        let formats: Vec<Format> =
            corpora.iter().map(|corpus| corpus.format(&config).unwrap()).collect();
        assert_eq!(formats, [Format::Text, Format::Text, Format::Csv, Format::Csv]);
        let unknown = Corpus { file: "pairs.dat".into(), ..Corpus::default() };
        assert!(unknown.format(&config).unwrap_err().to_string().contains(".jsonl"));
        let config = DataConfig { format: Format::Tsv, ..config };
        assert_eq!(unknown.format(&config).unwrap(), Format::Tsv);
    }

    #[test]
    fn what_cannot_be_a_corpus_is_refused() {
        for (value, said) in [
            (serde_json::json!({ "source": "a.txt" }), "needs both"),
            (serde_json::json!({ "stem": "a", "file": "b.tsv" }), "needs one place"),
            (serde_json::json!({ "weight": 2.0 }), "needs one place"),
            (serde_json::json!({ "source": "a", "target": "a" }), "the same file"),
            (serde_json::json!({ "stem": "a", "weight": 0.0 }), "above 0"),
            (serde_json::json!({ "stem": "a", "tag": "news" }), "angle brackets"),
            (serde_json::json!({ "stem": "a", "tag": "<s>" }), "no special token"),
        ] {
            let error = train(value).unwrap().validate("data.train", true).unwrap_err().to_string();
            assert!(error.starts_with("data.train: ") && error.contains(said), "{error}");
        }
        let heavy = train(serde_json::json!({ "stem": "a", "weight": 2.0 })).unwrap();
        assert!(heavy.validate("data.train", true).is_ok());
        assert!(heavy.validate("data.test", false).is_err());
    }
}
