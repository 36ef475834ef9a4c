//! `taper embeddings`: word vectors.

mod queries;
mod train;

use anyhow::Result;

use crate::arguments::EmbeddingsCommand;

/// Runs the command.
pub(crate) fn run(command: &EmbeddingsCommand) -> Result<()> {
    match command {
        EmbeddingsCommand::Train(arguments) => train::train(arguments),
        EmbeddingsCommand::Resume(arguments) => train::resume(arguments),
        EmbeddingsCommand::Nearest(arguments) => queries::nearest(arguments),
        EmbeddingsCommand::Analogy(arguments) => queries::analogy(arguments),
        EmbeddingsCommand::Similarities(arguments) => queries::similarities(arguments),
        EmbeddingsCommand::Evaluate(arguments) => queries::evaluate(arguments),
        EmbeddingsCommand::Convert(arguments) => queries::convert(arguments),
    }
}
