//! Tokenizers of the library `tokenizers` that divide text like a SentencePiece model. The ids of
//! pieces come from a separate vocabulary.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use anyhow::{Result, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use super::added_token;
use super::sentence_piece::{Piece, PieceKind, SentencePieceModel};

/// Character that stands for a space in pieces.
const SPACE: &str = "\u{2581}";
/// Pattern that matches the spaces at both ends of a text.
const ENDS: &str = r"\A +| +\z";

/// Program whose division of text a tokenizer must reproduce exactly.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Divides {
    /// The package `sentencepiece`, which Transformers calls for MarianMT.
    AsSentencePiece,
    /// The library `tokenizers`.
    AsTokenizers,
}

/// Tokenizer that was made from a SentencePiece model.
pub(super) struct ConvertedTokenizer {
    /// Content of its `tokenizer.json`.
    pub(super) json: String,
    /// Number of pieces that the vocabulary does not contain. They get new ids, for which the
    /// neural model's embedding has no rows: the ids from the number of rows on.
    pub(super) without_row: usize,
}

/// Makes a tokenizer from `model`, a SentencePiece model. Its tokens have the ids in `vocabulary`,
/// for a neural model with `size` rows in its embedding. Tokens in `special` do not stand for text.
/// Tokens in `codes` are recognised anywhere in a text.
///
/// A token that is not a piece of `model`, such as a piece of the other language of a translation
/// model, must not match any part of a text. So a space is put before its name. When ids are
/// decoded to text, this space is removed.
///
/// # Errors
/// When the kind of `model` is not supported, or the vocabulary lacks the token `unknown`.
pub(super) fn tokenizer(
    model: &SentencePieceModel,
    divides: Divides,
    vocabulary: &BTreeMap<String, u32>,
    size: usize,
    unknown: &str,
    special: &[&str],
    codes: &BTreeSet<&str>,
) -> Result<ConvertedTokenizer> {
    if model.space_ends {
        bail!("its pieces end with a space (treat_whitespace_as_suffix), which is not known here");
    }
    let preferred;
    let model = match divides {
        Divides::AsSentencePiece => {
            preferred = preferring_defined(model)?;
            &preferred
        }
        Divides::AsTokenizers => model,
    };
    let scores = scores(model);
    let (names, without_row) = names(model, &scores, vocabulary, size, special, codes)?;
    let Some(&unknown_id) = vocabulary.get(unknown) else {
        bail!("the vocabulary lacks {unknown}, the token for unknown text");
    };
    let (pre_tokenizer, decoder) = space_steps(model, divides, &scores);
    let file = json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": added_tokens(model, vocabulary, special, codes),
        "normalizer": normalizer(model, divides),
        "pre_tokenizer": pre_tokenizer,
        "post_processor": null,
        "decoder": { "type": "Sequence", "decoders": [
            { "type": "Replace", "pattern": { "String": " " }, "content": "" },
            { "type": "ByteFallback" },
            decoder,
            { "type": "Fuse" },
            { "type": "Replace", "pattern": { "Regex": ENDS }, "content": "" },
        ] },
        "model": match model.algorithm {
            1 => json!({
                "type": "Unigram", "unk_id": unknown_id, "byte_fallback": model.byte_fallback,
                "vocab": names,
            }),
            2 => byte_pairs(model, &names, unknown),
            other => bail!("its algorithm is number {other}: only Unigram and BPE are known here"),
        },
    });
    Ok(ConvertedTokenizer { json: file.to_string(), without_row })
}

/// Makes the pre-tokenizer, which replaces spaces by [`SPACE`], and the decoder, which does the
/// reverse. `scores` has the pieces of `model` that stand for text.
fn space_steps(
    model: &SentencePieceModel,
    divides: Divides,
    scores: &HashMap<&str, f32>,
) -> (Value, Value) {
    let within_words = scores.keys().all(|piece| {
        let rest = piece.strip_prefix(SPACE).unwrap_or(piece);
        !rest.contains(SPACE)
    });
    let prepends = model.adds_space && !keeps_leading_spaces(model, divides);
    let scheme = if prepends { "always" } else { "never" };
    let metaspace = json!({
        "type": "Metaspace", "replacement": SPACE, "prepend_scheme": scheme, "split": within_words,
    });
    let decoder = match divides {
        // A `Metaspace` decoder would drop all spaces in the first piece, and not only the space
        // that was added before the text.
        Divides::AsSentencePiece => {
            json!({ "type": "Replace", "pattern": { "String": SPACE }, "content": " " })
        }
        Divides::AsTokenizers => metaspace.clone(),
    };
    (metaspace, decoder)
}

/// Turns pieces that a user has defined into normal pieces, with the scores by which SentencePiece
/// prefers them to all others. If they were added tokens instead, the text after them would get a
/// space before it.
///
/// # Errors
/// When the model has such pieces and its algorithm is not Unigram.
fn preferring_defined(model: &SentencePieceModel) -> Result<SentencePieceModel> {
    let most = model.pieces.iter().filter(|piece| piece.kind == PieceKind::Normal);
    // If all scores are negative, the smallest positive number is used in place of the largest
    // score. SentencePiece does the same.
    let most = most.map(|piece| piece.score).fold(f32::MIN_POSITIVE, f32::max);
    let mut model = model.clone();
    for piece in model.pieces.iter_mut().filter(|piece| piece.kind == PieceKind::UserDefined) {
        if model.algorithm != 1 {
            bail!("it is no Unigram, and {:?} is a piece that a user has defined", piece.text);
        }
        piece.kind = PieceKind::Normal;
        piece.score = piece.text.len() as f32 * most - 0.1;
    }
    Ok(model)
}

/// Scores of the pieces into which text can be divided, by the text of the piece.
fn scores(model: &SentencePieceModel) -> HashMap<&str, f32> {
    let pieces = model.pieces.iter();
    let of_text =
        pieces.filter(|piece| matches!(piece.kind, PieceKind::Normal | PieceKind::UserDefined));
    of_text.map(|piece| (piece.text.as_str(), piece.score)).collect()
}

/// Names and scores of all tokens in the order of their ids. Pieces that the vocabulary does not
/// contain get the ids from `size` on, for which the neural model has no rows. Also returns the
/// number of these pieces.
///
/// # Errors
/// When the id of a token in the vocabulary is not below `size`.
fn names(
    model: &SentencePieceModel,
    scores: &HashMap<&str, f32>,
    vocabulary: &BTreeMap<String, u32>,
    size: usize,
    special: &[&str],
    codes: &BTreeSet<&str>,
) -> Result<(Vec<(String, f32)>, usize)> {
    let least = model.pieces.iter().filter(|piece| piece.kind == PieceKind::Normal);
    let least = least.map(|piece| piece.score).fold(f32::INFINITY, f32::min);
    let least = if least.is_finite() { least } else { 0.0 };
    let is_byte: BTreeSet<&str> = model
        .pieces
        .iter()
        .filter(|piece| piece.kind == PieceKind::Byte)
        .map(|piece| piece.text.as_str())
        .collect();

    let mut names: Vec<(String, f32)> = (0..size).map(|id| (format!(" gap {id}"), least)).collect();
    for (token, &id) in vocabulary {
        let Some(place) = names.get_mut(id as usize) else {
            bail!("the token {token:?} has the id {id}, but the model has {size} rows");
        };
        let plain = special.contains(&token.as_str())
            || codes.contains(token.as_str())
            || is_byte.contains(token.as_str());
        *place = match scores.get(token.as_str()) {
            Some(&score) => (token.clone(), score),
            None if plain => (token.clone(), least),
            None => (format!(" {token}"), least),
        };
    }
    let others: Vec<&Piece> = model
        .pieces
        .iter()
        .filter(|piece| {
            matches!(piece.kind, PieceKind::Normal | PieceKind::UserDefined | PieceKind::Byte)
                && !vocabulary.contains_key(&piece.text)
        })
        .collect();
    let without_row = others.len();
    names.extend(others.into_iter().map(|piece| (piece.text.clone(), piece.score)));
    Ok((names, without_row))
}

/// Entries in `added_tokens` of a `tokenizer.json`: special tokens, codes of languages, and pieces
/// that a user has defined.
fn added_tokens(
    model: &SentencePieceModel,
    vocabulary: &BTreeMap<String, u32>,
    special: &[&str],
    codes: &BTreeSet<&str>,
) -> Vec<Value> {
    let mut added: BTreeMap<u32, Value> = BTreeMap::new();
    for (tokens, is_special) in [(special.to_vec(), true), (codes.iter().copied().collect(), false)]
    {
        for token in tokens {
            if let Some(&id) = vocabulary.get(token) {
                added.entry(id).or_insert_with(|| {
                    let mut entry = added_token(token, u64::from(id), is_special);
                    entry["normalized"] = json!(false);
                    entry
                });
            }
        }
    }
    for piece in model.pieces.iter().filter(|piece| piece.kind == PieceKind::UserDefined) {
        if let Some(&id) = vocabulary.get(&piece.text) {
            let entry = || added_token(&piece.text, u64::from(id), false);
            added.entry(id).or_insert_with(entry);
        }
    }
    added.into_values().collect()
}

/// True if a space is put before a text even if the text begins with a space. A `Metaspace` would
/// add none there.
fn keeps_leading_spaces(model: &SentencePieceModel, divides: Divides) -> bool {
    divides == Divides::AsSentencePiece && model.adds_space && !model.joins_spaces
}

/// Normaliser of a `tokenizer.json` that does what `model` does; null if the model does not
/// normalise.
fn normalizer(model: &SentencePieceModel, divides: Divides) -> Value {
    let mut parts = Vec::new();
    if !model.characters.is_empty() {
        let map = BASE64.encode(&model.characters);
        parts.push(json!({ "type": "Precompiled", "precompiled_charsmap": map }));
    }
    if model.joins_spaces {
        for (pattern, content) in [(ENDS, ""), (" {2,}", " ")] {
            parts.push(json!({
                "type": "Replace", "pattern": { "Regex": pattern }, "content": content,
            }));
        }
    }
    if keeps_leading_spaces(model, divides) {
        parts.push(json!({ "type": "Prepend", "prepend": SPACE }));
    }
    match parts.is_empty() {
        true => Value::Null,
        false => json!({ "type": "Sequence", "normalizers": parts }),
    }
}

/// BPE model of a `tokenizer.json`, whose merges make the pieces of `model`. Merges that make
/// pieces with higher scores come first.
fn byte_pairs(model: &SentencePieceModel, names: &[(String, f32)], unknown: &str) -> Value {
    let vocabulary: BTreeMap<&str, usize> =
        names.iter().zip(0..).map(|((name, _), id)| (name.as_str(), id)).collect();
    let is_normal = |piece: &&Piece| piece.kind == PieceKind::Normal;
    let normal: BTreeSet<&str> =
        model.pieces.iter().filter(is_normal).map(|piece| piece.text.as_str()).collect();
    let mut by_score: Vec<&Piece> = model.pieces.iter().filter(is_normal).collect();
    by_score.sort_by(|one, other| other.score.total_cmp(&one.score));
    let mut merges: Vec<[&str; 2]> = Vec::new();
    for piece in by_score {
        for (at, _) in piece.text.char_indices().skip(1) {
            let (first, second) = piece.text.split_at(at);
            if normal.contains(first) && normal.contains(second) {
                merges.push([first, second]);
            }
        }
    }
    json!({
        "type": "BPE",
        "dropout": null,
        "unk_token": unknown,
        "continuing_subword_prefix": null,
        "end_of_word_suffix": null,
        "fuse_unk": true,
        "byte_fallback": model.byte_fallback,
        "vocab": vocabulary,
        "merges": merges,
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use taper_data::Tokenizer;

    use super::*;

    /// The expected ids are those of the package `sentencepiece` 0.2.3 for a model of these pieces
    /// with `remove_extra_whitespaces=False`.
    #[test]
    fn a_text_that_begins_with_a_space_gets_another_one() {
        let piece = |text: &str, kind| Piece { text: text.to_owned(), score: -1.0, kind };
        let normal = ["\u{2581}", "a", "\u{2581}a"];
        let mut pieces = vec![piece("<unk>", PieceKind::Unknown)];
        pieces.extend(normal.map(|text| piece(text, PieceKind::Normal)));
        let model = SentencePieceModel {
            pieces,
            algorithm: 1,
            byte_fallback: false,
            space_ends: false,
            characters: Vec::new(),
            adds_space: true,
            joins_spaces: false,
        };
        let names = model.pieces.iter().map(|piece| piece.text.clone());
        let vocabulary: BTreeMap<String, u32> = names.zip(0..).collect();
        let converted = tokenizer(
            &model,
            Divides::AsSentencePiece,
            &vocabulary,
            4,
            "<unk>",
            &[],
            &BTreeSet::new(),
        );
        let json = converted.expect("a tokenizer").json;
        let tokenizer = Tokenizer::of_others(&json, Path::new("tokenizer.json")).expect("read");
        for (text, ids) in [("a", &[3][..]), (" a", &[1, 3]), ("  a", &[1, 1, 3]), ("a a", &[3, 3])]
        {
            assert_eq!(tokenizer.encode(text).expect("ids"), ids, "{text:?}");
        }
    }
}
