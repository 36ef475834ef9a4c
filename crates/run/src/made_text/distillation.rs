//! Sequence-level distillation: the targets of a corpus are replaced by translations that a trained
//! model, the teacher, makes of the sources.

use std::path::Path;

use anyhow::Result;
use taper_metrics::Bleu;

use super::CacheProgress;
use super::cache::{Choice, TranslationCache};
use super::pairs::{MadePairs, PairWriter, identity};
use super::parallel::{ParallelCorpus, Side};
use crate::LoadedRun;
use crate::translation::{TranslationDetail, TranslationSettings};

/// Settings of a distillation.
#[derive(Debug)]
pub struct Distillation<'a> {
    /// Corpus whose sources are translated.
    pub corpus: &'a ParallelCorpus,
    /// Settings of the search by the teacher. One of the `n_best` translations of each source is
    /// used.
    pub settings: TranslationSettings,
    /// Whether to use the translation with the highest BLEU against the corpus's target, instead of
    /// the translation that the search ranks first.
    pub interpolates: bool,
    /// Folder for the pairs.
    pub output: &'a Path,
}

/// Translates the sources of a corpus with `run` (Kim and Rush 2016, "Sequence-Level Knowledge
/// Distillation", section 3.2). With [`Distillation::interpolates`], the translation in the n-best
/// list with the highest BLEU against the reference is used (section 3.3).
///
/// # Errors
/// If the corpus cannot be read or translated, the output folder has other pairs, or writing fails.
pub fn distill(
    run: &LoadedRun,
    job: &Distillation<'_>,
    cache: &TranslationCache,
    observe: &mut dyn FnMut(CacheProgress<'_>),
) -> Result<MadePairs> {
    let mut settings = job.settings.clone();
    settings.detail = TranslationDetail { all: job.interpolates, ..TranslationDetail::default() };
    if !job.interpolates {
        settings.decoding.n_best = 1;
    }
    let open = job.corpus.opener(Side::Source);
    let text = job.corpus.text(Side::Source, &open);
    let entry = cache.translated(run, &settings, &text, observe)?;
    let references = job.corpus.hash(Side::Target)?;
    let method = format!("interpolates: {}", job.interpolates);
    let languages = job.corpus.languages();
    let identity =
        identity(&["distill", &method, languages[0], languages[1], &entry.key, &references]);
    if let Some(pairs) = MadePairs::find(job.output, &identity)? {
        return Ok(pairs);
    }
    let scoring = run.config.scoring();
    let bleu = Bleu {
        tokenizer: scoring.tokenize,
        lowercase: scoring.lowercase,
        effective_order: true,
        ..Bleu::default()
    };
    let mut pairs = PairWriter::begin(job.output, identity, languages, false)?;
    pairs.origin(run.config.name.clone());
    for ((line, pair), translations) in (1..).zip(job.corpus.pairs()?).zip(entry.translations()?) {
        let ([source, reference], translations) = (pair?, translations?);
        let chosen = match job.interpolates {
            true => nearest(&translations, &reference, &bleu)?,
            false => translations.first(),
        };
        let text = chosen.map_or("", |chosen| chosen.text.as_str());
        pairs.push([&source, text], line, chosen.map(|chosen| chosen.score))?;
    }
    pairs.finish()
}

/// Translation with the highest BLEU against the reference, the first one among equals; `None` if
/// there are no translations.
fn nearest<'a>(
    translations: &'a [Choice],
    reference: &str,
    bleu: &Bleu,
) -> Result<Option<&'a Choice>> {
    let mut nearest: Option<(f64, &Choice)> = None;
    for choice in translations {
        let score = bleu.sentence(&choice.text, &[reference])?.score;
        if nearest.is_none_or(|(best, _)| score > best) {
            nearest = Some((score, choice));
        }
    }
    Ok(nearest.map(|(_, choice)| choice))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_is_the_best_among_equals() {
        let choices = ["a cat sat", "the cat sat on the mat", "the cat sat on the mat", "the"];
        let choices: Vec<Choice> = choices
            .iter()
            .zip([-1.0, -2.0, -3.0, -4.0])
            .map(|(text, score)| Choice { text: (*text).to_owned(), score })
            .collect();
        let bleu = Bleu { effective_order: true, ..Bleu::default() };
        let nearest_choice = nearest(&choices, "the cat sat on a mat", &bleu).expect("scored");
        assert_eq!(nearest_choice.map(|choice| choice.score), Some(-2.0));
        assert_eq!(nearest(&[], "a", &bleu).expect("scored"), None);
    }
}
