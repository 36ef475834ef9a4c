//! Beam search over a batch of sentences, with exact early stopping.
//!
//! At each position the continuations of a sentence's live hypotheses are ordered by total
//! log-probability. A continuation that ends with `</s>` is finished if it is among the best
//! `beam_size`, and dropped otherwise. The best `beam_size` of the others are the live hypotheses
//! of the next position, so that finished hypotheses do not narrow the beam. The best `n_best`
//! finished hypotheses by normalised score are kept.
//!
//! A sentence stops once no live hypothesis can still enter its n-best list. Log-probabilities are
//! at most 0, so a live total `L ≤ 0` can only fall, length penalty and reward are largest at the
//! maximum length `m`, and the shortfall penalty is smallest there: no descendant can score above
//! `score(L, m + 1)`. If that bound, for the best `L`, does not exceed the worst kept score of a
//! full list, running to the maximum length would give the same list. With `patience`, a sentence
//! stops earlier: once enough hypotheses have finished.
//!
//! A sentence with phrases has a beam that is [divided among them](super::phrases). Hypotheses that
//! lack a phrase stay likelier than finished ones until the maximum length, so that no exact bound
//! stops the search. It stops once the number of finished hypotheses reaches the width of its beam,
//! and no live one that has all phrases would score better if it ended.
//!
//! The settings of lengths do not affect which hypotheses live; they only affect the order of
//! finished ones, and when this order is final. So one search can find the lists under several
//! settings: it continues until each list is final.

use crate::model::step::{TopK, drop_cancelled, select_if_changed, step_rows, wanted};
use crate::search::candidates::{Candidate, best_tokens};
use crate::search::constraints::{Constraints, looks_back};
use crate::search::hypothesis::Path;
use crate::search::phrases::{Progress, shared_out, token_count};
use crate::{
    Control, DecodingConfig, DecodingError, Hypothesis, OutputLimits, Result, SearchRules,
    Sentence, SpecialIds, StepModel,
};

/// Parent of a hypothesis' first token.
const ROOT: usize = usize::MAX;

/// One token of a hypothesis. Hypotheses of a sentence share their common beginnings.
struct Node {
    parent: usize,
    token: u32,
    /// The log-probability of the token alone.
    log_probability: f64,
}

/// A hypothesis that is still growing.
#[derive(Clone, Copy)]
struct Live {
    /// Node of its last token, [`ROOT`] before the first.
    node: usize,
    /// Last token, the next model input.
    token: u32,
    log_probability: f64,
    /// Number that orders the beam: the log-probability, after the repetition penalty if there is
    /// one.
    rank: f64,
    /// Progress through the phrases of the sentence.
    progress: Progress,
}

/// A continuation of one of a sentence's live hypotheses.
#[derive(Clone, Copy)]
struct Continuation {
    /// Index of the live hypothesis.
    live: usize,
    token: u32,
    /// The log-probability of the token alone.
    of_token: f64,
    /// Total log-probability with this token.
    log_probability: f64,
    rank: f64,
    progress: Progress,
}

/// Fate of a continuation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BeamFate {
    /// The continuation became a live hypothesis at the next position.
    Kept,
    /// The continuation ended.
    Finished,
    /// Better continuations displaced it.
    Dropped,
}

/// A continuation that a beam search considered: one token after a hypothesis.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BeamNode {
    /// Continuation that it extends; `None` for the first tokens.
    pub parent: Option<usize>,
    /// The token.
    pub token: u32,
    /// Log-probability of all tokens up to this one.
    pub log_probability: f64,
    /// Fate in the search.
    pub fate: BeamFate,
}

/// All continuations that a search considered, in the order of positions.
#[derive(Default)]
struct Trace {
    nodes: Vec<BeamNode>,
    /// Index of each node of the search among them.
    kept: Vec<usize>,
}

/// Search for one sentence.
struct Search<'a> {
    /// Index of the sentence.
    index: usize,
    sentence: Sentence<'a>,
    limits: OutputLimits,
    /// Number of live hypotheses: the configured number, or more if phrases have more tokens.
    width: usize,
    nodes: Vec<Node>,
    /// Live hypotheses, best first; all have the same length.
    live: Vec<Live>,
    /// Best finished hypotheses by score under each of the settings, best first; among equals, the
    /// first one found comes first.
    finished: Vec<Vec<Hypothesis>>,
    /// Number of finished hypotheses, kept or not.
    finished_count: usize,
    /// Continuations that were considered, if they are recorded.
    trace: Option<Trace>,
}

impl<'a> Search<'a> {
    fn new(
        index: usize,
        sentence: Sentence<'a>,
        first: u32,
        limits: OutputLimits,
        settings: &[DecodingConfig],
    ) -> Self {
        let progress = Progress::default();
        let lists = settings.len();
        let least = match token_count(sentence.phrases) {
            0 => 0,
            tokens => tokens + 1,
        };
        Self {
            index,
            sentence,
            limits,
            width: settings.first().map_or(1, |config| config.beam_size).max(least),
            nodes: Vec::new(),
            live: vec![Live {
                node: ROOT,
                token: first,
                log_probability: 0.0,
                rank: 0.0,
                progress,
            }],
            finished: vec![Vec::new(); lists],
            finished_count: 0,
            trace: None,
        }
    }

    /// Advances by one position, given the best tokens of each live hypothesis. Returns, for each
    /// new one, the index of the former live hypothesis that it extends.
    fn advance(
        &mut self,
        candidates: &[Vec<Candidate>],
        special: &SpecialIds,
        settings: &[DecodingConfig],
    ) -> Vec<usize> {
        let (width, phrases) = (self.width, self.sentence.phrases);
        let former = std::mem::take(&mut self.live);
        let mut origins = Vec::with_capacity(width);
        let continuations = continuations(&former, candidates, phrases);
        for (place, continuation) in continuations.into_iter().enumerate() {
            let parent = former[continuation.live].node;
            let Continuation { token, of_token, log_probability, rank, progress, .. } =
                continuation;
            let is_end = special.is_end(token);
            // A hypothesis that lacks a phrase ends at the maximum length only if no other has
            // finished.
            let may_end = self.finished_count == 0 || progress.is_complete(phrases);
            let fate = match is_end {
                true if place < width && may_end => BeamFate::Finished,
                false if self.live.len() < width => BeamFate::Kept,
                _ => BeamFate::Dropped,
            };
            // Continuations far behind are not recorded.
            if let Some(trace) = self.trace.as_mut().filter(|_| place < 2 * width) {
                if fate == BeamFate::Kept {
                    trace.kept.push(trace.nodes.len());
                }
                let parent = trace.kept.get(parent).copied();
                trace.nodes.push(BeamNode { parent, token, log_probability, fate });
            }
            if is_end {
                if fate == BeamFate::Finished {
                    self.finished_count += 1;
                    let path = self.path(parent, of_token, log_probability, rank);
                    let path = path.stopped(self.limits, &settings[0]);
                    for (list, config) in self.finished.iter_mut().zip(settings) {
                        keep(list, &path, self.limits, config);
                    }
                }
            } else if self.live.len() < width {
                let node = self.nodes.len();
                self.live.push(Live { node, token, log_probability, rank, progress });
                self.nodes.push(Node { parent, token, log_probability: of_token });
                origins.push(continuation.live);
            }
        }
        if !phrases.is_empty() {
            // Best first again.
            let mut both: Vec<(Live, usize)> = self.live.drain(..).zip(origins).collect();
            both.sort_by(|(a, _), (b, _)| b.rank.total_cmp(&a.rank));
            (self.live, origins) = both.into_iter().unzip();
        }
        origins
    }

    /// Whether no live hypothesis can still change an n-best list, or enough have finished.
    fn is_over(&self, settings: &[DecodingConfig]) -> bool {
        let Some(best_live) = self.live.first() else {
            return true;
        };
        let longest = self.limits.max_length.saturating_add(1);
        self.finished.iter().zip(settings).all(|(list, config)| {
            if list.len() < config.kept() {
                return false;
            }
            let wanted = (config.beam_size as f64 * config.patience).round();
            let enough = (config.patience > 0.0 && self.finished_count as f64 >= wanted)
                || self.has_best_with_phrases(list, config);
            let bound = match config.rules {
                SearchRules::Exact => config.score(best_live.rank, longest, self.limits),
                SearchRules::Transformers | SearchRules::TransformersOpen => {
                    let length = self.back_from(best_live.node).count();
                    config.score(best_live.rank, length, self.limits)
                }
            };
            enough || list.last().is_some_and(|worst| bound <= worst.score)
        })
    }

    /// Whether the search for a sentence with phrases has enough finished hypotheses, and no live
    /// one with all phrases would enter the list if it ended.
    fn has_best_with_phrases(&self, list: &[Hypothesis], config: &DecodingConfig) -> bool {
        let phrases = self.sentence.phrases;
        if phrases.is_empty() || self.finished_count < config.beam_size {
            return false;
        }
        let whole = self.live.iter().find(|live| live.progress.is_complete(phrases));
        let score = |live: &Live| {
            config.score(live.rank, self.back_from(live.node).count() + 1, self.limits)
        };
        match (whole, list.last()) {
            (Some(live), Some(worst)) => score(live) <= worst.score,
            _ => true,
        }
    }

    /// Leaves the best `n_best` in each list.
    ///
    /// # Errors
    /// [`DecodingError::DeadEnd`] if no hypothesis has finished.
    fn finish(&mut self, settings: &[DecodingConfig]) -> Result<()> {
        if self.finished.iter().any(Vec::is_empty) {
            return Err(DecodingError::DeadEnd { sentence: self.index });
        }
        for (list, config) in self.finished.iter_mut().zip(settings) {
            list.truncate(config.n_best);
        }
        Ok(())
    }

    /// The nodes from `node` back to the first.
    fn back_from(&self, node: usize) -> impl Iterator<Item = &Node> {
        std::iter::successors(self.nodes.get(node), |node| self.nodes.get(node.parent))
    }

    /// Tokens up to `node`, in order.
    fn tokens(&self, node: usize) -> Vec<u32> {
        let mut tokens: Vec<u32> = self.back_from(node).map(|node| node.token).collect();
        tokens.reverse();
        tokens
    }

    /// Path through `node` to `</s>`, with its totals; `of_end` is the log-probability of `</s>`.
    fn path(&self, node: usize, of_end: f64, log_probability: f64, rank: f64) -> Path {
        let own = self.back_from(node).map(|node| node.log_probability);
        let mut token_log_probabilities: Vec<f64> = std::iter::once(of_end).chain(own).collect();
        token_log_probabilities.reverse();
        Path { tokens: self.tokens(node), token_log_probabilities, log_probability, rank }
    }
}

/// Continuations of live hypotheses, given the best tokens of each, best first; with phrases, in
/// the order of a divided beam.
fn continuations(
    live: &[Live],
    candidates: &[Vec<Candidate>],
    phrases: &[Vec<u32>],
) -> Vec<Continuation> {
    let mut continuations: Vec<Continuation> = live
        .iter()
        .zip(candidates)
        .enumerate()
        .flat_map(|(live, (hypothesis, candidates))| {
            candidates.iter().map(move |candidate| Continuation {
                live,
                token: candidate.token,
                of_token: candidate.log_probability,
                log_probability: hypothesis.log_probability + candidate.log_probability,
                rank: hypothesis.rank + candidate.rank,
                progress: hypothesis.progress.after(candidate.token, phrases),
            })
        })
        .collect();
    // The sort is stable. Before it, the order is by hypothesis, and within one by probability and
    // then by id, which settles ties.
    continuations.sort_by(|a, b| b.rank.total_cmp(&a.rank));
    if phrases.is_empty() {
        return continuations;
    }
    let tokens = |one: Continuation| (one.progress.tokens(phrases), one);
    shared_out(continuations.into_iter().map(tokens).collect())
}

/// Adds a finished hypothesis to a list, best first, if it is among the `n_best`.
fn keep(list: &mut Vec<Hypothesis>, path: &Path, limits: OutputLimits, config: &DecodingConfig) {
    let score = config.score(path.rank, path.token_log_probabilities.len(), limits);
    let position = list.partition_point(|kept| kept.score >= score);
    if position < config.kept() {
        list.insert(position, Hypothesis::of(path.clone(), limits, config));
        list.truncate(config.kept());
    }
}

/// Translates one batch by beam search.
///
/// `sources` end with `</s>`. The result has, for each source in order, its `n_best` hypotheses,
/// best score first (fewer if fewer have finished). All hypotheses of all unfinished sentences are
/// stepped together; a sentence leaves the batch as soon as its list is final.
///
/// # Errors
/// [`DecodingError::NotADistribution`] and [`DecodingError::DeadEnd`] with the index of the source,
/// and errors of the model.
pub fn beam_search<M: StepModel>(
    model: &M,
    sources: &[&[u32]],
    config: &DecodingConfig,
) -> Result<Vec<Vec<Hypothesis>>> {
    beam(model, &Sentence::plain(sources), config, &())
}

pub(crate) fn beam<M: StepModel>(
    model: &M,
    sentences: &[Sentence<'_>],
    config: &DecodingConfig,
    control: &dyn Control,
) -> Result<Vec<Vec<Hypothesis>>> {
    let found = beam_under(model, sentences, std::slice::from_ref(config), control)?;
    Ok(found.into_iter().flatten().collect())
}

/// Translates one source, which ends with `</s>`, by beam search, and returns the continuations
/// that the search considered.
///
/// # Errors
/// The errors of [`beam_search`].
pub fn beam_tree<M: StepModel>(
    model: &M,
    source: &[u32],
    config: &DecodingConfig,
) -> Result<(Vec<Hypothesis>, Vec<BeamNode>)> {
    let sources = [source];
    let sentences = Sentence::plain(&sources);
    let mut nodes = Vec::new();
    let settings = std::slice::from_ref(config);
    let found = beam_traced(model, &sentences, settings, &(), Some(&mut nodes))?;
    Ok((found.into_iter().flatten().flatten().collect(), nodes))
}

/// Finds the n-best lists of each sentence under each of `settings` in a single search; they may
/// differ only in [`LengthSettings`](crate::LengthSettings). The lists of a sentence that `control`
/// cancels are empty.
pub(crate) fn beam_under<M: StepModel>(
    model: &M,
    sentences: &[Sentence<'_>],
    settings: &[DecodingConfig],
    control: &dyn Control,
) -> Result<Vec<Vec<Vec<Hypothesis>>>> {
    beam_traced(model, sentences, settings, control, None)
}

/// Runs [`beam_under`], and puts the continuations of the search that ends last into `traced`.
fn beam_traced<M: StepModel>(
    model: &M,
    sentences: &[Sentence<'_>],
    settings: &[DecodingConfig],
    control: &dyn Control,
    mut traced: Option<&mut Vec<BeamNode>>,
) -> Result<Vec<Vec<Vec<Hypothesis>>>> {
    let mut results: Vec<Vec<Vec<Hypothesis>>> =
        vec![vec![Vec::new(); settings.len()]; sentences.len()];
    let begun = wanted(control, sentences.len());
    let Some(config) = settings.first().filter(|_| !begun.is_empty()) else {
        return Ok(results);
    };
    let (special, longest) = (model.special(), model.longest_output());
    let mut active: Vec<Search<'_>> = begun
        .iter()
        .map(|&index| {
            let sentence = sentences[index];
            let first = model.first_input(sentence.source);
            let limits = sentence.limits(config, longest);
            let trace = traced.as_ref().map(|_| Trace::default());
            Search { trace, ..Search::new(index, sentence, first, limits, settings) }
        })
        .collect();
    let sources: Vec<&[u32]> = begun.iter().map(|&index| sentences[index].source).collect();
    let mut state = model.start(&sources)?;
    let mut position = 0;
    loop {
        let place = |search: &Search<'_>| (search.index, search.live.len());
        drop_cancelled(model, &mut state, control, &mut active, place)?;
        if active.is_empty() {
            break;
        }
        let candidates = best_continuations(model, &mut state, &active, config, position)?;
        let mut kept_rows = Vec::with_capacity(candidates.len());
        let mut still_active = Vec::with_capacity(active.len());
        let mut first_row = 0;
        for mut search in active {
            let rows = first_row..first_row + search.live.len();
            first_row = rows.end;
            let origins = search.advance(&candidates[rows.clone()], special, settings);
            if search.is_over(settings) {
                search.finish(settings)?;
                results[search.index] = search.finished;
                if let (Some(traced), Some(trace)) = (&mut traced, search.trace) {
                    **traced = trace.nodes;
                }
            } else {
                kept_rows.extend(origins.into_iter().map(|live| rows.start + live));
                still_active.push(search);
            }
        }
        active = still_active;
        if !active.is_empty() {
            select_if_changed(model, &mut state, candidates.len(), &kept_rows)?;
        }
        position += 1;
    }
    Ok(results)
}

/// Steps the model, and returns the best tokens of each live hypothesis after `position` tokens.
fn best_continuations<M: StepModel>(
    model: &M,
    state: &mut M::State,
    active: &[Search<'_>],
    config: &DecodingConfig,
    position: usize,
) -> Result<Vec<Vec<Candidate>>> {
    let special = model.special();
    // More tokens than the beam size are taken: an end takes no place from hypotheses that
    // continue.
    let enough = |search: &Search<'_>| search.width + special.ends();
    let most = active.iter().map(enough).max().unwrap_or(1);
    let rows: Vec<(&Search<'_>, Live)> = active
        .iter()
        .flat_map(|search| search.live.iter().map(move |&live| (search, live)))
        .collect();
    let inputs: Vec<u32> = rows.iter().map(|(_, live)| live.token).collect();
    let constraints = |&(search, live)| constraints(search, live, special, position, config);
    let top_k = TopK::under(model, most, rows.iter().map(constraints));
    step_rows(model, state, &inputs, top_k, |row, logits| {
        let sentence = rows[row].0.index;
        best_tokens(logits, enough(rows[row].0), &constraints(&rows[row]))
            .ok_or(DecodingError::NotADistribution { sentence, position })
    })
}

/// Constraints on the next token of a live row after `position` output tokens.
fn constraints<'a>(
    search: &Search<'_>,
    live: Live,
    special: &'a SpecialIds,
    position: usize,
    config: &DecodingConfig,
) -> Constraints<'a> {
    let history = if looks_back(config) { search.tokens(live.node) } else { Vec::new() };
    let (sentence, limits) = (&search.sentence, search.limits);
    Constraints::after(special, position, &history, sentence, limits, config)
        .containing(live.progress, sentence.phrases)
}
