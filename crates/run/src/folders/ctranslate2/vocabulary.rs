//! Lists of tokens (vocabularies) in a folder of CTranslate2, and the tokenizers that have these
//! tokens.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use taper_data::{Tokenizer, TokenizerPair, read_regular};

use super::shape::{EMBEDDING, OF_SOURCE};
use crate::config::RunConfig;
use crate::event::Notice;
use crate::folders::MOST_BYTES;
use crate::folders::tokens::{self, TokenizerFiles};
use crate::folders::weights::Weights;

/// File names that Taper's export gives to the tokenizers of a model with separate vocabularies for
/// source and target.
const OF_SIDES: [&str; 2] = ["tokenizer.source.json", "tokenizer.target.json"];
/// Names of files with tokenizers, for the error when a folder has no tokenizer.
const TOKENIZERS: &str =
    "tokenizer.json, source.spm with target.spm, spiece.model or sentencepiece.bpe.model";

/// Beginnings of the placeholders that stand in a list for ids without a token.
const ROW: &str = "<row ";
const GAP: &str = " gap ";

/// Token in an entry of a list; `None` if the entry is a placeholder for an id without a token. In
/// the vocabulary of one language, a leading space marks a token that only the other language has;
/// this space is removed.
fn bare(token: &str) -> Option<&str> {
    let is_token = !token.starts_with(ROW) && !token.starts_with(GAP);
    is_token.then(|| token.strip_prefix(' ').filter(|rest| !rest.is_empty()).unwrap_or(token))
}

/// Tokens of the source and of the target language, in the order of their ids.
pub(super) struct Vocabulary {
    source: Vec<String>,
    /// Tokens of the target language; `None` if both languages have the same list.
    target: Option<Vec<String>>,
}

impl Vocabulary {
    /// Reads the lists of tokens in the folder `source`.
    ///
    /// # Errors
    /// When there is no list, or a list is damaged.
    pub(super) fn read(source: &Path, translates: bool) -> Result<Self> {
        let shared = if translates { "shared_vocabulary" } else { "vocabulary" };
        if let Some(list) = list(source, shared)? {
            return Ok(Self { source: list, target: None });
        }
        let [of_source, of_target] = ["source_vocabulary", "target_vocabulary"];
        match (list(source, of_source)?, list(source, of_target)?) {
            (Some(of_source), Some(of_target)) if translates => {
                let both = of_source.iter().zip(&of_target);
                let is_same = of_source.len() == of_target.len()
                    && both.clone().all(|(one, other)| {
                        one == other
                            || bare(one).zip(bare(other)).is_none_or(|(one, other)| one == other)
                    });
                if !is_same {
                    return Ok(Self { source: of_source, target: Some(of_target) });
                }
                let tokens = both.map(|(one, other)| bare(one).or(bare(other)).unwrap_or(one));
                Ok(Self { source: tokens.map(str::to_owned).collect(), target: None })
            }
            _ => bail!("{}: has no {shared}.json, the list of its tokens", source.display()),
        }
    }

    /// Adds `<pad>`, the token that Marian's decoder reads first, to each list. If a list already
    /// has this token, adds a placeholder to it instead.
    pub(super) fn add_start(&mut self) {
        for list in std::iter::once(&mut self.source).chain(self.target.as_mut()) {
            let is_taken = list.iter().any(|token| token == "<pad>");
            list.push(if is_taken { format!("{ROW}{}>", list.len()) } else { "<pad>".to_owned() });
        }
    }

    pub(super) fn target(&self) -> &[String] {
        self.target.as_ref().unwrap_or(&self.source)
    }

    /// Refuses lists that do not have exactly one token for each row of the embeddings.
    ///
    /// # Errors
    /// When the number of tokens differs from the number of rows. The message has both numbers.
    pub(super) fn require_rows(
        &self,
        source: &Path,
        weights: &Weights,
        translates: bool,
    ) -> Result<()> {
        let of_source = translates.then_some((OF_SOURCE, self.source.as_slice()));
        for (name, tokens) in of_source.into_iter().chain([(EMBEDDING, self.target())]) {
            let rows = weights.shape(name).and_then(|shape| shape.first().copied());
            let rows = rows.with_context(|| format!("has no tensor {name}"))?;
            if rows != tokens.len() {
                bail!(
                    "{}: its vocabulary has {} tokens, but {name} has {rows} rows",
                    source.display(),
                    tokens.len()
                );
            }
        }
        Ok(())
    }

    /// Converts `keys`, the content of CTranslate2's `config.json`, to the keys of the library
    /// Transformers. `never` has the ids of the tokens that the model never writes.
    ///
    /// # Errors
    /// When a special token is not in the vocabulary.
    pub(super) fn config(
        &self,
        keys: &Value,
        starts_from_zero: bool,
        never: &[usize],
    ) -> Result<Value> {
        let target = self.target();
        let id = |key: &str, usual: Option<&str>| -> Result<Value> {
            let Some(token) = keys[key].as_str().or(usual) else { return Ok(Value::Null) };
            let id = target.iter().position(|one| one == token);
            match (id, keys[key].is_null()) {
                (Some(id), _) => Ok(json!(id)),
                // Converters write the usual token into the file even if the model does not have
                // it.
                (None, _) if token.is_empty() || key == "bos_token" => Ok(Value::Null),
                (None, true) => Ok(Value::Null),
                (None, false) => bail!("config.json: {key} is {token:?}, which is not a token"),
            }
        };
        let size = target.len();
        let mut config = json!({
            "vocab_size": size,
            "eos_token_id": id("eos_token", Some("</s>"))?,
            "bos_token_id": id("bos_token", Some("<s>"))?,
            "decoder_start_token_id": id("decoder_start_token", None)?,
        });
        if starts_from_zero {
            config["pad_token_id"] = json!(size - 1);
            config["decoder_start_token_id"] = json!(size - 1);
        }
        if !never.is_empty() {
            config["bad_words_ids"] = never.iter().map(|id| json!([id])).collect();
        }
        config
            .as_object_mut()
            .into_iter()
            .for_each(|keys| keys.retain(|_, value| !value.is_null()));
        Ok(config)
    }

    /// Reads the tokenizers of the folder `source`, and returns them with the kind of their files.
    ///
    /// # Errors
    /// When there is no tokenizer, or its tokens differ from the lists.
    pub(super) fn tokenizers(
        &self,
        source: &Path,
        config: &Value,
        recipe: &RunConfig,
        asked: [Option<&str>; 2],
        notices: &mut Vec<Notice>,
    ) -> Result<(TokenizerPair, TokenizerFiles)> {
        let has = |name: &str| source.join(name).exists();
        let row_kind = (recipe.task, recipe.model.segments);
        let size = self.target().len();
        let is_missing = ["tokenizer.json", "spiece.model", "sentencepiece.bpe.model"];
        let pair = if has("source.spm") || has("target.spm") {
            let lists: Vec<&[String]> =
                std::iter::once(&*self.source).chain(self.target.as_deref()).collect();
            let sizes: Vec<usize> = lists.iter().map(|list| list.len()).collect();
            let texts = lists.into_iter().map(ids).collect::<Result<_>>()?;
            tokens::read_sides((source, config), &sizes, Some(texts))?
        } else if OF_SIDES.into_iter().all(has) {
            let sizes = [self.source.len(), size];
            let mut side = |at: usize| {
                tokens::read_file((source, config), OF_SIDES[at], sizes[at], row_kind, notices)
            };
            TokenizerPair::separate(side(0)?, side(1)?)
        } else if is_missing.into_iter().any(has) {
            tokens::read((source, config), size, row_kind, notices)?
        } else {
            bail!(
                "{}: has no tokenizer, since CTranslate2 takes tokens and not text; copy the \
                 original model's tokenizer ({TOKENIZERS}) into the folder, as its converters do \
                 with --copy_files",
                source.display()
            )
        };
        for (tokenizer, list) in [(pair.source(), &*self.source), (pair.target(), self.target())] {
            require_same(tokenizer, list).with_context(|| source.display().to_string())?;
        }
        let kind = match has("source.spm") {
            true => TokenizerFiles::Sides,
            false => tokens::kind_of((source, config), pair.target(), asked)?,
        };
        Ok((pair, kind))
    }
}

/// Content of a file `vocab.json` with the tokens of a list and their ids.
fn ids(list: &[String]) -> Result<String> {
    let tokens = list.iter().enumerate();
    let ids: BTreeMap<&str, usize> =
        tokens.filter_map(|(id, token)| Some((bare(token)?, id))).collect();
    Ok(serde_json::to_string(&ids)?)
}

/// Refuses a tokenizer that has, for some id, another token than the list.
fn require_same(tokenizer: &Tokenizer, list: &[String]) -> Result<()> {
    for (id, token) in list.iter().enumerate() {
        let own_token = tokenizer.token(id as u32).unwrap_or_default();
        if let (Some(own_token), Some(token)) = (bare(&own_token), bare(token))
            && !own_token.is_empty()
            && own_token != token
        {
            bail!(
                "its tokenizer has the token {own_token:?} as {id}, but its vocabulary has {token:?}"
            );
        }
    }
    Ok(())
}

/// Reads a list of tokens from the file `name` with the ending `.json` (a JSON list) or `.txt` (one
/// token on each line); `None` if there is no such file.
fn list(source: &Path, name: &str) -> Result<Option<Vec<String>>> {
    for ending in ["json", "txt"] {
        let path = source.join(format!("{name}.{ending}"));
        let bytes = match read_regular(&path, MOST_BYTES) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read {}", path.display()));
            }
        };
        let shown = || format!("{}: not a list of tokens", path.display());
        return match ending {
            "json" => serde_json::from_slice(&bytes).map(Some).with_context(shown),
            _ => {
                let text = String::from_utf8(bytes).with_context(shown)?;
                let lines = text.strip_suffix('\n').unwrap_or(&text).split('\n');
                Ok(Some(lines.map(str::to_owned).collect()))
            }
        };
    }
    Ok(None)
}
