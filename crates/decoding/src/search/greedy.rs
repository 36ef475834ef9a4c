//! Greedy search: the likeliest token at each position.

use std::ops::ControlFlow;

use crate::model::columns::Logits;
use crate::search::candidates::best_tokens;
use crate::search::constraints::Constraints;
use crate::search::stepwise::{Growing, Growth, NewToken, Output, decode_stepwise};
use crate::{Control, DecodingConfig, Hypothesis, Result, Sentence, StepModel};

/// Translates one batch by taking the likeliest allowed token at each position. Of equally likely
/// tokens, the one with the lowest id is taken.
///
/// If there is no length penalty, length reward or shortfall penalty, the result equals that of
/// [`beam_search`](crate::beam_search) with a beam of 1. With one of these, a beam of 1 can differ:
/// where `</s>` is the likeliest token, beam search also continues with the second likeliest token,
/// and can find a longer output with a better score.
///
/// Each of `sources` must end with `</s>`. The result has one hypothesis for each source, in order.
/// A sentence leaves the model's batch as soon as it ends.
///
/// # Errors
/// [`NotADistribution`](crate::DecodingError::NotADistribution) and
/// [`DeadEnd`](crate::DecodingError::DeadEnd), with the index of the source, and errors of the
/// model.
pub fn greedy_search<M: StepModel>(
    model: &M,
    sources: &[&[u32]],
    config: &DecodingConfig,
) -> Result<Vec<Hypothesis>> {
    let sentences = Sentence::plain(sources);
    let translated = (sentences.as_slice(), Output::Translation);
    let to_the_end = &mut |_| ControlFlow::Continue(());
    let settings = std::slice::from_ref(config);
    let translations = greedy(model, translated, settings, &(), to_the_end)?;
    Ok(translations.into_iter().flatten().flatten().collect())
}

/// Takes the likeliest allowed token at each position. There must be at least one element in
/// `settings`, and the elements must differ only in [`LengthSettings`](crate::LengthSettings). The
/// result has, for each sentence and each of the `settings`, a list of one output.
pub(crate) fn greedy<M: StepModel>(
    model: &M,
    sentences: (&[Sentence<'_>], Output),
    settings: &[DecodingConfig],
    control: &dyn Control,
    observe: &mut dyn FnMut(NewToken) -> ControlFlow<()>,
) -> Result<Vec<Vec<Vec<Hypothesis>>>> {
    let likeliest = |logits: Logits<'_>, constraints: &Constraints<'_>, _: &Growing<'_>| {
        Some(best_tokens(logits, 1, constraints)?.first().copied())
    };
    let growth = Growth { copies: 1, enough: 1, choose: likeliest };
    decode_stepwise(model, sentences, settings, growth, control, observe)
}
