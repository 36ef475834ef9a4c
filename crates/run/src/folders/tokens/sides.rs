//! Tokenizers of translation models in folders of the library Transformers: SentencePiece models,
//! one for each language or one for all languages, and files with the ids of their pieces.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::Value;
use taper_data::{FolderTokens, SpecialTokens, Tokenizer, TokenizerPair, read_regular};

use super::super::CONFIG;
use super::files::{Files, read_text};
use super::languages;
use super::older::for_older;
use super::pieces::{self, Divides};
use super::read::never_written;
use super::sentence_piece::SentencePieceModel;
use super::{GENERATION_CONFIG, ID_KEY, TOKENIZER, TOKENIZER_CONFIG};
use crate::folder::files::write_atomically;

/// Files with the ids of pieces. If source and target have separate vocabularies, the first file is
/// for the source and the second for the target. Otherwise, the first file is for both, and there
/// is no second file.
const VOCABULARIES: [&str; 2] = ["vocab.json", "target_vocab.json"];
/// Files with the SentencePiece models of a MarianMT, one for each language.
pub(super) const SIDES: [&str; 2] = ["source.spm", "target.spm"];
/// File with the SentencePiece model of an M2M100, for all languages.
const OF_ALL: &str = "sentencepiece.bpe.model";

/// Largest size of a SentencePiece model in bytes.
const MOST_BYTES: u64 = 1 << 28;

/// Whether the tokenizers of the folder `source` are to be read from SentencePiece models. This is
/// not the case if the folder has a `tokenizer.json` but no file with the ids of pieces: then the
/// `tokenizer.json` is read. An export of a model that Taper has trained is such a folder.
pub(in super::super) fn has_sides(source: &Path) -> bool {
    let has = |name: &str| source.join(name).exists();
    let is_fast = has(TOKENIZER) && !has(VOCABULARIES[0]);
    SIDES.into_iter().any(has) && !is_fast || has_one(source)
}

/// Whether the folder has one SentencePiece model for all languages with a file of ids, and no
/// `tokenizer.json`, which would take precedence.
fn has_one(source: &Path) -> bool {
    let has = |name: &str| source.join(name).exists();
    has(OF_ALL) && has(VOCABULARIES[0]) && !has(TOKENIZER)
}

/// Reads tokenizers from the SentencePiece models in the folder `source`. `config` is the content
/// of the folder's `config.json`. `sizes` has the number of rows in the embedding, or two such
/// numbers if source and target have separate embeddings. `given` has the contents of the files
/// with ids; `None` if they are to be read from the folder.
///
/// # Errors
/// When a file is missing or damaged, or a special token is not in the vocabulary.
pub(in super::super) fn read_sides(
    (source, config): (&Path, &Value),
    sizes: &[usize],
    given: Option<Vec<String>>,
) -> Result<TokenizerPair> {
    let files = Files::read(source, config)?;
    let is_one = has_one(source);
    let mut given = given.map(Vec::into_iter);
    let mut vocabularies = Vec::new();
    for (&size, name) in sizes.iter().zip(VOCABULARIES) {
        let path = source.join(name);
        let text = match given.as_mut() {
            Some(texts) => texts.next(),
            None => read_text(&path)?,
        };
        let shown = || path.display().to_string();
        let text =
            text.with_context(|| format!("{}: no such file, with the ids of the pieces", shown()))?;
        let reads_only = vocabularies.is_empty() && sizes.len() > 1;
        let read = Vocabulary::read(name, text, &files, size, is_one, reads_only);
        vocabularies.push(read.with_context(shown)?);
    }
    let of_source = vocabularies.first().context("no vocabulary")?;
    let of_target = vocabularies.last().context("no vocabulary")?;
    let side = |name, vocabulary: &Vocabulary| vocabulary.tokenizer(source, &files, name);
    if is_one {
        return Ok(TokenizerPair::joint(side(OF_ALL, of_source)?));
    }
    let pair = [side(SIDES[0], of_source)?, side(SIDES[1], of_target)?];
    let [source, target] = pair;
    Ok(TokenizerPair::separate(source, target))
}

/// Ids of the pieces of one language or of all languages.
struct Vocabulary {
    /// Name of the file with the ids.
    name: &'static str,
    /// Content of the file with the ids.
    text: String,
    /// Number of rows in the embedding.
    size: usize,
    ids: BTreeMap<String, u32>,
    /// Spelling of the token for unknown text.
    unknown: String,
    /// Spellings of all special tokens.
    special: Vec<String>,
    roles: SpecialTokens,
}

impl Vocabulary {
    /// Reads `text`, the content of the file `name`. If `is_one`, the vocabulary is for all
    /// languages, and the ids of language tokens follow those in the file. If `reads_only`, the
    /// vocabulary is only for sources, and settings for texts that the model writes are ignored.
    fn read(
        name: &'static str,
        text: String,
        files: &Files,
        size: usize,
        is_one: bool,
        reads_only: bool,
    ) -> Result<Self> {
        let mut ids: BTreeMap<String, u32> =
            serde_json::from_str(&text).context("not an object of tokens and their ids")?;
        let mut special = Vec::new();
        if is_one {
            special = languages::of_m2m100(files)?;
            let after = ids.len() as u32;
            ids.extend(special.iter().cloned().zip(after..));
            special.push(files.named("bos_token").unwrap_or("<s>").to_owned());
        }
        let named = |role: &str, usual: &str| files.named(role).unwrap_or(usual).to_owned();
        let [end, unknown, pad] =
            [("eos_token", "</s>"), ("unk_token", "<unk>"), ("pad_token", "<pad>")]
                .map(|(role, usual)| named(role, usual));
        let id = |token: &String| {
            let id = ids.get(token).copied();
            id.with_context(|| format!("no token {token}"))
        };
        let named_ids = [id(&end)?, id(&unknown)?, id(&pad)?];
        special.extend([end, unknown.clone(), pad]);
        let no_text = special.iter().filter_map(|token| ids.get(token).copied()).collect();
        let roles = roles(files, named_ids, no_text, size, reads_only)?;
        Ok(Self { name, text, size, ids, unknown, special, roles })
    }

    /// Makes the tokenizer with this vocabulary and the SentencePiece model in the file `name` of
    /// the folder `source`.
    fn tokenizer(&self, source: &Path, files: &Files, name: &str) -> Result<Tokenizer> {
        let path = source.join(name);
        let shown = || path.display().to_string();
        let bytes = read_regular(&path, MOST_BYTES)
            .with_context(|| format!("cannot read {}", path.display()))?;
        let model = SentencePieceModel::read(&bytes).with_context(shown)?;
        let special: Vec<&str> = self.special.iter().map(String::as_str).collect();
        let codes = self.ids.keys().map(String::as_str).filter(|token| is_code(token)).collect();
        let divides = Divides::AsSentencePiece;
        let converted = pieces::tokenizer(
            &model,
            divides,
            &self.ids,
            self.size,
            &self.unknown,
            &special,
            &codes,
        );
        let converted = converted.with_context(shown)?;
        let tokenizer = Tokenizer::of_others(&converted.json, &path)?;
        let mut texts = files.kept();
        texts.insert(self.name.to_owned(), self.text.clone());
        let folder = FolderTokens {
            vocabulary_size: self.size,
            without_row: converted.without_row,
            sentence_piece_forms: true,
            special: self.roles.clone(),
            ids: ids(files.keys(CONFIG)),
            files: texts,
            binary_files: [(name.to_owned(), BASE64.encode(&bytes))].into(),
        };
        Ok(tokenizer.with_folder(&folder)?)
    }
}

/// Copies those entries of the configuration `keys` whose values are ids of tokens, such as
/// `eos_token_id`.
fn ids(keys: &Value) -> BTreeMap<String, Value> {
    let keys = keys.as_object().into_iter().flatten();
    let of_ids = keys.filter(|(key, _)| key.ends_with(ID_KEY) || *key == "bad_words_ids");
    of_ids.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Special tokens with their roles. `end`, `unknown` and `pad` are the ids of the tokens that the
/// folder names for these roles; the configuration may give another end token, and a start token.
/// `no_text` has the ids of tokens that do not stand for text. If `reads_only`, the tokens are only
/// for sources, and the configuration is ignored.
fn roles(
    files: &Files,
    [end, unknown, pad]: [u32; 3],
    mut no_text: Vec<u32>,
    size: usize,
    reads_only: bool,
) -> Result<SpecialTokens> {
    let (generation, keys) = (files.keys(GENERATION_CONFIG), files.keys(CONFIG));
    let key = |name: &str| match &generation[name] {
        _ if reads_only => &Value::Null,
        Value::Null => &keys[name],
        set => set,
    };
    // A key of tokens is one id, or a list of ids.
    let of_key = |name: &str, usual: u32| -> Result<Vec<u32>> {
        let set = key(name);
        let one = |id: &Value| id.as_u64().and_then(|id| u32::try_from(id).ok());
        let ids = match set {
            Value::Null => Some(vec![usual]),
            Value::Array(ids) if !ids.is_empty() => ids.iter().map(one).collect(),
            id => one(id).map(|id| vec![id]),
        };
        ids.filter(|ids| ids.iter().all(|&id| (id as usize) < size)).with_context(|| {
            let file = if generation[name].is_null() { CONFIG } else { GENERATION_CONFIG };
            format!("{file}: {name} is {set}, which is not a token")
        })
    };
    no_text.sort_unstable();
    no_text.dedup();
    Ok(SpecialTokens {
        pad: Some(pad),
        unknown: Some(unknown),
        start: of_key("decoder_start_token_id", pad)?.first().copied(),
        ends: of_key("eos_token_id", end)?,
        never_written: match reads_only {
            true => Vec::new(),
            false => never_written(files.generation(), size)?,
        },
        no_text,
        ..SpecialTokens::default()
    })
}

/// True if a token names the target language, as in `>>fra<<`.
fn is_code(token: &str) -> bool {
    token
        .strip_prefix(">>")
        .and_then(|rest| rest.strip_suffix("<<"))
        .is_some_and(|name| !name.is_empty() && !name.contains("<<"))
}

/// Whether the tokenizers of a run were imported with SentencePiece models.
pub(in super::super) fn came_with_sides(tokenizers: &TokenizerPair) -> bool {
    let folders = [tokenizers.source(), tokenizers.target()].map(Tokenizer::folder);
    folders.iter().all(|folder| folder.is_some_and(|one| !one.binary_files.is_empty()))
}

/// Writes the files with which both tokenizers of a run were imported. If there were no
/// SentencePiece models among them, writes nothing and returns `false`.
///
/// # Errors
/// When a file cannot be written.
pub(in super::super) fn write_sides(folder: &Path, tokenizers: &TokenizerPair) -> Result<bool> {
    if !came_with_sides(tokenizers) {
        return Ok(false);
    }
    let folders = [tokenizers.source(), tokenizers.target()].map(Tokenizer::folder);
    for (name, text) in folders.into_iter().flatten().flat_map(|folder| &folder.files) {
        let older = if name == TOKENIZER_CONFIG { for_older(text)? } else { None };
        let text = older.as_deref().unwrap_or(text);
        write_atomically(&folder.join(name), text.as_bytes())?;
    }
    write_sentence_pieces(folder, tokenizers)?;
    Ok(true)
}

/// Writes the binary files with which a tokenizer was imported.
///
/// # Errors
/// When a file is not in Base64, or cannot be written.
pub(super) fn write_binary(folder: &Path, tokens: &FolderTokens) -> Result<()> {
    for (name, text) in &tokens.binary_files {
        let bytes = BASE64.decode(text).with_context(|| format!("{name}: not in Base64"))?;
        write_atomically(&folder.join(name), &bytes)?;
    }
    Ok(())
}

/// Writes the SentencePiece models with which the tokenizers of a run were imported, if there are
/// any.
///
/// # Errors
/// When a file cannot be written.
pub(crate) fn write_sentence_pieces(folder: &Path, tokenizers: &TokenizerPair) -> Result<()> {
    for tokenizer in [tokenizers.source(), tokenizers.target()] {
        if let Some(tokens) = tokenizer.folder() {
            write_binary(folder, tokens)?;
        }
    }
    Ok(())
}
