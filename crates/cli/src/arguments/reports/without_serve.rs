//! Arguments of `serve` in a program without the server, which refuses the command.

use std::ffi::OsString;

use clap::Args;

/// Arguments of `serve`: anything.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}
