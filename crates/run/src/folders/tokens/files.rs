//! Files with which a folder of the library Transformers describes its tokens.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use taper_data::{Tokenizer, read_regular};

use super::super::CONFIG;
use super::super::json::without_mark;
use super::{
    ADDED_TOKENS, GENERATION_CONFIG, KEPT, SPECIAL_TOKENS_MAP, TOKENIZER_CONFIG, added_token,
};

/// Classes of tokenizers that take the same arguments as the class of BERT's tokenizer. Each comes
/// with a type of model whose tokenizer has this class by default.
const BERT_CLASSES: [(&str, &str); 5] = [
    ("Bert", "bert"),
    ("DistilBert", "distilbert"),
    ("Electra", "electra"),
    ("MobileBert", "mobilebert"),
    ("ConvBert", "convbert"),
];
/// Classes of tokenizers that take the same arguments as the class of GPT-2's tokenizer. Each comes
/// with a type of model whose tokenizer has this class by default.
const GPT2_CLASSES: [(&str, &str); 6] = [
    ("GPT2", "gpt2"),
    ("GPT2", "gptj"),
    ("GPT2", "phi"),
    ("Roberta", "roberta"),
    ("GPTNeoX", "gpt_neox"),
    ("CodeGen", "codegen"),
];

/// Largest size of a tokenizer's file in bytes.
const MOST_BYTES: u64 = 1 << 30;

/// Text of the file at `path`, without a byte order mark; `None` if there is no such file.
pub(super) fn read_text(path: &Path) -> Result<Option<String>> {
    match read_regular(path, MOST_BYTES) {
        Ok(bytes) => String::from_utf8(without_mark(&bytes).to_vec())
            .map(Some)
            .with_context(|| format!("{}: not valid UTF-8", path.display())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// Content of the files with which a folder describes its tokens.
pub(super) struct Files {
    texts: BTreeMap<&'static str, String>,
    keys: BTreeMap<&'static str, Value>,
}

impl Files {
    /// Reads the files of the folder `source`. `config` is the content of its `config.json`, or
    /// equivalent keys if the folder is not one of Transformers.
    pub(super) fn read(source: &Path, config: &Value) -> Result<Self> {
        let (mut texts, mut keys) = (BTreeMap::new(), BTreeMap::new());
        for name in KEPT.into_iter().chain([ADDED_TOKENS]) {
            let path = source.join(name);
            let Some(text) = read_text(&path)? else { continue };
            if name.ends_with(".json") {
                let read: Value = serde_json::from_str(&text)
                    .with_context(|| format!("{}: not JSON", path.display()))?;
                if !read.is_object() {
                    bail!("{}: not an object of JSON", path.display());
                }
                keys.insert(name, read);
            }
            texts.insert(name, text);
        }
        keys.insert(CONFIG, config.clone());
        Ok(Self { texts, keys })
    }

    /// Content of the JSON file with the name `file`; null if there is no such file.
    pub(super) fn keys(&self, file: &str) -> &Value {
        self.keys.get(file).unwrap_or(&Value::Null)
    }

    /// Settings of generation: those in `generation_config.json` or, if there is no such file, in
    /// `config.json`.
    pub(super) fn generation(&self) -> &Value {
        match self.keys(GENERATION_CONFIG) {
            Value::Null => self.keys(CONFIG),
            settings => settings,
        }
    }

    /// Contents of the files that a later export writes again, by file name.
    pub(super) fn kept(&self) -> BTreeMap<String, String> {
        let kept = self.texts.iter().filter(|(name, _)| KEPT.contains(name));
        kept.map(|(name, text)| ((*name).to_owned(), text.clone())).collect()
    }

    /// Class of the tokenizer in Transformers; empty if the folder does not name it.
    pub(super) fn class(&self) -> &str {
        let named = self.keys(TOKENIZER_CONFIG)["tokenizer_class"].as_str();
        named.or_else(|| self.keys(CONFIG)["tokenizer_class"].as_str()).unwrap_or_default()
    }

    /// Spelling of the special token with a role such as `cls_token`. As in Transformers,
    /// `special_tokens_map.json` takes precedence over a `tokenizer_config.json` without
    /// `added_tokens_decoder`; otherwise, `tokenizer_config.json` takes precedence.
    pub(super) fn named(&self, role: &str) -> Option<&str> {
        let (config, map) = (self.keys(TOKENIZER_CONFIG), self.keys(SPECIAL_TOKENS_MAP));
        let [first, later] = match config["added_tokens_decoder"].is_object() {
            true => [config, map],
            false => [map, config],
        };
        spelling(&first[role]).or_else(|| spelling(&later[role]))
    }

    /// Spellings of all special tokens that the files of the folder name.
    pub(super) fn all_named(&self) -> BTreeSet<&str> {
        let mut names = BTreeSet::new();
        for file in [TOKENIZER_CONFIG, SPECIAL_TOKENS_MAP] {
            for (key, value) in self.keys(file).as_object().into_iter().flatten() {
                match value {
                    Value::Array(list) if key.ends_with("_special_tokens") => {
                        names.extend(list.iter().filter_map(spelling));
                    }
                    Value::Object(named) if key.ends_with("_special_tokens") => {
                        names.extend(named.values().filter_map(spelling));
                    }
                    value if key.ends_with("_token") => names.extend(spelling(value)),
                    _ => {}
                }
            }
        }
        let described = self.keys(TOKENIZER_CONFIG)["added_tokens_decoder"].as_object();
        let special = described.into_iter().flatten().filter(|(_, token)| token["special"] == true);
        names.extend(special.filter_map(|(_, token)| spelling(token)));
        names
    }

    /// Completes `json`, the content of the `tokenizer.json` at `path`, with the added tokens and
    /// the arguments in other files of the folder. Returns it unchanged if they add nothing.
    pub(super) fn completed(&self, json: String, path: &Path) -> Result<String> {
        let not_json = || format!("{}: not JSON", path.display());
        let mut file: Value = serde_json::from_str(&json).with_context(not_json)?;
        if !file.is_object() {
            // The library `tokenizers` reports the fault when it reads the file.
            return Ok(json);
        }
        let changed = [
            self.add_tokens(&mut file, path)?,
            self.set_arguments(&mut file),
            self.drop_first_space(&mut file),
        ];
        Ok(if changed.contains(&true) { serde_json::to_string_pretty(&file)? } else { json })
    }

    /// Adds the added tokens in other files of the folder to `file`. Returns whether there were
    /// any.
    fn add_tokens(&self, file: &mut Value, path: &Path) -> Result<bool> {
        let known: BTreeSet<String> = file["added_tokens"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|token| Some(token["content"].as_str()?.to_owned()))
            .collect();
        let mut added: BTreeMap<u64, Value> = BTreeMap::new();
        let named = self.all_named();
        for (token, id) in self.keys(ADDED_TOKENS).as_object().into_iter().flatten() {
            let id = id.as_u64().with_context(|| format!("{ADDED_TOKENS}: {token:?} has no id"))?;
            added.insert(id, added_token(token, id, named.contains(token.as_str())));
        }
        let described = self.keys(TOKENIZER_CONFIG)["added_tokens_decoder"].as_object();
        for (id, token) in described.into_iter().flatten() {
            let shown = || {
                format!(
                    "{TOKENIZER_CONFIG}: the entry {id} of added_tokens_decoder is not an id with \
                     its token"
                )
            };
            let id: u64 = id.parse().with_context(shown)?;
            let content = spelling(token).with_context(shown)?;
            let mut whole = added_token(content, id, token["special"] == true);
            for key in ["single_word", "lstrip", "rstrip", "normalized"] {
                if token[key].is_boolean() {
                    whole[key] = token[key].clone();
                }
            }
            added.insert(id, whole);
        }
        added.retain(|_, token| !token["content"].as_str().is_some_and(|it| known.contains(it)));
        if added.is_empty() {
            return Ok(false);
        }
        let expected: Vec<(String, u64)> = added
            .iter()
            .filter_map(|(id, token)| Some((token["content"].as_str()?.to_owned(), *id)))
            .collect();
        match &mut file["added_tokens"] {
            Value::Array(tokens) => tokens.extend(added.into_values()),
            none => *none = added.into_values().collect(),
        }
        // The library `tokenizers` assigns ids to added tokens itself, so these ids are compared
        // with those that the folder gives.
        let whole = Tokenizer::of_others(&file.to_string(), path)?;
        for (token, id) in expected {
            if whole.id(&token).map(u64::from) != Some(id) {
                bail!(
                    "{}: the token {token:?} would not have the id {id} that the folder says; save \
                     a fast tokenizer there, which Transformers can",
                    path.display()
                );
            }
        }
        Ok(true)
    }

    /// For tokenizers of BERT's and GPT-2's classes, sets in `file` the arguments that the folder's
    /// other files give. In Transformers, these arguments take precedence over `tokenizer.json`; an
    /// argument that no file gives has its default, which also takes precedence. Returns whether
    /// `file` changed.
    fn set_arguments(&self, file: &mut Value) -> bool {
        let arguments: [(&str, &str, &[_]); 2] = [
            (
                "normalizer",
                "BertNormalizer",
                &[
                    ("do_lower_case", "lowercase", Value::Bool(true)),
                    ("strip_accents", "strip_accents", Value::Null),
                    ("tokenize_chinese_chars", "handle_chinese_chars", Value::Bool(true)),
                ],
            ),
            (
                "pre_tokenizer",
                "ByteLevel",
                &[("add_prefix_space", "add_prefix_space", Value::Bool(false))],
            ),
        ];
        let is_one_of = |classes: &[(&str, &str)]| {
            classes.iter().any(|(class, model)| self.is_of(class, model))
        };
        let bert = is_one_of(&BERT_CLASSES);
        let gpt2 = is_one_of(&GPT2_CLASSES);
        let mut changed = false;
        for ((part, kind, keys), is_made) in arguments.into_iter().zip([bert, gpt2]) {
            if !is_made || file[part]["type"] != kind {
                continue;
            }
            for (key, theirs, usual) in keys {
                let value = self.keys(TOKENIZER_CONFIG).get(key).unwrap_or(usual);
                let is_one = value.is_boolean() || (value.is_null() && *key == "strip_accents");
                if is_one && file[part][theirs] != *value {
                    file[part][theirs] = value.clone();
                    changed = true;
                }
            }
        }
        changed
    }

    /// For a Llama tokenizer whose arguments say that no space is put before a text, removes from
    /// `file` the steps that put it there. Returns whether the arguments say so.
    fn drop_first_space(&self, file: &mut Value) -> bool {
        let adds = &self.keys(TOKENIZER_CONFIG)["add_prefix_space"];
        if !self.class().starts_with("Llama") || *adds != false {
            return false;
        }
        for (list, of_space) in
            [("/normalizer/normalizers", "Prepend"), ("/decoder/decoders", "Strip")]
        {
            if let Some(Value::Array(parts)) = file.pointer_mut(list) {
                parts.retain(|part| part["type"] != of_space);
            }
        }
        for part in ["pre_tokenizer", "decoder"] {
            if file[part]["type"] == "Metaspace" {
                file[part]["prepend_scheme"] = "never".into();
            }
        }
        true
    }

    /// Whether the tokenizer's class begins with `class`. If the folder does not name the class,
    /// returns whether the type of its model is `model`.
    pub(super) fn is_of(&self, class: &str, model: &str) -> bool {
        let named = self.class();
        named.starts_with(class) || (named.is_empty() && self.keys(CONFIG)["model_type"] == model)
    }
}

/// Spelling of a token, which is given as a string or as an object with the key `content`.
pub(super) fn spelling(token: &Value) -> Option<&str> {
    token.as_str().or_else(|| token["content"].as_str())
}
