//! Labels for texts and images, tags for words and answers to questions, by trained models.

mod answers;
mod occlusion;

use std::path::PathBuf;

use anyhow::Result;
use candle_core::Tensor;
use serde::Serialize;
use taper_data::{LabelledConfig, Pixels, Row, Tokenizer, rows_of_each, rows_of_words, words};
use taper_metrics::entities;
use taper_model::{ImageClassifier, Model, Sequences, TextClassifier, TokenTagger};

use crate::LoadedRun;
use crate::finite::require_finite;
use crate::items::answer_each;
use crate::numbers::highest;

pub(crate) use answers::answers_of;
pub use answers::{
    EncodedQuestion, QuestionInContext, SpanAnswer, answer_encoded, predict_answers,
};
pub use occlusion::{DividedText, Occlusion, WordEvidence};

/// Approximate number of tokens in one batch.
const TOKENS: usize = 4096;

/// Tag of a word outside all entities.
const OUTSIDE: &str = "O";

/// Predicted label of a text or an image.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Prediction {
    /// Likeliest label.
    pub label: String,
    /// Probability of this label.
    pub probability: f64,
    /// Probability of each label, in the order of the labels in the model's configuration.
    pub probabilities: Vec<f64>,
}

/// Labels texts, or pairs of texts with a tab between them. `done` receives the number of texts
/// that are labelled so far. A text with more than `data.labelled.max_tokens` tokens is cut. An
/// empty text is not labelled, and neither is a single text if the model reads pairs: the result is
/// an error with the number of the line, counted from 1.
///
/// # Errors
/// If the model fails.
pub fn predict(
    run: &LoadedRun<TextClassifier>,
    texts: &[String],
    done: impl FnMut(usize),
) -> Result<Vec<Result<Prediction>>> {
    predict_after(0, run, texts, done)
}

/// Labels texts in the same way as [`predict`]. `before` is the number of lines of the input that
/// come before these texts, so that messages can have the right line numbers.
pub(crate) fn predict_after(
    before: usize,
    run: &LoadedRun<TextClassifier>,
    texts: &[String],
    done: impl FnMut(usize),
) -> Result<Vec<Result<Prediction>>> {
    let settings = &run.config.data.labelled;
    let rows = rows_of_each(run.tokenizers.target(), texts, before, settings)?;
    answer_each(rows.into_iter().map(|row| Ok(row?)), |rows| {
        predict_rows(run, &rows.iter().collect::<Vec<_>>(), done)
    })
}

/// Labels texts that are already tokenised: each row has the tokens of one text. `done` receives
/// the number of texts that are labelled so far.
///
/// # Errors
/// If the model fails.
pub fn predict_rows(
    run: &LoadedRun<TextClassifier>,
    rows: &[&Row],
    mut done: impl FnMut(usize),
) -> Result<Vec<Prediction>> {
    let labels = &run.config.data.labelled.labels;
    let mut predictions = Vec::with_capacity(rows.len());
    while predictions.len() < rows.len() {
        let (segments, text) = packed(&together(rows[predictions.len()..].iter().copied()));
        let probabilities = probabilities(&run.model, &segments, &text)?;
        predictions.extend(
            probabilities.into_iter().map(|of_row| Prediction::from_probabilities(of_row, labels)),
        );
        done(predictions.len());
    }
    Ok(predictions)
}

/// Words of a text, with a tag for each.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TaggedText {
    /// Words of the text, which is divided at spaces and tabs.
    pub words: Vec<String>,
    /// Likeliest tag of each word; `O` for words that the model does not read, because the text is
    /// too long.
    pub tags: Vec<String>,
    /// Entities according to the tags: type, index of the first word, and index of the last word.
    pub entities: Vec<(String, usize, usize)>,
}

/// Tags the words of texts, which are divided at spaces and tabs, as in training. `done` receives
/// the number of texts that are tagged so far.
///
/// # Errors
/// If the model fails.
pub fn predict_tags(
    run: &LoadedRun<TokenTagger>,
    texts: &[String],
    done: impl FnMut(usize),
) -> Result<Vec<TaggedText>> {
    let encoded = EncodedWords::encode(run, texts)?;
    tag_encoded(run, &encoded.iter().collect::<Vec<_>>(), done)
}

/// Words of a text, and their tokens as one sequence (row).
#[derive(Debug, Clone)]
pub struct EncodedWords {
    words: Vec<String>,
    row: Row,
}

impl EncodedWords {
    /// Divides texts into words, and tokenises them.
    ///
    /// # Errors
    /// If the tokenizer refuses a word.
    pub fn encode(run: &LoadedRun<TokenTagger>, texts: &[String]) -> Result<Vec<Self>> {
        let words = |text: &String| words(text).map(str::to_owned).collect();
        let words: Vec<Vec<String>> = texts.iter().map(words).collect();
        let rows = rows_of_words(run.tokenizers.target(), &words, &run.config.data.labelled)?;
        Ok(words.into_iter().zip(rows).map(|(words, row)| Self { words, row }).collect())
    }

    /// Words, and the sequence of their tokens.
    pub(crate) fn parts(&self) -> (&[String], &Row) {
        (&self.words, &self.row)
    }

    /// Number of tokens that the model reads for the words.
    #[must_use]
    pub fn tokens(&self) -> usize {
        self.row.tokens
    }
}

/// Tags the words of texts that are already tokenised. `done` receives the number of texts that are
/// tagged so far.
///
/// # Errors
/// If the model fails.
pub fn tag_encoded(
    run: &LoadedRun<TokenTagger>,
    texts: &[&EncodedWords],
    done: impl FnMut(usize),
) -> Result<Vec<TaggedText>> {
    let rows: Vec<(usize, &Row)> = texts.iter().map(|text| (text.words.len(), &text.row)).collect();
    let all = tags_of_rows(&run.model, &run.config.data.labelled.labels, &rows, done)?;
    let tagged = |(text, tags): (&&EncodedWords, Vec<String>)| {
        let entities = entities(&tags).into_iter();
        let entities = entities.map(|(kind, a, b)| (kind.to_owned(), a, b)).collect();
        TaggedText { words: text.words.clone(), tags, entities }
    };
    Ok(texts.iter().zip(all).map(tagged).collect())
}

/// Likeliest tag of each word of each sentence; `O` for words that the model does not read.
///
/// # Errors
/// If the model fails.
pub(crate) fn tags_of(
    model: &TokenTagger,
    tokenizer: &Tokenizer,
    settings: &LabelledConfig,
    sentences: &[Vec<String>],
    done: impl FnMut(usize),
) -> Result<Vec<Vec<String>>> {
    let rows = rows_of_words(tokenizer, sentences, settings)?;
    let rows: Vec<(usize, &Row)> = sentences.iter().map(Vec::len).zip(&rows).collect();
    tags_of_rows(model, &settings.labels, &rows, done)
}

/// Likeliest tag of each word of each text. `rows`: for each text, the number of its words, and its
/// tokens.
fn tags_of_rows(
    model: &TokenTagger,
    labels: &[String],
    rows: &[(usize, &Row)],
    mut done: impl FnMut(usize),
) -> Result<Vec<Vec<String>>> {
    let mut tags_of_texts: Vec<Vec<String>> = Vec::with_capacity(rows.len());
    while tags_of_texts.len() < rows.len() {
        let batch = together(rows[tags_of_texts.len()..].iter().map(|&(_, row)| row));
        let (segments, text) = packed(&batch);
        let (mut asked, mut start) = (Vec::new(), 0);
        for row in &batch {
            asked.extend(row.asked.iter().map(|&at| start + at));
            start += row.ids.len() as u32;
        }
        let tell = || model.logits(&segments, &text, &asked);
        let mut predicted = match asked.is_empty() {
            true => Vec::new().into_iter(),
            false => normalised(&taper_ops::threads::in_pool(model.device(), tell)?)?.into_iter(),
        };
        for row in batch {
            let mut tags = vec![OUTSIDE.to_owned(); rows[tags_of_texts.len()].0];
            for (&word, probabilities) in row.words.iter().zip(predicted.by_ref()) {
                tags[word].clone_from(&labels[highest(&probabilities)]);
            }
            tags_of_texts.push(tags);
        }
        done(tags_of_texts.len());
    }
    Ok(tags_of_texts)
}

/// Takes rows from the beginning of `rows` until one batch is full, but at least one row.
fn together<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Vec<&'a Row> {
    let mut tokens = 0;
    let fits = |row: &&Row| {
        let before = tokens;
        tokens += row.ids.len();
        before == 0 || tokens <= TOKENS
    };
    rows.into_iter().take_while(fits).collect()
}

/// Packs rows into two batches of the same lengths: the segment of each token (by which the model
/// tells a first text from a second one), and the tokens.
fn packed(rows: &[&Row]) -> (Sequences, Sequences) {
    let text = Sequences::pack(&rows.iter().map(|row| &row.ids).collect::<Vec<_>>());
    let segments = rows.iter().flat_map(|row| row.segments()).collect();
    (Sequences { ids: segments, lengths: text.lengths.clone() }, text)
}

impl Prediction {
    pub(crate) fn from_probabilities(probabilities: Vec<f64>, labels: &[String]) -> Self {
        let best = highest(&probabilities);
        Self {
            label: labels.get(best).cloned().unwrap_or_default(),
            probability: probabilities[best],
            probabilities,
        }
    }

    /// Label and probability, separated by a tab.
    pub(crate) fn to_text(&self) -> String {
        format!("{}\t{:.4}", self.label, self.probability)
    }
}

/// Labels PNG and JPEG files. `done` receives the number of files that are labelled so far. Images
/// are converted to the size and the channels of the images in training. The result for any other
/// file is an error.
///
/// # Errors
/// If the model fails.
pub fn predict_images(
    run: &LoadedRun<ImageClassifier>,
    files: &[PathBuf],
    mut done: impl FnMut(usize),
) -> Result<Vec<Result<Prediction>>> {
    let settings = &run.config.data.images;
    let mut predictions = Vec::with_capacity(files.len());
    for files in files.chunks((TOKENS / settings.tokens()).max(1)) {
        let images = files.iter().map(|path| Ok(Pixels::of_file(path, settings)?));
        predictions.extend(answer_each(images, |images| predict_pixels(run, images))?);
        done(predictions.len());
    }
    Ok(predictions)
}

/// Labels images in one batch.
///
/// # Errors
/// If an image has another shape than the images of the model, or the model fails.
pub fn predict_pixels(
    run: &LoadedRun<ImageClassifier>,
    images: Vec<Pixels>,
) -> Result<Vec<Prediction>> {
    let values = |image: Pixels| image.0.into_iter().map(u32::from).collect();
    let images: Vec<Vec<u32>> = images.into_iter().map(values).collect();
    let probabilities = image_probabilities(&run.model, &Sequences::pack(&images))?;
    let labels = &run.config.data.images.labels;
    Ok(probabilities.into_iter().map(|of| Prediction::from_probabilities(of, labels)).collect())
}

/// Probability of each class for each text.
///
/// # Errors
/// See [`TextClassifier::logits`].
pub(crate) fn probabilities(
    model: &TextClassifier,
    segments: &Sequences,
    text: &Sequences,
) -> Result<Vec<Vec<f64>>> {
    normalised(&taper_ops::threads::in_pool(model.device(), || model.logits(segments, text))?)
}

/// Probability of each class for each image.
///
/// # Errors
/// See [`ImageClassifier::logits`].
pub(crate) fn image_probabilities(
    model: &ImageClassifier,
    images: &Sequences,
) -> Result<Vec<Vec<f64>>> {
    normalised(&taper_ops::threads::in_pool(model.device(), || model.logits(images))?)
}

/// Softmax of each row of a matrix: `exp(x) / Σ exp(x)`.
///
/// # Errors
/// [`NotFinite`](crate::NotFinite) if a logit is not finite.
pub(crate) fn normalised(logits: &Tensor) -> Result<Vec<Vec<f64>>> {
    let rows = logits.to_vec2::<f32>()?;
    require_finite("the logits", rows.iter().flatten().copied())?;
    let of_row = |row: Vec<f32>| {
        let highest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let powers: Vec<f64> = row.iter().map(|&x| f64::from(x - highest).exp()).collect();
        let sum: f64 = powers.iter().sum();
        powers.into_iter().map(|power| power / sum).collect()
    };
    Ok(rows.into_iter().map(of_row).collect())
}
