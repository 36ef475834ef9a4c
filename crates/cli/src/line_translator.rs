//! Lines of text in, their translations out: overlong lines, prefixes, ensembles and alignments around
//! the search.

use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::Serialize;
use taper_decoding::{DecodingConfig, Ensemble, align};
use taper_model::Inference;

use crate::decoding_arguments::OverlongArguments;
use crate::loaded_run::LoadedRun;
use crate::overlong::{Limit, Overlong, join};
use crate::translation::{Text, Translation, encode_sources, translate};

/// The most weights of an alignment that is put together from parts, each of which attends to itself alone.
const MOST_WEIGHTS: usize = 1 << 22;

/// The translations of one line.
#[derive(Debug, Serialize)]
pub(crate) struct Translated {
    /// Best first, at least one.
    pub(crate) translations: Vec<Translation>,
    /// What was done if the line was too long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) overlong: Option<Overlong>,
}

/// Which source token each target token was made from.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct AlignedTokens {
    /// Tokens of the source line, `</s>` last, also where it was translated in parts, each of which the model saw with one.
    pub(crate) source_tokens: Vec<String>,
    /// Tokens of the translation.
    pub(crate) target_tokens: Vec<String>,
    /// (source, target) positions from 0.
    pub(crate) pairs: Vec<(usize, usize)>,
    /// For each target token the weight of each source token; nothing for a line of so many parts that its weights would be more than
    /// [`MOST_WEIGHTS`], nearly all of them zero.
    pub(crate) weights: Vec<Vec<f32>>,
}

/// A run, or several that decide together, applied to lines of text.
pub(crate) struct LineTranslator<'a> {
    run: &'a LoadedRun,
    models: Vec<Inference>,
    limit: Limit,
    alignments: bool,
}

impl<'a> LineTranslator<'a> {
    /// A translator by `run` and the members of the ensemble, each the folder of a run or of a checkpoint.
    ///
    /// # Errors
    /// When a member cannot be loaded, or has another tokenizer.
    pub(crate) fn new(run: &'a LoadedRun, ensemble: &[impl AsRef<Path>], overlong: &OverlongArguments, alignments: bool) -> Result<Self> {
        let mut models = vec![run.model.inference()];
        for member in ensemble {
            models.push(run.load_member(member.as_ref())?.inference());
        }
        if overlong.max_source_tokens == Some(0) {
            bail!("--max-source-tokens must be at least 1");
        }
        let limit = Limit::of(&run.config, overlong.overlong, overlong.max_source_tokens);
        let limit = models.iter().fold(limit, |limit, member| limit.within(member.model().config()));
        Ok(Self { run, models, limit, alignments })
    }

    /// Translates `lines`, which are numbered from `first`; each begins with its entry of `prefixes`, where
    /// there are any. `progress` is called with the sentences done so far.
    ///
    /// # Errors
    /// For an overlong line, where the rule is to refuse them; when the search or the tokenizer fails.
    pub(crate) fn translate(
        &self,
        lines: &[String],
        prefixes: &[String],
        first: usize,
        progress: impl FnMut(usize),
    ) -> Result<Vec<Translated>> {
        let mut texts = Vec::with_capacity(lines.len());
        let mut cuts = Vec::with_capacity(lines.len());
        for (index, line) in lines.iter().enumerate() {
            let (parts, overlong) = self.limit.apply(self.run.tokenizers.source(), line, first + index)?;
            for (source, part) in parts.iter().zip(0..) {
                let prefix = if part == 0 { prefixes.get(index).map_or("", String::as_str) } else { "" };
                texts.push(Text { source, prefix, line: first + index, part });
            }
            cuts.push((parts.len(), overlong));
        }
        let mut found = self.search(&texts, progress)?;
        if self.alignments {
            self.align(&texts, &mut found)?;
        }
        let mut found = found.into_iter();
        Ok(cuts
            .into_iter()
            .map(|(parts, overlong)| Translated { translations: merge(found.by_ref().take(parts).collect()), overlong })
            .collect())
    }

    fn search(&self, texts: &[Text<'_>], progress: impl FnMut(usize)) -> Result<Vec<Vec<Translation>>> {
        let (tokenizers, config): (_, &DecodingConfig) = (&self.run.tokenizers, &self.run.config.decoding);
        match self.models.as_slice() {
            [one] => translate(one, tokenizers, config, texts, progress),
            several => translate(&Ensemble::new(several)?, tokenizers, config, texts, progress),
        }
    }

    /// Aligns every translation with its source, by the run's own model.
    fn align(&self, texts: &[Text<'_>], found: &mut [Vec<Translation>]) -> Result<()> {
        let tokenizers = &self.run.tokenizers;
        let name = |tokenizer: &taper_data::Tokenizer, ids: &[u32]| -> Vec<String> {
            ids.iter().map(|&id| tokenizer.token(id).unwrap_or_default()).collect()
        };
        let lines: Vec<&str> = texts.iter().map(|text| text.source).collect();
        let sources = encode_sources(tokenizers, &lines)?;
        let pairs: Vec<(&[u32], &mut Translation)> = sources
            .iter()
            .zip(found)
            .flat_map(|(source, translations)| translations.iter_mut().map(move |translation| (source.as_slice(), translation)))
            .collect();
        let sources: Vec<&[u32]> = pairs.iter().map(|(source, _)| *source).collect();
        let targets: Vec<&[u32]> = pairs.iter().map(|(_, translation)| translation.tokens.as_slice()).collect();
        let aligned = align(&self.run.model, &sources, &targets).context("alignment failed")?;
        for ((source, translation), alignment) in pairs.into_iter().zip(aligned) {
            translation.alignment = Some(AlignedTokens {
                source_tokens: name(tokenizers.source(), source),
                target_tokens: name(tokenizers.target(), &translation.tokens),
                pairs: alignment.pairs,
                weights: alignment.weights,
            });
        }
        Ok(())
    }
}

/// One list of translations from those of a line's parts: rank by rank, log-probabilities added, scores averaged.
fn merge(mut parts: Vec<Vec<Translation>>) -> Vec<Translation> {
    if parts.len() == 1 {
        return parts.swap_remove(0);
    }
    let ranks = parts.iter().map(Vec::len).min().unwrap_or(0);
    (0..ranks)
        .map(|rank| {
            let chosen: Vec<&Translation> = parts.iter().map(|part| &part[rank]).collect();
            let texts: Vec<&str> = chosen.iter().map(|part| part.text.as_str()).collect();
            Translation {
                text: join(&texts),
                score: chosen.iter().map(|part| part.score).sum::<f64>() / chosen.len() as f64,
                log_probability: chosen.iter().map(|part| part.log_probability).sum(),
                length: chosen.iter().map(|part| part.length).sum(),
                tokens: chosen.iter().flat_map(|part| part.tokens.iter().copied()).collect(),
                alignment: chosen.iter().map(|part| part.alignment.as_ref()).collect::<Option<Vec<_>>>().map(|parts| concatenate(&parts)),
            }
        })
        .collect()
}

/// The alignment of a whole line: each part attends to its own source tokens only, and to a `</s>` that is shown as the line's.
fn concatenate(parts: &[&AlignedTokens]) -> AlignedTokens {
    let words: usize = parts.iter().map(|part| part.source_tokens.len().saturating_sub(1)).sum();
    let width = words + 1;
    let height: usize = parts.iter().map(|part| part.target_tokens.len()).sum();
    let dense = width.saturating_mul(height) <= MOST_WEIGHTS;
    let mut whole = AlignedTokens::default();
    for part in parts {
        let (source, target) = (whole.source_tokens.len(), whole.target_tokens.len());
        whole.pairs.extend(part.pairs.iter().map(|&(from, to)| (source + from, target + to)));
        for row in part.weights.iter().filter(|_| dense) {
            let mut wide = vec![0.0; width];
            if let Some((end, row)) = row.split_last() {
                wide[source..source + row.len()].copy_from_slice(row);
                wide[words] = *end;
            }
            whole.weights.push(wide);
        }
        whole.source_tokens.extend(part.source_tokens.iter().rev().skip(1).rev().cloned());
        whole.target_tokens.extend_from_slice(&part.target_tokens);
    }
    whole.source_tokens.extend(parts.last().and_then(|part| part.source_tokens.last()).cloned());
    whole
}
