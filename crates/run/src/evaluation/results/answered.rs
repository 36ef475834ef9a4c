//! Scores of a model's answers to the questions of a test set.

use serde::Serialize;
use taper_metrics::AnswerMeans;

/// Scores of a model's answers, in per cent. They are computed as in SQuAD's official script.
#[derive(Debug, Clone, Serialize)]
pub struct AnsweredTestSet {
    /// Name of the split.
    pub split: String,
    /// Mean scores over all questions.
    #[serde(flatten)]
    pub all: AnswerMeans,
    /// Mean scores over the questions that have an answer.
    pub with_answer: AnswerMeans,
    /// Mean scores over the questions that have no answer.
    pub without_answer: AnswerMeans,
}

impl AnsweredTestSet {
    /// Lines of a report for people.
    pub(super) fn lines(&self) -> Vec<String> {
        let line = |name: &str, means: &AnswerMeans| {
            let AnswerMeans { exact_match, f1, .. } = means;
            format!("  {name:<12} exact match {exact_match:.2} %, F1 {f1:.2} %")
        };
        let mut lines = vec![format!("{} ({} questions)", self.split, self.all.questions)];
        lines.push(line("answers", &self.all));
        let counted = |means: &AnswerMeans, title: &str| {
            format!("{}, of {} questions", line(title, means), means.questions)
        };
        if self.without_answer.questions > 0 {
            lines.push(counted(&self.with_answer, "has one"));
            lines.push(counted(&self.without_answer, "has none"));
        }
        lines
    }
}
