//! Beam search over a batch of sentences, with exact early stopping.
//!
//! At each position the `beam_size` best continuations of a sentence's live hypotheses are taken,
//! by total log-probability. Those that end with `</s>` are finished and no longer followed; the
//! others are the live hypotheses of the next position. The best `n_best` finished ones by
//! normalised score are kept.
//!
//! A sentence stops once no live hypothesis can still enter its n-best list. Log-probabilities are
//! at most 0, so a live total `L ≤ 0` can only fall, and the penalty is largest at the maximum
//! length `m`: no descendant can score above `L / penalty(m + 1)`. Where that bound, for the best
//! `L`, does not exceed the worst kept score of a full list, the list is what running on to the
//! maximum length would give.

use rayon::prelude::*;

use crate::select::{Allowed, Candidate, best_tokens};
use crate::step::{checked_step, select_if_changed};
use crate::tokens::{BOS, EOS};
use crate::{DecodingConfig, DecodingError, Hypothesis, OutputLimits, Result, StepModel, length_penalty};

/// The parent of a hypothesis' first token.
const ROOT: usize = usize::MAX;

/// One token of a hypothesis. Hypotheses of a sentence share their common beginnings.
struct Node {
    parent: usize,
    token: u32,
}

/// A hypothesis that is still growing.
#[derive(Clone, Copy)]
struct Live {
    /// Its last token's node, [`ROOT`] before the first.
    node: usize,
    /// Its last token, the next model input.
    token: u32,
    log_probability: f64,
}

/// A continuation of one of a sentence's live hypotheses.
#[derive(Clone, Copy)]
struct Continuation {
    /// Which live hypothesis.
    live: usize,
    token: u32,
    /// The total with this token.
    log_probability: f64,
}

/// The search of one sentence.
struct Search {
    sentence: usize,
    limits: OutputLimits,
    /// The penalty at the longest output, for the bound on what live hypotheses can reach.
    largest_penalty: f64,
    nodes: Vec<Node>,
    /// Best first; all of the same length.
    live: Vec<Live>,
    /// The best by score, best first, the earlier found first among equals.
    finished: Vec<Hypothesis>,
}

impl Search {
    fn new(sentence: usize, source: &[u32], config: &DecodingConfig) -> Self {
        let limits = config.output_limits(source.len().saturating_sub(1));
        Self {
            sentence,
            limits,
            largest_penalty: length_penalty(limits.max_length.saturating_add(1), config.length_penalty),
            nodes: Vec::new(),
            live: vec![Live { node: ROOT, token: BOS, log_probability: 0.0 }],
            finished: Vec::new(),
        }
    }

    /// Moves on by one position, given the best tokens of each live hypothesis. Returns which of
    /// the former live hypotheses each new one continues.
    fn advance(&mut self, candidates: &[Vec<Candidate>], config: &DecodingConfig) -> Vec<usize> {
        let former = std::mem::take(&mut self.live);
        let mut continuations: Vec<Continuation> = former
            .iter()
            .zip(candidates)
            .enumerate()
            .flat_map(|(live, (hypothesis, candidates))| {
                candidates.iter().map(move |candidate| Continuation {
                    live,
                    token: candidate.token,
                    log_probability: hypothesis.log_probability + candidate.log_probability,
                })
            })
            .collect();
        // The sort is stable and the order before it is by hypothesis, likelier and then lower
        // token: that settles ties.
        continuations.sort_by(|a, b| b.log_probability.total_cmp(&a.log_probability));
        continuations.truncate(config.beam_size);

        let mut origins = Vec::with_capacity(continuations.len());
        for continuation in continuations {
            let node = former[continuation.live].node;
            if continuation.token == EOS {
                let tokens = self.tokens(node);
                self.keep(Hypothesis::finished(tokens, continuation.log_probability, config.length_penalty), config.n_best);
            } else {
                self.live.push(Live { node: self.nodes.len(), token: continuation.token, log_probability: continuation.log_probability });
                self.nodes.push(Node { parent: node, token: continuation.token });
                origins.push(continuation.live);
            }
        }
        origins
    }

    /// Adds a finished hypothesis where it is among the `n_best`.
    fn keep(&mut self, hypothesis: Hypothesis, n_best: usize) {
        let position = self.finished.partition_point(|kept| kept.score >= hypothesis.score);
        self.finished.insert(position, hypothesis);
        self.finished.truncate(n_best);
    }

    /// Whether no live hypothesis can still change the n-best list.
    fn is_over(&self, n_best: usize) -> bool {
        let Some(best_live) = self.live.first() else {
            return true;
        };
        let bound = best_live.log_probability / self.largest_penalty;
        self.finished.len() >= n_best && self.finished.last().is_some_and(|worst| bound <= worst.score)
    }

    /// The tokens up to `node`, in order.
    fn tokens(&self, mut node: usize) -> Vec<u32> {
        let mut tokens = Vec::new();
        while let Some(Node { parent, token }) = self.nodes.get(node) {
            tokens.push(*token);
            node = *parent;
        }
        tokens.reverse();
        tokens
    }
}

/// Translates one batch by beam search.
///
/// `sources` end with `</s>`; each gives its best `n_best` hypotheses, best score first, in their
/// order (fewer where the beam finished fewer). All hypotheses of all unfinished sentences are
/// stepped together; a sentence leaves the batch as soon as its list is settled.
///
/// # Errors
/// [`DecodingError::NotADistribution`] and [`DecodingError::DeadEnd`] with the index of the source,
/// and whatever the model reports.
pub fn beam_search<M: StepModel>(model: &M, sources: &[&[u32]], config: &DecodingConfig) -> Result<Vec<Vec<Hypothesis>>> {
    if sources.is_empty() {
        return Ok(Vec::new());
    }
    let mut results: Vec<Vec<Hypothesis>> = vec![Vec::new(); sources.len()];
    let mut active: Vec<Search> = sources.iter().enumerate().map(|(sentence, source)| Search::new(sentence, source, config)).collect();
    let mut state = model.start(sources)?;
    let mut position = 0;
    while !active.is_empty() {
        let inputs: Vec<u32> = active.iter().flat_map(|search| search.live.iter().map(|live| live.token)).collect();
        let logits = checked_step(model, &mut state, &inputs)?;
        let candidates = candidates(&logits, model.vocabulary_size(), &active, position, config)?;

        let mut kept_rows = Vec::with_capacity(inputs.len());
        let mut still_active = Vec::with_capacity(active.len());
        let mut first_row = 0;
        for mut search in active {
            let rows = first_row..first_row + search.live.len();
            first_row = rows.end;
            let origins = search.advance(&candidates[rows.clone()], config);
            if search.is_over(config.n_best) {
                if search.finished.is_empty() {
                    let sentence = search.sentence;
                    return Err(DecodingError::DeadEnd { sentence });
                }
                results[search.sentence] = search.finished;
            } else {
                kept_rows.extend(origins.into_iter().map(|live| rows.start + live));
                still_active.push(search);
            }
        }
        active = still_active;
        if !active.is_empty() {
            select_if_changed(model, &mut state, inputs.len(), &kept_rows)?;
        }
        position += 1;
    }
    Ok(results)
}

/// The best allowed tokens of each live row after `position` output tokens, rows in parallel.
fn candidates(
    logits: &[f32],
    vocabulary_size: usize,
    active: &[Search],
    position: usize,
    config: &DecodingConfig,
) -> Result<Vec<Vec<Candidate>>> {
    let row_owners: Vec<&Search> = active.iter().flat_map(|search| std::iter::repeat_n(search, search.live.len())).collect();
    logits
        .par_chunks(vocabulary_size)
        .zip(row_owners)
        .map(|(logits, search)| {
            let allowed = Allowed::after(position, search.limits, config);
            best_tokens(logits, config.beam_size, allowed).ok_or(DecodingError::NotADistribution { sentence: search.sentence, position })
        })
        .collect()
}
