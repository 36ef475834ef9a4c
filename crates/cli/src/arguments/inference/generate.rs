//! Arguments of `generate`.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use taper_run::RunConfig;
use taper_run::generation::GenerationSettings;

use crate::arguments::{Control, ItemRules, Loading};

/// Arguments of `generate`.
#[derive(Debug, Args)]
pub(crate) struct Generate {
    /// Folder of the run
    pub(crate) run: PathBuf,
    /// Text to continue; may be repeated [default: standard input if it is a pipe or a file, else
    /// the beginning of a document, or of a line if the training text is one document]
    #[arg(long, short, value_name = "TEXT")]
    pub(crate) prompt: Vec<String>,
    /// File whose whole content is one prompt; - is standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["prompt", "prompts"])]
    pub(crate) prompt_file: Option<PathBuf>,
    /// File with one prompt per line; - is standard input
    #[arg(long, value_name = "FILE", conflicts_with = "prompt")]
    pub(crate) prompts: Option<PathBuf>,
    /// Largest number of tokens added to a prompt [default: 256, or the run's decoding.max_length
    /// if that is smaller]
    #[arg(long, short = 'n', value_name = "N")]
    pub(crate) max_tokens: Option<usize>,
    /// Number of texts drawn for each prompt [default: 1]
    #[arg(long, value_name = "N")]
    pub(crate) samples: Option<usize>,
    /// Largest number of tokens that a prediction looks back on [default: the run's
    /// data.text.block_length]
    #[arg(long, value_name = "N")]
    pub(crate) context: Option<usize>,
    #[command(flatten)]
    pub(crate) control: Control,
    #[command(flatten)]
    pub(crate) loading: Loading,
    #[command(flatten)]
    pub(crate) items: ItemRules,
    /// Print one JSON object per text: prompt, text, tokens, log-probability and reason of the end,
    /// or an error
    #[arg(long)]
    pub(crate) json: bool,
}

/// Largest number of tokens that are added to a prompt by default.
const USUAL_TOKENS: usize = 256;

impl Generate {
    /// Returns the settings for generating text with a run whose recipe is `config`.
    ///
    /// # Errors
    /// If options do not go together.
    pub(crate) fn settings(&self, config: &RunConfig) -> Result<GenerationSettings> {
        let mut settings = GenerationSettings::from_config(config);
        self.control.apply(&mut settings.decoding, false)?;
        settings.max_tokens = self.max_tokens.unwrap_or(settings.max_tokens.min(USUAL_TOKENS));
        settings.special_tokens = self.items.special_tokens.rule.into();
        if let Some(context) = self.context {
            settings.context = context;
        }
        settings.decoding.n_best = self.samples.unwrap_or(1);
        if settings.decoding.n_best > 1 && !settings.decoding.sampling.is_active() {
            bail!(
                "--samples {} would repeat the same text, because nothing is sampled: leave \
                 --samples out, or give a --temperature above 0",
                settings.decoding.n_best
            );
        }
        Ok(settings)
    }
}
