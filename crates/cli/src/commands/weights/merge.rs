//! `taper merge`: adds trained LoRA adapters to the weights that they change, so that the model
//! needs no adapters any more.

use anyhow::Result;
use taper_run::merge_adapters;

use crate::arguments::Merge;
use crate::text::print_line;

/// Runs the command.
pub(crate) fn run(arguments: &Merge) -> Result<()> {
    let Merge { run, new, from } = arguments;
    let (checkpoint, step) = merge_adapters(run, from.checkpoint.as_deref(), new)?;
    print_line(&format!(
        "added the adapters of step {step}, {}, to the weights that they change: {}",
        checkpoint.display(),
        new.display()
    ))
}
