//! Beam search over a batch of sentences, with exact early stopping.
//!
//! At each position, the continuations of a sentence's live (unfinished) hypotheses are ordered by
//! their total log-probability. A continuation that ends with `</s>` becomes a finished hypothesis
//! if it is among the best `beam_size` continuations, and is dropped otherwise. The best
//! `beam_size` continuations without `</s>` are the live hypotheses at the next position, so that
//! finished hypotheses take no places in the beam. Of the finished hypotheses, the `n_best` with
//! the best score are kept.
//!
//! The search for a sentence stops once no live hypothesis can still enter the sentence's list of
//! the `n_best`. Let `L ≤ 0` be the log-probability of a live hypothesis. It can only fall, because
//! the log-probability of a further token is at most 0. Length penalty and reward are largest at
//! the maximum length `m`, and the shortfall penalty is smallest there. So no continuation of a
//! live hypothesis can have a score above `score(L, m + 1)`, where the 1 stands for `</s>`. If the
//! list is full, and this bound for the largest `L` does not exceed the worst score in the list,
//! then running to the maximum length would give the same list. With `patience`, the search stops
//! earlier: once enough hypotheses have finished.
//!
//! If a sentence requires phrases, its beam is [divided among groups](super::phrases) of hypotheses
//! that contain the same number of phrase tokens. Live hypotheses that lack a phrase stay likelier
//! than finished hypotheses until the maximum length, so the bound above would not stop the search.
//! Instead, the search stops once `beam_size` hypotheses have finished, and no live hypothesis that
//! contains all phrases would enter the list if it ended.
//!
//! A diverse beam search (Vijayakumar et al. 2018, "Diverse Beam Search: Decoding Diverse Solutions
//! from Neural Sequence Models", algorithm 1) divides the beam into groups of equal size. Each
//! group is a beam by itself, and begins with the empty hypothesis. At each position the groups
//! advance in order. A token costs a hypothesis `diverse_penalty` for each hypothesis of an earlier
//! group that has added the same token at this position. Scores include these costs, as in
//! Transformers and fairseq. At the end, the lists of all groups are joined, and a translation that
//! several groups have found is listed once.
//!
//! The length settings do not affect which hypotheses are live. They affect only the order of the
//! finished hypotheses, and the position at which this order is final. So a single search can find
//! the lists for several length settings: it continues until all of the lists are final. The list
//! for a setting does not change after the position at which a search with only this setting would
//! stop.

use std::collections::{BTreeMap, HashSet};

use crate::model::columns::Columns;
use crate::model::step::{
    StepInput, TopK, drop_cancelled, select_if_changed, start, step_rows, wanted,
};
use crate::search::candidates::{Candidate, best_tokens};
use crate::search::sentence_beam::{BeamNode, Live, SentenceBeam, Trace, constraints};
use crate::{Control, DecodingConfig, DecodingError, Hypothesis, Result, Sentence, StepModel};

/// Translates one batch by beam search.
///
/// Each of `sources` must end with `</s>`. The result has, for each source in order, its `n_best`
/// hypotheses, best score first, or fewer hypotheses if fewer have finished. All live hypotheses of
/// all sentences are stepped together. A sentence leaves the model's batch as soon as its list is
/// final.
///
/// # Errors
/// [`DecodingError::NotADistribution`] and [`DecodingError::DeadEnd`], with the index of the
/// source, and errors of the model.
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
    let hypotheses = beam_under(model, sentences, std::slice::from_ref(config), control)?;
    Ok(hypotheses.into_iter().flatten().collect())
}

/// Translates one sentence by beam search, without groups. Returns its hypotheses, and the tree of
/// the continuations that the search considered: each [`BeamNode`] names its parent.
///
/// # Errors
/// The errors of [`beam_search`].
pub fn beam_tree<M: StepModel>(
    model: &M,
    sentence: Sentence<'_>,
    config: &DecodingConfig,
) -> Result<(Vec<Hypothesis>, Vec<BeamNode>)> {
    let mut nodes = Vec::new();
    let settings = [DecodingConfig { diverse_groups: 1, ..config.clone() }];
    let hypotheses = beam_traced(model, &[sentence], &settings, &(), Some(&mut nodes))?;
    Ok((hypotheses.into_iter().flatten().flatten().collect(), nodes))
}

/// Finds the list of the `n_best` hypotheses of each sentence for each of `settings`, in a single
/// search. The settings must differ only in [`LengthSettings`](crate::LengthSettings). The result
/// is indexed by sentence and then by setting. If `control` cancels a sentence, its lists are
/// empty.
pub(crate) fn beam_under<M: StepModel>(
    model: &M,
    sentences: &[Sentence<'_>],
    settings: &[DecodingConfig],
    control: &dyn Control,
) -> Result<Vec<Vec<Vec<Hypothesis>>>> {
    beam_traced(model, sentences, settings, control, None)
}

/// Runs the search of [`beam_under`]. If `traced` is given, it receives the continuations that were
/// considered for the sentence whose search ends last.
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
    let of_groups: Vec<DecodingConfig> = settings.iter().map(DecodingConfig::of_group).collect();
    let mut active: Vec<SentenceBeam<'_>> = begun
        .iter()
        .flat_map(|&index| {
            let sentence = sentences[index];
            let first = model.first_input(sentence.source);
            let limits = sentence.limits(config, longest);
            let groups = sentence.groups(config);
            let (traced, of_groups) = (traced.is_some(), &of_groups);
            (0..groups).map(move |group| {
                let group = (groups > 1).then_some(group);
                let settings: &[_] = if group.is_some() { of_groups } else { settings };
                let mut beam = SentenceBeam::new(index, sentence, first, limits, settings);
                beam.group = group;
                beam.trace = traced.then(Trace::default);
                beam
            })
        })
        .collect();
    let (mut state, columns) = start(model, sentences, &begun)?;
    // Each group begins with a row of its own.
    let groups = begun.iter().map(|&index| sentences[index].groups(config)).enumerate();
    let rows: Vec<usize> =
        groups.flat_map(|(row, groups)| std::iter::repeat_n(row, groups)).collect();
    select_if_changed(model, &mut state, begun.len(), &rows)?;
    let mut finished: BTreeMap<(usize, Option<usize>), Vec<Vec<Hypothesis>>> = BTreeMap::new();
    let mut position = 0;
    loop {
        let place = |search: &SentenceBeam<'_>| (search.index, search.live.len());
        drop_cancelled(model, &mut state, control, &mut active, place)?;
        if active.is_empty() {
            break;
        }
        let candidates =
            best_continuations(model, (&mut state, &columns), &active, config, position)?;
        let mut kept_rows = Vec::with_capacity(candidates.len());
        let mut still_active = Vec::with_capacity(active.len());
        let mut first_row = 0;
        // The sentence of the previous beam, and the tokens that its groups so far have added.
        let (mut before, mut taken) = (None, Vec::new());
        for mut search in active {
            let rows = first_row..first_row + search.live.len();
            first_row = rows.end;
            if before != Some(search.index) {
                taken.clear();
            }
            before = Some(search.index);
            let settings: &[_] = if search.group.is_some() { &of_groups } else { settings };
            let origins = search.advance(&candidates[rows.clone()], special, settings, &taken);
            if search.group.is_some() {
                taken.extend(search.live.iter().map(|live| live.token));
            }
            if search.is_over(settings) {
                search.finish(settings)?;
                finished.insert((search.index, search.group), search.finished);
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
    let mut all = finished.into_iter().peekable();
    while let Some(((index, group), mut lists)) = all.next() {
        let mut groups = 1;
        while let Some((_, more)) = all.next_if(|((other, _), _)| *other == index) {
            lists.iter_mut().zip(more).for_each(|(list, more)| list.extend(more));
            groups += 1;
        }
        // If a sentence was cancelled, some groups are missing.
        if groups == sentences[index].groups(config) {
            if group.is_some() {
                lists.iter_mut().for_each(|list| join_groups(list, config.n_best));
            }
            results[index] = lists;
        }
    }
    Ok(results)
}

/// Sorts the hypotheses of all groups by score, removes translations that are already in the list,
/// and keeps the best `n_best`. The hypotheses are given in the order of the groups.
fn join_groups(list: &mut Vec<Hypothesis>, n_best: usize) {
    list.sort_by(|a, b| b.score.total_cmp(&a.score));
    let mut known = HashSet::new();
    list.retain(|hypothesis| known.insert(hypothesis.tokens.clone()));
    list.truncate(n_best);
}

/// Steps the model, and returns the best next tokens of each live hypothesis. All live hypotheses
/// have `position` tokens.
fn best_continuations<M: StepModel>(
    model: &M,
    (state, columns): (&mut M::State, &Columns<'_>),
    active: &[SentenceBeam<'_>],
    config: &DecodingConfig,
    position: usize,
) -> Result<Vec<Vec<Candidate>>> {
    let special = model.special();
    // A beam of width n needs the best n tokens that continue a hypothesis without ending it. All
    // end tokens can be likelier than these n tokens, so the number of end tokens is added. In a
    // diverse beam search, the penalty can move tokens that earlier groups have added behind other
    // tokens. There are at most as many of them as hypotheses in the whole beam, so this number is
    // added, too.
    let penalised = |group: Option<usize>| group.map_or(0, |_| config.beam_size);
    let enough =
        |search: &SentenceBeam<'_>| search.width + special.ends() + penalised(search.group);
    let most = active.iter().map(enough).max().unwrap_or(1);
    let rows: Vec<(&SentenceBeam<'_>, Live)> = active
        .iter()
        .flat_map(|search| search.live.iter().map(move |&live| (search, live)))
        .collect();
    let inputs: Vec<u32> = rows.iter().map(|(_, live)| live.token).collect();
    let constraints = |&(search, live)| constraints(search, live, special, position, config);
    let top_k = TopK::under((model, columns), most, rows.iter().map(constraints));
    let sentence_of = |row: usize| rows[row].0.index;
    let input = StepInput { tokens: &inputs, top_k, columns, sentence_of };
    step_rows(model, state, input, |row, logits| {
        let sentence = rows[row].0.index;
        best_tokens(logits, enough(rows[row].0), &constraints(&rows[row]))
            .ok_or(DecodingError::NotADistribution { sentence, position })
    })
}
