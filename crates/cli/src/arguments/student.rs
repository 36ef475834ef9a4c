//! Arguments of `student`.

use std::path::PathBuf;

use clap::Args;

use crate::arguments::{Overrides, PageLanguage};

/// Arguments of `student`.
#[derive(Debug, Args)]
pub(crate) struct Student {
    /// Folders of the teachers, which translate as an ensemble; the student has the data and the
    /// tokenizer of the first
    #[arg(required = true, value_name = "RUN")]
    pub(crate) teachers: Vec<PathBuf>,
    /// Folder for the recipe, the pipeline, the student's run and the page
    #[arg(long, short, value_name = "FOLDER")]
    pub(crate) output: PathBuf,
    #[command(flatten)]
    pub(crate) overrides: Overrides,
    /// WebAssembly module of the page, made by scripts/package/web.sh [default: the one that is
    /// installed beside the program]
    #[arg(long, value_name = "FILE", conflicts_with = "no_page")]
    pub(crate) module: Option<PathBuf>,
    /// Write no page
    #[arg(long)]
    pub(crate) no_page: bool,
    /// Language of the page
    #[arg(long, value_enum, default_value_t)]
    pub(crate) language: PageLanguage,
    /// Write the recipe and the pipeline, and print the command of each step
    #[arg(long)]
    pub(crate) dry_run: bool,
}
