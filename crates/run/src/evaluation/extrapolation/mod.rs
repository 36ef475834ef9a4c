//! Measurement of language models on texts that are longer than in training, or shorter: their
//! perplexity, and how often they find a key (a random string) that is hidden in the text
//! ([`Passkey`]).

mod figures;
mod passkey;

use std::path::Path;

use anyhow::{Result, bail, ensure};
use serde::Serialize;
use taper_model::{AttentionKind, LanguageModel, ModelConfig, Positions, RotaryScaling};

use super::{TestSetResult, evaluate};
use crate::LoadedRun;
use crate::config::RunConfig;
use crate::event::{RunEvent, RunObserver};
use crate::folder::RunFolder;
use crate::loaded_run::LoadSettings;
use crate::tasks::entry;
pub use figures::{extrapolation_figure, passkey_figure};
pub use passkey::{Passkey, PasskeyRecall};

/// Measurements of one model at several block lengths. (Blocks are the pieces in which the model
/// reads a text.)
#[derive(Debug, Clone, Serialize)]
pub struct Extrapolation {
    /// Name of the run (folder of the trained model).
    pub run: String,
    /// Name of the position encoding; `transformer-xl` for a Transformer-XL, which has its own
    /// encoding.
    pub positions: String,
    /// Scaling of rotary positions with which blocks longer than in training are read.
    pub scaling: RotaryScaling,
    /// Number of tokens in a block in training.
    pub trained: usize,
    /// Measurements, in the order of the lengths that were asked for.
    pub points: Vec<LengthMeasurement>,
}

/// Measurement of a model at one block length.
#[derive(Debug, Clone, Serialize)]
pub struct LengthMeasurement {
    /// Number of tokens in a block.
    pub length: usize,
    /// Mean negative log-likelihood of a token in blocks of this length, in nats; `None` if the
    /// model cannot read blocks of this length.
    pub loss: Option<f64>,
    /// Perplexity, `exp(loss)`; `None` if `loss` is `None`.
    pub perplexity: Option<f64>,
    /// Reason why the model cannot read blocks of this length, or cannot be asked for keys in them;
    /// `None` if there is no such reason.
    pub refused: Option<String>,
    /// Numbers of hidden keys that the model found in texts of this length, by depth in the text;
    /// `None` if it was not asked for keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub passkey: Option<Vec<PasskeyRecall>>,
}

impl Extrapolation {
    /// Name of the model in figures: its position encoding and scaling.
    #[must_use]
    pub fn name(&self) -> String {
        let scaling = match self.scaling {
            RotaryScaling::None => "",
            RotaryScaling::Interpolation => ", interpolated",
            RotaryScaling::Ntk => ", NTK",
            RotaryScaling::Llama3 => ", as Llama 3",
            RotaryScaling::Yarn => ", YaRN",
            RotaryScaling::DualChunk => ", dual chunk",
        };
        format!("{}{scaling}", self.positions)
    }
}

/// Settings of [`extrapolate`].
#[derive(Debug, Clone, Default)]
pub struct ExtrapolationSettings {
    /// Lengths of blocks in tokens; if empty, the length in training times 1, 2, 4, 8, 16 and 32.
    pub lengths: Vec<usize>,
    /// Keys to hide in texts of these lengths and to ask the model for; `None` to hide no keys.
    pub passkey: Option<Passkey>,
}

impl ExtrapolationSettings {
    fn lengths(&self, trained: usize) -> Vec<usize> {
        match self.lengths.is_empty() {
            true => (0..6).map(|doubled| trained << doubled).collect(),
            false => self.lengths.clone(),
        }
    }

    fn validate(&self) -> Result<()> {
        ensure!(!self.lengths.contains(&0), "a block must have at least one token");
        self.passkey.as_ref().map_or(Ok(()), Passkey::validate)
    }
}

/// Measures the language model of the run at `root` on its test text in blocks of several lengths,
/// and asks it for keys hidden in texts of these lengths. If the model has rotary positions without
/// scaling, it is measured without scaling and also with several scalings that need no training.
/// The factor of a scaling is the block length divided by the block length in training.
///
/// If the model cannot read blocks of some lengths, the measurements of these lengths have the
/// reason, and there is no error.
///
/// # Errors
/// When the run is of another task or cannot be loaded, a file cannot be read, the observer returns
/// an error, or the settings are impossible. Also when the model cannot read blocks of any of the
/// lengths, or cannot be asked for keys at any of them.
pub fn extrapolate(
    root: &Path,
    load: &LoadSettings,
    settings: &ExtrapolationSettings,
    observer: &mut dyn RunObserver,
) -> Result<Vec<Extrapolation>> {
    let config = RunFolder::open(root)?.load_config(&load.overrides)?;
    if !entry(config.task).generates {
        bail!(
            "{}: the run is not a language model, and only language models read blocks of a length",
            root.display()
        );
    }
    settings.validate()?;
    let trained = RunFolder::open(root)?.load_config(&[])?.data.text.block_length;
    let model = &config.model;
    let scalings: &[RotaryScaling] = match model.positions {
        Positions::Rotary if model.rotary.scaling == RotaryScaling::None => &COMPARED,
        _ => &[model.rotary.scaling],
    };
    let mut measured = Vec::new();
    for &scaling in scalings {
        let at_length = |length| {
            let mut scaled = load.clone();
            scaled.overrides.extend(changes(&config, scaling, (trained, length)));
            measure(root, &scaled, (length, settings.passkey.as_ref()), observer)
        };
        measured.push(Extrapolation {
            run: config.name.clone(),
            positions: positions(model).to_owned(),
            scaling,
            trained,
            points: settings.lengths(trained).into_iter().map(at_length).collect::<Result<_>>()?,
        });
    }
    require_measured(root, &measured, settings)?;
    Ok(measured)
}

/// Returns an error if the loss could not be measured at any length. If `settings` have keys to ask
/// for, also returns an error if the model could not be asked for keys at any length.
fn require_measured(
    root: &Path,
    measured: &[Extrapolation],
    settings: &ExtrapolationSettings,
) -> Result<()> {
    let points = || measured.iter().flat_map(|one| &one.points);
    let why = || points().find_map(|point| point.refused.clone()).unwrap_or_default();
    if points().all(|point| point.loss.is_none()) {
        bail!("{}: the model can read none of the lengths: {}", root.display(), why());
    }
    if settings.passkey.is_some() && points().all(|point| point.passkey.is_none()) {
        bail!("{}: the model can read none of the texts with keys: {}", root.display(), why());
    }
    Ok(())
}

/// Scalings that are compared for a model whose rotary positions are not scaled.
const COMPARED: [RotaryScaling; 5] = [
    RotaryScaling::None,
    RotaryScaling::Interpolation,
    RotaryScaling::Ntk,
    RotaryScaling::Yarn,
    RotaryScaling::DualChunk,
];

/// Changes of the recipe (configuration) `config`, as `key=value`, with which the model reads
/// blocks of `length` tokens with the given scaling. `trained` is the block length in training.
fn changes(
    config: &RunConfig,
    scaling: RotaryScaling,
    (trained, length): (usize, usize),
) -> Vec<String> {
    // Limit on the tokens in a batch: a batch must have room for at least one block.
    let batch = config.data.batching.planned_tokens().max(length);
    let mut changes = vec![
        format!("data.text.block_length={length}"),
        format!("data.batching.max_tokens={batch}"),
    ];
    let rotary = &config.model.rotary;
    if scaling == rotary.scaling {
        return changes;
    }
    changes.push(format!("model.rotary.scaling={}", scaling.name()));
    if scaling != RotaryScaling::DualChunk {
        let factor = (length as f64 / trained as f64).max(1.0);
        changes.push(format!("model.rotary.factor={factor:?}"));
    }
    let has_length = matches!(scaling, RotaryScaling::Yarn | RotaryScaling::DualChunk);
    if has_length && rotary.original_length.is_none() {
        changes.push(format!("model.rotary.original_length={trained}"));
    }
    changes
}

/// Observer that records whether the observer `inner` has failed, for example because the user
/// wants to stop.
struct Watched<'a> {
    inner: &'a mut dyn RunObserver,
    has_failed: bool,
}

impl RunObserver for Watched<'_> {
    fn observe(&mut self, event: &RunEvent<'_>) -> Result<()> {
        self.inner.observe(event).inspect_err(|_| self.has_failed = true)
    }
}

/// True if an error says that a file cannot be read, which has nothing to do with a length.
fn is_of_file(error: &anyhow::Error) -> bool {
    let of_data = |error: &taper_data::Error| {
        matches!(error, taper_data::Error::Io { .. } | taper_data::Error::Malformed { .. })
    };
    error
        .chain()
        .any(|cause| cause.is::<std::io::Error>() || cause.downcast_ref().is_some_and(of_data))
}

/// Measures a run in blocks of `length` tokens; `load` has the changes of the recipe for this
/// length.
///
/// # Errors
/// When a file cannot be read, or `observer` returns an error.
fn measure(
    root: &Path,
    load: &LoadSettings,
    (length, passkey): (usize, Option<&Passkey>),
    observer: &mut dyn RunObserver,
) -> Result<LengthMeasurement> {
    let mut watched = Watched { inner: observer, has_failed: false };
    let mut at_length = match evaluate(root, load, &[], |_| Ok(()), &mut watched) {
        Ok(measured) => point(length, measured.results)?,
        Err(error) if watched.has_failed || is_of_file(&error) => return Err(error),
        Err(error) => return Ok(LengthMeasurement::refused(length, &error)),
    };
    if let Some(passkey) = passkey {
        let run = LoadedRun::<LanguageModel>::open(root, load)?;
        match passkey.retrieve(&run, length) {
            Ok(recalls) => at_length.passkey = Some(recalls),
            Err(error) if is_of_file(&error) => return Err(error),
            Err(error) => at_length.refused = LengthMeasurement::refused(length, &error).refused,
        }
    }
    Ok(at_length)
}

/// Name of the position encoding of a model.
fn positions(model: &ModelConfig) -> &'static str {
    match model.positions {
        Positions::None if model.decoder_attention.has(AttentionKind::TransformerXl) => {
            AttentionKind::TransformerXl.name()
        }
        positions => positions.name(),
    }
}

impl LengthMeasurement {
    /// Measurement without values, for a length that the model cannot read; `error` has the reason.
    fn refused(length: usize, error: &anyhow::Error) -> Self {
        // Only the first line of the message, without a backtrace.
        let refused = format!("{error:#}").lines().next().map(str::to_owned);
        Self { length, loss: None, perplexity: None, refused, passkey: None }
    }
}

/// Measurement at `length`: the mean loss over all test sets, weighted by their numbers of tokens.
fn point(length: usize, results: Vec<TestSetResult>) -> Result<LengthMeasurement> {
    let (mut sum, mut tokens) = (0.0, 0.0);
    for result in results {
        let TestSetResult::Read(read) = result else { bail!("a test set was not read") };
        sum += read.loss * read.tokens as f64;
        tokens += read.tokens as f64;
    }
    let loss = sum / tokens;
    Ok(LengthMeasurement {
        length,
        loss: Some(loss),
        perplexity: Some(loss.exp()),
        refused: None,
        passkey: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_observers_and_files_have_nothing_to_do_with_a_length() {
        let mut stopped = |_: &RunEvent<'_>| -> Result<()> { bail!("interrupted") };
        let mut watched = Watched { inner: &mut stopped, has_failed: false };
        assert!(watched.observe(&RunEvent::Decoded).is_err() && watched.has_failed);
        let missing = std::fs::read("no such file").expect_err("missing");
        assert!(is_of_file(&anyhow::Error::from(missing).context("the weights")));
        assert!(!is_of_file(&anyhow::anyhow!("model.max_positions is too small")));
    }
}
