//! Text of the recipe that is proposed for fine-tuning. A recipe is a TOML file with the settings
//! of a training; comments in it explain the proposed values.

use std::fmt::Write;

use anyhow::{Context, Result};
use taper_data::Corpus;
use taper_model::{EmbeddingsConfig, LoraConfig};
use toml::{Table, Value};

use super::examples::ReadExamples;
use super::parent::Parent;
use super::proposal::Proposal;
use crate::config::RunConfig;
use crate::init::Usage;
use crate::init::recipe_text::usage_comment;
use crate::numbers::{bytes, grouped};

/// Text of the recipe. It omits keys with default values, and keys of `[model]` with the parent's
/// values.
///
/// # Errors
/// If a value cannot be written as TOML.
pub(super) fn text(
    proposal: &Proposal,
    parent: &Parent,
    read: &ReadExamples,
    machine: &str,
    usage: Usage,
) -> Result<String> {
    let table = |config: &RunConfig| {
        Table::try_from(config).context("the configuration cannot be written as TOML")
    };
    let config = &proposal.config;
    let mut of_parent = RunConfig { model: parent.config.model.clone(), ..RunConfig::default() };
    of_parent.model.lora = LoraConfig::default();
    of_parent.model.embeddings = EmbeddingsConfig::default();
    let mut changed = different(table(config)?, &table(&of_parent)?);
    // The settings that the comments explain are always written.
    for (key, value) in shown(config) {
        set(&mut changed, key, value);
    }
    let (name, from) = (&config.name, parent.path.display());
    let mut text = format!(
        "# Fine-tuning of {from}{}, for {machine}.\n#\n{}#\n# [model] is that of {from}.\n\n",
        counted(read),
        usage_comment(usage, name, Some(&parent.path))
    );
    write_section(&mut text, "", &changed, &reasons(proposal, read));
    Ok(text)
}

/// Number of examples or tokens, in words for the first line of the recipe.
fn counted(read: &ReadExamples) -> String {
    let counts = &read.counts;
    let tokens = grouped(counts.tokens);
    match (counts.examples, counts.home) {
        (0, _) => format!(" on about {tokens} tokens"),
        (examples, 0) => format!(" on {} examples", grouped(examples)),
        (examples, home) => {
            format!(" on {} examples and {} of home", grouped(examples), grouped(home))
        }
    }
}

/// Keys that are written even if they have default values, with their values.
fn shown(config: &RunConfig) -> Vec<(&'static str, Value)> {
    let training = &config.training;
    let whole = |number: u64| Value::Integer(i64::try_from(number).unwrap_or(i64::MAX));
    vec![
        ("dtype", config.dtype.clone().into()),
        ("data.batching.max_tokens", whole(config.data.batching.max_tokens as u64)),
        ("training.accumulation", whole(training.accumulation as u64)),
        ("training.max_updates", whole(training.max_updates)),
        ("training.validate_every", whole(training.validate_every)),
        ("training.schedule.learning_rate", training.schedule.learning_rate.into()),
        ("training.early_stopping.metric", training.early_stopping.metric.to_string().into()),
        ("training.early_stopping.patience", whole(training.early_stopping.patience.into())),
    ]
}

fn set(table: &mut Table, key: &str, value: Value) {
    match key.split_once('.') {
        None => drop(table.insert(key.to_owned(), value)),
        Some((section, rest)) => {
            let section = table.entry(section).or_insert_with(|| Table::new().into());
            if let Some(section) = section.as_table_mut() {
                set(section, rest, value);
            }
        }
    }
}

/// Keys of `table`, with their values, that are missing in `usual` or have other values there.
fn different(table: Table, usual: &Table) -> Table {
    let is_other = |(key, value): (String, Value)| match (value, usual.get(&key)) {
        (Value::Table(section), Some(Value::Table(usual))) => {
            let section = different(section, usual);
            (!section.is_empty()).then_some((key, Value::Table(section)))
        }
        (value, usual) => (Some(&value) != usual).then_some((key, value)),
    };
    table.into_iter().filter_map(is_other).collect()
}

/// Comments in the recipe, each with the key above which it stands: (key, comment).
fn reasons(proposal: &Proposal, read: &ReadExamples) -> Vec<(&'static str, String)> {
    let config = &proposal.config;
    let mut all = vec![
        (
            "dtype",
            "What products are computed in: f32, bf16, or the faster on this machine.".into(),
        ),
        ("data.dir", "Folder of the files that are named below, without their endings.".into()),
        ("data.text.hold_out", "The end of the text, which is validated on.".into()),
        ("data.batching.max_tokens", "Tokens of a batch; \"auto\" takes what fits.".into()),
        ("training.accumulation", "Batches of an update.".into()),
        (
            "training.max_updates",
            format!(
                "About {} epoch{}; [training.early_stopping] ends it when nothing improves.",
                proposal.epochs,
                if proposal.epochs == 1 { "" } else { "s" }
            ),
        ),
        (
            "training.schedule.learning_rate",
            format!(
                "For {} of a model {} wide. If it forgets too much, or the loss rises: less.",
                if config.model.lora.is_on() { "adapters" } else { "all weights" },
                config.model.d_model
            ),
        ),
        (
            "training.early_stopping.patience",
            "Training ends after so many validations without a better score.".into(),
        ),
        ("evaluation.validation_sentences", "Sentences that a validation translates.".into()),
    ];
    if let Some(all_weights) = proposal.too_large {
        let why = format!(
            "Adapters (LoRA), about {}: all weights would take about {}. Rank 0 trains all.",
            bytes(proposal.bytes),
            bytes(all_weights)
        );
        all.push(("model.lora.rank", why));
    }
    if read.data.train.iter().any(|one: &Corpus| one.name == "home") {
        let why = "New text, and as much of the model's training text, so that it forgets less.";
        all.push(("data.train", why.into()));
    }
    all
}

/// Writes the keys of a section, and then its subsections.
fn write_section(text: &mut String, name: &str, table: &Table, reasons: &[(&str, String)]) {
    let full = |key: &str| match name {
        "" => key.to_owned(),
        section => format!("{section}.{key}"),
    };
    let is_plain = |value: &Value| !value.is_table();
    if !name.is_empty() && table.values().any(is_plain) {
        // Writing to a string cannot fail.
        let _ = write!(text, "\n[{name}]\n");
    }
    for (key, value) in table.iter().filter(|(_, value)| is_plain(value)) {
        if let Some((_, reason)) = reasons.iter().find(|(reason_key, _)| *reason_key == full(key)) {
            let _ = writeln!(text, "# {reason}");
        }
        let _ = writeln!(text, "{key} = {value}");
    }
    for (key, value) in table {
        if let Value::Table(section) = value {
            write_section(text, &full(key), section, reasons);
        }
    }
}
