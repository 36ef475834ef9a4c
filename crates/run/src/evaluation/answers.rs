//! Scores of a model's answers to questions about paragraphs.

use anyhow::Result;
use taper_data::read_questions;
use taper_metrics::AnswerReport;
use taper_model::SpanExtractor;

use super::{AnsweredTestSet, Split};
use crate::prediction::answers_of;

impl AnsweredTestSet {
    /// Answers the questions of a split with `model`, and scores these answers.
    ///
    /// # Errors
    /// When the split cannot be read, or the model cannot be run on it.
    pub(crate) fn evaluate(split: Split<'_>, model: &SpanExtractor) -> Result<Self> {
        let data = &split.config.data;
        let mut paragraphs = Vec::new();
        read_questions(data, &split.corpora(), |paragraph| {
            paragraphs.push(paragraph);
            Ok(())
        })?;
        let questions = || {
            paragraphs.iter().flat_map(|paragraph| {
                paragraph.questions.iter().map(|question| (paragraph.context.as_str(), question))
            })
        };
        let asked: Vec<(&str, &str)> =
            questions().map(|(context, question)| (context, question.text.as_str())).collect();
        let given = answers_of(model, split.tokenizer(), &data.questions, &asked, |_| {})?;
        let mut report = AnswerReport::default();
        for ((_, question), given) in questions().zip(&given) {
            let right: Vec<&str> = question.answers.iter().map(|one| one.text.as_str()).collect();
            report.add(&right, &given.answer);
        }
        Ok(Self {
            split: split.name.to_owned(),
            all: report.all(),
            with_answer: report.with_answer(),
            without_answer: report.without_answer(),
        })
    }
}
