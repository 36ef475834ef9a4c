//! Arguments of `backtranslate`, `distill`, `diversify` and `filter`.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use taper_run::made_text::{Keep, Method, TranslationCache};

use super::{Loading, Search};

/// Folders of the pairs, and of the translations that they are made from.
#[derive(Debug, Args)]
pub(crate) struct MadeFolders {
    /// Folder for the pairs: train.SOURCE, train.TARGET, the origin of each pair, and made.json
    #[arg(long, short, value_name = "DIR")]
    pub(crate) output: PathBuf,
    /// Folder in which translations are stored. A stored translation is reused if weights, settings
    /// and text are the same [default: cache/translated in the run]
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
}

impl MadeFolders {
    /// Returns the cache of translations by the run in the folder `run`.
    pub(crate) fn cache(&self, run: &Path) -> TranslationCache {
        TranslationCache(self.cache.clone().unwrap_or_else(|| run.join("cache/translated")))
    }
}

/// Arguments of `backtranslate`.
#[derive(Debug, Args)]
pub(crate) struct Backtranslate {
    /// Folder of the run that translates the text, into the source language of the new model
    pub(crate) run: PathBuf,
    /// Text in the target language of the new model, one sentence per line
    #[arg(value_name = "MONO")]
    pub(crate) text: PathBuf,
    /// Method that makes the sources
    #[arg(long, value_enum, default_value = "beam")]
    pub(crate) method: MethodChoice,
    /// Seed of samples and noise [default: the run's]
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    #[command(flatten)]
    pub(crate) search: Search,
    #[command(flatten)]
    pub(crate) folders: MadeFolders,
    #[command(flatten)]
    pub(crate) loading: Loading,
}

/// Method that makes the sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum MethodChoice {
    /// The best of a beam
    Beam,
    /// Drawn from the model
    Sampling,
    /// The best of a beam; a tenth of its words is removed, a tenth of the others blanked, and
    /// words are moved by at most three places
    NoisedBeam,
}

impl From<MethodChoice> for Method {
    fn from(choice: MethodChoice) -> Self {
        match choice {
            MethodChoice::Beam => Self::Beam,
            MethodChoice::Sampling => Self::Sampling,
            MethodChoice::NoisedBeam => Self::NoisedBeam,
        }
    }
}

/// Arguments of `distill`.
#[derive(Debug, Args)]
pub(crate) struct Distill {
    /// Folders of the teachers, which translate as an ensemble; they need the tokenizer of the first
    #[arg(required = true, value_name = "RUN")]
    pub(crate) runs: Vec<PathBuf>,
    /// Split of the first run's data whose sources are translated
    #[arg(long, value_name = "NAME", default_value = "train")]
    pub(crate) data: String,
    /// Take the translation from each n-best list that is nearest to the reference by BLEU
    #[arg(long)]
    pub(crate) interpolate: bool,
    #[command(flatten)]
    pub(crate) search: Search,
    #[command(flatten)]
    pub(crate) folders: MadeFolders,
    #[command(flatten)]
    pub(crate) loading: Loading,
}

/// Arguments of `diversify`.
#[derive(Debug, Args)]
pub(crate) struct Diversify {
    /// Folders of runs that translate in the direction of the corpus
    #[arg(long, value_name = "RUN", num_args = 1.., required_unless_present = "backward")]
    pub(crate) forward: Vec<PathBuf>,
    /// Folders of runs that translate in the opposite direction
    #[arg(long, value_name = "RUN", num_args = 1..)]
    pub(crate) backward: Vec<PathBuf>,
    /// Split that is diversified, of the data of --recipe or, without it, of the first run of
    /// --forward
    #[arg(long, value_name = "NAME", default_value = "train")]
    pub(crate) data: String,
    /// Recipe whose data is diversified [default: the recipe of the first run of --forward]
    #[arg(long, value_name = "FILE", required_unless_present = "forward")]
    pub(crate) recipe: Option<PathBuf>,
    /// Hypotheses kept at each step; 1 is greedy search [default: each run's]
    #[arg(long)]
    pub(crate) beam: Option<usize>,
    #[command(flatten)]
    pub(crate) folders: MadeFolders,
    #[command(flatten)]
    pub(crate) loading: Loading,
}

/// Arguments of `filter`.
#[derive(Debug, Args)]
pub(crate) struct Filter {
    /// Folder of a run that translates in the direction of the corpus
    #[arg(long, value_name = "RUN")]
    pub(crate) forward: PathBuf,
    /// Folder of a run that translates in the opposite direction
    #[arg(long, value_name = "RUN")]
    pub(crate) backward: PathBuf,
    /// Share of the pairs to keep, from 0 to 1: the likeliest
    #[arg(long, value_name = "SHARE", default_value_t = 0.9)]
    keep: f64,
    /// Smallest score of a pair to keep, from 0 to 1, instead of a share
    #[arg(long, value_name = "SCORE", conflicts_with = "keep")]
    least: Option<f64>,
    /// Split that is filtered, of the data of --recipe or, without it, of the run --forward
    #[arg(long, value_name = "NAME", default_value = "train")]
    pub(crate) data: String,
    /// Recipe whose data is filtered [default: the recipe of --forward]
    #[arg(long, value_name = "FILE")]
    pub(crate) recipe: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) folders: MadeFolders,
    #[command(flatten)]
    pub(crate) loading: Loading,
}

impl Filter {
    /// Returns the rule that decides which pairs are kept.
    pub(crate) fn keep(&self) -> Keep {
        self.least.map_or(Keep::Share(self.keep), Keep::Least)
    }
}
