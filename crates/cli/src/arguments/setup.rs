//! Arguments of the commands that help with a first training, an installation or a package of the
//! program.

use std::path::PathBuf;

use clap::Args;

use super::{Overrides, TrainOutput};

/// Arguments of `quickstart`.
#[derive(Debug, Args)]
pub(crate) struct Quickstart {
    /// Folder for the recipe, its corpus and the run
    #[arg(default_value = "taper-quickstart")]
    pub(crate) folder: PathBuf,
    /// Folder of the run [default: runs/quickstart in this folder]
    #[arg(long, value_name = "DIR")]
    pub(crate) run: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) overrides: Overrides,
    #[command(flatten)]
    pub(crate) training: TrainOutput,
}

/// Arguments of `manual`.
#[derive(Debug, Args)]
pub(crate) struct Manual {
    /// Folder for the pages, one for each command
    pub(crate) folder: PathBuf,
}

/// Arguments of `doctor`.
#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Print as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `docs`.
#[derive(Debug, Args)]
pub(crate) struct Docs {
    /// Page, for example scores or language-models [default: the list of all]
    pub(crate) page: Option<String>,
}

/// Arguments of `completions`.
#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// Shell
    pub(crate) shell: clap_complete::Shell,
}
