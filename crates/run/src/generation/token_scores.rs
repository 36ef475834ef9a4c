//! Log-probabilities of each token of a text, and of the likeliest alternatives.
//!
//! Scores are computed after generation: the model reads the generated text once more, token by
//! token. So the search records no scores, and generation without scores is not slower.

use anyhow::{Result, bail};
use serde::Serialize;
use taper_data::Tokenizer;
use taper_decoding::{Control, StepModel};

use super::pieces::{INCOMPLETE, continuation};
use super::{Generator, WithTokens, before_prompts};

/// Token with its log-probability.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TokenScore {
    /// Id of the token.
    pub id: u32,
    /// Text of the token, or its entry in the vocabulary if it is not text or only a part of a
    /// character.
    pub text: String,
    /// Natural logarithm of the token's probability, given its predecessors; `None` for a first
    /// token, which is not predicted because no token stands before it.
    pub log_probability: Option<f64>,
    /// Likeliest tokens after the same predecessors with their log-probabilities, the likeliest
    /// first.
    pub likeliest: Vec<(String, f64)>,
}

/// Scores at one position of a token sequence: the log-probability of its token, and the likeliest
/// tokens with their log-probabilities.
struct Place {
    log_probability: f64,
    likeliest: Vec<(u32, f64)>,
}

impl Generator<'_> {
    /// Scores the tokens of each of `texts`, which are pairs of a prompt and the text after it. If
    /// `whole`, the tokens of the prompt are scored, too. `most` is the number of likeliest tokens
    /// in each score. The generator's control is called between tokens. It can do other work, and
    /// cancel texts, which it names by their indices in `texts`. Of a cancelled text, only the
    /// tokens before the cancellation are scored.
    ///
    /// # Errors
    /// If the model or the tokenizer fails.
    pub fn token_scores(
        &self,
        texts: &[(&[u32], &[u32])],
        whole: bool,
        most: usize,
    ) -> Result<Vec<Vec<TokenScore>>> {
        // Tokens that the model reads before every prompt are not part of the prompt.
        let begins = before_prompts(self.tokenizer);
        let rows: Vec<(&[u32], Vec<u32>)> = texts
            .iter()
            .map(|&(prompt, text)| match whole {
                true => {
                    let known = if prompt.starts_with(&begins) { begins.len().max(1) } else { 1 };
                    let (first, rest) = prompt.split_at(known.min(prompt.len()));
                    (first, [rest, text].concat())
                }
                false => (prompt, text.to_vec()),
            })
            .collect();
        let places = places(&self.model, self.control, &rows, most)?;
        let scores = |((before, tokens), places): (&(&[u32], Vec<u32>), Vec<Place>)| {
            let mut scores = Vec::with_capacity(tokens.len() + 1);
            if whole
                && **before != begins
                && let [first] = **before
            {
                let text = spelled(self.tokenizer, &[], first)?;
                let likeliest = Vec::new();
                scores.push(TokenScore { id: first, text, log_probability: None, likeliest });
            }
            let mut previous = before.last().copied();
            for (&id, place) in tokens.iter().zip(places) {
                self.control.between_steps();
                let spelled = |id| spelled(self.tokenizer, previous.as_slice(), id);
                let likeliest = place.likeliest.into_iter();
                scores.push(TokenScore {
                    id,
                    text: spelled(id)?,
                    log_probability: Some(place.log_probability),
                    likeliest: likeliest
                        .map(|(id, log_probability)| Ok((spelled(id)?, log_probability)))
                        .collect::<Result<_>>()?,
                });
                previous = Some(id);
            }
            Ok(scores)
        };
        rows.iter().zip(places).map(scores).collect()
    }
}

/// Text of the token `id` after the tokens `before`; its entry in the vocabulary if it has no text.
fn spelled(tokenizer: &Tokenizer, before: &[u32], id: u32) -> Result<String> {
    let text = continuation(before, &[id], tokenizer)?;
    Ok(match text.is_empty() || text.contains(INCOMPLETE) {
        true => tokenizer.token(id).unwrap_or(text),
        false => text,
    })
}

/// Scores tokens. Each pair in `rows` is a token sequence: tokens that are only read, and the
/// tokens after them, which are scored until `control` cancels the row.
fn places(
    model: &WithTokens,
    control: &dyn Control,
    rows: &[(&[u32], Vec<u32>)],
    most: usize,
) -> Result<Vec<Vec<Place>>> {
    let mut places: Vec<Vec<Place>> = rows.iter().map(|_| Vec::new()).collect();
    let mut active: Vec<usize> = (0..rows.len()).filter(|&row| !rows[row].1.is_empty()).collect();
    if active.is_empty() {
        return Ok(places);
    }
    let sources: Vec<&[u32]> = active.iter().map(|&row| rows[row].0).collect();
    if sources.iter().any(|source| source.is_empty()) {
        bail!("there is nothing before the first token");
    }
    let mut state = model.start(&sources)?;
    let mut inputs: Vec<u32> = sources.iter().map(|source| model.first_input(source)).collect();
    let vocabulary = model.vocabulary_size();
    for at in 0.. {
        control.between_steps();
        let mut row = 0;
        model.step(&mut state, &inputs, |logits| {
            for logits in logits.chunks(vocabulary) {
                let index = active[row];
                places[index].push(place(logits, rows[index].1[at], most));
                row += 1;
            }
            Ok(())
        })?;
        let goes_on = |row: usize| at + 1 < rows[row].1.len() && !control.is_cancelled(row);
        let kept: Vec<usize> = (0..active.len()).filter(|&row| goes_on(active[row])).collect();
        if kept.is_empty() {
            break;
        }
        if kept.len() < active.len() {
            model.select(&mut state, &kept)?;
            active = kept.iter().map(|&row| active[row]).collect();
        }
        inputs = active.iter().map(|&row| rows[row].1[at]).collect();
    }
    Ok(places)
}

/// Scores `token`, and finds the `most` likeliest tokens, from the logits at one position.
fn place(logits: &[f32], token: u32, most: usize) -> Place {
    let highest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|&logit| f64::from(logit - highest).exp()).sum();
    let normalizer = f64::from(highest) + sum.ln();
    let log_probability = |logit: f32| (f64::from(logit) - normalizer).min(0.0);
    let mut order: Vec<u32> = (0..logits.len() as u32)
        .filter(|&token| logits[token as usize] != f32::NEG_INFINITY)
        .collect();
    let likelier =
        |a: &u32, b: &u32| logits[*b as usize].total_cmp(&logits[*a as usize]).then(a.cmp(b));
    if most < order.len() && most > 0 {
        order.select_nth_unstable_by(most - 1, likelier);
    }
    order.truncate(most);
    order.sort_unstable_by(likelier);
    let likeliest =
        order.into_iter().map(|token| (token, log_probability(logits[token as usize]))).collect();
    let token_logit = logits.get(token as usize).copied().unwrap_or(f32::NEG_INFINITY);
    Place { log_probability: log_probability(token_logit), likeliest }
}
