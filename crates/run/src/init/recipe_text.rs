//! Text of the recipe that `taper init` writes. A recipe is a TOML file with the settings of a
//! training; comments in it explain the proposed values.

use std::fmt::Write;
use std::path::Path;

use taper_data::{DataConfig, Format};

use super::proposal::Proposal;
use super::{CorpusFacts, Machine, Usage};
use crate::numbers::{bytes, grouped};

/// Text of the recipe. It omits keys with default values.
pub(super) fn text(
    proposal: &Proposal,
    facts: &CorpusFacts,
    machine: &Machine,
    usage: Usage,
) -> String {
    let Proposal { config, size, .. } = proposal;
    let (data, model, training) = (&config.data, &config.model, &config.training);
    format!(
        include_str!("recipe.template"),
        source = data.source_language,
        target = data.target_language,
        pairs = grouped(facts.pairs),
        machine = describe(machine),
        name = config.name,
        usage = usage_comment(usage, &config.name, None),
        size = size.name,
        origin = size.origin,
        too_large = too_large(proposal),
        dtype = config.dtype,
        data_section = data_section(data),
        vocabulary = data.tokenizer.vocabulary_size,
        max_tokens = data.batching.max_tokens,
        d_model = model.d_model,
        d_ff = model.d_ff,
        heads = model.heads,
        encoder_layers = model.encoder_layers,
        decoder_layers = model.decoder_layers,
        embedding_dropout = model.embedding_dropout,
        attention_dropout = model.attention_dropout,
        feed_forward_dropout = model.feed_forward_dropout,
        residual_dropout = model.residual_dropout,
        max_updates = training.max_updates,
        accumulation = training.accumulation,
        log_every = training.log_every,
        validate_every = training.validate_every,
        keep_last = training.keep_last,
        average_last = training.average_last,
        learning_rate = training.schedule.learning_rate,
        warmup = training.schedule.warmup,
        metric = training.early_stopping.metric,
        patience = training.early_stopping.patience,
        beam_size = config.decoding.beam_size,
        length_penalty = config.decoding.length_penalty,
        shortfall_penalty = config.decoding.shortfall_penalty,
        tokenize = config.evaluation.tokenize.name(),
    )
}

/// Comment on how to use the recipe called `name`. The function `usage` returns the lines of this
/// comment. `from` is the run (trained model) that gives the training its first weights; `None` if
/// there is none.
pub(super) fn usage_comment(usage: Usage, name: &str, from: Option<&Path>) -> String {
    let lines = usage(Path::new(&format!("{name}.toml")), from);
    lines.iter().map(|line| format!("#   {line}\n")).collect()
}

/// Description of a machine, such as `2 cores and 7.5 GiB of free memory`.
pub(super) fn describe(machine: &Machine) -> String {
    let mut text = match machine.cores {
        1 => "a core".to_owned(),
        cores => format!("{cores} cores"),
    };
    if machine.has_gpu {
        text.push_str(", a GPU");
    }
    if let Some(memory) = machine.memory {
        // Writing to a string cannot fail.
        let _ = write!(text, " and {} of free memory", bytes(memory));
    }
    text
}

/// Comment for the recipe that names a larger size of model, and what this machine lacks to train
/// it. It is written if there is enough training text for this size; otherwise, the result is
/// empty.
fn too_large(proposal: &Proposal) -> String {
    proposal.too_large.as_ref().map_or_else(String::new, |(size, lack)| {
        format!(
            "# There is enough text for the size \"{}\", but this machine lacks {lack}.\n",
            size.name
        )
    })
}

/// Section `[data]`, and `[data.fields]` if columns are named.
fn data_section(data: &DataConfig) -> String {
    let quoted = |text: &str| toml::Value::String(text.to_owned()).to_string();
    let mut lines =
        vec!["[data]".to_owned(), format!("dir = {}", quoted(&data.dir.display().to_string()))];
    if data.format != Format::Text {
        lines.push(format!("format = {}", quoted(format_name(data.format))));
    }
    lines.push(format!("source_language = {}", quoted(&data.source_language)));
    lines.push(format!("target_language = {}", quoted(&data.target_language)));
    lines.push("# The names of the files, without the language.".to_owned());
    lines.push(format!("train = {}", quoted(&data.train.name())));
    lines.push(format!("validation = {}", quoted(&data.validation.name())));
    let tests: Vec<String> = data.test.iter().map(|set| quoted(&set.name())).collect();
    lines.push(format!("test = [{}]", tests.join(", ")));
    if !data.fields.source.is_empty() || !data.fields.target.is_empty() {
        lines.push("\n[data.fields]".to_owned());
        lines.push(format!("source = {}", quoted(&data.fields.source)));
        lines.push(format!("target = {}", quoted(&data.fields.target)));
    }
    lines.join("\n") + "\n"
}

fn format_name(format: Format) -> &'static str {
    match format {
        Format::Text => "text",
        Format::Tsv => "tsv",
        Format::Csv => "csv",
        Format::Jsonl => "jsonl",
        Format::Parquet => "parquet",
        Format::Tmx => "tmx",
        Format::Xliff => "xliff",
        Format::Po => "po",
        Format::Zip => "zip",
        Format::Hub => "hub",
    }
}
