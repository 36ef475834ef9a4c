//! Data diversification: models that translate in opposite directions translate their own training
//! text.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use super::CacheProgress;
use super::cache::{Entry, TranslationCache};
use super::pairs::{MadePairs, PairWriter, identity};
use super::parallel::{ParallelCorpus, Side};
use crate::translation::{TranslationSettings, for_the_best};
use crate::{LoadSettings, LoadedRun};

/// Settings of a diversification.
#[derive(Debug)]
pub struct Diversification<'a> {
    /// Runs that translate in the direction of the corpus.
    pub forward: &'a [PathBuf],
    /// Runs that translate in the opposite direction.
    pub backward: &'a [PathBuf],
    /// The corpus.
    pub corpus: &'a ParallelCorpus,
    /// Choice of weights, and overrides, for each run.
    pub load: LoadSettings,
    /// Beam size of all searches; `None` for the beam size in the configuration of each model.
    pub beam_size: Option<usize>,
    /// Folder for the pairs.
    pub output: &'a Path,
}

/// Translations by one run, which has translated the side `side` of the corpus.
struct Translated {
    name: String,
    side: Side,
    entry: Entry,
}

/// Writes the pairs `(x, y)` of a corpus, and further pairs: `(x, F(x))` for each forward model F,
/// and `(B(y), y)` for each backward model B. Repeated pairs are omitted (Nguyen et al. 2020, "Data
/// Diversification: A Simple Strategy For Neural Machine Translation", section 3.1).
///
/// # Errors
/// If a run cannot be loaded or translates between other languages, the corpus cannot be read, the
/// output folder has other pairs, or writing fails.
pub fn diversify(
    job: &Diversification<'_>,
    cache: &dyn Fn(&Path) -> TranslationCache,
    observe: &mut dyn FnMut(CacheProgress<'_>),
) -> Result<MadePairs> {
    let [source, target] = job.corpus.languages();
    if job.forward.is_empty() && job.backward.is_empty() {
        bail!("name runs that translate {source} to {target}, or {target} to {source}");
    }
    let runs = job.forward.iter().map(|run| (run, Side::Source));
    let runs = runs.chain(job.backward.iter().map(|run| (run, Side::Target)));
    let mut translated = Vec::new();
    for (path, side) in runs {
        let run: LoadedRun = LoadedRun::open(path, &job.load)?;
        require_languages(&run, path, side, [source, target])?;
        let mut settings = TranslationSettings::from_config(&run.config);
        if let Some(beam) = job.beam_size {
            settings.decoding.beam_size = beam;
            settings.decoding.n_best = settings.decoding.n_best.min(beam.max(1));
        }
        settings.decoding = for_the_best(&settings.decoding);
        settings.decoding.validate()?;
        let open = job.corpus.opener(side);
        let text = job.corpus.text(side, &open);
        let entry = cache(path).translated(&run, &settings, &text, observe)?;
        translated.push(Translated { name: path.display().to_string(), side, entry });
    }
    let keys = translated.iter().map(|one| one.entry.key.as_str());
    let texts = [job.corpus.hash(Side::Source)?, job.corpus.hash(Side::Target)?];
    let parts: Vec<&str> =
        ["diversify", source, target, &texts[0], &texts[1]].into_iter().chain(keys).collect();
    let identity = identity(&parts);
    if let Some(made) = MadePairs::find(job.output, &identity)? {
        return Ok(made);
    }
    let mut pairs = PairWriter::begin(job.output, identity, [source, target], true)?;
    pairs.origin("original".to_owned());
    for (line, pair) in (1..).zip(job.corpus.pairs()?) {
        let [source, target] = pair?;
        pairs.push([&source, &target], line, None)?;
    }
    for Translated { name, side, entry } in translated {
        pairs.origin(name);
        for ((line, pair), translations) in
            (1..).zip(job.corpus.pairs()?).zip(entry.translations()?)
        {
            let ([source, target], translations) = (pair?, translations?);
            let best = translations.first();
            let text = best.map_or("", |best| best.text.as_str());
            let pair = match side {
                Side::Source => [source.as_str(), text],
                Side::Target => [text, target.as_str()],
            };
            pairs.push(pair, line, best.map(|best| best.score))?;
        }
    }
    pairs.finish()
}

/// Returns an error if the run does not translate from the language of `side` into the language of
/// the other side.
pub(super) fn require_languages(
    run: &LoadedRun,
    path: &Path,
    side: Side,
    [source, target]: [&str; 2],
) -> Result<()> {
    let data = &run.config.data;
    let languages = [data.source_language.as_str(), data.target_language.as_str()];
    let wanted = if side == Side::Source { [source, target] } else { [target, source] };
    if languages != wanted {
        let option = if side == Side::Source { "forward" } else { "backward" };
        bail!(
            "{}: the run translates {} to {}, and {option} runs have to translate {} to {}",
            path.display(),
            languages[0],
            languages[1],
            wanted[0],
            wanted[1]
        );
    }
    Ok(())
}
