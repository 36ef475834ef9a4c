//! Exact match and F1 of answers to questions about a text, as in SQuAD (Rajpurkar et al. 2016,
//! "SQuAD: 100,000+ Questions for Machine Comprehension of Text", section 6.1). Case, punctuation
//! and articles are ignored.
//!
//! The rules are those of the official `evaluate-v2.0.py` (Rajpurkar et al. 2018, "Know What You
//! Don't Know"). The script for version 1.1 gives the same figures unless an answer consists of
//! articles only.

use std::collections::HashMap;

use serde::Serialize;
use unicode_properties::{GeneralCategoryGroup, UnicodeGeneralCategory};

use crate::text::split;

/// Words that are ignored.
const ARTICLES: [&str; 3] = ["a", "an", "the"];

/// True if a character belongs to a word: `\w` of Python's regular expressions.
fn is_of_word(character: char) -> bool {
    let group = character.general_category_group();
    character == '_' || matches!(group, GeneralCategoryGroup::Letter | GeneralCategoryGroup::Number)
}

/// Normalizes an answer: lower case, no ASCII punctuation, no English articles, and one space
/// between words.
#[must_use]
pub fn normalized_answer(text: &str) -> String {
    let lower = text.to_lowercase();
    let plain: String =
        lower.chars().filter(|character| !character.is_ascii_punctuation()).collect();
    let (mut kept, mut rest) = (String::with_capacity(plain.len()), plain.as_str());
    while let Some(first) = rest.chars().next() {
        let is_word = is_of_word(first);
        let end = rest.find(|character| is_of_word(character) != is_word).unwrap_or(rest.len());
        let (run, others) = rest.split_at(end);
        kept.push_str(if is_word && ARTICLES.contains(&run) { " " } else { run });
        rest = others;
    }
    split(&kept).collect::<Vec<_>>().join(" ")
}

/// Score of one answer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AnswerScore {
    /// 1 if the answer equals one of the correct answers, otherwise 0.
    pub exact_match: f64,
    /// Harmonic mean of precision and recall of the words. It is the highest over the correct
    /// answers.
    pub f1: f64,
}

impl AnswerScore {
    /// Scores the answer `given` to a question with the correct answers `right`. If no correct
    /// answer has a word, the question has no answer, and the empty answer is correct.
    pub fn new<S: AsRef<str>>(right: &[S], given: &str) -> Self {
        let given = normalized_answer(given);
        let mut right: Vec<String> =
            right.iter().map(|answer| normalized_answer(answer.as_ref())).collect();
        right.retain(|answer| !answer.is_empty());
        if right.is_empty() {
            right.push(String::new());
        }
        let f1 = right.iter().map(|answer| f1_of_words(answer, &given)).fold(0.0, f64::max);
        Self { exact_match: f64::from(u8::from(right.contains(&given))), f1 }
    }
}

fn f1_of_words(right: &str, given: &str) -> f64 {
    let (of_right, of_given) = (split(right).count(), split(given).count());
    if of_right == 0 || of_given == 0 {
        return f64::from(u8::from(of_right == of_given));
    }
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for word in right.split(' ') {
        *counts.entry(word).or_default() += 1;
    }
    let mut same = 0;
    for word in given.split(' ') {
        if let Some(count) = counts.get_mut(word).filter(|count| **count > 0) {
            *count -= 1;
            same += 1;
        }
    }
    if same == 0 {
        return 0.0;
    }
    let (precision, recall) = (same as f64 / of_given as f64, same as f64 / of_right as f64);
    2.0 * precision * recall / (precision + recall)
}

/// Means over questions, in percent; 0 without questions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct AnswerMeans {
    /// Number of questions.
    pub questions: u64,
    /// Share of answers that match exactly.
    pub exact_match: f64,
    /// Mean F1 of answers.
    pub f1: f64,
}

/// Scores of answers, summed over questions.
#[derive(Debug, Clone, Default)]
pub struct AnswerReport {
    /// Number of questions and sums of scores: first for questions with an answer, then for
    /// questions without.
    parts: [AnswerMeans; 2],
}

impl AnswerReport {
    /// Adds the score of the answer `given` to a question with the correct answers `right`.
    pub fn add<S: AsRef<str>>(&mut self, right: &[S], given: &str) {
        let score = AnswerScore::new(right, given);
        let part = &mut self.parts[usize::from(right.is_empty())];
        part.questions += 1;
        part.exact_match += score.exact_match;
        part.f1 += score.f1;
    }

    fn means(parts: &[AnswerMeans]) -> AnswerMeans {
        let sum = |value: fn(&AnswerMeans) -> f64| parts.iter().map(value).sum::<f64>();
        let questions: u64 = parts.iter().map(|part| part.questions).sum();
        let mean = |sum: f64| 100.0 * sum / questions.max(1) as f64;
        AnswerMeans {
            questions,
            exact_match: mean(sum(|part| part.exact_match)),
            f1: mean(sum(|part| part.f1)),
        }
    }

    /// Means over all questions.
    #[must_use]
    pub fn all(&self) -> AnswerMeans {
        Self::means(&self.parts)
    }

    /// Means over questions that have an answer.
    #[must_use]
    pub fn with_answer(&self) -> AnswerMeans {
        Self::means(&self.parts[..1])
    }

    /// Means over questions without an answer.
    #[must_use]
    pub fn without_answer(&self) -> AnswerMeans {
        Self::means(&self.parts[1..])
    }
}
