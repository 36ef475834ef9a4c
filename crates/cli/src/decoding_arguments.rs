//! Options of `translate` and `bench decode` that steer the search beyond beam and length penalty.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use taper_decoding::DecodingConfig;
use taper_run::RunConfig;
use taper_run::translation::{Limit, OverlongRule};

use crate::arguments::{Search, Weights};

/// Sampling, and control of repetition.
#[derive(Debug, Args)]
pub(crate) struct Control {
    /// Draw translations at random instead of searching for the best; implied by the next three
    /// options
    #[arg(long)]
    pub(crate) sample: bool,
    /// Divide logits by T before drawing; below 1 favours likely tokens [default: the run's, else
    /// 1]
    #[arg(long, value_name = "T")]
    pub(crate) temperature: Option<f64>,
    /// Draw among the K likeliest tokens
    #[arg(long, value_name = "K")]
    pub(crate) top_k: Option<usize>,
    /// Draw among the fewest likeliest tokens that together have probability P
    #[arg(long, value_name = "P")]
    pub(crate) top_p: Option<f64>,
    /// Seed of the draws; one seed gives one output, however lines are batched [default: the
    /// run's]
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Divide the positive logits of tokens that the output holds already, multiply the negative
    /// ones
    #[arg(long, value_name = "X")]
    pub(crate) repetition_penalty: Option<f64>,
    /// No run of N tokens comes twice in an output (of a line that is translated in parts: in that
    /// of a part)
    #[arg(long, value_name = "N")]
    pub(crate) no_repeat_ngram: Option<usize>,
}

impl Control {
    /// Puts the options into `config`.
    ///
    /// # Errors
    /// For an option of drawing where nothing is drawn.
    pub(crate) fn apply(&self, config: &mut DecodingConfig) -> Result<()> {
        let sampling = &mut config.sampling;
        let wanted = self.sample
            || self.temperature.is_some()
            || self.top_k.is_some()
            || self.top_p.is_some();
        if wanted && !sampling.is_active() {
            sampling.temperature = 1.0;
        }
        set(&mut sampling.temperature, self.temperature);
        set(&mut sampling.top_k, self.top_k);
        set(&mut sampling.top_p, self.top_p);
        set(&mut sampling.seed, self.seed);
        let of_drawing = [
            ("--sample", self.sample),
            ("--top-k", self.top_k.is_some()),
            ("--top-p", self.top_p.is_some()),
            ("--seed", self.seed.is_some()),
        ];
        if let Some((name, _)) =
            of_drawing.into_iter().find(|(_, given)| *given && !sampling.is_active())
        {
            bail!(
                "{name} has no effect where nothing is drawn: leave it out, or give a --temperature above 0, such as 1"
            );
        }
        set(&mut config.repetition_penalty, self.repetition_penalty);
        set(&mut config.no_repeat_ngram, self.no_repeat_ngram);
        Ok(())
    }
}

fn set<T>(value: &mut T, given: Option<T>) {
    if let Some(given) = given {
        *value = given;
    }
}

/// What becomes of a line with more tokens than training saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OverlongChoice {
    /// Translate it in parts, divided at the end of a sentence or phrase where there is one
    Split,
    /// Translate its beginning
    Cut,
    /// Refuse it
    Error,
}

/// Treatment of overlong lines.
#[derive(Debug, Args)]
pub(crate) struct OverlongArguments {
    /// What becomes of a line with too many tokens; standard error and --json say which lines
    #[arg(long, value_enum, default_value = "split")]
    pub(crate) overlong: OverlongChoice,
    /// The most tokens of a line [default: the run's data.cleaning.max_tokens, the most it was
    /// trained on]
    #[arg(long, value_name = "N")]
    pub(crate) max_source_tokens: Option<usize>,
}

impl OverlongArguments {
    /// The limit for the lines that the run of `config` translates.
    ///
    /// # Errors
    /// For a limit of no tokens.
    pub(crate) fn limit(&self, config: &RunConfig) -> Result<Limit> {
        if self.max_source_tokens == Some(0) {
            bail!("--max-source-tokens must be at least 1");
        }
        let rule = match self.overlong {
            OverlongChoice::Split => OverlongRule::Split,
            OverlongChoice::Cut => OverlongRule::Cut,
            OverlongChoice::Error => OverlongRule::Error,
        };
        Ok(Limit::of(config, rule, self.max_source_tokens))
    }
}

/// Arguments of `bench decode`.
#[derive(Debug, Args)]
pub(crate) struct BenchDecode {
    /// Folder of the run
    pub(crate) run: PathBuf,
    /// Text to translate, one sentence a line
    #[arg(long, short, value_name = "FILE")]
    pub(crate) input: PathBuf,
    /// Threads [default: the run's, or all]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<usize>,
    /// How often the text is translated; rates are medians
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub(crate) repeats: usize,
    #[command(flatten)]
    pub(crate) search: Search,
    #[command(flatten)]
    pub(crate) weights: Weights,
    /// Override one key of the run's configuration; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Print as JSON
    #[arg(long)]
    pub(crate) json: bool,
}
