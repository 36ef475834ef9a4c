//! Options of the recipe (the settings of the training) and of the weights of a run.

use std::path::Path;

use anyhow::Result;
use clap::{Args, ValueEnum};
use taper_run::checks::device::unusable_gpu;
use taper_run::tasks::TaskModel;
use taper_run::{LoadSettings, LoadedRun, RecipeNotice, WeightType};

use crate::text::say;

/// Overrides of single keys.
#[derive(Debug, Clone, Args)]
pub(crate) struct Overrides {
    /// Override one key of the recipe; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
}

/// Checkpoint of a run.
#[derive(Debug, Args)]
pub(crate) struct Checkpoint {
    /// best, last, average, a name such as step-00001000, or the path of a checkpoint folder
    /// [default: average if it exists and is not older than last, else best, else last]
    #[arg(long)]
    pub(crate) checkpoint: Option<String>,
}

/// Weights of a run to use, and overrides of its recipe.
#[derive(Debug, Args)]
pub(crate) struct Loading {
    #[command(flatten)]
    weights: Weights,
    #[command(flatten)]
    overrides: Overrides,
}

impl Loading {
    /// Loads the run at `root` with these weights and overrides.
    ///
    /// # Errors
    /// Errors of [`LoadedRun::open`].
    pub(crate) fn load<M: TaskModel>(&self, root: &Path) -> Result<LoadedRun<M>> {
        self.weights.load(root, &self.overrides.set)
    }

    /// Returns the settings for loading a run with these weights and overrides.
    pub(crate) fn settings(&self) -> LoadSettings {
        self.weights.settings(&self.overrides.set)
    }
}

/// Weights of a run to use, and the device to compute on.
#[derive(Debug, Args)]
pub(crate) struct Weights {
    #[command(flatten)]
    checkpoint: Checkpoint,
    /// auto, cpu, cuda, cuda:N or metal [default: the run's]
    #[arg(long)]
    pub(crate) device: Option<String>,
    /// Type in which matrices are multiplied [default: int8 if the weights were saved in int8, else
    /// the run's dtype]
    #[arg(long = "weights", value_enum, value_name = "TYPE")]
    pub(crate) weight_type: Option<WeightChoice>,
    /// Language to translate into, for a run of several
    #[arg(long, value_name = "LANGUAGE")]
    pub(crate) to: Option<String>,
    /// Language to translate from, for a run of several [default: the first that is translated into
    /// --to]
    #[arg(long, value_name = "LANGUAGE")]
    pub(crate) from: Option<String>,
}

/// Type in which matrices are multiplied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum WeightChoice {
    /// 32 bits, the type in which the weights were trained
    F32,
    /// Weights and activations rounded to bf16
    Bf16,
    /// Weights and activations rounded to 8 bits, for models that write text: the fastest on most
    /// processors
    Int8,
}

impl From<WeightChoice> for WeightType {
    fn from(choice: WeightChoice) -> Self {
        match choice {
            WeightChoice::F32 => Self::F32,
            WeightChoice::Bf16 => Self::Bf16,
            WeightChoice::Int8 => Self::Int8,
        }
    }
}

impl Weights {
    /// Loads the run at `root` with these weights and with `overrides` of its recipe.
    ///
    /// # Errors
    /// Errors of [`LoadedRun::open`].
    pub(crate) fn load<M: TaskModel>(
        &self,
        root: &Path,
        overrides: &[String],
    ) -> Result<LoadedRun<M>> {
        let run: LoadedRun<M> = LoadedRun::open(root, &self.settings(overrides))?;
        if run.config.device == "auto"
            && let Some(reason) = unusable_gpu()
        {
            say(&RecipeNotice::UnusableGpu(reason).to_string());
        }
        Ok(run)
    }

    /// Returns the settings for loading a run with these weights and with `overrides` of its
    /// recipe.
    pub(crate) fn settings(&self, overrides: &[String]) -> LoadSettings {
        LoadSettings {
            checkpoint: self.checkpoint.checkpoint.clone(),
            device: self.device.clone(),
            weights: self.weight_type.map(WeightType::from),
            overrides: overrides.to_vec(),
            from: self.from.clone(),
            to: self.to.clone(),
            every_direction: false,
            only_decodes: false,
        }
    }
}
