//! Tokenizers of folders that have no `tokenizer.json`, but the vocabulary files of a slow
//! tokenizer of Transformers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use taper_data::read_regular;

use super::files::{Files, read_text};
use super::parts::{added, template};
use super::{TOKENIZER, TOKENIZER_CONFIG, fairseq, t5};

/// File with the vocabulary of a WordPiece tokenizer, one token on each line.
const WORD_PIECES: &str = "vocab.txt";
/// Files with the vocabulary and with the merges of a BPE tokenizer on bytes.
const BYTE_PAIRS: [&str; 2] = ["vocab.json", "merges.txt"];
/// File with the SentencePiece model of T5 and similar families.
const PIECES: &str = "spiece.model";
/// File with the SentencePiece model of XLM-R, mBART and NLLB.
const OF_FAIRSEQ: &str = "sentencepiece.bpe.model";

/// Largest size of a SentencePiece model in bytes.
const MOST_BYTES: u64 = 1 << 28;

/// Special tokens of RoBERTa, whose tokenizer divides text as GPT-2's does.
const ROBERTA_MARKS: [&str; 5] = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"];

/// Makes the content of a `tokenizer.json` from the vocabulary files of the folder `source`.
/// Returns the path of the vocabulary and the content.
///
/// # Errors
/// When the folder has no vocabulary files, or they are damaged.
pub(super) fn tokenizer_json(source: &Path, files: &Files) -> Result<(PathBuf, String)> {
    if let Some((name, bytes)) = sentence_pieces(source)? {
        let path = source.join(name);
        let json = match name {
            OF_FAIRSEQ => fairseq::tokenizer(&bytes, files),
            _ => t5::pieces(&bytes, files),
        };
        return Ok((path.clone(), json.with_context(|| path.display().to_string())?));
    }
    if files.is_of("ByT5", "") {
        return Ok((source.join(TOKENIZER_CONFIG), t5::bytes(files)?));
    }
    let path = source.join(WORD_PIECES);
    let pieces = read_text(&path)?;
    let [vocabulary, merges] = BYTE_PAIRS.map(|name| source.join(name));
    let pairs = match (read_text(&vocabulary)?, read_text(&merges)?) {
        (Some(tokens), Some(merges)) => Some((tokens, merges)),
        _ => None,
    };
    // In a folder with vocabularies of both kinds, the class of the tokenizer decides.
    match (pieces, pairs) {
        (Some(pieces), None) => Ok((path, word_pieces(&pieces, files)?)),
        (Some(pieces), Some(_)) if !files.is_of("GPT2", "gpt2") => {
            Ok((path, word_pieces(&pieces, files)?))
        }
        (_, Some((tokens, merges))) => {
            let json = byte_pairs(&tokens, &merges, files);
            Ok((vocabulary.clone(), json.with_context(|| vocabulary.display().to_string())?))
        }
        (None, None) => bail!(
            "{}: no such file, nor {PIECES}, {OF_FAIRSEQ}, {WORD_PIECES}, or {} with {}; save a fast tokenizer \
             there, which Transformers can",
            source.join(TOKENIZER).display(),
            BYTE_PAIRS[0],
            BYTE_PAIRS[1],
        ),
    }
}

/// File name and content of the SentencePiece model in the folder `source`; `None` if there is
/// none.
///
/// # Errors
/// When the file cannot be read.
fn sentence_pieces(source: &Path) -> Result<Option<(&'static str, Vec<u8>)>> {
    for name in [PIECES, OF_FAIRSEQ] {
        let path = source.join(name);
        match read_regular(&path, MOST_BYTES) {
            Ok(bytes) => return Ok(Some((name, bytes))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read {}", path.display()));
            }
        }
    }
    Ok(None)
}

/// File name of the folder's SentencePiece model, and its content in Base64, which is kept for a
/// later export. Empty if the folder has no such model.
///
/// # Errors
/// When the file cannot be read.
pub(super) fn kept(source: &Path) -> Result<BTreeMap<String, String>> {
    let file = sentence_pieces(source)?;
    Ok(file.map(|(name, bytes)| (name.to_owned(), BASE64.encode(bytes))).into_iter().collect())
}

/// Makes BERT's tokenizer (Devlin et al. 2019) from `text`, a vocabulary with one token on each
/// line. Settings that the folder's files do not give have the defaults of `BertTokenizer` in
/// Transformers.
fn word_pieces(text: &str, files: &Files) -> Result<String> {
    let ids: BTreeMap<&str, u64> = text.lines().zip(0..).collect();
    let setting = |key: &str, usual: Value| match &files.keys(TOKENIZER_CONFIG)[key] {
        Value::Bool(set) => json!(set),
        _ => usual,
    };
    let token = |role: &str, usual: &str| files.named(role).unwrap_or(usual).to_owned();
    let (class, separator) = (token("cls_token", "[CLS]"), token("sep_token", "[SEP]"));
    let unknown = token("unk_token", "[UNK]");
    let special = [
        &token("pad_token", "[PAD]"),
        &unknown,
        &class,
        &separator,
        &token("mask_token", "[MASK]"),
    ];
    let added = added(special.into_iter().map(String::as_str), &ids, files);
    let template = template(&class, &separator, |token| ids.get(token).copied());
    let file = json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": added,
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": true,
            "handle_chinese_chars": setting("tokenize_chinese_chars", json!(true)),
            "strip_accents": setting("strip_accents", Value::Null),
            "lowercase": setting("do_lower_case", json!(true)),
        },
        "pre_tokenizer": { "type": "BertPreTokenizer" },
        "post_processor": template,
        "decoder": { "type": "WordPiece", "prefix": "##", "cleanup": true },
        "model": {
            "type": "WordPiece",
            "unk_token": unknown,
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": ids,
        },
    });
    Ok(file.to_string())
}

/// Makes GPT-2's tokenizer (Radford et al. 2019), or RoBERTa's. `tokens` is a JSON object of tokens
/// and their ids, and `merges` has one merge on each line. Settings that the folder's files do not
/// give have the defaults of `GPT2Tokenizer` in Transformers.
fn byte_pairs(tokens: &str, merges: &str, files: &Files) -> Result<String> {
    let ids: BTreeMap<String, u64> =
        serde_json::from_str(tokens).context("not an object of tokens and their ids")?;
    let mut pairs = Vec::new();
    for (number, line) in merges.lines().enumerate() {
        if line.is_empty() || line.starts_with("#version") {
            continue;
        }
        let pair = line.split_once(' ').filter(|(_, second)| !second.contains(' '));
        let shown = || format!("{}, line {}: not two tokens", BYTE_PAIRS[1], number + 1);
        let (first, second) = pair.with_context(shown)?;
        pairs.push([first, second]);
    }
    let ids: BTreeMap<&str, u64> = ids.iter().map(|(token, &id)| (token.as_str(), id)).collect();
    let space = files.keys(TOKENIZER_CONFIG)["add_prefix_space"] == true;
    let (special, processor): (&[&str], _) = match files.is_of("Roberta", "roberta") {
        true => (&ROBERTA_MARKS, roberta_rows(&ids, files, space)?),
        false => (
            &["<|endoftext|>"],
            json!({
                "type": "ByteLevel",
                "add_prefix_space": true, "trim_offsets": false, "use_regex": true,
            }),
        ),
    };
    let file = json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": added(special.iter().copied(), &ids, files),
        "normalizer": null,
        "pre_tokenizer": {
            "type": "ByteLevel", "add_prefix_space": space, "trim_offsets": true, "use_regex": true,
        },
        "post_processor": processor,
        "decoder": {
            "type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true,
        },
        "model": {
            "type": "BPE",
            "dropout": null,
            "unk_token": null,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": false,
            "byte_fallback": false,
            "vocab": ids,
            "merges": pairs,
        },
    });
    Ok(file.to_string())
}

/// Post-processor that puts special tokens around one text or two, as RoBERTa's tokenizer does.
fn roberta_rows(ids: &BTreeMap<&str, u64>, files: &Files, space: bool) -> Result<Value> {
    let mark = |role: &str, usual: &str| -> Result<Value> {
        let name = files.named(role).unwrap_or(usual).to_owned();
        let id = ids.get(name.as_str()).with_context(|| format!("{role} {name:?} has no id"))?;
        Ok(json!([name, id]))
    };
    Ok(json!({
        "type": "RobertaProcessing",
        "cls": mark("cls_token", "<s>")?, "sep": mark("sep_token", "</s>")?,
        "trim_offsets": true, "add_prefix_space": space,
    }))
}
