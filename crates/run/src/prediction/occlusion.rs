//! Words on which a label depends, found by occlusion: for each word, the text is labelled again
//! without this word.
//!
//! The evidence of a word is the log-odds of the label with the word minus the log-odds without the
//! word (the weight of evidence of Robnik-Šikonja and Kononenko 2008, "Explaining Classifications
//! For Individual Instances"). The tokens of the word are removed from the token sequence (row)
//! that the model reads, and all other tokens stay.

use std::ops::Range;

use anyhow::Result;
use serde::Serialize;
use taper_data::{EncodedText, LabelledConfig, NO_WORD, Row, Tokenizer, is_ideographic, rows_of};
use taper_model::TextClassifier;

use super::{Prediction, predict_rows};
use crate::LoadedRun;

/// Word of a text, with its evidence for the label of the text.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WordEvidence {
    /// Word, with the spaces before it. The words joined in order are the text that the model
    /// reads.
    pub text: String,
    /// Probability of the label if the word is removed.
    pub without: f64,
    /// Weight of evidence in nats: positive if the word makes the label more probable.
    pub evidence: f64,
}

/// Label of a text, with the evidence of each word.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Occlusion {
    /// Label of the whole text.
    #[serde(flatten)]
    pub prediction: Prediction,
    /// Words in the order of the text.
    pub words: Vec<WordEvidence>,
}

/// Tokens of a text or of a pair of texts, divided into words.
#[derive(Debug, Clone)]
pub struct DividedText {
    row: Row,
    words: Vec<(String, Range<usize>)>,
}

impl DividedText {
    /// Tokenises a text, or a pair of texts with a tab between them, and divides it into words.
    ///
    /// # Errors
    /// If the text is empty, is not a pair although the model reads pairs, or is refused by the
    /// tokenizer.
    pub fn new(tokenizer: &Tokenizer, text: &str, settings: &LabelledConfig) -> Result<Self> {
        let row = rows_of(tokenizer, &[text.to_owned()], settings)?.remove(0);
        let is_pair = row.second < row.ids.len();
        let (first, second) = match text.split_once('\t').filter(|_| is_pair) {
            Some((first, second)) => (first, Some(second)),
            None => (text, None),
        };
        let mut words = Vec::new();
        let parts = [(Some(first), 1), (second, row.second)];
        for (text, start) in parts.into_iter().filter_map(|(text, at)| Some((text?, at))) {
            let encoded = tokenizer.encode_text(text)?;
            // Tokens beyond the largest length are cut off, so they are not in the row.
            let read = encoded.ids().iter().zip(&row.ids[start..]).take_while(|(a, b)| a == b);
            words.extend(words_of(&encoded, start, read.count()));
        }
        Ok(Self { row, words })
    }

    /// Upper bound of the number of tokens that [`DividedText::occlude`] reads: the tokens of the
    /// text are read once, and once more for each of its words.
    #[must_use]
    pub fn tokens(&self) -> usize {
        self.row.ids.len() * (1 + self.words.len())
    }

    /// Labels the text, and measures the evidence of each word.
    ///
    /// # Errors
    /// If the model fails.
    pub fn occlude(&self, run: &LoadedRun<TextClassifier>) -> Result<Occlusion> {
        let shorter: Vec<Row> =
            self.words.iter().map(|(_, tokens)| without(&self.row, tokens)).collect();
        let rows: Vec<&Row> = std::iter::once(&self.row).chain(&shorter).collect();
        let mut predictions = predict_rows(run, &rows, |_| {})?.into_iter();
        let prediction = predictions.next().unwrap_or_else(|| unreachable!("one for each row"));
        let labels = &run.config.data.labelled.labels;
        let label = labels.iter().position(|label| *label == prediction.label).unwrap_or_default();
        let whole = log_odds(&prediction.probabilities, label);
        let evidence = |((text, _), other): (&(String, Range<usize>), Prediction)| WordEvidence {
            text: text.clone(),
            without: other.probabilities[label],
            evidence: whole - log_odds(&other.probabilities, label),
        };
        let words = self.words.iter().zip(predictions).map(evidence).collect();
        Ok(Occlusion { prediction, words })
    }
}

/// `ln(p / (1 - p))` for the probability p of the label with the index `label`. `1 - p` is computed
/// as the sum of the probabilities of the other labels, because the difference could round to 0.
fn log_odds(probabilities: &[f64], label: usize) -> f64 {
    let others = probabilities.iter().enumerate().filter(|(other, _)| *other != label);
    let others: f64 = others.map(|(_, probability)| probability).sum();
    let log = |share: f64| share.max(f64::MIN_POSITIVE).ln();
    log(probabilities[label]) - log(others)
}

/// Copy of `row` without the tokens in the range `tokens`.
fn without(row: &Row, tokens: &Range<usize>) -> Row {
    let mut shorter = row.clone();
    shorter.ids.drain(tokens.clone());
    if tokens.start < row.second {
        shorter.second -= tokens.len();
    }
    shorter
}

/// Divides the first `read` tokens of a text into words. Returns each word with the range of its
/// tokens in the row. `start`: index in the row of the text's first token. Each punctuation mark is
/// a word, and so is each character of scripts without spaces.
fn words_of(
    encoded: &EncodedText,
    start: usize,
    read: usize,
) -> impl Iterator<Item = (String, Range<usize>)> {
    let (text, bytes, numbers) = (encoded.text(), encoded.bytes(), encoded.words());
    let is_of_word =
        |one: char| (one.is_alphanumeric() || "'’-".contains(one)) && !is_ideographic(one);
    let continues = |at: usize| {
        let (before, word) = (&text[bytes[at - 1].clone()], &text[bytes[at].clone()]);
        let letters = before.chars().next_back().zip(word.chars().next());
        // A token can be a part of a character; then it has the same bytes as the token before it.
        numbers[at] == NO_WORD
            || bytes[at - 1] == bytes[at]
            || numbers[at - 1] == numbers[at]
                && letters.is_none_or(|(one, other)| {
                    one.is_whitespace() || is_of_word(one) && is_of_word(other)
                })
    };
    let mut starts: Vec<usize> = (0..read).filter(|&at| at == 0 || !continues(at)).collect();
    starts.push(read);
    let mut end = 0;
    let word = |pair: &[usize]| {
        let last = bytes[pair[1] - 1].end.max(end);
        let word = text[end..last].to_owned();
        end = last;
        (word, start + pair[0]..start + pair[1])
    };
    let words: Vec<_> = starts.windows(2).filter(|pair| pair[0] < pair[1]).map(word).collect();
    words.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;
    use taper_data::{TokenizerConfig, TokenizerKind};

    fn tokenizer(kind: TokenizerKind) -> Tokenizer {
        let config = TokenizerConfig { kind, vocabulary_size: 400, ..TokenizerConfig::default() };
        let texts = std::iter::repeat_n(TEXT.to_owned(), 8).map(Ok);
        Tokenizer::train(&config, false, false, texts).expect("trained")
    }

    const TEXT: &str = "the cat's tail, 我爱 c.";

    #[test]
    fn log_odds_are_finite_and_exact_near_one() {
        assert_eq!(log_odds(&[0.5, 0.5], 0), 0.0);
        assert!((log_odds(&[1.0, 1e-30], 0) - 30.0 * 10f64.ln()).abs() < 1e-9);
        assert!(log_odds(&[1.0, 0.0], 0).is_finite() && log_odds(&[1.0, 0.0], 1).is_finite());
    }

    #[test]
    fn tokens_leave_the_text_that_they_are_of() {
        let row = Row { ids: vec![0, 5, 6, 1, 7, 8, 1], second: 4, ..pair() };
        let first = without(&row, &(1..3));
        assert_eq!((first.ids, first.second), (vec![0, 1, 7, 8, 1], 2));
        let second = without(&row, &(4..5));
        assert_eq!((second.ids, second.second), (vec![0, 5, 6, 1, 8, 1], 4));
    }

    fn pair() -> Row {
        let (ids, asked, words) = (Vec::new(), vec![0], Vec::new());
        Row { ids, second: 0, second_segment: 1, asked, words, tokens: 4 }
    }

    #[test]
    fn words_are_the_whole_text() {
        for kind in [TokenizerKind::Char, TokenizerKind::Bytes] {
            let encoded = tokenizer(kind).encode_text(TEXT).expect("tokens");
            let words: Vec<_> = words_of(&encoded, 1, encoded.len()).collect();
            let texts: Vec<&str> = words.iter().map(|(text, _)| text.as_str()).collect();
            assert_eq!(texts.concat(), TEXT, "{kind:?}");
            // Tokens of bytes can span several words.
            if kind == TokenizerKind::Char {
                assert_eq!(texts, ["the", " cat's", " tail", ",", " 我", "爱", " c", "."]);
            }
            let mut end = 1;
            for (_, tokens) in &words {
                assert_eq!(tokens.start, end);
                end = tokens.end;
            }
            assert_eq!(end, encoded.len() + 1);
            // Text beyond the last token that is read has no words.
            assert_eq!(words_of(&encoded, 1, 0).count(), 0);
        }
    }
}
