//! Predictions of language models on texts longer or shorter than in training.

use std::path::Path;

use anyhow::{Result, bail};
use serde::Serialize;
use taper_model::{AttentionKind, ModelConfig, Positions, RotaryScaling};
use taper_plots::{Axis, Chart, Figure, Series};

use super::{TestSetResult, evaluate};
use crate::event::RunObserver;
use crate::folder::RunFolder;
use crate::loaded_run::LoadSettings;
use crate::tasks::entry;

/// Measurements of one model by block length.
#[derive(Debug, Clone, Serialize)]
pub struct Extrapolation {
    /// Name of the run.
    pub run: String,
    /// Position encoding, or Transformer-XL, which has its own positions.
    pub positions: String,
    /// Scaling of rotary positions in blocks longer than in training.
    pub scaling: RotaryScaling,
    /// Tokens of a block in training.
    pub trained: usize,
    /// Measurements, in the order of the lengths.
    pub points: Vec<AtLength>,
}

/// Measurement of a model at one length.
#[derive(Debug, Clone, Serialize)]
pub struct AtLength {
    /// Tokens of a block.
    pub length: usize,
    /// Mean negative log-likelihood of a token, in nats; `None` if the model cannot read blocks of
    /// this length.
    pub loss: Option<f64>,
    /// Perplexity, `exp(loss)`; `None` like `loss`.
    pub perplexity: Option<f64>,
    /// Reason why the model cannot read them; `None` if it can.
    pub refused: Option<String>,
}

impl Extrapolation {
    /// Name of the model for figures.
    #[must_use]
    pub fn name(&self) -> String {
        let scaling = match self.scaling {
            RotaryScaling::None => "",
            RotaryScaling::Interpolation => ", interpolated",
            RotaryScaling::Ntk => ", NTK",
            RotaryScaling::Llama3 => ", as Llama 3",
            RotaryScaling::Yarn => ", YaRN",
        };
        format!("{}{scaling}", self.positions)
    }
}

/// Measures the language model of the run at `root` on its test text in blocks of each of
/// `lengths`. Rotary positions are measured plain, interpolated and with NTK scaling, by the ratio
/// of the block's length to that of training.
///
/// # Errors
/// When the run is of another task or cannot be loaded. If the model cannot read a length, the
/// reason is stored instead.
pub fn extrapolate(
    root: &Path,
    load: &LoadSettings,
    lengths: &[usize],
    observer: &mut dyn RunObserver,
) -> Result<Vec<Extrapolation>> {
    let config = RunFolder::open(root)?.load_config(&load.overrides)?;
    if !entry(config.task).generates {
        bail!("{}: it is no language model, of which blocks have a length", root.display());
    }
    if lengths.is_empty() || lengths.contains(&0) {
        bail!("a block has at least one token, and there is at least one length");
    }
    let trained = RunFolder::open(root)?.load_config(&[])?.data.text.block_length;
    let model = &config.model;
    let scalings: &[RotaryScaling] = match model.positions {
        Positions::Rotary if model.rotary.scaling == RotaryScaling::None => {
            &[RotaryScaling::None, RotaryScaling::Interpolation, RotaryScaling::Ntk]
        }
        _ => &[model.rotary.scaling],
    };
    // Tokens of a batch: the length of the longest block, or the usual number.
    let batch = config.data.batching.planned_tokens();
    let mut found = Vec::new();
    for &scaling in scalings {
        let mut points = Vec::new();
        for &length in lengths {
            let factor = (length as f64 / trained as f64).max(1.0);
            let mut own = load.clone();
            own.overrides.push(format!("data.text.block_length={length}"));
            own.overrides.push(format!("data.batching.max_tokens={}", batch.max(length)));
            if scaling != model.rotary.scaling {
                let name = if scaling == RotaryScaling::Ntk { "ntk" } else { "interpolation" };
                own.overrides.push(format!("model.rotary.scaling={name}"));
                own.overrides.push(format!("model.rotary.factor={factor:?}"));
            }
            points.push(match evaluate(root, &own, &[], |_| Ok(()), observer) {
                Ok(measured) => point(length, measured.results)?,
                Err(error) => AtLength::refused(length, &error),
            });
        }
        found.push(Extrapolation {
            run: config.name.clone(),
            positions: positions(model).to_owned(),
            scaling,
            trained,
            points,
        });
    }
    if found.iter().flat_map(|one| &one.points).all(|point| point.loss.is_none()) {
        let why = found.iter().flat_map(|one| &one.points).find_map(|point| point.refused.clone());
        bail!("{}: no length can be read: {}", root.display(), why.unwrap_or_default());
    }
    Ok(found)
}

/// Name of the positions of a model.
fn positions(model: &ModelConfig) -> &'static str {
    match model.positions {
        Positions::None if model.decoder_attention.has(AttentionKind::TransformerXl) => {
            AttentionKind::TransformerXl.name()
        }
        positions => positions.name(),
    }
}

impl AtLength {
    /// Length that the model cannot read.
    fn refused(length: usize, error: &anyhow::Error) -> Self {
        // Only the message, without a backtrace.
        let refused = format!("{error:#}").lines().next().map(str::to_owned);
        Self { length, loss: None, perplexity: None, refused }
    }
}

/// Mean over all test sets, weighted by their tokens.
fn point(length: usize, results: Vec<TestSetResult>) -> Result<AtLength> {
    let (mut sum, mut tokens) = (0.0, 0.0);
    for result in results {
        let TestSetResult::Read(read) = result else { bail!("a test set was not read") };
        sum += read.loss * read.tokens as f64;
        tokens += read.tokens as f64;
    }
    let loss = sum / tokens;
    Ok(AtLength { length, loss: Some(loss), perplexity: Some(loss.exp()), refused: None })
}

/// Perplexity by length, with a line for each model.
#[must_use]
pub fn extrapolation_figure(found: &[Extrapolation]) -> Figure {
    let line = |one: &Extrapolation| {
        let points = one.points.iter();
        let points = points.filter_map(|point| Some((point.length as f64, point.perplexity?)));
        Series::line(one.name(), points.collect())
    };
    let chart = Chart::new(
        Axis::log("tokens of a block"),
        Axis::log("perplexity of a token"),
        found.iter().map(line).collect(),
    );
    let mut trained: Vec<usize> = found.iter().map(|one| one.trained).collect();
    trained.sort_unstable();
    trained.dedup();
    let trained: Vec<String> = trained.iter().map(ToString::to_string).collect();
    let described = format!(
        "The perplexity of language models that were trained on blocks of {} tokens, by the length of \
         the blocks that they read.",
        trained.join(" or ")
    );
    Figure::new("Texts longer than those of training", described, chart)
}
