//! Importance of heads (Michel, Levy and Neubig 2019, "Are Sixteen Heads Really Better than One?",
//! section 3.2): each head in turn is replaced by zeros, and the loss of the model is measured.

use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use serde::Serialize;
use taper_model::{Batch, Pass};
use taper_trainer::{TeacherForced, evaluate_under};

use super::AttentionPart;
use crate::advice::{Action, Advice, Setting};
use crate::config::RunConfig;
use crate::evaluation::Split;
use crate::finite::require_finite;
use crate::tasks::{Stacks, TaskModel, entry, with_model};
use crate::{LoadSettings, LoadedRun, RunFolder};

/// Measurement of a model in which one head is replaced by zeros.
#[derive(Debug, Clone, Serialize)]
pub struct HeadLoss {
    /// Kind of attention: within an encoder, within a decoder, or from a decoder to an encoder.
    pub part: AttentionPart,
    /// Layer, from 1.
    pub layer: usize,
    /// Head, from 1.
    pub head: usize,
    /// Mean negative log-likelihood of an answer without this head, in nats.
    pub loss: f64,
    /// Loss without this head minus the loss of the whole model; positive if the model needs the
    /// head.
    pub lost: f64,
    /// Perplexity without this head, `exp(loss)`.
    pub perplexity: f64,
    /// Share of answers that the model predicts correctly without this head.
    pub accuracy: f64,
}

/// Importance of each head of a model.
#[derive(Debug, Clone, Serialize)]
pub struct HeadImportance {
    /// Name of the data split on which the model was measured.
    pub split: String,
    /// Number of answers (tokens or labels) that were predicted for each measurement.
    pub tokens: u64,
    /// Mean negative log-likelihood of an answer by the whole model, in nats.
    pub loss: f64,
    /// Perplexity of the whole model.
    pub perplexity: f64,
    /// Share of answers that the whole model predicts correctly.
    pub accuracy: f64,
    /// One measurement for each head that is left out, sorted by kind of attention, then by layer,
    /// then by head.
    pub heads: Vec<HeadLoss>,
}

/// Measures the model of the run (folder of a trained model) at `root`, each time without one of
/// its heads, on about the first `tokens` answers of `split`. If `split` is `None`, the validation
/// split is used or, for a run without one, the first test set. `progress` receives the number of
/// heads measured so far and the number of all heads.
///
/// # Errors
/// When the run cannot be loaded, the predictions of its task cannot be counted as right or wrong,
/// its model has no heads, or the split cannot be read.
pub fn head_importance(
    root: &Path,
    load: &LoadSettings,
    split: Option<&str>,
    tokens: usize,
    mut progress: impl FnMut(usize, usize),
) -> Result<HeadImportance> {
    let task = RunFolder::open(root)?.load_config(&load.overrides)?.task;
    if !entry(task).predicts_classes {
        bail!(
            "heads are weighed by how many answers are right, but the task {task} has no right \
             answers"
        );
    }
    with_model!(task, M => {
        measure(&LoadedRun::<M>::open(root, load)?, split, tokens, &mut progress)
    })
}

/// Kinds of attention in a model, each with its number of layers.
fn parts(config: &RunConfig) -> Vec<(AttentionPart, usize)> {
    let (encoder, decoder) = (config.model.encoder_layers, config.model.decoder_layers);
    match entry(config.task).stacks {
        Stacks::EncoderDecoder => vec![
            (AttentionPart::Encoder, encoder),
            (AttentionPart::Decoder, decoder),
            (AttentionPart::Cross, decoder),
        ],
        Stacks::Decoder => vec![(AttentionPart::Decoder, decoder)],
        Stacks::Encoder | Stacks::TwoEncoders => vec![(AttentionPart::Encoder, encoder)],
    }
}

fn measure<M: TaskModel>(
    run: &LoadedRun<M>,
    split: Option<&str>,
    tokens: usize,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<HeadImportance> {
    let config = &run.config;
    let split = match split {
        Some(split) => split.to_owned(),
        None if !config.data.validation.is_empty() => config.data.validation.name(),
        None => M::test_sets(config).into_iter().next().ok_or_else(|| {
            let error = anyhow!("the run has neither a validation split nor test sets");
            Advice::new(Action::Choose(Setting::Split), "names another split").about(error)
        })?,
    };
    run.corpora(&split)?;
    let (tokenizers, shortlist) = (&run.tokenizers, Some(&run.shortlist));
    let named = Split { name: &split, config, tokenizers, shortlist, is_kept: false };
    let mut batches: Vec<Batch> = Vec::new();
    let mut read = 0;
    for batch in M::batches(named)? {
        let batch = batch.map_err(anyhow::Error::from_boxed)?;
        read += batch.tokens();
        batches.push(batch);
        if read >= tokens {
            break;
        }
    }
    let evaluated = |pass: &dyn Fn() -> Pass| -> Result<TeacherForced> {
        let batches = batches.iter().map(|batch| Ok(batch.clone()));
        let measured = evaluate_under(&run.model, batches, 0.0, pass)?;
        require_finite("the loss", [measured.nll])?;
        Ok(measured)
    };
    let whole = evaluated(&Pass::evaluate).with_context(|| format!("split {split:?}"))?;
    let count = config.model.heads;
    let sites: Vec<(AttentionPart, usize, usize)> = parts(config)
        .into_iter()
        .flat_map(|(part, layers)| (0..layers).map(move |layer| (part, layer)))
        .flat_map(|(part, layer)| (0..count).map(move |head| (part, layer, head)))
        .collect();
    let mut heads = Vec::with_capacity(sites.len());
    for &(part, layer, head) in &sites {
        let name = part.layer_name(layer);
        let without = evaluated(&|| Pass::evaluate().without_head(&name, head))?;
        heads.push(HeadLoss {
            part,
            layer: layer + 1,
            head: head + 1,
            loss: without.nll,
            lost: without.nll - whole.nll,
            perplexity: without.perplexity,
            accuracy: without.accuracy,
        });
        progress(heads.len(), sites.len());
    }
    if heads.iter().all(|head| head.loss == whole.nll) {
        bail!("no head changes anything: the model has no attention");
    }
    let TeacherForced { nll: loss, perplexity, accuracy, tokens, .. } = whole;
    Ok(HeadImportance { split, tokens, loss, perplexity, accuracy, heads })
}
