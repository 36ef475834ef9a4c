//! Generation from a language model: greedy search and sampling.

use std::ops::ControlFlow;

use crate::search::greedy::greedy;
use crate::search::sampling::sample;
use crate::search::stepwise::Output;
use crate::translator::batches;
use crate::{
    Control, DecodingConfig, DecodingError, Hypothesis, NewToken, Renumbered, Result, Sentence,
    StepModel,
};

/// Continues each prompt, the source of a sentence: `config.n_best` times if tokens are sampled,
/// otherwise once with the likeliest tokens. Calls `on_token` for each new token. An output ends
/// with an end token, if `on_token` breaks it off, or at the length limit; only in the first case
/// its probability includes the end. The ban on repeated runs includes those of the prompt, as in
/// Transformers; the repetition penalty considers only the output, unless the rules are those of
/// Transformers.
///
/// Prompts are taken in order, as many at once as `config.batch_tokens` and `config.batch_rows`
/// allow; their grouping changes no output. Outputs of a prompt come best score first; for a prompt
/// that `control` cancels, only the finished ones are returned.
///
/// # Errors
/// An unusable configuration or an empty prompt, and errors of the model.
pub fn generate<M: StepModel>(
    model: &M,
    prompts: &[Sentence<'_>],
    config: &DecodingConfig,
    control: &dyn Control,
    mut on_token: impl FnMut(NewToken) -> ControlFlow<()>,
) -> Result<Vec<Vec<Hypothesis>>> {
    config.validate()?;
    if let Some(sentence) = prompts.iter().position(|prompt| prompt.source.is_empty()) {
        return Err(DecodingError::EmptyPrompt { sentence });
    }
    let draws = config.sampling.is_active();
    let lengths: Vec<usize> = prompts.iter().map(|prompt| prompt.source.len()).collect();
    let mut outputs = Vec::with_capacity(prompts.len());
    for batch in batches(&lengths, if draws { config.n_best } else { 1 }, config) {
        let first = batch.start;
        let mut observe =
            |new: NewToken| on_token(NewToken { sentence: first + new.sentence, ..new });
        let indices: Vec<usize> = batch.clone().collect();
        let control = Renumbered::new(control, &indices);
        let sentences = (&prompts[batch], Output::Continuation);
        let found = match draws {
            true => sample(model, sentences, config, &control, &mut observe),
            false => greedy(model, sentences, config, &control, &mut observe),
        };
        outputs.extend(found.map_err(|error| error.in_batch(&indices))?);
    }
    Ok(outputs)
}
