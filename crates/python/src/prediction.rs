//! Predictions for given texts and images: labels, tags, answers, scores and vectors.

use std::path::PathBuf;

use anyhow::{Result, bail, ensure};
use taper_run::generation::TextScorer;
use taper_run::tasks::{
    AnyRun, InputKind, ItemPrediction, Items, entry, predictions_that, require_predictions,
};
use taper_run::translation::{Side, score_pairs};

use crate::decoding::{list_of, records};
use crate::engine::Cancelled;

/// Number of items that are answered between two checks for cancellation.
const WINDOW: usize = 1024;

/// Predicts for each item (a text, the path of an image, or a question as JSON); returns a JSON
/// list.
pub(crate) fn predict(
    run: &dyn AnyRun,
    items: &[String],
    prompts: &[String],
    cancelled: &Cancelled,
) -> Result<String> {
    let task = run.config().task;
    let takes_prompts = entry(task).predicts.as_ref().is_some_and(|it| it.takes_prompts);
    if let (Some(prompt), false) = (prompts.first(), takes_prompts) {
        let others = predictions_that(|it| it.takes_prompts);
        bail!("prompt {prompt:?} is for a run of the task {others}; this one's is {task}");
    }
    let reads = require_predictions(run.config())?.reads;
    let mut predictions = Vec::with_capacity(items.len());
    for window in items.chunks(WINDOW) {
        ensure!(!cancelled.is_cancelled(), "interrupted");
        let images: Vec<PathBuf> = window.iter().map(PathBuf::from).collect();
        let (lines, images) = match reads {
            InputKind::Lines(_) => (window, &[][..]),
            InputKind::Images => (&[][..], &*images),
        };
        let items = Items { lines, images, prompts, before: predictions.len() };
        predictions.extend(run.predict_each(&items, &mut |_| {})?);
    }
    list_of(predictions, |ItemPrediction { json, .. }| Ok(json))
}

/// Returns a JSON list of scores. A language model scores `texts`; a translation model scores
/// `targets` as translations of `texts`.
pub(crate) fn score(
    run: &dyn AnyRun,
    texts: &[String],
    targets: Option<&[String]>,
) -> Result<String> {
    let Some(targets) = targets else {
        ensure!(!entry(run.config().task).translates, "name the translations to score: targets");
        return records(TextScorer::new(run.with_model()?)?.texts(texts, |_| {})?);
    };
    let place = |side: Side, index: usize| match side {
        Side::Source => format!("sources, line {}", index + 1),
        Side::Target => format!("targets, line {}", index + 1),
    };
    let scores = score_pairs(run.with_model()?, texts, targets, None, place, |_| {})?;
    let record = |score: taper_decoding::ForcedScore| {
        serde_json::json!({
            "log_probability": score.log_probability,
            "score": score.score,
            "token_log_probabilities": score.token_log_probabilities,
        })
    };
    records(scores.into_iter().map(|one| one.map(record)).collect())
}

/// Returns a vector for each text, one after the other, and the number of elements of a vector.
pub(crate) fn embed(run: &dyn AnyRun, texts: &[String]) -> Result<(Vec<f32>, usize)> {
    Ok((run.sentence_vectors(texts)?.concat(), run.config().model.d_model))
}
