//! Arguments of `serve` in a program that was built without the server. Such a program refuses the
//! command.

use std::ffi::OsString;

use clap::Args;

use crate::features::lacking;

/// Arguments of `serve`: anything.
#[derive(Debug, Args)]
#[command(after_help = lacking("serve").to_string())]
pub(crate) struct Serve {
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}
