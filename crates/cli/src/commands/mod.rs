//! The commands, one module each.

mod average;
mod bench_decode;
mod bench_train;
mod bleu;
mod completions;
mod config;
mod evaluate;
mod init;
mod inspect;
mod resume;
mod runs;
mod score;
mod tokenizer;
mod train;
mod translate;

use anyhow::Result;

use crate::arguments::{BenchCommand, Command};

/// Runs `command`.
///
/// # Errors
/// Whatever went wrong, with its context.
pub(crate) fn run(command: &Command) -> Result<()> {
    taper_ops::Kernel::chosen()?;
    match command {
        Command::Init(arguments) => init::run(arguments),
        Command::Train(arguments) => train::run(arguments),
        Command::Resume(arguments) => resume::run(arguments),
        Command::Translate(arguments) => translate::run(arguments),
        Command::Evaluate(arguments) => evaluate::run(arguments),
        Command::Score(arguments) => score::run(arguments),
        Command::Bleu(arguments) => bleu::run(arguments),
        Command::Bench(BenchCommand::Decode(arguments)) => bench_decode::run(arguments),
        Command::Runs(arguments) => runs::run(arguments),
        Command::Average(arguments) => average::run(arguments),
        Command::Tokenizer(command) => tokenizer::run(command),
        Command::Inspect(arguments) => inspect::run(arguments),
        Command::Config(command) => config::run(command),
        Command::Bench(BenchCommand::Train(arguments)) => bench_train::run(arguments),
        Command::Completions(arguments) => completions::run(arguments),
    }
}
