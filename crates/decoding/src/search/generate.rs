//! Generation from a language model: greedy search and sampling.

use std::ops::ControlFlow;

use crate::batches::{Size, batches};
use crate::search::greedy::greedy;
use crate::search::sampling::sample;
use crate::search::stepwise::Output;
use crate::{
    Control, DecodingConfig, DecodingError, Hypothesis, NewToken, Renumbered, Result, Sentence,
    StepModel,
};

/// Continues each prompt, which is the source of a sentence. If tokens are sampled, a prompt gets
/// `config.n_best` outputs, otherwise one output of the likeliest tokens.
///
/// Calls `on_token` for each new token. An output ends with an end token, when `on_token` stops it,
/// or at the length limit. Its probability includes an end only if it ends with an end token. The
/// ban on repeated n-grams also applies to the n-grams of the prompt, as in the library
/// Transformers. The repetition penalty applies only to tokens of the output, unless `config.rules`
/// are the rules of Transformers.
///
/// Prompts are processed in order, as many at a time as `config.batch_tokens` and
/// `config.batch_rows` allow; this grouping changes no output. The outputs of a prompt are sorted,
/// best score first. If `control` cancels a prompt, only its finished outputs are returned.
///
/// # Errors
/// If the configuration is invalid, a prompt is empty, or the model fails.
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
    let settings = std::slice::from_ref(config);
    let rows = if draws { config.n_best } else { 1 };
    let sizes: Vec<Size> =
        prompts.iter().map(|prompt| Size { tokens: prompt.source.len(), rows }).collect();
    let mut outputs = Vec::with_capacity(prompts.len());
    for batch in batches(&sizes, config) {
        let first = batch.start;
        let mut observe =
            |new: NewToken| on_token(NewToken { sentence: first + new.sentence, ..new });
        let indices: Vec<usize> = batch.clone().collect();
        let control = Renumbered::new(control, &indices);
        let sentences = (&prompts[batch], Output::Continuation);
        let generated = match draws {
            true => sample(model, sentences, settings, &control, &mut observe),
            false => greedy(model, sentences, settings, &control, &mut observe),
        };
        let generated = generated.map_err(|error| error.in_batch(&indices))?;
        outputs.extend(generated.into_iter().flatten());
    }
    Ok(outputs)
}
