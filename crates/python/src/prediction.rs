//! Predictions for given texts and images: labels, tags, answers, scores and vectors.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use taper_data::Task;
use taper_run::generation::TextScorer;
use taper_run::image_text::{describe_images, match_images};
use taper_run::prediction::{
    QuestionInContext, predict as predict_labels, predict_answers, predict_images, predict_tags,
};
use taper_run::translation::{Side, score_pairs};
use taper_run::{answer_each, sentence_vectors};

use crate::decoding::records;
use crate::engine::Cancelled;
use crate::loaded::Loaded;

/// Number of items answered between two checks whether they are still wanted.
const WINDOW: usize = 1024;

/// Predicts for each item (a text, the path of an image, or a question as JSON); returns a JSON
/// list.
pub(crate) fn predict(
    run: &Loaded,
    items: &[String],
    prompts: &[String],
    cancelled: &Cancelled,
) -> Result<String> {
    let task = run.config().task;
    if let (Some(prompt), true) = (prompts.first(), task != Task::ImageText) {
        bail!("prompt {prompt:?} is for a run of the task image-text; this one's is {task}");
    }
    match run {
        Loaded::Tagging(run) => in_windows(items, cancelled, |texts, first| {
            let tokenizer = run.tokenizers.target();
            let fit = texts.iter().enumerate().map(|(index, text)| {
                tokenizer
                    .check_spelled(text)
                    .with_context(|| format!("line {}", first + index + 1))?;
                Ok(text.clone())
            });
            answer_each(fit, |texts| predict_tags(run, &texts, |_| {}))
        }),
        Loaded::QuestionAnswering(run) => in_windows(items, cancelled, |questions, first| {
            let read = questions.iter().enumerate().map(|(index, question)| {
                let question: QuestionInContext = serde_json::from_str(question)
                    .with_context(|| format!("question {}", first + index + 1))?;
                Ok(question)
            });
            answer_each(read, |questions| predict_answers(run, &questions, |_| {}))
        }),
        Loaded::ImageClassification(run) => {
            in_windows(items, cancelled, |files, _| predict_images(run, &paths(files), |_| {}))
        }
        Loaded::Captions(run) => {
            in_windows(items, cancelled, |files, _| describe_images(run, &paths(files), |_| {}))
        }
        Loaded::ImageText(run) => in_windows(items, cancelled, |files, _| {
            match_images(run, &paths(files), prompts, |_| {})
        }),
        // All at once, because messages number the lines.
        Loaded::Classification(run) => records(predict_labels(run, items, |_| {})?),
        other => other.refuse(Task::Classification),
    }
}

/// Answers items in windows; `answer` receives the number of items before its window.
fn in_windows<T: serde::Serialize>(
    items: &[String],
    cancelled: &Cancelled,
    mut answer: impl FnMut(&[String], usize) -> Result<Vec<Result<T>>>,
) -> Result<String> {
    let mut found = Vec::with_capacity(items.len());
    for window in items.chunks(WINDOW) {
        if cancelled.is_cancelled() {
            bail!("interrupted");
        }
        found.extend(answer(window, found.len())?);
    }
    records(found)
}

fn paths(files: &[String]) -> Vec<PathBuf> {
    files.iter().map(PathBuf::from).collect()
}

/// Returns scores of texts by a language model, or of given translations by a translation model, as
/// a JSON list.
pub(crate) fn score(run: &Loaded, texts: &[String], targets: Option<&[String]>) -> Result<String> {
    match (run, targets) {
        (Loaded::Translation(run), Some(targets)) => {
            let place = |side: Side, index: usize| match side {
                Side::Source => format!("sources, line {}", index + 1),
                Side::Target => format!("targets, line {}", index + 1),
            };
            let found = score_pairs(run, texts, targets, None, place, |_| {})?;
            let record = |score: taper_decoding::ForcedScore| {
                serde_json::json!({
                    "log_probability": score.log_probability,
                    "score": score.score,
                    "token_log_probabilities": score.token_log_probabilities,
                })
            };
            records(found.into_iter().map(|one| one.map(record)).collect())
        }
        (Loaded::Translation(_), None) => bail!("name the translations to score: targets"),
        (Loaded::LanguageModel(run), None) => records(TextScorer::new(run)?.texts(texts, |_| {})?),
        (other, Some(_)) => other.refuse(Task::Translation),
        (other, None) => other.refuse(Task::LanguageModel),
    }
}

/// Returns a vector for each text, row after row, and their width.
pub(crate) fn embed(run: &Loaded, texts: &[String]) -> Result<(Vec<f32>, usize)> {
    let vectors = match run {
        Loaded::Translation(run) => sentence_vectors::of_sources(run, texts),
        Loaded::LanguageModel(run) => sentence_vectors::of_texts(run, texts),
        Loaded::MaskedLanguageModel(run) => sentence_vectors::of_masked(run, texts),
        other => bail!(
            "the run's task is {}: vectors of texts are those of translation, language-model and \
             masked-language-model",
            other.config().task
        ),
    }?;
    let width = run.config().model.d_model;
    Ok((vectors.concat(), width))
}
