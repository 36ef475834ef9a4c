//! Beam of one sentence: its live (unfinished) and finished hypotheses, and the decision whether
//! its search is over.

use crate::search::candidates::Candidate;
use crate::search::constraints::{Constraints, looks_back};
use crate::search::hypothesis::Path;
use crate::search::phrases::{Progress, shared_out};
use crate::{
    DecodingConfig, DecodingError, Hypothesis, OutputLimits, Result, SearchRules, Sentence,
    SpecialIds,
};

/// Index that stands for no node: the last node of a hypothesis without tokens, and the parent of
/// the node of a first token.
const ROOT: usize = usize::MAX;

/// A node in the tree of hypotheses: a token, and the index of the node that has the token before
/// it. Hypotheses that begin with the same tokens share the nodes of these tokens.
struct Node {
    parent: usize,
    token: u32,
    /// Log-probability of this token.
    log_probability: f64,
}

/// An unfinished hypothesis.
#[derive(Clone, Copy)]
pub(super) struct Live {
    /// Index of the node of the last token; [`ROOT`] before the first token.
    node: usize,
    /// Last token, which is the next input of the model.
    pub(super) token: u32,
    log_probability: f64,
    /// Log-probability by which the beam is ordered. It differs from `log_probability` if
    /// repetition is penalised, or if forced tokens do not count.
    rank: f64,
    /// Record of the required phrases that the hypothesis already contains.
    progress: Progress,
}

/// A live hypothesis, continued by one token.
#[derive(Clone, Copy)]
struct Continuation {
    /// Index of the continued hypothesis among the live hypotheses.
    live: usize,
    token: u32,
    /// Log-probability of the added token.
    of_token: f64,
    /// Log-probability of the hypothesis, including the added token.
    log_probability: f64,
    rank: f64,
    progress: Progress,
}

/// Outcome of a continuation in a beam search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BeamFate {
    /// The continuation became a live hypothesis at the next position.
    Kept,
    /// The continuation ended with an end token, and is a finished hypothesis.
    Finished,
    /// The continuation was dropped: better continuations took all places in the beam, or it ended
    /// without a required phrase.
    Dropped,
}

/// A continuation that a beam search considered: a hypothesis and one more token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BeamNode {
    /// Index of the continuation to which this one adds a token; `None` for first tokens.
    pub parent: Option<usize>,
    /// The added token.
    pub token: u32,
    /// Log-probability of all tokens up to and including the added one.
    pub log_probability: f64,
    /// Fate of the continuation.
    pub fate: BeamFate,
}

/// Continuations that a search considered, by ascending position.
#[derive(Default)]
pub(super) struct Trace {
    pub(super) nodes: Vec<BeamNode>,
    /// For each [`Node`] of the beam, the index in `nodes` of the continuation that became this
    /// [`Node`].
    kept: Vec<usize>,
}

/// Beam of one sentence.
pub(super) struct SentenceBeam<'a> {
    /// Index of the sentence.
    pub(super) index: usize,
    /// Index of the group of a diverse beam search, if the sentence has several.
    pub(super) group: Option<usize>,
    sentence: Sentence<'a>,
    limits: OutputLimits,
    /// Width of the beam, the largest number of live hypotheses: the configured beam size or, if
    /// this is larger, the number of phrase tokens plus one.
    pub(super) width: usize,
    nodes: Vec<Node>,
    /// Live hypotheses, by descending rank; all have the same length.
    pub(super) live: Vec<Live>,
    /// For each of the `settings` (configurations that differ only in the settings of lengths), the
    /// finished hypotheses with the best scores, best first. Of hypotheses with equal scores, the
    /// one that finished first comes first.
    pub(super) finished: Vec<Vec<Hypothesis>>,
    /// For each of the `settings`, whether its search is over. If it is, its list in `finished`
    /// does not change any more, even if the search goes on for other settings.
    over: Vec<bool>,
    /// Number of hypotheses that have finished. Some of them can be missing in `finished`, because
    /// others have better scores.
    finished_count: usize,
    /// Continuations that were considered; `None` if they are not recorded.
    pub(super) trace: Option<Trace>,
}

impl<'a> SentenceBeam<'a> {
    pub(super) fn new(
        index: usize,
        sentence: Sentence<'a>,
        first: u32,
        limits: OutputLimits,
        settings: &[DecodingConfig],
    ) -> Self {
        let progress = Progress::default();
        let lists = settings.len();
        Self {
            index,
            group: None,
            sentence,
            limits,
            width: settings.first().map_or(1, |config| sentence.beam_width(config)),
            nodes: Vec::new(),
            live: vec![Live {
                node: ROOT,
                token: first,
                log_probability: 0.0,
                rank: 0.0,
                progress,
            }],
            finished: vec![Vec::new(); lists],
            over: vec![false; lists],
            finished_count: 0,
            trace: None,
        }
    }

    /// Advances by one position. `candidates` are the best next tokens of each live hypothesis.
    /// Returns, for each new live hypothesis, the index of the former live hypothesis that it
    /// continues. `taken`: tokens that hypotheses of earlier groups of the sentence have at this
    /// position.
    pub(super) fn advance(
        &mut self,
        candidates: &[Vec<Candidate>],
        special: &SpecialIds,
        settings: &[DecodingConfig],
        taken: &[u32],
    ) -> Vec<usize> {
        let (width, phrases) = (self.width, self.sentence.phrases);
        let former = std::mem::take(&mut self.live);
        let mut origins = Vec::with_capacity(width);
        let penalty = Penalty { taken, of_each: settings[0].diverse_penalty };
        let continuations = continuations(&former, candidates, phrases, penalty);
        for (place, continuation) in continuations.into_iter().enumerate() {
            let parent = former[continuation.live].node;
            let Continuation { token, of_token, log_probability, rank, progress, .. } =
                continuation;
            let is_end = special.is_end(token);
            // A hypothesis that lacks a phrase can end only at the maximum length. It becomes a
            // finished hypothesis only if no hypothesis has finished so far.
            let may_end = self.finished_count == 0 || progress.is_complete(phrases);
            let fate = match is_end {
                true if place < width && may_end => BeamFate::Finished,
                false if self.live.len() < width => BeamFate::Kept,
                _ => BeamFate::Dropped,
            };
            // The best `2 * width` continuations are recorded, and also all that are kept: if there
            // are several end tokens, many ends can be likelier than a continuation that is kept.
            let is_recorded = place < 2 * width || fate == BeamFate::Kept;
            if let Some(trace) = self.trace.as_mut().filter(|_| is_recorded) {
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
                    let lists = self.finished.iter_mut().zip(settings).zip(&self.over);
                    for ((list, config), _) in lists.filter(|(_, is_over)| !**is_over) {
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
            // `continuations` are not sorted by rank if there are phrases, so the live hypotheses
            // are sorted by rank here.
            let mut both: Vec<(Live, usize)> = self.live.drain(..).zip(origins).collect();
            both.sort_by(|(a, _), (b, _)| b.rank.total_cmp(&a.rank));
            (self.live, origins) = both.into_iter().unzip();
        }
        origins
    }

    /// Finds out for which of the `settings` the search is over. Returns true if it is over for all
    /// of them.
    pub(super) fn is_over(&mut self, settings: &[DecodingConfig]) -> bool {
        let Some(&best_live) = self.live.first() else {
            return true;
        };
        let lists = self.finished.iter().zip(settings).zip(&self.over);
        let is_over = |((list, config), &before): ((&Vec<Hypothesis>, _), &bool)| {
            before || self.is_final(list, best_live, config)
        };
        self.over = lists.map(is_over).collect();
        self.over.iter().all(|&is_over| is_over)
    }

    /// Whether the search with the settings `config` is over: either enough hypotheses have
    /// finished, or no live hypothesis can still enter `list`, the best finished hypotheses.
    fn is_final(&self, list: &[Hypothesis], best_live: Live, config: &DecodingConfig) -> bool {
        if list.len() < config.kept() {
            return false;
        }
        let wanted = (config.beam_size as f64 * config.patience).round();
        let enough = (config.patience > 0.0 && self.finished_count as f64 >= wanted)
            || self.has_best_with_phrases(list, config);
        let bound = match config.rules {
            SearchRules::Exact => {
                let longest = self.limits.max_length.saturating_add(1);
                config.score(best_live.rank, longest, self.limits)
            }
            SearchRules::Transformers | SearchRules::TransformersOpen => {
                let length = self.back_from(best_live.node).count();
                config.score(best_live.rank, length, self.limits)
            }
        };
        enough || list.last().is_some_and(|worst| bound <= worst.score)
    }

    /// Whether the search for a sentence with phrases can stop: enough hypotheses have finished,
    /// and no live hypothesis with all phrases would enter `list` if it ended.
    fn has_best_with_phrases(&self, list: &[Hypothesis], config: &DecodingConfig) -> bool {
        let phrases = self.sentence.phrases;
        if phrases.is_empty() || self.finished_count < config.beam_size {
            return false;
        }
        let complete = self.live.iter().find(|live| live.progress.is_complete(phrases));
        let score = |live: &Live| {
            config.score(live.rank, self.back_from(live.node).count() + 1, self.limits)
        };
        match (complete, list.last()) {
            (Some(live), Some(worst)) => score(live) <= worst.score,
            _ => true,
        }
    }

    /// Shortens the list of each setting to its best `n_best` hypotheses.
    ///
    /// # Errors
    /// [`DecodingError::DeadEnd`] if no hypothesis has finished.
    pub(super) fn finish(&mut self, settings: &[DecodingConfig]) -> Result<()> {
        if self.finished.iter().any(Vec::is_empty) {
            return Err(DecodingError::DeadEnd { sentence: self.index });
        }
        for (list, config) in self.finished.iter_mut().zip(settings) {
            list.truncate(config.n_best);
        }
        Ok(())
    }

    /// Iterates over the nodes of a hypothesis, from `node` back to the first token.
    fn back_from(&self, node: usize) -> impl Iterator<Item = &Node> {
        std::iter::successors(self.nodes.get(node), |node| self.nodes.get(node.parent))
    }

    /// Returns the tokens of the hypothesis that ends at `node`, in order.
    fn tokens(&self, node: usize) -> Vec<u32> {
        let mut tokens: Vec<u32> = self.back_from(node).map(|node| node.token).collect();
        tokens.reverse();
        tokens
    }

    /// Returns the path of the hypothesis that ends at `node`, followed by `</s>`. `of_end` is the
    /// log-probability of `</s>`; `log_probability` and `rank` are totals that include it.
    fn path(&self, node: usize, of_end: f64, log_probability: f64, rank: f64) -> Path {
        let of_ancestors = self.back_from(node).map(|node| node.log_probability);
        let mut token_log_probabilities: Vec<f64> =
            std::iter::once(of_end).chain(of_ancestors).collect();
        token_log_probabilities.reverse();
        Path { tokens: self.tokens(node), token_log_probabilities, log_probability, rank }
    }
}

/// Penalty of a diverse beam search on the tokens of earlier groups.
#[derive(Clone, Copy)]
struct Penalty<'a> {
    /// Tokens of the hypotheses of earlier groups, at the same position.
    taken: &'a [u32],
    /// Penalty on a token for each of these hypotheses that has it.
    of_each: f64,
}

impl Penalty<'_> {
    fn on(self, token: u32) -> f64 {
        match self.taken {
            [] => 0.0,
            taken => self.of_each * taken.iter().filter(|&&one| one == token).count() as f64,
        }
    }
}

/// Returns all continuations of live hypotheses by one of their candidates. They are sorted best
/// first or, if there are phrases, in the order for a beam that is [divided among
/// groups](super::phrases).
fn continuations(
    live: &[Live],
    candidates: &[Vec<Candidate>],
    phrases: &[Vec<u32>],
    penalty: Penalty<'_>,
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
                rank: hypothesis.rank + (candidate.rank - penalty.on(candidate.token)),
                progress: hypothesis.progress.after(candidate.token, phrases),
            })
        })
        .collect();
    // The sort is stable, so continuations of equal rank stay in order: by hypothesis, then by
    // probability, then by id.
    continuations.sort_by(|a, b| b.rank.total_cmp(&a.rank));
    if phrases.is_empty() {
        return continuations;
    }
    let tokens = |one: Continuation| (one.progress.tokens(phrases), one);
    shared_out(continuations.into_iter().map(tokens).collect())
}

/// Inserts a finished hypothesis into `list`, which is sorted best first, if its score is good
/// enough for it to be kept.
fn keep(list: &mut Vec<Hypothesis>, path: &Path, limits: OutputLimits, config: &DecodingConfig) {
    let score = config.score(path.rank, path.token_log_probabilities.len(), limits);
    let position = list.partition_point(|other| other.score >= score);
    if position < config.kept() {
        list.insert(position, Hypothesis::from_path(path.clone(), limits, config));
        list.truncate(config.kept());
    }
}

/// Returns the constraints on the next token of a live hypothesis with `position` tokens.
pub(super) fn constraints<'a>(
    search: &SentenceBeam<'_>,
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
