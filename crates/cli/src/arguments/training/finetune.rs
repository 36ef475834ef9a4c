//! Arguments of `finetune`.

use std::path::PathBuf;

use clap::Args;
use taper_data::Task;

use crate::arguments::{Overrides, TrainOutput};

/// Arguments of `finetune`.
#[derive(Debug, Args)]
pub(crate) struct Finetune {
    /// The model: a run, a checkpoint, or a folder of the library Transformers, which is imported
    pub(crate) from: PathBuf,
    /// Examples to learn from, depending on the task: sentence pairs in two text files or in a
    /// table (.tsv, .csv, .jsonl, .parquet); texts with labels; or running text
    #[arg(
        long = "pairs",
        visible_aliases = ["labels", "texts"],
        value_name = "FILE",
        num_args = 1..,
        required = true
    )]
    pub(crate) files: Vec<PathBuf>,
    /// Text like the model's training text, mixed in at equal parts so that the model forgets less;
    /// files as in --pairs
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub(crate) home: Vec<PathBuf>,
    /// Columns or fields of a table: SOURCE,TARGET for pairs, LABEL,TEXT for texts with labels, or
    /// TEXT [default: the usual names]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) columns: Vec<String>,
    /// Task, if it differs from the model's: classification begins with a masked language model
    #[arg(long, value_parser = task)]
    pub(crate) task: Option<Task>,
    /// Source language of an imported model of several languages, as its folder names it
    #[arg(long, value_name = "LANGUAGE")]
    pub(crate) source_language: Option<String>,
    /// Target language of the model
    #[arg(long, value_name = "LANGUAGE")]
    pub(crate) target_language: Option<String>,
    /// Recipe to write [default: named like the model and the text]
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Folder for the text if a validation set has to be split off [default: data/<name of the
    /// recipe>]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Folder of the run [default: runs/<name of the recipe>]
    #[arg(long, value_name = "DIR")]
    pub(crate) run: Option<PathBuf>,
    /// Write the recipe without training, so that it can be read and edited
    #[arg(long)]
    pub(crate) recipe_only: bool,
    #[command(flatten)]
    pub(crate) overrides: Overrides,
    #[command(flatten)]
    pub(crate) training: TrainOutput,
}

/// Parses the name of a task.
fn task(name: &str) -> Result<Task, String> {
    let value = serde_json::Value::String(name.to_owned());
    serde_json::from_value(value).map_err(|error| error.to_string())
}
