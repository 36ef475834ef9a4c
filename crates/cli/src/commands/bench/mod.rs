//! `taper bench`: speed and memory of training, decoding, attention, the matrix kernels, and
//! training over a network.

mod attention;
mod cores;
mod decode;
mod gpu_kernels;
mod kernels;
mod network;
mod train;

use anyhow::Result;

use crate::arguments::BenchCommand;

/// Runs the command.
pub(crate) fn run(command: &BenchCommand) -> Result<()> {
    match command {
        BenchCommand::Attention(arguments) => attention::run(arguments),
        BenchCommand::Decode(arguments) => decode::run(arguments),
        BenchCommand::Kernels(arguments) => kernels::run(arguments),
        BenchCommand::Network(arguments) => network::run(arguments),
        BenchCommand::Train(arguments) => train::run(arguments),
    }
}

/// Rounds to a number of decimal digits.
fn round(value: f64, digits: i32) -> f64 {
    let factor = 10_f64.powi(digits);
    (value * factor).round() / factor
}
