//! A language model with the special tokens of its tokenizer.

use taper_data::{END, Tokenizer};
use taper_decoding::{Result, SpecialIds, StepModel};
use taper_model::{TextInference, TextState};

/// Language model with the end tokens of its tokenizer. Some ids are never generated: ids without a
/// token in the vocabulary, and tokens that the folder of an imported model excludes. The softmax
/// still includes them, as it does when a text is scored.
#[derive(Debug)]
pub(super) struct WithTokens {
    model: TextInference,
    special: SpecialIds,
}

impl WithTokens {
    pub(super) fn new(model: TextInference, tokenizer: &Tokenizer) -> Self {
        let tokens = tokenizer.special_tokens();
        let ends = &tokens.ends;
        let mut never = tokenizer.ids_without_token();
        never.extend(tokens.never_written.iter().filter(|id| !ends.contains(id)));
        let special = match tokenizer.has_special_tokens() && *ends == [END] {
            true => SpecialIds::ours(never),
            false => {
                let is_text = |end: &u32| !tokenizer.is_special(*end);
                let text_ends = ends.iter().copied().filter(is_text).collect();
                SpecialIds::new(tokenizer.end(), ends, never).with_text_ends(text_ends)
            }
        };
        Self { model, special }
    }
}

impl StepModel for WithTokens {
    type State = TextState;

    fn vocabulary_size(&self) -> usize {
        self.model.vocabulary_size()
    }

    fn special(&self) -> &SpecialIds {
        &self.special
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
        StepModel::start(&self.model, sources)
    }

    fn step(
        &self,
        state: &mut TextState,
        tokens: &[u32],
        read: impl FnMut(&[f32]) -> Result<()>,
    ) -> Result<()> {
        StepModel::step(&self.model, state, tokens, read)
    }

    fn select(&self, state: &mut TextState, rows: &[usize]) -> Result<()> {
        StepModel::select(&self.model, state, rows)
    }
}
