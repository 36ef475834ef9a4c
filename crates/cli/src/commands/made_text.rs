//! `taper backtranslate`, `distill`, `diversify` and `filter`: training text that models make or
//! select.

use std::path::Path;

use anyhow::Result;
use indicatif::ProgressBar;
use taper_run::made_text::{
    self, BackTranslation, CacheProgress, Distillation, Diversification, Filtering, MadePairs,
    ParallelCorpus,
};
use taper_run::numbers::grouped;
use taper_run::translation::TranslationSettings;
use taper_run::{LoadedRun, RunConfig, RunFolder};

use crate::arguments::{Backtranslate, Distill, Diversify, Filter};
use crate::bars::sentence_bar;
use crate::text::print_line;

/// Progress bars of translations, one bar for each text.
#[derive(Default)]
struct Bars(Option<(String, ProgressBar)>);

impl Bars {
    fn show(&mut self, progress: CacheProgress<'_>) {
        let CacheProgress { text, done, lines } = progress;
        if self.0.as_ref().is_none_or(|(shown, _)| shown != text) {
            let bar = sentence_bar(Some(lines as u64), text);
            // Lines that were already translated by an earlier call do not count for the rate.
            bar.set_position(done as u64);
            bar.reset_eta();
            self.0 = Some((text.to_owned(), bar));
        }
        if let Some((_, bar)) = &self.0 {
            bar.set_position(done as u64);
        }
    }
}

/// Runs `backtranslate`.
pub(crate) fn backtranslate(arguments: &Backtranslate) -> Result<()> {
    let Backtranslate { run: root, text, folders, .. } = arguments;
    let mut run: LoadedRun = arguments.loading.load(root)?;
    run.config.name = root.display().to_string();
    let mut settings = TranslationSettings::from_config(&run.config);
    arguments.search.apply(&mut settings.decoding, None)?;
    if let Some(seed) = arguments.seed {
        settings.decoding.sampling.seed = seed;
    }
    let output = &folders.output;
    let job = BackTranslation { text, settings, method: arguments.method.into(), output };
    let mut bars = Bars::default();
    let pairs = made_text::back_translate(&run, &job, &folders.cache(root), &mut |progress| {
        bars.show(progress)
    })?;
    tell(&pairs, output, ", tag = \"<BT>\"")
}

/// Runs `distill`.
pub(crate) fn distill(arguments: &Distill) -> Result<()> {
    let Distill { runs, folders, .. } = arguments;
    let [root, ensemble @ ..] = runs.as_slice() else { return Ok(()) };
    let mut run: LoadedRun = arguments.loading.load(root)?;
    let corpus = ParallelCorpus::for_split(&run.config, &arguments.data)?;
    run.config.name =
        runs.iter().map(|run| run.display().to_string()).collect::<Vec<_>>().join(" + ");
    let mut settings = TranslationSettings::from_config(&run.config);
    settings.ensemble = ensemble.to_vec();
    arguments.search.apply(&mut settings.decoding, None)?;
    if arguments.interpolate {
        settings.decoding.n_best = settings.decoding.beam_size;
    }
    let interpolates = arguments.interpolate;
    let output = &folders.output;
    let job = Distillation { corpus: &corpus, settings, interpolates, output };
    let mut bars = Bars::default();
    let pairs =
        made_text::distill(&run, &job, &folders.cache(root), &mut |progress| bars.show(progress))?;
    tell(&pairs, output, "")
}

/// Runs `diversify`.
pub(crate) fn diversify(arguments: &Diversify) -> Result<()> {
    let Diversify { forward, backward, folders, .. } = arguments;
    let config = match (&arguments.recipe, forward.first()) {
        (Some(recipe), _) => RunConfig::load(recipe, &[])?,
        (None, Some(run)) => RunFolder::open(run)?.load_config(&[])?,
        (None, None) => return Ok(()),
    };
    let corpus = ParallelCorpus::for_split(&config, &arguments.data)?;
    let job = Diversification {
        forward,
        backward,
        corpus: &corpus,
        load: arguments.loading.settings(),
        beam_size: arguments.beam,
        output: &folders.output,
    };
    let mut bars = Bars::default();
    let cache = |run: &Path| folders.cache(run);
    let pairs = made_text::diversify(&job, &cache, &mut |progress| bars.show(progress))?;
    tell(&pairs, &folders.output, "")
}

/// Runs `filter`.
pub(crate) fn filter(arguments: &Filter) -> Result<()> {
    let Filter { forward, backward, folders, .. } = arguments;
    let config = match &arguments.recipe {
        Some(recipe) => RunConfig::load(recipe, &[])?,
        None => RunFolder::open(forward)?.load_config(&[])?,
    };
    let corpus = ParallelCorpus::for_split(&config, &arguments.data)?;
    let job = Filtering {
        forward,
        backward,
        corpus: &corpus,
        load: arguments.loading.settings(),
        keep: arguments.keep(),
        output: &folders.output,
    };
    let mut bars = Bars::default();
    let cache = |run: &Path| folders.cache(run);
    let filtered = made_text::filter(&job, &cache, &mut |progress| bars.show(progress))?;
    drop(bars);
    for one in &filtered.examples {
        let score = one.score.map_or_else(|| "no score".to_owned(), |score| format!("{score:.4}"));
        let [source, target] = &one.texts;
        print_line(&format!("left out: line {}, {score}: {source} | {target}", one.line))?;
    }
    if let Some(least) = filtered.least {
        let dropped = grouped(filtered.dropped as u64);
        print_line(&format!("{dropped} pairs below a score of {least:.4} are omitted"))?;
    }
    tell(&filtered.made, &folders.output, "")
}

/// Reports the files that were made, and how a recipe (a TOML file with the settings of a training)
/// can name them.
fn tell(pairs: &MadePairs, output: &Path, tag: &str) -> Result<()> {
    for origin in &pairs.origins {
        let mut line = format!("{}: {} pairs", origin.origin, grouped(origin.pairs));
        for (count, why) in
            [(origin.duplicates, "were there already"), (origin.empty, "have an empty side")]
        {
            if count > 0 {
                line.push_str(&format!(", {} {why}", grouped(count)));
            }
        }
        print_line(&line)?;
    }
    let [source, target] = pairs.files.each_ref().map(|name| output.join(name));
    print_line(&format!(
        "for a recipe: train = {{ source = {:?}, target = {:?}{tag} }}",
        source.display().to_string(),
        target.display().to_string()
    ))
}
