//! `taper finetune`: writes a recipe (a TOML file with all settings of a training) that trains a
//! finished model further, and runs the training.

use std::path::Path;

use anyhow::{Context, Result};
use taper_run::RunEvent;
use taper_run::folders::ImportSettings;
use taper_run::init::{FineTuneSettings, FineTuning, Machine, fine_tune, run_of};
use taper_run::numbers::grouped;

use super::train;
use crate::advice::{say_notice, usage};
use crate::arguments::{Finetune, Train};
use crate::text::{print_line, quoted};

/// Runs the command. `threads` is the number of threads that the user requested.
pub(crate) fn run(arguments: &Finetune, threads: Option<usize>) -> Result<()> {
    let from = &arguments.from;
    let name =
        from.file_name().with_context(|| format!("{}: the folder has no name", from.display()))?;
    let mut observer = |event: &RunEvent<'_>| {
        if let RunEvent::Notice(notice) = event {
            say_notice(notice);
        }
        Ok(())
    };
    let languages = ImportSettings {
        source_language: arguments.source_language.clone(),
        target_language: arguments.target_language.clone(),
    };
    let parent = run_of(from, &Path::new("runs").join(name), &languages, &mut observer)?;
    let settings = FineTuneSettings {
        parent: parent.clone(),
        task: arguments.task,
        files: arguments.files.clone(),
        columns: arguments.columns.clone(),
        home: arguments.home.clone(),
        recipe: arguments.output.clone(),
        divided: arguments.data.clone(),
        memory: arguments.training.memory,
        usage,
    };
    let written = fine_tune(&settings, &Machine::here())?;
    if !arguments.training.json {
        lines(&written).iter().try_for_each(|line| print_line(line))?;
    }
    let recipe = written.recipe;
    if arguments.recipe_only {
        let (recipe, parent) = (quoted(&recipe), quoted(&parent));
        return print_line(&format!("\nnext:\n  taper train {recipe} --from {parent}"));
    }
    let Finetune { run, overrides, training, .. } = arguments;
    let train = Train {
        config: recipe,
        run: run.clone(),
        overrides: overrides.clone(),
        from: Some(parent),
        only: Vec::new(),
        own_tokenizer: false,
        freeze: Vec::new(),
        resume: false,
        dry_run: false,
        output: training.clone(),
    };
    train::run(&train, threads)
}

/// Formats a report about the examples, the chosen settings and the recipe.
fn lines(written: &FineTuning) -> Vec<String> {
    let FineTuning { recipe, config, counts, machine, divided } = written;
    let examples = match (counts.examples, counts.home) {
        (0, _) => String::new(),
        (examples, 0) => format!("{} examples, ", grouped(examples)),
        (examples, home) => {
            format!("{} examples and as many as {} of home, ", grouped(examples), grouped(home))
        }
    };
    let mut lines = vec![format!("text: {examples}about {} tokens", grouped(counts.tokens))];
    if let Some(folder) = divided {
        lines.push(format!(
            "divided into train, val and test in {}; no text stands in two of them",
            folder.display()
        ));
    }
    let training = &config.training;
    let weights = match config.model.lora.rank {
        0 => "all weights".to_owned(),
        rank => format!("adapters of rank {rank}"),
    };
    lines.push(format!(
        "{}: {weights}, at most {} updates of {} tokens, rate {:?}, for {machine}",
        recipe.display(),
        grouped(training.max_updates),
        grouped(config.data.batching.max_tokens.saturating_mul(training.accumulation) as u64),
        training.schedule.learning_rate
    ));
    lines
}
