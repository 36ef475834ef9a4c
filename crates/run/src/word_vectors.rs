//! Token embeddings whose initial values are word vectors from a file or one-hot vectors, and
//! embeddings that are not trained (frozen).

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use sha2::{Digest, Sha256};
use taper_data::{Tokenizer, TokenizerPair, hexadecimal, write_whole};
use taper_embeddings::WordVectors;
use taper_model::EmbeddingsConfig;
use taper_ops::{Parameter, ParameterStore};

/// Name of a file in the folder of a training (a run). It lists the tokens and, for each token, the
/// word whose vector became its initial embedding, if there is one.
pub const TAKEN_FILE: &str = "embeddings.tsv";

/// Description of the initial values of an embedding matrix (table).
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct TakenVectors {
    /// Name of the parameter.
    pub parameter: String,
    /// File of vectors; `None` for one-hot embeddings.
    pub file: Option<PathBuf>,
    /// All tokens, each with the word whose vector it got, or `None`.
    #[serde(skip)]
    pub tokens: Vec<(String, Option<String>)>,
    /// Number of tokens that got a vector.
    pub taken: usize,
    /// Number of words in the file whose vectors are not used: the tokenizer divides the word into
    /// several tokens, or its token already has the vector of an earlier word.
    pub unused: usize,
    /// Whether the table is frozen, that is, not trained.
    pub frozen: bool,
}

/// Matrices of token embeddings (tables) for which `config` names initial values. Each comes with
/// the tokenizer of its tokens, and with its file of vectors.
fn tables<'a>(
    config: &'a EmbeddingsConfig,
    tokenizers: &'a TokenizerPair,
    store: &'a ParameterStore,
) -> Result<Vec<(&'a Parameter, &'a Tokenizer, &'a Path)>> {
    if !config.are_given() {
        return Ok(Vec::new());
    }
    let source = ("source_embedding.weight", tokenizers.source(), config.file.as_path());
    let target = ("target_embedding.weight", tokenizers.target(), config.target_file.as_path());
    let shared = ("embedding.weight", tokenizers.source(), config.file.as_path());
    let found: Vec<_> = [shared, source, target]
        .into_iter()
        .filter_map(|(name, tokenizer, file)| Some((store.get(name)?, tokenizer, file)))
        .collect();
    ensure!(!found.is_empty(), "model.embeddings: this model has no embeddings of tokens");
    if config.has_target() && found.len() == 1 {
        bail!(
            "model.embeddings.target_file: the model has one table of embeddings for all tokens, \
             which begins with model.embeddings.file"
        );
    }
    let is_given = |(_, _, file): &(_, _, &Path)| config.one_hot || !file.as_os_str().is_empty();
    Ok(found.into_iter().filter(is_given).collect())
}

/// Freezes the tables for which `config` names initial values, if `config.frozen` is set.
///
/// # Errors
/// If the model does not have a table that the recipe (`config`) names.
pub(crate) fn freeze(
    config: &EmbeddingsConfig,
    tokenizers: &TokenizerPair,
    store: &ParameterStore,
) -> Result<()> {
    if config.frozen {
        tables(config, tokenizers, store)?.iter().for_each(|(table, ..)| table.freeze());
    }
    Ok(())
}

/// Sets the tables to the initial values that `config` names, in place of random values. Returns a
/// description of each of these tables.
///
/// # Errors
/// If a file cannot be read or has vectors of another width than the table, or a one-hot embedding
/// has fewer dimensions than there are tokens.
pub(crate) fn fill(
    config: &EmbeddingsConfig,
    tokenizers: &TokenizerPair,
    store: &ParameterStore,
) -> Result<Vec<TakenVectors>> {
    let mut all = Vec::new();
    for (table, tokenizer, file) in tables(config, tokenizers, store)? {
        let mut taken = match config.one_hot {
            true => one_hot(table, tokenizer)?,
            false => from_file(table, tokenizer, file)?,
        };
        taken.frozen = config.frozen;
        all.push(taken);
    }
    Ok(all)
}

/// SHA-256 of the values of the tables with initial values from the recipe, or of nothing if there
/// are no such tables. Processes compare it to check that their tables are equal.
///
/// # Errors
/// If the model does not have a table that the recipe names.
pub(crate) fn sha256(
    config: &EmbeddingsConfig,
    tokenizers: &TokenizerPair,
    store: &ParameterStore,
) -> Result<String> {
    let mut hash = Sha256::new();
    for (table, ..) in tables(config, tokenizers, store)? {
        let values = table.values()?;
        values.iter().for_each(|value| hash.update(value.to_le_bytes()));
    }
    Ok(hexadecimal(&hash.finalize()))
}

fn token(tokenizer: &Tokenizer, id: usize) -> String {
    u32::try_from(id).ok().and_then(|id| tokenizer.token(id)).unwrap_or_default()
}

fn one_hot(table: &Parameter, tokenizer: &Tokenizer) -> Result<TakenVectors> {
    let (tokens, width) = (table.shape()[0], table.shape()[1]);
    if tokens > width {
        bail!(
            "model.embeddings.one_hot: {} has {tokens} tokens, and model.d_model = {width} has no \
             place for each: it must be at least {tokens}",
            table.name()
        );
    }
    let value = |i: usize| if i / width == i % width { 1.0 } else { 0.0 };
    table.set((0..tokens * width).map(value).collect())?;
    let itself = |id| (token(tokenizer, id), Some(token(tokenizer, id)));
    Ok(TakenVectors {
        parameter: table.name().to_owned(),
        file: None,
        tokens: (0..tokens).map(itself).collect(),
        taken: tokens,
        unused: 0,
        frozen: false,
    })
}

/// For each of `tokens` tokens, the index of the word whose vector it gets: the first word that,
/// alone or after a space, consists only of this token. `None` if there is no such word.
fn matches(words: &[String], tokenizer: &Tokenizer, tokens: usize) -> Result<Vec<Option<usize>>> {
    let mut of_token = vec![None; tokens];
    let spaced: Vec<String> = words.iter().map(|word| format!(" {word}")).collect();
    let (alone, spaced) = (tokenizer.encode_batch(words)?, tokenizer.encode_batch(&spaced)?);
    for (word, ids) in alone.iter().zip(&spaced).enumerate() {
        for ids in [ids.0, ids.1] {
            if let [id] = ids[..]
                && !tokenizer.is_unknown(id)
                && let Some(place @ None) = of_token.get_mut(id as usize)
            {
                *place = Some(word);
            }
        }
    }
    Ok(of_token)
}

fn from_file(table: &Parameter, tokenizer: &Tokenizer, file: &Path) -> Result<TakenVectors> {
    let vectors = WordVectors::open(file).context("model.embeddings")?;
    let (tokens, width) = (table.shape()[0], table.shape()[1]);
    ensure!(
        vectors.dimensions() == width,
        "model.embeddings: the vectors of {} have {} dimensions, and model.d_model is {width}: \
             they must be the same",
        file.display(),
        vectors.dimensions()
    );
    let of_token = matches(vectors.words(), tokenizer, tokens)?;
    let rows: Vec<usize> = of_token.iter().flatten().copied().collect();
    ensure!(
        !rows.is_empty(),
        "model.embeddings: no token is one of the {} words of {}; is the file of another \
             language or another spelling than the text?",
        vectors.words().len(),
        file.display()
    );
    let mut values = table.values()?;
    let squares = |values: &[f32]| values.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>();
    let drawn = squares(&values) / values.len() as f64;
    let mean_square = rows.iter().map(|&row| squares(vectors.row(row))).sum::<f64>();
    let mean_square = mean_square / (rows.len() * width) as f64;
    let factor = if mean_square > 0.0 { (drawn / mean_square).sqrt() as f32 } else { 1.0 };
    for (row, word) in values.chunks_exact_mut(width).zip(&of_token) {
        let Some(word) = word else { continue };
        for (value, number) in row.iter_mut().zip(vectors.row(*word)) {
            *value = factor * number;
        }
    }
    table.set(values)?;
    let mut used = rows.clone();
    used.sort_unstable();
    used.dedup();
    let word = |id: usize| of_token[id].map(|word| vectors.words()[word].clone());
    Ok(TakenVectors {
        parameter: table.name().to_owned(),
        file: Some(file.to_owned()),
        tokens: (0..tokens).map(|id| (token(tokenizer, id), word(id))).collect(),
        taken: rows.len(),
        unused: vectors.words().len() - used.len(),
        frozen: false,
    })
}

/// Writes a list of the tokens of all tables to the folder of a run. Each token comes with the word
/// whose vector it got.
///
/// # Errors
/// If the file cannot be written.
pub(crate) fn list(taken: &[TakenVectors], folder: &Path) -> Result<()> {
    Ok(write_whole(&folder.join(TAKEN_FILE), |out| {
        writeln!(out, "table\ttoken\tword")?;
        for table in taken {
            for (token, word) in &table.tokens {
                let (token, word) =
                    (token.escape_debug(), word.as_deref().unwrap_or("").escape_debug());
                writeln!(out, "{}\t{token}\t{word}", table.parameter)?;
            }
        }
        Ok(())
    })?)
}
