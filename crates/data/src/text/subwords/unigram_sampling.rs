//! Samples segmentations from a unigram model (Kudo 2018, "Subword Regularization: Improving Neural
//! Network Translation Models with Multiple Subword Candidates").

use std::collections::HashMap;

use serde_json::Value;

use crate::Result;
use crate::text::subwords::{Stream, unreadable};
use crate::text::tokenizer::is_text;

/// Pieces (tokens) of a unigram tokenizer, with their log-probabilities.
#[derive(Debug)]
pub(crate) struct Pieces {
    by_text: HashMap<String, (u32, f64)>,
    /// Text of each id. `None` for special tokens and bytes, which spell no text.
    texts: Vec<Option<String>>,
    /// Number of bytes of the longest piece.
    longest: usize,
}

impl Pieces {
    /// Reads the `model` of a `tokenizer.json`.
    ///
    /// # Errors
    /// If the model has no pieces with scores.
    pub(crate) fn read(model: &Value) -> Result<Self> {
        let vocabulary = model["vocab"].as_array().ok_or_else(|| unreadable("vocabulary"))?;
        let mut pieces = Self {
            by_text: HashMap::new(),
            texts: Vec::with_capacity(vocabulary.len()),
            longest: 0,
        };
        for (id, entry) in (0_u32..).zip(vocabulary) {
            let (text, score) = entry
                .get(0)
                .and_then(Value::as_str)
                .zip(entry.get(1).and_then(Value::as_f64))
                .ok_or_else(|| unreadable("scores"))?;
            let spells = !text.is_empty() && is_text(text);
            pieces.texts.push(spells.then(|| text.to_owned()));
            if spells {
                pieces.longest = pieces.longest.max(text.len());
                pieces.by_text.insert(text.to_owned(), (id, score));
            }
        }
        Ok(pieces)
    }

    /// Segments the word that `ids` spell, and appends the ids of the pieces to `out`. A
    /// segmentation is drawn with a probability proportional to the power `alpha` of its
    /// probability in the model. Ids that spell no text stay as they are, and no piece spans them.
    pub(crate) fn segment(&self, ids: &[u32], alpha: f64, draws: &mut Stream, out: &mut Vec<u32>) {
        let text = |id: u32| self.texts.get(id as usize).and_then(Option::as_deref);
        for run in ids.chunk_by(|&left, &right| text(left).is_some() && text(right).is_some()) {
            let word: String = run.iter().filter_map(|&id| text(id)).collect();
            if word.is_empty() || !self.draw(&word, alpha, draws, out) {
                out.extend_from_slice(run);
            }
        }
    }

    /// Draws a segmentation by forward filtering and backward sampling. Returns false if the pieces
    /// cannot spell the word.
    fn draw(&self, word: &str, alpha: f64, draws: &mut Stream, out: &mut Vec<u32>) -> bool {
        // For each place of the word, the weights of all segmentations up to this place are added.
        // This is the logarithm of the sum.
        let mut forward = vec![f64::NEG_INFINITY; word.len() + 1];
        forward[0] = 0.0;
        let mut arriving: Vec<Vec<(usize, u32, f64)>> = vec![Vec::new(); word.len() + 1];
        let ends: Vec<usize> =
            word.char_indices().map(|(at, character)| at + character.len_utf8()).collect();
        for (start, _) in word.char_indices() {
            if forward[start] == f64::NEG_INFINITY {
                continue;
            }
            for &end in ends
                .iter()
                .skip_while(|&&end| end <= start)
                .take_while(|&&end| end - start <= self.longest)
            {
                if let Some(&(id, score)) = self.by_text.get(&word[start..end]) {
                    let weight = forward[start] + alpha * score;
                    arriving[end].push((start, id, weight));
                    forward[end] = add_in_log(forward[end], weight);
                }
            }
        }
        if forward[word.len()] == f64::NEG_INFINITY {
            return false;
        }
        let first = out.len();
        let mut end = word.len();
        while end > 0 {
            let mut left = draws.unit();
            let mut chosen = None;
            for &(start, id, weight) in &arriving[end] {
                chosen = Some((start, id));
                left -= (weight - forward[end]).exp();
                if left < 0.0 {
                    break;
                }
            }
            // This does not happen, because every place that is reached backwards was also reached
            // forwards.
            let Some((start, id)) = chosen else {
                out.truncate(first);
                return false;
            };
            out.push(id);
            end = start;
        }
        out[first..].reverse();
        true
    }
}

/// Computes `ln(exp(a) + exp(b))`.
fn add_in_log(a: f64, b: f64) -> f64 {
    let (small, large) = if a < b { (a, b) } else { (b, a) };
    if small == f64::NEG_INFINITY { large } else { large + (small - large).exp().ln_1p() }
}
