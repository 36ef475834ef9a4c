//! Back-translation: training pairs for a model are made from text in its target language. A second
//! model, of the opposite direction, translates this text. Each translation becomes the source of a
//! pair, with the original text as its target.

use std::collections::HashSet;
use std::path::Path;

use anyhow::Result;
use taper_data::LineReader;

use super::CacheProgress;
use super::cache::{Lines, Text, TranslationCache};
use super::noise::noised;
use super::pairs::{MadePairs, PairWriter, identity};
use crate::LoadedRun;
use crate::translation::{TranslationSettings, for_the_best};

/// Method by which the source of a pair is made from a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// The best translation of a beam search.
    Beam,
    /// A translation that is sampled from the model.
    Sampling,
    /// The best translation of a beam search, with noise added.
    NoisedBeam,
}

/// Settings of a back-translation.
#[derive(Debug)]
pub struct BackTranslation<'a> {
    /// File with text in the language from which the second model translates, one sentence on each
    /// line. Its sentences become targets.
    pub text: &'a Path,
    /// Settings of the search for translations.
    pub settings: TranslationSettings,
    /// Method that makes the sources.
    pub method: Method,
    /// Folder for the pairs.
    pub output: &'a Path,
}

/// Translates a text with `run` (a trained model). The lines of the text become the targets of
/// pairs, and their translations the sources (Sennrich et al. 2016, "Improving Neural Machine
/// Translation Models with Monolingual Data"). Repeated lines are used once. The pairs are for
/// training a model that translates in the opposite direction of `run`. The configuration of this
/// training can distinguish them from other pairs by the `tag` of their corpus (Caswell et al.
/// 2019, "Tagged Back-Translation").
///
/// # Errors
/// If the text cannot be read or translated, the output folder has other pairs, or writing fails.
pub fn back_translate(
    run: &LoadedRun,
    job: &BackTranslation<'_>,
    cache: &TranslationCache,
    observe: &mut dyn FnMut(CacheProgress<'_>),
) -> Result<MadePairs> {
    let open = || -> Result<Lines> {
        let mut reader = LineReader::open(job.text)?;
        Ok(Box::new(std::iter::from_fn(move || reader.next_line().map_err(Into::into).transpose())))
    };
    let mut settings = job.settings.clone();
    settings.decoding = for_the_best(&settings.decoding);
    let sampling = &mut settings.decoding.sampling;
    match job.method {
        Method::Sampling if !sampling.is_active() => sampling.temperature = 1.0,
        Method::Sampling => {}
        Method::Beam | Method::NoisedBeam => sampling.temperature = 0.0,
    }
    let seed = settings.decoding.sampling.seed;
    let text = Text { open: &open, name: job.text.display().to_string() };
    let entry = cache.translated(run, &settings, &text, observe)?;
    let method = format!("{:?} {seed}", job.method);
    let [source, target] = [&run.config.data.target_language, &run.config.data.source_language];
    let identity = identity(&["backtranslate", &method, source, target, &entry.key]);
    if let Some(pairs) = MadePairs::find(job.output, &identity)? {
        return Ok(pairs);
    }
    let mut pairs = PairWriter::begin(job.output, identity, [source, target], false)?;
    pairs.origin(run.config.name.clone());
    let mut seen_targets = HashSet::new();
    for ((line, target), translations) in (1..).zip(open()?).zip(entry.translations()?) {
        let (target, translations) = (target?, translations?);
        if !seen_targets.insert(taper_ops::rng::name_key(&target)) {
            pairs.duplicate();
            continue;
        }
        let best = translations.first();
        let text = best.map_or("", |best| best.text.as_str());
        let score = best.map(|best| best.score);
        match job.method {
            Method::NoisedBeam => {
                pairs.push([&noised(text, seed, line as u64), &target], line, score)?;
            }
            Method::Beam | Method::Sampling => pairs.push([text, &target], line, score)?,
        }
    }
    pairs.finish()
}
