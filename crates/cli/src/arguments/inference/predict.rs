//! Arguments of `predict`.

use std::path::PathBuf;

use clap::Args;

use crate::arguments::{ItemRules, Overrides, Weights};

/// Arguments of `predict`.
#[derive(Debug, Args)]
pub(crate) struct Predict {
    /// Folder of the run
    pub(crate) run: PathBuf,
    /// PNG or JPEG files, for a run whose task is image-classification, captions or image-text
    #[arg(value_name = "IMAGE")]
    pub(crate) images: Vec<PathBuf>,
    /// Write attention pictures to this folder, one PNG file for each image, with its name; images
    /// with the same name in different folders are numbered
    #[arg(long, value_name = "FOLDER")]
    pub(crate) attention: Option<PathBuf>,
    /// Also draw the probability of each label or prompt for each image, into this SVG file
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    /// Texts, one per line; for a run that labels pairs, two on each line with a tab between them;
    /// for a run that answers questions, one object {"question": …, "context": …} per line; - is
    /// standard input
    #[arg(long, short, value_name = "FILE", default_value = "-")]
    pub(crate) input: PathBuf,
    /// Text that may describe an image, for a run whose task is image-text; may be repeated
    /// [default: the labels of the recipe, by its prompts]
    #[arg(long, value_name = "TEXT")]
    pub(crate) prompt: Vec<String>,
    #[command(flatten)]
    pub(crate) overrides: Overrides,
    #[command(flatten)]
    pub(crate) weights: Weights,
    #[command(flatten)]
    pub(crate) items: ItemRules,
    /// Print one JSON object per line: label, its probability, the probabilities of all labels; or
    /// caption and score; or answer, its start and end, and its probability; or an error
    #[arg(long)]
    pub(crate) json: bool,
}
