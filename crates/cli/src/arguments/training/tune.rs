//! Arguments of `tune`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use taper_run::evaluation::{TuningGrid, TuningMetric, Values};

use crate::arguments::Loading;

/// Arguments of `tune`.
#[derive(Debug, Args)]
pub(crate) struct Tune {
    /// Folder of the run
    pub(crate) run: PathBuf,
    /// Split to translate. Do not choose a split on which the run is to be judged later [default:
    /// the validation set]
    #[arg(long, value_name = "NAME")]
    pub(crate) split: Option<String>,
    /// Largest number of sentences that are translated; they are spread evenly over the set
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub(crate) sentences: usize,
    /// Beams to try in addition to the run's own, each with one search [default: 2,4,8, and wider
    /// as long as the widest is the best]
    #[arg(long, value_name = "N,N,…", value_delimiter = ',')]
    pub(crate) beams: Option<Vec<usize>>,
    /// Length penalties to try [default: 0 to 1.4, and larger as long as the largest is the best]
    #[arg(long, value_name = "X,X,…", value_delimiter = ',')]
    pub(crate) length_penalties: Option<Vec<f64>>,
    /// Length rewards to try, each with each length penalty [default: 0,0.1,0.2,0.3, and larger as
    /// long as the largest is the best]
    #[arg(long, value_name = "X,X,…", value_delimiter = ',')]
    pub(crate) length_rewards: Option<Vec<f64>>,
    /// Shortfall penalties to try, each with each length penalty and without a reward [default:
    /// 0,1,2,4,8, and larger as long as the largest is the best; 0 if rewards are given]
    #[arg(long, value_name = "X,X,…", value_delimiter = ',')]
    pub(crate) shortfall_penalties: Option<Vec<f64>>,
    /// Score to maximise
    #[arg(long, value_enum, default_value = "bleu")]
    pub(crate) metric: TunedMetric,
    /// Print the result and leave the run unchanged
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) loading: Loading,
    /// Print the trials as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl Tune {
    /// Returns true if the options name settings of the search to try.
    pub(crate) fn names_settings(&self) -> bool {
        let lists = [&self.length_penalties, &self.length_rewards, &self.shortfall_penalties];
        self.beams.is_some() || lists.iter().any(|list| list.is_some())
    }

    /// Returns the grid of the settings to try.
    pub(crate) fn grid(&self) -> TuningGrid {
        let usual = TuningGrid::default();
        let named = |list: &Option<Vec<f64>>, usual| list.clone().map_or(usual, Values::only);
        let no_shortfall = Values::only(vec![0.0]);
        let shortfalls = match self.length_rewards.is_some() {
            true => no_shortfall,
            false => usual.shortfall_penalties,
        };
        TuningGrid {
            beam_sizes: self.beams.clone().map_or(usual.beam_sizes, Values::only),
            length_penalties: named(&self.length_penalties, usual.length_penalties),
            length_rewards: named(&self.length_rewards, usual.length_rewards),
            shortfall_penalties: named(&self.shortfall_penalties, shortfalls),
        }
    }
}

/// Score to maximise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TunedMetric {
    /// BLEU
    Bleu,
    /// chrF2
    Chrf,
}

impl From<TunedMetric> for TuningMetric {
    fn from(metric: TunedMetric) -> Self {
        match metric {
            TunedMetric::Bleu => Self::Bleu,
            TunedMetric::Chrf => Self::Chrf,
        }
    }
}
