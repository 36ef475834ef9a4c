//! Evaluation of the model of a run (folder of a trained model) on splits of its data, such as the
//! test sets.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use serde::Serialize;
use serde_json::{Value, json};
use taper_data::{Corpus, TokenizerPair};

use super::{Split, TestSetResult};
use crate::advice::{Action, Advice, Setting};
use crate::config::RunConfig;
use crate::event::{RunEvent, RunObserver};
use crate::folder::RunFolder;
use crate::loaded_run::{LoadSettings, LoadedRun, in_direction};
use crate::tasks::{TaskModel, entry, require_languages, with_model};

/// Results of the evaluation of a run.
#[derive(Debug)]
pub struct Evaluation<R = TestSetResult> {
    /// Path of the checkpoint whose weights were used.
    pub checkpoint: PathBuf,
    /// Number of updates after which the checkpoint was saved.
    pub step: u64,
    /// Settings on which the results depend in addition to the model, as a JSON object.
    pub settings: Value,
    /// Results, one for each split.
    pub results: Vec<R>,
}

impl<R: Serialize> Evaluation<R> {
    /// JSON object with the results for the run at `run`, the checkpoint, and the settings on which
    /// the results depend.
    ///
    /// # Errors
    /// When a result cannot be written as JSON.
    pub fn record(&self, run: &Path) -> Result<Value> {
        let mut record = json!({ "run": run, "checkpoint": self.checkpoint, "step": self.step });
        for (key, value) in self.settings.as_object().into_iter().flatten() {
            record[key] = value.clone();
        }
        record["results"] = serde_json::to_value(&self.results).context("scores are not JSON")?;
        Ok(record)
    }
}

/// Evaluates the run at `root` on `splits`, or on the run's test sets if `splits` is empty.
/// `change` may alter the settings of the search. The observer receives each result when it is
/// known.
///
/// # Errors
/// When there is no split to evaluate, a split cannot be read, or the run cannot be loaded.
pub fn evaluate(
    root: &Path,
    load: &LoadSettings,
    splits: &[String],
    change: impl FnOnce(&mut RunConfig) -> Result<()>,
    observer: &mut dyn RunObserver,
) -> Result<Evaluation> {
    let task = RunFolder::open(root)?.load_config(&load.overrides)?.task;
    with_model!(task, M => {
        let run = open::<M>(root, load, change)?;
        measure(run, splits, load, observer, |split, model: &M, observer| {
            let result = model.test(split, observer)?;
            result.require_finite().with_context(|| format!("split {:?}", split.name))?;
            observer.observe(&RunEvent::Measured(&result))?;
            Ok(result)
        })
    })
}

/// Opens a run for all directions of translation in which it was trained. The directions that
/// `load` asks for can then be measured one by one. `change` may alter the recipe (configuration).
///
/// # Errors
/// When the run cannot be loaded, or `change` fails.
pub(super) fn open<M: TaskModel>(
    root: &Path,
    load: &LoadSettings,
    change: impl FnOnce(&mut RunConfig) -> Result<()>,
) -> Result<LoadedRun<M>> {
    let every = LoadSettings { every_direction: true, from: None, to: None, ..load.clone() };
    let mut run = LoadedRun::<M>::open(root, &every)?;
    change(&mut run.config)?;
    Ok(run)
}

/// Calls `test` on each of `splits`, or on each test set of the run that `load` asks for if
/// `splits` is empty. Returns the results with the checkpoint that was used.
///
/// # Errors
/// When there is no split to measure, a split cannot be read, or `test` fails.
pub(super) fn measure<M: TaskModel, R>(
    run: LoadedRun<M>,
    splits: &[String],
    load: &LoadSettings,
    observer: &mut dyn RunObserver,
    mut test: impl FnMut(Split<'_>, &M, &mut dyn RunObserver) -> Result<R>,
) -> Result<Evaluation<R>> {
    if load.from.is_some() || load.to.is_some() {
        require_direction(&run.config, load)?;
    }
    let splits = match splits {
        [] => asked_test_sets::<M>(&run.config, load),
        named => named.to_vec(),
    };
    if splits.is_empty() {
        let asked = load.from.is_some() || load.to.is_some();
        let restriction = if asked { " from or to this language" } else { "" };
        let error = anyhow!("the run has no test sets{restriction} (data.test)");
        return Err(Advice::new(Action::Choose(Setting::Split), "names another split").about(error));
    }
    for split in &splits {
        // A split that cannot be measured fails here, and not only after the splits before it have
        // been measured.
        let (config, _) = of_split(&run.config, &run.tokenizers, split)?;
        M::require_test_set(&config, split)?;
    }
    let LoadedRun { config, tokenizers, model, checkpoint, state, shortlist, .. } = run;
    observer.observe(&RunEvent::Measuring { checkpoint: &checkpoint, step: state.step })?;
    let mut results = Vec::with_capacity(splits.len());
    for split in &splits {
        let (config, tokenizers) = of_split(&config, &tokenizers, split)?;
        let (config, tokenizers) = (&config, &tokenizers);
        let shortlist = Some(&shortlist);
        let named = Split { name: split, config, tokenizers, shortlist, is_kept: false };
        results.push(test(named, &model, observer)?);
    }
    Ok(Evaluation { checkpoint, step: state.step, settings: M::measured_by(&config), results })
}

/// Checks that the run translates between the languages that `load` names.
///
/// # Errors
/// When the run's task has no languages, or no direction of the run has these languages.
fn require_direction(config: &RunConfig, load: &LoadSettings) -> Result<()> {
    let (from, to) = (load.from.as_deref(), load.to.as_deref());
    require_languages(config)?;
    for direction in config.data.trained_directions() {
        // If `load` names only one of the two languages, a direction with any other language is
        // enough.
        let to = to.unwrap_or(&direction.to);
        if config.data.choose_direction(from, Some(to)).is_ok() {
            return Ok(());
        }
    }
    config.data.choose_direction(from, to)?;
    Ok(())
}

/// Names of the run's test sets in which all directions have the languages that `load` names.
fn asked_test_sets<M: TaskModel>(config: &RunConfig, load: &LoadSettings) -> Vec<String> {
    let mut sets = M::test_sets(config);
    let is_asked =
        |asked: &Option<String>, language: &str| asked.as_ref().is_none_or(|one| one == language);
    if load.from.is_some() || load.to.is_some() {
        sets.retain(|name| {
            let directions = config.data.directions_of(&config.data.split(name));
            directions
                .iter()
                .all(|one| is_asked(&load.from, &one.from) && is_asked(&load.to, &one.to))
        });
    }
    sets
}

/// Recipe and tokenizers with which a split is read. For a run of several directions of
/// translation, they are the recipe and the tokenizers for the direction of the split.
///
/// # Errors
/// When the split has several directions, or the vocabulary does not know its target language.
pub(crate) fn of_split(
    config: &RunConfig,
    tokenizers: &TokenizerPair,
    split: &str,
) -> Result<(RunConfig, TokenizerPair)> {
    if !entry(config.task).translates || !config.data.is_multilingual() {
        return Ok((config.clone(), tokenizers.clone()));
    }
    match config.data.directions_of(&config.data.split(split)).as_slice() {
        [one] => {
            let direction = config.data.choose_direction(Some(&one.from), Some(&one.to));
            let direction = direction.with_context(|| format!("split {split:?}"))?;
            in_direction(config, tokenizers, &direction)
        }
        several => {
            let names = config.data.split(split);
            let names: Vec<String> = names.iter().map(Corpus::name).collect();
            bail!(
                "split {split:?} has {} directions of translation, which are scored one by one: \
                 name {}",
                several.len(),
                names.join(" or ")
            )
        }
    }
}
