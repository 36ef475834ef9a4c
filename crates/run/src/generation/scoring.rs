//! Probabilities of given texts by a language model.

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use taper_data::{Documents, Tokenizer};
use taper_model::{LanguageModel, Model, Sequences};

use super::beginning;
use crate::LoadedRun;
use crate::finite::require_finite;
use crate::items::{BadItem, answer_each};

/// Approximate number of tokens in one batch.
const TOKENS: usize = 4096;

/// Message of the error for an empty text.
const EMPTY: &str = "is empty: there is nothing to score";
/// Message of the error for a text that has no tokens, or that adds no tokens to a prompt.
const NO_TOKENS: &str = "adds no tokens: there is nothing to score";

/// Score that a model gives to a text.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TextScore {
    /// Sum over the tokens of the natural logarithms of their probabilities.
    pub log_probability: f64,
    /// Perplexity: `exp` of the mean negative log-probability of a token.
    pub perplexity: f64,
    /// Entries of the vocabulary for the tokens of the text.
    pub tokens: Vec<String>,
    /// Natural logarithm of the probability of each token, given its predecessors.
    pub token_log_probabilities: Vec<f64>,
}

/// Scores of several continuations of a prompt, and the continuation that the model prefers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChoiceScore {
    /// Log-probability of each continuation, in nats.
    pub log_probabilities: Vec<f64>,
    /// Number of scored tokens of each continuation.
    pub tokens: Vec<usize>,
    /// Index of the continuation with the highest log-probability; the first one among equals.
    pub best: usize,
    /// Index of the continuation with the highest log-probability per byte (Gao et al. 2021, "A
    /// framework for few-shot language model evaluation"), a measure that does not favour short
    /// continuations.
    pub best_per_byte: usize,
}

/// Scorer of texts with the language model of a loaded run.
#[derive(Debug)]
pub struct TextScorer<'a> {
    model: &'a LanguageModel,
    tokenizer: &'a Tokenizer,
    /// Tokens that the model reads before a text, so that it predicts the text's first token, too.
    before: Vec<u32>,
}

/// Tokens of a text, which is scored from the token at index `from` on.
struct Scored {
    ids: Vec<u32>,
    from: usize,
}

impl<'a> TextScorer<'a> {
    /// Scorer with the model of a run (folder of a trained model).
    ///
    /// # Errors
    /// If the tokenizer cannot spell the token that stands before a text.
    pub fn new(run: &'a LoadedRun<LanguageModel>) -> Result<Self> {
        let tokenizer = run.tokenizers.target();
        let documents: Documents = run.config.data.text.documents;
        let before = beginning(tokenizer, documents)?;
        Ok(Self { model: &run.model, tokenizer, before })
    }

    /// Ids of the tokens that stand before every text, followed by the ids of the tokens of `text`.
    /// The text is read as the beginning of a document, up to its last token.
    ///
    /// # Errors
    /// If the text is empty or has no tokens, or has more tokens than the model has positions.
    pub fn read(&self, text: &str) -> Result<Vec<u32>> {
        self.row(text, &self.tokenizer.encode(text).context("the text")?)
    }

    /// Like [`TextScorer::read`], for a text that is already tokenised: `ids` are its tokens.
    ///
    /// # Errors
    /// See [`TextScorer::read`].
    pub fn row(&self, text: &str, ids: &[u32]) -> Result<Vec<u32>> {
        ensure!(!text.is_empty(), "the text: {EMPTY}");
        ensure!(!ids.is_empty(), "the text: {NO_TOKENS}");
        let ids = [self.before.as_slice(), ids].concat();
        self.require_positions(ids.len()).context("the text")?;
        Ok(ids)
    }

    /// Returns an error if the model has no positions for `read` tokens.
    fn require_positions(&self, read: usize) -> Result<()> {
        let most = self.model.config().longest_sequence().unwrap_or(usize::MAX);
        ensure!(
            read <= most,
            "has {read} tokens, but positions end at model.max_positions = {most}: divide it into \
             parts"
        );
        Ok(())
    }

    /// Scores each text as the beginning of a document, and calls `done` with the number of texts
    /// that are scored so far. Texts without tokens and texts with more tokens than the model has
    /// positions are not scored: their result is an error with the number of the line, counted from
    /// 1.
    ///
    /// # Errors
    /// If the model fails.
    pub fn texts(
        &self,
        texts: &[String],
        done: impl FnMut(usize),
    ) -> Result<Vec<Result<TextScore>>> {
        let scored = texts.iter().enumerate().map(|(index, text)| {
            self.scored("", &[], text).with_context(|| format!("line {}", index + 1))
        });
        answer_each(scored, |scored| self.scores(&scored, done))
    }

    fn scores(&self, scored: &[Scored], done: impl FnMut(usize)) -> Result<Vec<TextScore>> {
        let log_probabilities = self.log_probabilities(scored, done)?;
        let score = |(scored, token_log_probabilities): (&Scored, Vec<f64>)| {
            let ids = &scored.ids[scored.from..];
            let log_probability: f64 = token_log_probabilities.iter().sum();
            TextScore {
                log_probability,
                perplexity: (-log_probability / ids.len() as f64).exp().min(f64::MAX),
                tokens: ids
                    .iter()
                    .map(|&id| self.tokenizer.token(id).unwrap_or_default())
                    .collect(),
                token_log_probabilities,
            }
        };
        Ok(scored.iter().zip(log_probabilities).map(score).collect())
    }

    /// Scores the continuations of a prompt. Scoring begins at the first token where prompt and
    /// continuation together are tokenised differently from the prompt alone.
    ///
    /// # Errors
    /// [`BadItem`] if there are no choices, or if a choice is empty, adds no tokens to the prompt,
    /// or has, with the prompt, more tokens than the model has positions. Other errors if the model
    /// fails.
    pub fn choices(&self, prompt: &str, choices: &[String]) -> Result<ChoiceScore> {
        let scored = || -> Result<Vec<Scored>> {
            ensure!(!choices.is_empty(), "there is nothing to choose from");
            let alone = self.tokenizer.encode(prompt)?;
            let scored = choices.iter().enumerate().map(|(index, choice)| {
                self.scored(prompt, &alone, choice).with_context(|| format!("choice {}", index + 1))
            });
            scored.collect()
        };
        let scored = scored().map_err(|error| BadItem::from_error(&error))?;
        let scores = self.log_probabilities(&scored, |_| {})?;
        let sums: Vec<f64> = scores.iter().map(|each| each.iter().sum()).collect();
        let per_byte: Vec<f64> =
            sums.iter().zip(choices).map(|(sum, choice)| sum / choice.len() as f64).collect();
        Ok(ChoiceScore {
            best: first_highest(&sums),
            best_per_byte: first_highest(&per_byte),
            log_probabilities: sums,
            tokens: scores.iter().map(Vec::len).collect(),
        })
    }

    /// Tokenises `prompt` and `text` as one string. `alone` has the tokens of the prompt without
    /// the text.
    fn scored(&self, prompt: &str, alone: &[u32], text: &str) -> Result<Scored> {
        ensure!(!text.is_empty(), "{EMPTY}");
        let whole = self.tokenizer.encode(&format!("{prompt}{text}"))?;
        // If a token spans the end of the prompt and the beginning of the text, scoring begins with
        // it.
        let shared = whole.iter().zip(alone).take_while(|(a, b)| a == b).count();
        ensure!(shared < whole.len(), "{NO_TOKENS}");
        let ids = [self.before.as_slice(), &whole].concat();
        // The last token is predicted but not read.
        self.require_positions(ids.len() - 1)?;
        Ok(Scored { ids, from: self.before.len() + shared })
    }

    fn log_probabilities(
        &self,
        scored: &[Scored],
        mut done: impl FnMut(usize),
    ) -> Result<Vec<Vec<f64>>> {
        let mut log_probabilities = Vec::with_capacity(scored.len());
        while log_probabilities.len() < scored.len() {
            let mut tokens = 0;
            let fits = |scored: &&Scored| {
                let before = tokens;
                tokens += scored.ids.len();
                before == 0 || tokens <= TOKENS
            };
            let batch: Vec<&Scored> =
                scored[log_probabilities.len()..].iter().take_while(fits).collect();
            let rows: Vec<&[u32]> = batch.iter().map(|one| &one.ids[..one.ids.len() - 1]).collect();
            let answers: Vec<u32> =
                batch.iter().flat_map(|one| one.ids[1..].iter().copied()).collect();
            let all = self.model.log_probabilities(&Sequences::pack(&rows), &answers)?;
            require_finite("the log-probabilities", all.iter().copied())?;
            let mut rest = all.as_slice();
            for one in batch {
                let (these, others) = rest.split_at(one.ids.len() - 1);
                log_probabilities.push(these[one.from - 1..].to_vec());
                rest = others;
            }
            done(log_probabilities.len());
        }
        Ok(log_probabilities)
    }
}

/// Index of the highest value; the first among equals.
fn first_highest(values: &[f64]) -> usize {
    let mut best = 0;
    for (index, value) in values.iter().enumerate() {
        if *value > values[best] {
            best = index;
        }
    }
    best
}
