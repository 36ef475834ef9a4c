//! Reading of the tokenizer in a folder of the library Transformers, and of its special tokens.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use taper_data::{FolderTokens, SpecialTokens, Task, Tokenizer, TokenizerPair};

use super::super::CONFIG;
use super::files::{Files, read_text, spelling};
use super::marks::{
    CLASSES, MASKS, Rows, SEPARATORS, is_doubled, post_processor, require_marks, template,
};
use super::{GENERATION_CONFIG, ID_KEY, TOKENIZER, TOKENIZER_CONFIG, vocabulary};
use crate::event::{Notice, RecipeNotice};
use crate::tasks::entry;

/// Usual spellings of the padding token, for folders that do not name it.
const PADS: [&str; 2] = ["[PAD]", "<pad>"];
/// Usual spellings of the end token, for folders that do not name it.
const ENDS: [&str; 2] = ["<|endoftext|>", "</s>"];

/// Reads the tokenizer of the folder `source`, whose `config.json` is `config`. `size` is the
/// number of rows in the model's embedding, which needs a row for each token. `row_kind` is the
/// model's task and its number of segments. Messages are added to `notices`.
///
/// # Errors
/// When the tokenizer is missing or damaged, has more tokens than the model has rows, or lacks a
/// token that the task needs.
pub(in super::super) fn read(
    (source, config): (&Path, &Value),
    size: usize,
    row_kind: (Task, usize),
    notices: &mut Vec<Notice>,
) -> Result<TokenizerPair> {
    let tokenizer = read_file((source, config), TOKENIZER, size, row_kind, notices)?;
    Ok(TokenizerPair::joint(tokenizer))
}

/// Reads a tokenizer like [`read`], but from the file `name` or, if this file is missing, from the
/// vocabulary files of a slow tokenizer.
///
/// # Errors
/// See [`read`].
pub(in super::super) fn read_file(
    (source, config): (&Path, &Value),
    name: &str,
    size: usize,
    (task, segments): (Task, usize),
    notices: &mut Vec<Notice>,
) -> Result<Tokenizer> {
    let files = Files::read(source, config)?;
    let (path, json) = match read_text(&source.join(name))? {
        Some(json) => (source.join(name), json),
        None => vocabulary::tokenizer_json(source, &files)?,
    };
    let (mut kept, binary_files) = (files.kept(), vocabulary::kept(source)?);
    if !binary_files.is_empty() && path.ends_with(TOKENIZER) {
        kept.insert(TOKENIZER.to_owned(), json.clone());
    }
    let json = files.completed(json, &path)?;
    let tokenizer = Tokenizer::of_others(&json, &path)?;
    let config = source.join(CONFIG);
    if tokenizer.vocabulary_size() > size {
        bail!(
            "{}: vocab_size is {size}, but {} has {} tokens; Transformers' \
             model.resize_token_embeddings makes rows for all of them",
            config.display(),
            path.file_name().unwrap_or_default().to_string_lossy(),
            tokenizer.vocabulary_size()
        );
    }
    let file: Value =
        serde_json::from_str(&json).with_context(|| format!("{}: not JSON", path.display()))?;
    let names = Names { files: &files, tokenizer: &tokenizer, size, task };
    let mut special = names.special(&file).with_context(|| source.display().to_string())?;
    if special.ends.is_empty() {
        bail!(
            "{}: no token ends a text: eos_token_id is missing or no token of the vocabulary, and \
             {TOKENIZER_CONFIG} names no eos_token; add eos_token_id",
            config.display()
        );
    }
    require_marks(&special, task).with_context(|| path.display().to_string())?;
    let rows = Rows::read(&file, &files, &special);
    special.shared_segment = segments > 1 && rows.shared_segment;
    let others = rows.difference(task, segments);
    let note = |reason| format!("{}: {reason}", path.display());
    notices.extend(others.map(|reason| RecipeNotice::WithoutEffect(note(reason)).into()));
    let folder = FolderTokens {
        vocabulary_size: size,
        without_row: 0,
        // For these folders, Transformers divides text with the library `tokenizers`, and not with
        // SentencePiece.
        sentence_piece_forms: false,
        special,
        ids: token_ids(&files),
        files: kept,
        binary_files,
    };
    Ok(tokenizer.with_folder(&folder)?)
}

/// Copies those entries of `config.json` whose values are ids of tokens, such as `eos_token_id`.
fn token_ids(files: &Files) -> BTreeMap<String, Value> {
    let keys = files.keys(CONFIG).as_object().into_iter().flatten();
    let of_tokens = keys.filter(|(key, _)| key.ends_with(ID_KEY));
    of_tokens.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Sources from which the roles of tokens are read.
struct Names<'a> {
    files: &'a Files,
    tokenizer: &'a Tokenizer,
    size: usize,
    task: Task,
}

impl Names<'_> {
    /// Finds the special tokens with their roles; `file` is the content of `tokenizer.json`.
    fn special(&self, file: &Value) -> Result<SpecialTokens> {
        let keys = self.files.keys(CONFIG);
        let generation = self.files.keys(GENERATION_CONFIG);
        let (class, separator) = self.marks(file);
        let mut ends = self.ids(GENERATION_CONFIG, &generation["eos_token_id"], "eos_token_id")?;
        if ends.is_empty() {
            ends = self.ids(CONFIG, &keys["eos_token_id"], "eos_token_id")?;
        }
        if ends.is_empty() {
            ends.extend(self.id("eos_token").or_else(|| self.spelled(&ENDS)).or(separator));
        }
        let one = |file, keys: &Value, key| -> Result<Option<u32>> {
            Ok(self.ids(file, &keys[key], key)?.first().copied())
        };
        let begins = |key| -> Result<Option<u32>> {
            Ok(one(GENERATION_CONFIG, generation, key)?.or(one(CONFIG, keys, key)?))
        };
        let decoder_start = match entry(self.task).translates {
            true => begins("decoder_start_token_id")?,
            false => None,
        };
        let start = decoder_start
            .or(one(CONFIG, keys, "bos_token_id")?)
            .or(one(GENERATION_CONFIG, generation, "bos_token_id")?)
            .or_else(|| self.id("bos_token"));
        let pad = self.id("pad_token").or(one(CONFIG, keys, "pad_token_id")?);
        let mask = self.id("mask_token").or_else(|| self.spelled(&MASKS));
        let unknown = self.tokenizer.special_tokens().unknown;

        Ok(SpecialTokens {
            pad: pad.or_else(|| self.spelled(&PADS)),
            unknown,
            start,
            // The template of the post-processor must not have a token after the text. A template
            // with such a token, as in some folders of GPT-2, is meant for the texts of an encoder.
            starts_prompts: start.is_some() && template(file, "single") == [start, None],
            ends,
            class,
            separator,
            doubled_separator: is_doubled(file, separator),
            shared_segment: false,
            mask,
            no_text: self.no_text(file, &[class, separator, mask, unknown]),
            never_written: match entry(self.task).translates {
                true => never_written(self.files.generation(), self.size)?,
                false if entry(self.task).generates => self.never_generated(),
                false => Vec::new(),
            },
            before: Vec::new(),
            after: Vec::new(),
        })
    }

    /// Ids of all tokens that do not stand for text, including those of `roles`, ascending.
    fn no_text(&self, file: &Value, roles: &[Option<u32>]) -> Vec<u32> {
        let marked = file["added_tokens"].as_array().into_iter().flatten();
        let marked = marked.filter(|token| token["special"] == true);
        let named = marked.filter_map(spelling).chain(self.files.all_named());
        // Byte tokens spell characters that the vocabulary lacks, so they stand for text, even if
        // the file says that they are special.
        let spells_bytes = file["model"]["byte_fallback"] == true;
        let named = named.filter(|token| !(spells_bytes && is_byte(token)));
        let mut no_text: Vec<u32> = named.filter_map(|token| self.tokenizer.id(token)).collect();
        no_text.extend(roles.iter().flatten());
        no_text.sort_unstable();
        no_text.dedup();
        no_text
    }

    /// Tokens that a language model never writes: suppressed tokens, and the entries of
    /// `bad_words_ids` that are a single token.
    fn never_generated(&self) -> Vec<u32> {
        let keys = self.files.generation();
        let words = keys["bad_words_ids"].as_array().into_iter().flatten();
        let words = words.filter_map(|words| match words.as_array().map(Vec::as_slice) {
            Some([one]) => one.as_u64(),
            _ => None,
        });
        known(words.chain(suppressed(keys)), self.size)
    }

    /// Finds the marks of an encoder's input: the special token before the first text, and the one
    /// after each text. A mark is taken from the post-processor, or else from the files that name
    /// special tokens. If neither has it, its usual spellings are looked for. A mark that is not
    /// found is `None`.
    fn marks(&self, file: &Value) -> (Option<u32>, Option<u32>) {
        let pair = |value: &Value| value[1].as_u64().and_then(|id| u32::try_from(id).ok());
        let processor = post_processor(file);
        let (class, separator) = match processor["type"].as_str() {
            Some("BertProcessing" | "RobertaProcessing") => {
                (pair(&processor["cls"]), pair(&processor["sep"]))
            }
            _ => match template(file, "single").as_slice() {
                [first, .., last] => (*first, *last),
                _ => (None, None),
            },
        };
        // A template without a token after the text belongs to a model that writes text, so its
        // first token is no mark.
        let class = class.filter(|_| separator.is_some());
        (
            class.or_else(|| self.id("cls_token")).or_else(|| self.spelled(&CLASSES)),
            separator.or_else(|| self.id("sep_token")).or_else(|| self.spelled(&SEPARATORS)),
        )
    }

    /// Id of the special token that the files name for a role such as `cls_token`; `None` if they
    /// name none.
    fn id(&self, role: &str) -> Option<u32> {
        self.tokenizer.id(self.files.named(role)?)
    }

    /// Id of the first token that the vocabulary has among those with the spellings `tokens`;
    /// `None` if it has none of them.
    fn spelled(&self, tokens: &[&str]) -> Option<u32> {
        tokens.iter().find_map(|token| self.tokenizer.id(token))
    }

    /// Reads `value`, the value of `key` in `file`, which is one id or a list of ids. Ids outside
    /// the vocabulary are left out: they are defaults of Transformers, meant for other models.
    fn ids(&self, file: &str, value: &Value, key: &str) -> Result<Vec<u32>> {
        let all = match value {
            Value::Null => return Ok(Vec::new()),
            Value::Array(list) => list.as_slice(),
            one => std::slice::from_ref(one),
        };
        let id = |value: &Value| {
            let id = value.as_i64();
            id.with_context(|| format!("{file}: {key} is {value}, where the id of a token belongs"))
        };
        let ids = all.iter().map(id).collect::<Result<Vec<i64>>>()?;
        let known = ids.into_iter().filter_map(|id| u32::try_from(id).ok());
        Ok(known.filter(|&id| (id as usize) < self.size).collect())
    }
}

/// Tokens that a translation model never writes: suppressed tokens, and the entries of
/// `bad_words_ids`, which must be single tokens.
pub(super) fn never_written(keys: &Value, size: usize) -> Result<Vec<u32>> {
    let mut never = Vec::new();
    for words in keys["bad_words_ids"].as_array().into_iter().flatten() {
        match words.as_array().map(Vec::as_slice) {
            Some([one]) => never.extend(one.as_u64()),
            _ => bail!("bad_words_ids has {words}: only single tokens can be excluded here"),
        }
    }
    Ok(known(never.into_iter().chain(suppressed(keys)), size))
}

fn suppressed(keys: &Value) -> impl Iterator<Item = u64> {
    keys["suppress_tokens"].as_array().into_iter().flatten().filter_map(Value::as_u64)
}

/// Elements of `ids` that are below `size`, the size of the vocabulary, in ascending order and each
/// once.
fn known(ids: impl Iterator<Item = u64>, size: usize) -> Vec<u32> {
    let ids = ids.filter(|&id| id < size as u64).filter_map(|id| u32::try_from(id).ok());
    ids.collect::<BTreeSet<u32>>().into_iter().collect()
}

/// True if a token has the spelling of a byte, such as `<0xE6>`.
fn is_byte(token: &str) -> bool {
    let digits = token.strip_prefix("<0x").and_then(|rest| rest.strip_suffix('>'));
    digits.is_some_and(|two| two.len() == 2 && u8::from_str_radix(two, 16).is_ok())
}
