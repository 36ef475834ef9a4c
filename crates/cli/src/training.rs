//! What `train` and `resume` share: data, model, the loop, the final test.

use std::fs;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use taper_data::{Cleaner, DataConfig, Dropped, PairReader, Prepared, TokenizerPair, prepare, split_files};
use taper_model::Transformer;
use taper_trainer::{Identity, NoValidation, StopReason, Trainer, Validate, load_model, read_state};

use crate::arguments::TrainOutput;
use crate::batches::TrainingBatches;
use crate::config::RunConfig;
use crate::cost::Cost;
use crate::data_report;
use crate::device;
use crate::error::Interrupted;
use crate::loaded_run::{build_model, use_threads};
use crate::metrics_log::MetricsLog;
use crate::progress::{Progress, Style, clock};
use crate::run_folder::RunFolder;
use crate::signals;
use crate::testing::{self, TestResult};
use crate::text::print_line;
use crate::validation::Validation;

/// Starts a run in `folder`, which must not exist yet. If the data cannot be
/// prepared the folder is removed again, so that the command can be repeated.
///
/// # Errors
/// Anything wrong with the device, the data or the disk, found before the
/// first update where it can be.
pub(crate) fn start(folder: &RunFolder, config: &RunConfig, output: &TrainOutput) -> Result<()> {
    preflight(config, output)?;
    fs::create_dir_all(folder.root()).with_context(|| format!("cannot make {}", folder.root().display()))?;
    match prepare_data(folder, config) {
        Ok(prepared) => train(folder, config, output, prepared),
        Err(error) => {
            // Made a moment ago by this very call; nothing of value can be in it.
            if let Err(cause) = fs::remove_dir_all(folder.root()) {
                eprintln!("warning: cannot remove {}: {cause}", folder.root().display());
            }
            Err(error)
        }
    }
}

/// Continues the run in `folder` with `config`, which must describe the same
/// data and architecture as the one the run was started with.
///
/// # Errors
/// As [`start`]; also when the run has no usable checkpoint, or `config` is
/// another run's.
pub(crate) fn resume(folder: &RunFolder, config: &RunConfig, output: &TrainOutput) -> Result<()> {
    let saved = folder.load_config(&[])?;
    if saved.identity_hash()? != config.identity_hash()? {
        bail!(
            "{}: its [data], [model], dtype or training.seed differ from the given configuration; a resumed run must keep them (compare with `taper config show`), or train a new run with --run",
            folder.config().display()
        );
    }
    preflight(config, output)?;
    // A damaged tokenizer or checkpoint is found before anything is written.
    if folder.has_checkpoint()? {
        let state = read_state(&folder.checkpoint(Some("last"))?)?;
        let tokenizers = TokenizerPair::load(folder.root())?;
        if state.identity.tokenizer_hash != tokenizers.hash() {
            bail!(
                "{}: the tokenizer is not the one that the checkpoints were trained with; put the original tokenizer.json back",
                folder.root().display()
            );
        }
    }
    let prepared = prepare_data(folder, config)?;
    train(folder, config, output, prepared)
}

/// What can be known to be wrong before a run folder is made.
fn preflight(config: &RunConfig, output: &TrainOutput) -> Result<()> {
    let name = output.device.as_deref().unwrap_or(&config.device);
    device::dtype(&config.dtype, &device::open(name)?)?;
    let data = &config.data;
    let mut splits = vec![&data.train];
    if !data.validation.is_empty() {
        splits.push(&data.validation);
    }
    if config.evaluation.test_after_training {
        splits.extend(&data.test);
    }
    for split in splits {
        split_files(data, split)?;
    }
    use_threads(config.threads)
}

/// Tokenizer, tokenised corpus, data report and configuration on disk.
fn prepare_data(folder: &RunFolder, config: &RunConfig) -> Result<Prepared> {
    let prepared = prepare(&config.data, folder.root()).or_else(|error| {
        // A tokenizer cannot be trained without text; the reader wants to know why there is none.
        if matches!(error, taper_data::Error::Tokenizer { .. }) {
            require_pairs(&config.data)?;
        }
        Err(anyhow::Error::from(error))
    })?;
    data_report::save(&folder.data_report(), config, &prepared)?;
    folder.save_config(config)?;
    Ok(prepared)
}

/// Refuses a training split that is empty, or of which cleaning keeps nothing.
fn require_pairs(data: &DataConfig) -> Result<()> {
    let cleaner = Cleaner::new(&data.cleaning);
    let (mut read, mut dropped) = (0, Dropped::default());
    for pair in PairReader::open(data, &data.train)? {
        let pair = pair?;
        read += 1;
        if let Err(reason) = cleaner.check_text(&pair.source, &pair.target) {
            dropped.count(reason);
        }
    }
    let split = data.train.clone();
    if read == 0 {
        let files = split_files(data, &split)?;
        let files: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
        return Err(taper_data::Error::EmptyCorpus { split, files: files.join(" and ") }.into());
    }
    if dropped.total() == read {
        let reasons = dropped.to_string();
        return Err(taper_data::Error::AllDropped { split, read, reasons }.into());
    }
    Ok(())
}

fn train(folder: &RunFolder, config: &RunConfig, output: &TrainOutput, prepared: Prepared) -> Result<()> {
    let stop = signals::stop_flag()?;
    let style = Style::choose(output.json);
    let tokenizers = &prepared.tokenizers;
    let model = build_model(config, tokenizers, output.device.as_deref())?;
    if style != Style::Json {
        for line in data_report::lines(config, &prepared) {
            print_line(&line)?;
        }
        print_line(&Cost::of(config, &model).summary())?;
    }

    let mut trainer = make_trainer(folder, config, model, tokenizers)?;
    let (step, skipped) = (trainer.state().step, trainer.state().skipped);
    let log = MetricsLog::open(&folder.metrics(), step, skipped)?;
    let mut progress = Progress::new(style, log, config.training.max_updates, step);
    if style != Style::Json {
        print_line(&format!(
            "training in {} from step {step}, on {}",
            folder.root().display(),
            device::describe(trainer.model().parameters().device())
        ))?;
    }
    let mut batches = TrainingBatches::new(prepared.train.clone(), config.data.batching.clone(), config.training.seed);
    let mut validation: Box<dyn Validate> = match &prepared.validation {
        Some(dataset) => Box::new(Validation::new(config, dataset.clone(), tokenizers)?),
        None => Box::new(NoValidation),
    };
    let began = Instant::now();
    let reason = trainer.train(&mut batches, validation.as_mut(), &mut progress, &stop);
    progress.finish();
    let reason = reason?;
    if reason == StopReason::Interrupted {
        eprintln!("interrupted at step {}; continue with: taper resume {}", trainer.state().step, folder.root().display());
        return Err(Interrupted.into());
    }
    if style != Style::Json {
        print_line(&format!("{} at step {} after {}", describe(reason), trainer.state().step, clock(began.elapsed())))?;
    }
    finish(folder, config, style, tokenizers, &trainer.into_model())
}

/// A trainer at the last checkpoint, or at the beginning if there is none.
fn make_trainer(folder: &RunFolder, config: &RunConfig, model: Transformer, tokenizers: &TokenizerPair) -> Result<Trainer> {
    let identity = Identity { config_hash: config.identity_hash()?, tokenizer_hash: tokenizers.hash() };
    let (training, checkpoints) = (config.training.clone(), folder.checkpoints());
    Ok(if folder.has_checkpoint()? {
        Trainer::resume(model, training, identity, &checkpoints, "last")?
    } else {
        Trainer::new(model, training, identity, &checkpoints)?
    })
}

/// Decodes the test sets with the weights that `translate` would use, and says
/// what can be done next.
fn finish(folder: &RunFolder, config: &RunConfig, style: Style, tokenizers: &TokenizerPair, model: &Transformer) -> Result<()> {
    let checkpoint = folder.checkpoint(None)?;
    load_model(&checkpoint, model, &tokenizers.hash())?;
    let mut results = Vec::new();
    if config.evaluation.test_after_training {
        for split in &config.data.test {
            results.push(TestResult::of(split, config, tokenizers, model)?);
        }
        testing::save(folder, &results)?;
    }
    if style == Style::Json {
        let record = serde_json::json!({ "event": "test", "results": results });
        return print_line(&record.to_string());
    }
    if let Some(first) = results.first() {
        print_line("\nsample translations")?;
        for line in first.samples(config.evaluation.samples) {
            print_line(&line)?;
        }
        print_line(&format!("\ntest scores, weights {}", short(&checkpoint)))?;
    }
    for result in &results {
        for line in result.lines() {
            print_line(&line)?;
        }
    }
    let run = folder.root().display();
    print_line(&format!(
        "\nnext:\n  taper translate {run}          type sentences, or pipe a file in\n  taper evaluate {run}           score the test sets again, with other settings\n  taper inspect {run}            what the model is made of"
    ))
}

/// The last part of a checkpoint's path.
fn short(checkpoint: &Path) -> String {
    checkpoint.file_name().unwrap_or(checkpoint.as_os_str()).to_string_lossy().into_owned()
}

/// Why training ended, for a reader.
fn describe(reason: StopReason) -> &'static str {
    match reason {
        StopReason::MaxUpdates => "last update reached",
        StopReason::MaxEpochs => "last epoch completed",
        StopReason::MaxMinutes => "time used up",
        StopReason::EarlyStopping => "no further improvement",
        StopReason::Interrupted => "interrupted",
    }
}
