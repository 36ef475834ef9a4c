//! BPE-dropout (Provilkov et al. 2020, "BPE-Dropout: Simple and Effective Subword Regularization",
//! algorithm 1).

use std::collections::HashMap;

use serde_json::Value;

use crate::text::subwords::{Stream, unreadable};
use crate::text::tokenizer::is_text;
use crate::{Error, Result};

/// Merges of a BPE tokenizer.
#[derive(Debug)]
pub(crate) struct Merges {
    /// For two neighbouring tokens that can be merged, the rank of the merge (lower ranks first)
    /// and the resulting token.
    by_pair: HashMap<(u32, u32), (u32, u32)>,
    /// For each token, the ids of its characters. If a character has no id, or the token spells no
    /// text, this is only the token itself.
    characters: Vec<Vec<u32>>,
}

impl Merges {
    /// Reads the `model` of a `tokenizer.json`.
    ///
    /// # Errors
    /// If the model has no merges. Also if it marks the parts of a word by a prefix or suffix,
    /// because merges would then depend on these marks.
    pub(crate) fn read(model: &Value) -> Result<Self> {
        for key in ["continuing_subword_prefix", "end_of_word_suffix"] {
            if model[key].as_str().is_some_and(|mark| !mark.is_empty()) {
                let message = format!("cannot be combined with a tokenizer that has a {key}");
                return Err(Error::Config { key: "data.tokenizer.dropout", message });
            }
        }
        let vocabulary = model["vocab"].as_object().ok_or_else(|| unreadable("vocabulary"))?;
        let id = |token: &str| {
            vocabulary.get(token).and_then(Value::as_u64).and_then(|id| u32::try_from(id).ok())
        };
        let merges = model["merges"].as_array().ok_or_else(|| unreadable("merges"))?;
        let mut by_pair = HashMap::with_capacity(merges.len());
        for (rank, merge) in (0_u32..).zip(merges) {
            // Files write a merge either as ["a", "b"] or as "a b".
            let pair = match merge {
                Value::Array(pair) => {
                    pair.first().and_then(Value::as_str).zip(pair.get(1).and_then(Value::as_str))
                }
                other => other.as_str().and_then(|text| text.split_once(' ')),
            };
            let (left, right) = pair.ok_or_else(|| unreadable("merges"))?;
            let ids = (id(left), id(right), id(&format!("{left}{right}")));
            let (Some(left), Some(right), Some(whole)) = ids else {
                return Err(unreadable("token for every merge"));
            };
            by_pair.entry((left, right)).or_insert((rank, whole));
        }
        let size =
            vocabulary.values().filter_map(Value::as_u64).max().map_or(0, |id| id as usize + 1);
        let mut characters: Vec<Vec<u32>> = (0..size as u32).map(|id| vec![id]).collect();
        for (token, whole) in vocabulary.iter().filter(|(token, _)| is_text(token)) {
            let parts: Option<Vec<u32>> =
                token.chars().map(|character| id(character.encode_utf8(&mut [0; 4]))).collect();
            if let (Some(parts), Some(entry)) =
                (parts, whole.as_u64().and_then(|whole| characters.get_mut(whole as usize)))
            {
                *entry = parts;
            }
        }
        Ok(Self { by_pair, characters })
    }

    /// Segments the word that `ids` spell, and appends the tokens to `out`. The word is first
    /// divided into characters. In each step, each possible merge is dropped with probability
    /// `dropout`, and the merge with the lowest rank among the remaining ones is applied.
    /// Segmentation ends with the first step in which no merge remains. With a dropout of 0, this
    /// is BPE.
    pub(crate) fn segment(
        &self,
        ids: &[u32],
        dropout: f64,
        draws: &mut Stream,
        out: &mut Vec<u32>,
    ) {
        let mut word: Vec<u32> = Vec::with_capacity(ids.len() * 4);
        for id in ids {
            match self.characters.get(*id as usize) {
                Some(characters) => word.extend_from_slice(characters),
                None => word.push(*id),
            }
        }
        // Merge of each pair of neighbours. A step changes at most two entries of this list, so
        // merges are not looked up again for the whole word.
        let merge = |left: u32, right: u32| self.by_pair.get(&(left, right)).copied();
        let mut merges: Vec<Option<(u32, u32)>> =
            word.windows(2).map(|pair| merge(pair[0], pair[1])).collect();
        loop {
            let mut first: Option<(u32, u32, usize)> = None;
            for (place, &(rank, whole)) in merges
                .iter()
                .enumerate()
                .filter_map(|(place, merge)| Some((place, merge.as_ref()?)))
            {
                let kept = draws.unit() >= dropout;
                if kept && first.is_none_or(|(best, _, _)| rank < best) {
                    first = Some((rank, whole, place));
                }
            }
            let Some((_, whole, place)) = first else {
                break;
            };
            word[place] = whole;
            word.remove(place + 1);
            merges.remove(place);
            if place > 0 {
                merges[place - 1] = merge(word[place - 1], whole);
            }
            if place < merges.len() {
                merges[place] = merge(whole, word[place + 1]);
            }
        }
        out.append(&mut word);
    }
}
