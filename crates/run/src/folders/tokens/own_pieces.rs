//! SentencePiece models that divide text like the tokenizers that Taper trains.
//!
//! A tokenizer trained by Taper first divides a text into words, and a SentencePiece model does
//! not. The result is the same, because no piece contains a space inside, a digit next to another
//! character, or a punctuation mark next to a letter.
//!
//! A BPE joins the pair of pieces whose merge has the lowest rank. SentencePiece joins the pair
//! whose result is the piece with the highest score; in these models, the score is the negative
//! rank. SentencePiece joins any two pieces whose result is a piece, even if in training this piece
//! was made from two other pieces. This made no difference in 34,014 lines of the bundled corpus.

use std::collections::{HashMap, HashSet};

use anyhow::{Context, Result, bail};
use serde_json::Value;
use taper_data::Tokenizer;

use super::sentence_piece::{Piece, PieceKind, SentencePieceModel};

/// Makes a SentencePiece model that divides text like `tokenizer` and has the same ids. Returns the
/// content of a `.model` or `.spm` file.
///
/// # Errors
/// When SentencePiece cannot express the tokenizer; the message has the reason.
pub fn sentence_piece_model(tokenizer: &Tokenizer) -> Result<Vec<u8>> {
    let file: Value = serde_json::from_str(tokenizer.json()).context("not a tokenizer.json")?;
    Ok(model_of(&file)
        .context("no model of SentencePiece divides text like this tokenizer")?
        .write())
}

/// SentencePiece model with the pieces of `file`, a `tokenizer.json`.
fn model_of(file: &Value) -> Result<SentencePieceModel> {
    let model = &file["model"];
    let byte_fallback = model["byte_fallback"] == true;
    if !file["normalizer"].is_null() {
        bail!("it normalises text (data.nfkc or data.lowercase)");
    }
    let steps = file["pre_tokenizer"]["pretokenizers"].as_array().map(Vec::as_slice);
    let (spaces, rest) = match steps {
        Some([spaces, rest @ ..]) if spaces["type"] == "Metaspace" => (spaces, rest),
        _ => bail!("it is none that was trained here with data.tokenizer.kind bpe or unigram"),
    };
    if rest.iter().any(|step| !matches!(step["type"].as_str(), Some("Punctuation" | "Digits"))) {
        bail!("a text is also divided at line ends, as for a language model");
    }
    let (algorithm, tokens) = match model["type"].as_str() {
        Some("Unigram") => (1, unigram(model)?),
        Some("BPE") if !byte_fallback => bail!(
            "SentencePiece makes one <unk> of several unknown characters, a BPE without \
             data.tokenizer.byte_fallback one of each"
        ),
        Some("BPE") => (2, byte_pairs(model)?),
        other => bail!("its algorithm is {}", other.unwrap_or("unknown")),
    };
    let added = file["added_tokens"].as_array().into_iter().flatten();
    let special: HashSet<&str> = added.filter_map(|token| token["content"].as_str()).collect();
    let is_byte = |text: &str| {
        byte_fallback && text.len() == 6 && text.starts_with("<0x") && text.ends_with('>')
    };
    let unknown = model["unk_token"].as_str().unwrap_or("<unk>");
    let kind = |text: &str| match text {
        text if text == unknown => PieceKind::Unknown,
        text if special.contains(text) => PieceKind::Control,
        text if is_byte(text) => PieceKind::Byte,
        _ => PieceKind::Normal,
    };
    let piece = |(text, score): (String, f32)| {
        let kind = kind(&text);
        let score = if kind == PieceKind::Normal { score } else { 0.0 };
        Piece { text, score, kind }
    };
    Ok(SentencePieceModel {
        pieces: tokens.into_iter().map(piece).collect(),
        algorithm,
        byte_fallback,
        space_ends: false,
        characters: Vec::new(),
        adds_space: spaces["prepend_scheme"] == "always",
        joins_spaces: false,
    })
}

/// Pieces of a Unigram model with their scores, in the order of their ids.
fn unigram(model: &Value) -> Result<Vec<(String, f32)>> {
    let pair = |entry: &Value| Some((entry[0].as_str()?.to_owned(), entry[1].as_f64()? as f32));
    let pieces = model["vocab"].as_array().into_iter().flatten().map(pair);
    pieces.collect::<Option<_>>().context("its vocabulary is not a list of pieces and scores")
}

/// Pieces of a BPE model with their scores, in the order of their ids. The score of a piece is the
/// negative rank of the first merge that makes it; pieces that no merge makes have lower scores.
fn byte_pairs(model: &Value) -> Result<Vec<(String, f32)>> {
    let mut ranks: HashMap<String, usize> = HashMap::new();
    let merges = model["merges"].as_array().map(Vec::as_slice).unwrap_or_default();
    for (rank, merge) in merges.iter().enumerate() {
        let parts = merge[0].as_str().zip(merge[1].as_str());
        let (first, second) = parts.context("a merge is not a pair of pieces")?;
        ranks.entry(format!("{first}{second}")).or_insert(rank);
    }
    let entries = model["vocab"].as_object().context("its vocabulary is no object")?;
    let mut tokens: Vec<(u64, &String)> = entries
        .iter()
        .map(|(token, id)| Some((id.as_u64()?, token)))
        .collect::<Option<_>>()
        .context("a token has no id")?;
    tokens.sort_unstable();
    if tokens.iter().zip(0..).any(|((id, _), place)| *id != place) {
        bail!("its ids have gaps");
    }
    let score = |(id, token): (u64, &String)| {
        let rank = ranks.get(token).copied().unwrap_or(merges.len() + id as usize);
        (token.clone(), -(rank as f32))
    };
    Ok(tokens.into_iter().map(score).collect())
}
