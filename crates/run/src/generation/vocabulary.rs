//! Models with another vocabulary than the searches expect.
//!
//! A search ends an output with the id of `</s>` and never takes those of `<pad>` and `<s>`. In a
//! vocabulary of GPT-2's kind these ids are text and another one is the end. There the search gets
//! ids of its own: `</s>`, and from behind the special tokens on those of the model. What is said
//! with them has the probabilities that it has in the model.

use taper_data::{END, SPECIAL_TOKENS, Tokenizer};
use taper_decoding::{Result, StepModel};
use taper_model::{TextInference, TextState};

/// Where the model's ids begin in the search.
const FIRST: u32 = SPECIAL_TOKENS.len() as u32;

/// A language model with the ids that a search expects.
#[derive(Debug)]
pub(super) struct OwnVocabulary {
    model: TextInference,
    /// The model's id of the end where its vocabulary has other special tokens.
    end: Option<u32>,
}

impl OwnVocabulary {
    pub(super) fn new(model: TextInference, tokenizer: &Tokenizer) -> Self {
        Self { model, end: (!tokenizer.has_special_tokens()).then(|| tokenizer.end()) }
    }

    /// The search's ids of those of the model.
    pub(super) fn all_own(&self, theirs: &[u32]) -> Vec<u32> {
        let own = |&id: &u32| match self.end {
            Some(end) if id == end => END,
            Some(_) => id + FIRST,
            None => id,
        };
        theirs.iter().map(own).collect()
    }

    /// The model's id of one of the search.
    pub(super) fn theirs(&self, own: u32) -> u32 {
        match self.end {
            Some(end) if own == END => end,
            Some(_) => own.saturating_sub(FIRST),
            None => own,
        }
    }

    fn all_theirs(&self, own: &[u32]) -> Vec<u32> {
        own.iter().map(|&id| self.theirs(id)).collect()
    }
}

impl StepModel for OwnVocabulary {
    type State = TextState;

    fn vocabulary_size(&self) -> usize {
        self.model.vocabulary_size() + if self.end.is_some() { FIRST as usize } else { 0 }
    }

    fn longest_output(&self) -> Option<usize> {
        self.model.longest_output()
    }

    fn first_input(&self, source: &[u32]) -> u32 {
        self.model.first_input(source)
    }

    fn gains_from_workers(&self) -> bool {
        self.model.gains_from_workers()
    }

    fn start(&self, sources: &[&[u32]]) -> Result<TextState> {
        let sources: Vec<Vec<u32>> = sources.iter().map(|source| self.all_theirs(source)).collect();
        StepModel::start(&self.model, &sources.iter().map(Vec::as_slice).collect::<Vec<_>>())
    }

    fn step(
        &self,
        state: &mut TextState,
        tokens: &[u32],
        mut read: impl FnMut(&[f32]) -> Result<()>,
    ) -> Result<()> {
        let Some(end) = self.end else { return StepModel::step(&self.model, state, tokens, read) };
        let (vocabulary, end) = (self.model.vocabulary_size(), end as usize);
        let mut rows = Vec::new();
        StepModel::step(&self.model, state, &self.all_theirs(tokens), |logits| {
            rows.clear();
            for row in logits.chunks(vocabulary) {
                let first = rows.len();
                rows.resize(first + FIRST as usize, f32::NEG_INFINITY);
                rows.extend_from_slice(row);
                rows[first + END as usize] = row[end];
                rows[first + FIRST as usize + end] = f32::NEG_INFINITY;
            }
            read(&rows)
        })
    }

    fn select(&self, state: &mut TextState, rows: &[usize]) -> Result<()> {
        StepModel::select(&self.model, state, rows)
    }
}
