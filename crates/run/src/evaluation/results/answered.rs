//! Answered questions of a test set.

use serde::Serialize;
use taper_metrics::AnswerMeans;

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
    /// Means over questions without an answer.
    pub without_answer: AnswerMeans,
}

impl AnsweredTestSet {
    /// Lines of a report.
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
