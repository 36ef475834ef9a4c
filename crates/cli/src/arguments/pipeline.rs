//! Arguments of `pipeline`.

use std::path::PathBuf;

use clap::Args;

/// Arguments of `pipeline`.
#[derive(Debug, Args)]
pub(crate) struct Pipeline {
    /// File of steps, for example configs/pipelines/diversification.toml
    pub(crate) file: PathBuf,
    /// Folder of the results, with a folder for each step [default: the file's `folder`, else
    /// pipelines/<name of the file>]
    #[arg(long, value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,
    /// Check the file and print the command of each step, in order
    #[arg(long)]
    pub(crate) dry_run: bool,
}
