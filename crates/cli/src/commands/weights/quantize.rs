//! `taper quantize`: rounds the weights of a run to int8.

use anyhow::Result;
use taper_run::{Quantized, quantize};

use crate::arguments::Quantize;
use crate::text::print_line;

/// Runs the command.
pub(crate) fn run(arguments: &Quantize) -> Result<()> {
    let (name, to) = (arguments.from.checkpoint.as_deref(), arguments.output.as_deref());
    let Quantized { folder, checkpoint, step, before, after } = quantize(&arguments.run, name, to)?;
    print_line(&format!(
        "rounded the weights of step {step}, {}, to int8: {}, {:.2} MB instead of {:.2} MB",
        checkpoint.display(),
        folder.display(),
        after as f64 / 1e6,
        before as f64 / 1e6
    ))
}
