//! Evaluation of a trained run on splits of its data.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::{Split, TestSetResult};
use crate::config::RunConfig;
use crate::event::{RunEvent, RunObserver};
use crate::folder::RunFolder;
use crate::loaded_run::{LoadSettings, LoadedRun};
use crate::tasks::{TaskModel, with_model};

/// Results of evaluating a run.
#[derive(Debug)]
pub struct Evaluation {
    /// Checkpoint whose weights were used.
    pub checkpoint: PathBuf,
    /// Step of the checkpoint.
    pub step: u64,
    /// Settings on which the results depend, besides the model: a JSON object.
    pub settings: Value,
    /// Results, one for each split.
    pub results: Vec<TestSetResult>,
}

/// Evaluates the run at `root` on `splits`, by default on its test sets; `change` may alter the
/// search. The observer receives each result at once.
///
/// # Errors
/// When there is no split, one cannot be read, or the run cannot be loaded.
pub fn evaluate(
    root: &Path,
    load: &LoadSettings,
    splits: &[String],
    change: impl FnOnce(&mut RunConfig) -> Result<()>,
    observer: &mut dyn RunObserver,
) -> Result<Evaluation> {
    let task = RunFolder::open(root)?.load_config(&load.overrides)?.task;
    with_model!(task, M => {
        let mut run = LoadedRun::<M>::open(root, load)?;
        change(&mut run.config)?;
        measure(run, splits, observer)
    })
}

fn measure<M: TaskModel>(
    run: LoadedRun<M>,
    splits: &[String],
    observer: &mut dyn RunObserver,
) -> Result<Evaluation> {
    let splits = match splits {
        [] => M::test_sets(&run.config),
        named => named.to_vec(),
    };
    if splits.is_empty() {
        bail!("the run has no test sets (data.test is empty): name a split with --split");
    }
    for split in &splits {
        // Fails now rather than after the other splits.
        M::require_test_set(&run.config, split)?;
    }
    let LoadedRun { config, tokenizers, model, checkpoint, state, .. } = run;
    observer.observe(&RunEvent::Measuring { checkpoint: &checkpoint, step: state.step })?;
    let mut results = Vec::with_capacity(splits.len());
    for split in &splits {
        let named = Split { name: split, config: &config, tokenizers: &tokenizers };
        let result = model.test(named, observer)?;
        result.require_finite().with_context(|| format!("split {split:?}"))?;
        observer.observe(&RunEvent::Measured(&result))?;
        results.push(result);
    }
    Ok(Evaluation { checkpoint, step: state.step, settings: M::measured_by(&config), results })
}
