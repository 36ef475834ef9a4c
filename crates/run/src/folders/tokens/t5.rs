//! Tokenizers of T5 and Pegasus, whose only file is a SentencePiece model, and of ByT5, which has
//! no file.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::TOKENIZER_CONFIG;
use super::files::Files;
use super::parts::{added, ends};
use super::pieces::Divides;
use super::sentence_piece::SentencePieceModel;

/// Number of sentinels in T5's tokenizer if its arguments do not set it. Sentinels are tokens that
/// stand for text left out in training.
const SENTINELS: u64 = 100;

/// Number of sentinels in ByT5's tokenizer if its arguments do not set it.
const BYTE_SENTINELS: u64 = 125;

/// Default of the argument `offset` of Pegasus's tokenizer. From the third piece on, the id of a
/// piece is its index in the SentencePiece model plus this number.
const OFFSET: u64 = 103;

/// Makes the tokenizer of T5 (Raffel et al. 2020), or of Pegasus (Zhang et al. 2020), from `bytes`,
/// the content of a SentencePiece model. In T5, the id of a piece is its index in the model; after
/// the pieces come the sentinels, in descending order of their numbers. In Pegasus, tokens that
/// were only used in training come between the first two pieces and the other pieces. An end token
/// is put after each text.
pub(super) fn pieces(bytes: &[u8], files: &Files) -> Result<String> {
    let model = SentencePieceModel::read(bytes)?;
    let is_pegasus = files.is_of("Pegasus", "pegasus");
    let count = match is_pegasus {
        // The first two of these tokens are masks.
        true => count(files, "offset", OFFSET, 2)?,
        false => count(files, "extra_ids", SENTINELS, 0)?,
    };
    let marks: Vec<String> = match is_pegasus {
        true => {
            let unknown = (2..count).map(|number| format!("<unk_{number}>"));
            let masks = ["<mask_1>", "<mask_2>"].map(str::to_owned);
            masks.into_iter().chain(unknown).collect()
        }
        false => (0..count).rev().map(|number| format!("<extra_id_{number}>")).collect(),
    };
    let texts = model.pieces.iter().map(|piece| piece.text.clone());
    let before = if is_pegasus { 2 } else { model.pieces.len() };
    let (first, rest) = (texts.clone().take(before), texts.skip(before));
    let tokens = first.chain(marks.iter().cloned()).chain(rest);
    let ids: BTreeMap<String, u32> = tokens.zip(0..).collect();
    let named = |role: &str, usual: &str| files.named(role).unwrap_or(usual).to_owned();
    let [end, unknown, pad] =
        [("eos_token", "</s>"), ("unk_token", "<unk>"), ("pad_token", "<pad>")]
            .map(|(role, usual)| named(role, usual));
    let end_id = *ids.get(&end).with_context(|| format!("no piece {end}, which ends a text"))?;
    let special: Vec<&str> =
        [&end, &unknown, &pad].into_iter().chain(&marks).map(String::as_str).collect();
    let size = model.pieces.len() + marks.len();
    let (divides, codes) = (Divides::AsTokenizers, BTreeSet::new());
    let converted =
        super::pieces::tokenizer(&model, divides, &ids, size, &unknown, &special, &codes)?;
    let mut file: Value = serde_json::from_str(&converted.json)?;
    file["post_processor"] = ends(&end, end_id);
    Ok(file.to_string())
}

/// Returns the number of tokens that the argument `key` of a tokenizer sets, which is `usual` if it
/// is not set, and at least `least`.
fn count(files: &Files, key: &str, usual: u64, least: u64) -> Result<u64> {
    let set = &files.keys(TOKENIZER_CONFIG)[key];
    let is_possible = |count: &u64| (least..=u64::from(u16::MAX)).contains(count);
    match set {
        Value::Null => Ok(usual),
        set => set.as_u64().filter(is_possible).with_context(|| {
            format!(
                "{TOKENIZER_CONFIG}: {key} is {set}, expected a whole number from {least} to {}",
                u16::MAX
            )
        }),
    }
}

/// Makes ByT5's tokenizer (Xue et al. 2022), which has no file: its vocabulary has special tokens
/// first, then one token for each byte, then sentinels.
pub(super) fn bytes(files: &Files) -> Result<String> {
    // Bytes are spelled as in GPT-2: a printable byte is spelled as the character with the same
    // code point, and any other byte as a character with a code point from 256 on.
    let is_printable = |byte: u8| matches!(byte, 33..=126 | 161..=172 | 174..=255);
    let mut others = 256..;
    let spelled = (0..=u8::MAX).map(|byte| match is_printable(byte) {
        true => char::from(byte),
        false => others.next().and_then(char::from_u32).unwrap_or_default(),
    });
    let mut tokens: Vec<String> = ["<pad>", "</s>", "<unk>"].map(str::to_owned).into();
    tokens.extend(spelled.map(String::from));
    // Without the key `added_tokens_decoder`, sentinels are added here, after the bytes. With this
    // key, [`Files::completed`] adds them, with the ids that the key gives.
    if !files.keys(TOKENIZER_CONFIG)["added_tokens_decoder"].is_object() {
        let count = count(files, "extra_ids", BYTE_SENTINELS, 0)?;
        tokens.extend((0..count).map(|number| format!("<extra_id_{number}>")));
    }
    let ids: BTreeMap<&str, u64> = tokens.iter().map(String::as_str).zip(0..).collect();
    let special = tokens.iter().map(String::as_str).filter(|token| token.len() > 2);
    let bytes = json!({
        "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false,
    });
    let file = json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": added(special, &ids, files),
        "normalizer": null,
        "pre_tokenizer": bytes,
        "post_processor": ends("</s>", 1),
        "decoder": bytes,
        "model": {
            "type": "BPE",
            "dropout": null,
            "unk_token": null,
            "continuing_subword_prefix": null,
            "end_of_word_suffix": null,
            "fuse_unk": false,
            "byte_fallback": false,
            "vocab": ids,
            "merges": [],
        },
    });
    Ok(file.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_numbers_of_tokens_are_refused() {
        let folder = tempfile::tempdir().expect("folder");
        let read = |key: &str, set: &str, least| {
            let text = format!("{{\"{key}\": {set}}}");
            std::fs::write(folder.path().join(TOKENIZER_CONFIG), text).expect("write");
            let files = Files::read(folder.path(), &Value::Null).expect("JSON");
            count(&files, key, 103, least)
        };
        assert_eq!(read("offset", "2", 2).expect("possible"), 2);
        assert_eq!(read("offset", "null", 2).expect("usual"), 103);
        assert_eq!(read("extra_ids", "0", 0).expect("possible"), 0);
        for (set, least) in [("0", 2), ("1", 2), ("-1", 0), ("1.5", 0), ("65536", 0)] {
            let error = read("offset", set, least).expect_err("refused").to_string();
            assert!(error.contains(&format!("offset is {set}, expected")), "{error}");
        }
    }
}
