//! Arguments of `push` and `pull`.

use std::path::PathBuf;

use clap::Args;

/// Arguments of `push`.
#[derive(Debug, Args)]
pub(crate) struct Push {
    /// Folder to upload, as `taper export` makes it; hidden files are not uploaded
    pub(crate) folder: PathBuf,
    /// Repository, which is made if it does not exist: owner/name
    pub(crate) repository: String,
    /// Branch, which is made if it does not exist
    #[arg(long, default_value = "main")]
    pub(crate) revision: String,
    /// Make a repository that others cannot see; an existing one is not changed
    #[arg(long)]
    pub(crate) private: bool,
    /// First line of the commit
    #[arg(long, default_value = "Upload a folder of taper export")]
    pub(crate) message: String,
}

/// Arguments of `pull`.
#[derive(Debug, Args)]
pub(crate) struct Pull {
    /// Repository: owner/name
    pub(crate) repository: String,
    /// Folder for the files; existing files with the same content are kept
    pub(crate) folder: PathBuf,
    /// Branch, tag or commit
    #[arg(long, default_value = "main")]
    pub(crate) revision: String,
}
