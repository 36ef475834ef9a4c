//! A trained run, ready to be used: configuration, tokenizers, model with weights.

use std::num::NonZero;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use candle_core::Device;
use taper_data::TokenizerPair;
use taper_model::Transformer;
use taper_trainer::{State, load_model};

use crate::arguments::{Search, Weights};
use crate::config::RunConfig;
use crate::device;
use crate::memory;
use crate::run_folder::RunFolder;

/// Threads that any machine may be asked for.
const MOST_THREADS: usize = 64;

/// What `translate`, `evaluate` and `score` work with.
pub(crate) struct LoadedRun {
    /// The run's configuration.
    pub(crate) config: RunConfig,
    /// Its tokenizers.
    pub(crate) tokenizers: TokenizerPair,
    /// The model with the chosen weights.
    pub(crate) model: Transformer,
    /// Where the weights came from.
    pub(crate) checkpoint: PathBuf,
    /// What the checkpoint recorded.
    pub(crate) state: State,
}

impl LoadedRun {
    /// Loads the run at `root` with the weights that `weights` names.
    ///
    /// # Errors
    /// When a file is missing or damaged, or the tokenizer is not the
    /// checkpoint's.
    pub(crate) fn open(root: &Path, weights: &Weights, overrides: &[String]) -> Result<Self> {
        taper_ops::allocator::return_freed_pages();
        let folder = RunFolder::open(root)?;
        let mut config = folder.load_config(overrides)?;
        use_threads(config.threads)?;
        if !TokenizerPair::exists(root) {
            bail!("{}: the run has no tokenizer.json", root.display());
        }
        let tokenizers = TokenizerPair::load(root)?;
        let checkpoint = folder.checkpoint(weights.checkpoint.as_deref())?;
        if let Some(device) = &weights.device {
            config.device.clone_from(device);
        }
        let model = build_model(&config, &tokenizers, &device::open(&config.device)?, None)?;
        let state = load_model(&checkpoint, &model, &tokenizers.hash())?;
        Ok(Self { config, tokenizers, model, checkpoint, state })
    }

    /// Another model to decide together with this run's: the run at `path` with its default
    /// weights, or the checkpoint at `path` of a run.
    ///
    /// # Errors
    /// When it cannot be loaded, or its tokenizer is not this run's.
    pub(crate) fn load_member(&self, path: &Path) -> Result<Transformer> {
        let around = RunFolder::around(path);
        let is_checkpoint = around.is_some();
        let folder = match around {
            Some(folder) => folder,
            None => {
                RunFolder::open(path).with_context(|| format!("--ensemble {}", path.display()))?
            }
        };
        let tokenizers = TokenizerPair::load(folder.root())?;
        if tokenizers.hash() != self.tokenizers.hash() {
            bail!(
                "--ensemble {}: its tokenizer is another, so its tokens do not mean the same",
                path.display()
            );
        }
        // All members compute as this run does, on one device and with products of one type.
        let config = RunConfig { dtype: self.config.dtype.clone(), ..folder.load_config(&[])? };
        let load = || -> Result<Transformer> {
            let model = build_model(&config, &tokenizers, self.model.parameters().device(), None)?;
            let checkpoint =
                if is_checkpoint { path.to_owned() } else { folder.checkpoint(None)? };
            load_model(&checkpoint, &model, &tokenizers.hash())?;
            Ok(model)
        };
        load().with_context(|| format!("--ensemble {}", path.display()))
    }

    /// Applies `--beam` and `--length-penalty` to the run's settings.
    ///
    /// # Errors
    /// When the result cannot be searched with.
    pub(crate) fn search(&mut self, search: &Search, n_best: Option<usize>) -> Result<()> {
        let config = &mut self.config.decoding;
        if let Some(beam) = search.beam {
            if config.sampling.is_active() {
                bail!(
                    "--beam has no effect where translations are drawn: leave it out, or the options of drawing; where the recipe draws, search with --set decoding.sampling.temperature=0"
                );
            }
            config.beam_size = beam;
            config.n_best = config.n_best.min(beam.max(1));
        }
        if let Some(n_best) = n_best {
            config.n_best = n_best;
            // Asking for n translations without a beam means at least as wide a search.
            if search.beam.is_none() && !config.sampling.is_active() {
                config.beam_size = config.beam_size.max(n_best);
            }
        }
        if let Some(alpha) = search.length_penalty {
            config.length_penalty = alpha;
        }
        config.validate()?;
        Ok(())
    }
}

/// A model of `config` on `device`, with parameters drawn from `seed`, or without one to be loaded.
///
/// # Errors
/// When the device cannot compute in the type that `config` names, or the model cannot be built.
pub(crate) fn build_model(
    config: &RunConfig,
    tokenizers: &TokenizerPair,
    device: &Device,
    seed: Option<u64>,
) -> Result<Transformer> {
    let dtype = device::dtype(&config.dtype, device)?;
    let (source, target) =
        (tokenizers.source().vocabulary_size(), tokenizers.target().vocabulary_size());
    memory::require_weights(config, source, target)?;
    match seed {
        Some(seed) => Transformer::new(&config.model, source, target, seed, device, dtype),
        None => Transformer::blank(&config.model, source, target, device, dtype),
    }
    .context("cannot build the model")
}

/// Sizes the thread pool of the CPU; 0 leaves it at one thread a core.
///
/// # Errors
/// When the pool cannot be made.
pub(crate) fn use_threads(threads: usize) -> Result<()> {
    if threads == 0 {
        return Ok(());
    }
    // More than there are cores only wait for each other, and thousands take minutes to start.
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    let most = MOST_THREADS.max(4 * cores);
    if threads > most {
        bail!(
            "key `threads` = {threads}: at most {most}, since there are {cores} cores; 0 takes one for each"
        );
    }
    rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build_global()
        .with_context(|| format!("key `threads` = {threads}: the thread pool cannot be made"))
}
