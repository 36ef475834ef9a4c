//! Scores of given translations.

use anyhow::{Context, Result, bail, ensure};
use taper_decoding::{ForcedScore, Translator};

use super::{LineLimit, OverlongRule, by_line, encode_sources, speaking};
use crate::LoadedRun;
use crate::advice::Setting;
use crate::items::answer_each;

/// Side of a sentence pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Text in the source language.
    Source,
    /// Translation of the source.
    Target,
}

/// Scores `targets[i]` as the translation of `sources[i]`. `progress` receives the number of pairs
/// that are scored so far. The result for a pair is an error if its source or target has more than
/// `max_tokens` tokens (`None`: the limit of training), or if its target has special tokens.
/// `place` returns the name of a text for messages, from its side and the index of its pair.
///
/// # Errors
/// If the numbers of sources and targets differ, or the model fails.
pub fn score_pairs(
    run: &LoadedRun,
    sources: &[String],
    targets: &[String],
    max_tokens: Option<usize>,
    place: impl Fn(Side, usize) -> String,
    mut progress: impl FnMut(usize),
) -> Result<Vec<Result<ForcedScore>>> {
    ensure!(
        sources.len() == targets.len(),
        "there are {} sources and {} targets: each target belongs to one source",
        sources.len(),
        targets.len()
    );
    run.require_direction()?;
    let most = max_tokens.unwrap_or(run.config.data.cleaning.max_tokens);
    let limit = LineLimit::new(OverlongRule::Error, most)
        .within(&run.config.model, run.tokenizers.source());
    let of_target = run.tokenizers.target();
    let around = run.tokenizers.source().tokens_around_source();
    let pair = |index: usize| -> Result<(usize, Vec<u32>, Vec<u32>)> {
        let (source, target) = (|| place(Side::Source, index), || place(Side::Target, index));
        let source_ids =
            encode_sources(&run.tokenizers, &sources[index..=index]).with_context(source)?.concat();
        let target_ids = of_target.encode(&targets[index]).with_context(target)?;
        let source_tokens = source_ids.len().saturating_sub(around);
        for (side, tokens) in [(Side::Source, source_tokens), (Side::Target, target_ids.len())] {
            if tokens > limit.tokens {
                let place = place(side, index);
                let message = format!("{place}: {tokens} tokens, more than {}", limit.tokens);
                return Err(limit.exceeded(message, Setting::MostTokens));
            }
        }
        if target_ids.iter().any(|&id| of_target.is_special(id) && !of_target.is_unknown(id)) {
            bail!(
                "{}: has special tokens: leave them out; they are added before a text is scored",
                target()
            );
        }
        let answers = of_target.answer_row(target_ids);
        Ok((index, source_ids, answers[..answers.len() - 1].to_vec()))
    };
    let model = speaking(&run.model, of_target);
    let translator = Translator::new(&model, run.config.decoding.clone())?;
    answer_each((0..sources.len()).map(pair), |pairs| {
        let lines: Vec<usize> = pairs.iter().map(|(index, ..)| index + 1).collect();
        let (sources, targets): (Vec<_>, Vec<_>) =
            pairs.into_iter().map(|(_, source, target)| (source, target)).unzip();
        translator
            .score_with(&sources, &targets, |chunk| progress(chunk.sentences_done))
            .map_err(|error| by_line(error, "scoring", |index| lines[index]))
    })
}
