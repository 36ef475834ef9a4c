//! Scores of answers to questions.

use anyhow::Result;
use serde::Serialize;
use taper_data::{TokenizerPair, read_questions};
use taper_metrics::{AnswerMeans, AnswerReport};
use taper_model::SpanExtractor;

use crate::config::RunConfig;
use crate::prediction::answers_of;

/// Questions answered by a model, scored like SQuAD's official script, in per cent.
#[derive(Debug, Clone, Serialize)]
pub struct AnsweredTestSet {
    /// The split's name.
    pub split: String,
    /// Means over all questions.
    #[serde(flatten)]
    pub all: AnswerMeans,
    /// Means over questions with an answer.
    pub with_answer: AnswerMeans,
    /// Means over questions without one.
    pub without_answer: AnswerMeans,
}

impl AnsweredTestSet {
    /// Answers the questions of a split with `model`, and scores the answers.
    ///
    /// # Errors
    /// When the split cannot be read or computed.
    pub(crate) fn of(
        split: &str,
        config: &RunConfig,
        tokenizers: &TokenizerPair,
        model: &SpanExtractor,
    ) -> Result<Self> {
        let data = &config.data;
        let mut paragraphs = Vec::new();
        read_questions(data, &data.split(split), |paragraph| {
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
        let given = answers_of(model, tokenizers.target(), &data.questions, &asked, |_| {})?;
        let mut report = AnswerReport::default();
        for ((_, question), given) in questions().zip(&given) {
            let right: Vec<&str> = question.answers.iter().map(|one| one.text.as_str()).collect();
            report.add(&right, &given.answer);
        }
        Ok(Self {
            split: split.to_owned(),
            all: report.all(),
            with_answer: report.with_answer(),
            without_answer: report.without_answer(),
        })
    }

    /// Lines of a report.
    pub(super) fn lines(&self) -> Vec<String> {
        let line = |name: &str, means: &AnswerMeans| {
            let AnswerMeans { exact_match, f1, .. } = means;
            format!("  {name:<12} exact match {exact_match:.2} %, F1 {f1:.2} %")
        };
        let mut lines = vec![format!("{} ({} questions)", self.split, self.all.questions)];
        lines.push(line("answers", &self.all));
        let counted = |means: &AnswerMeans, what: &str| {
            format!("{}, of {} questions", line(what, means), means.questions)
        };
        if self.without_answer.questions > 0 {
            lines.push(counted(&self.with_answer, "has one"));
            lines.push(counted(&self.without_answer, "has none"));
        }
        lines
    }
}
