//! Arguments of `predict`.

use std::path::PathBuf;

use clap::Args;

use super::{Overrides, SpecialTokens, Strict, Weights};

/// Arguments of `predict`.
#[derive(Debug, Args)]
pub(crate) struct Predict {
    /// Folder of the run
    pub(crate) run: PathBuf,
    /// PNG or JPEG files, for a run whose task is image-classification, captions or image-text
    #[arg(value_name = "IMAGE")]
    pub(crate) images: Vec<PathBuf>,
    /// Write where the model looks to this folder, one PNG file for each image
    #[arg(long, value_name = "FOLDER")]
    pub(crate) attention: Option<PathBuf>,
    /// Texts, one a line, or where the run labels pairs two with a tab between them; of a run that
    /// answers questions {"question": …, "context": …}, one a line; - is standard input
    #[arg(long, short, value_name = "FILE", default_value = "-")]
    pub(crate) input: PathBuf,
    /// A text that may belong to an image, for a run whose task is image-text; repeat it for each
    /// [default: the labels of the recipe, by its prompts]
    #[arg(long, value_name = "TEXT")]
    pub(crate) prompt: Vec<String>,
    #[command(flatten)]
    pub(crate) overrides: Overrides,
    #[command(flatten)]
    pub(crate) weights: Weights,
    #[command(flatten)]
    pub(crate) special_tokens: SpecialTokens,
    #[command(flatten)]
    pub(crate) strict: Strict,
    /// One JSON object a line: label, its probability, those of all labels; or caption and score; or
    /// answer, where it starts and ends, and its probability; or error, where there is none
    #[arg(long)]
    pub(crate) json: bool,
}
