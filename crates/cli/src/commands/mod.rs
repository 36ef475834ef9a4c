//! The commands, one module each.

mod attention;
mod bench;
mod bleu;
mod config;
mod embeddings;
mod inference;
mod inspect;
mod languages;
mod made_text;
pub(crate) mod pipeline;
mod reports;
mod runs;
mod setup;
mod student;
mod theory;
mod tokenizer;
mod training;
mod translate;
mod weights;

use anyhow::Result;

use crate::arguments::{Arguments, Command};
use crate::features::with_feature;

pub(crate) use setup::completions::complete;

/// Runs the command of `arguments`.
///
/// # Errors
/// Any error of the command, with its context.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    if !matches!(arguments.command, Command::Doctor(_)) {
        taper_ops::Kernel::chosen()?;
    }
    let threads = arguments.threads;
    match &arguments.command {
        // These commands divide the threads among processes themselves.
        Command::Train(_) | Command::Resume(_) | Command::Quickstart(_) | Command::Finetune(_) => {}
        // `student` runs each of its steps as a separate process. Afterwards, it sets the number of
        // threads with which it compares the speeds of the two models.
        Command::Student(_) => {}
        _ => threads.map_or(Ok(()), taper_run::checks::choose_threads)?,
    }
    match &arguments.command {
        Command::Quickstart(arguments) => setup::quickstart::run(arguments, threads),
        Command::Init(arguments) => training::init::run(arguments),
        Command::Finetune(arguments) => training::finetune::run(arguments, threads),
        Command::Train(arguments) => training::train::run(arguments, threads),
        Command::Resume(arguments) => training::resume::run(arguments, threads),
        Command::Translate(arguments) => translate::run(arguments),
        Command::Generate(arguments) => inference::generate::run(arguments),
        Command::Evaluate(arguments) => inference::evaluate::run(arguments),
        Command::Tune(arguments) => training::tune::run(arguments),
        Command::Backtranslate(arguments) => made_text::backtranslate(arguments),
        Command::Distill(arguments) => made_text::distill(arguments),
        Command::Diversify(arguments) => made_text::diversify(arguments),
        Command::Filter(arguments) => made_text::filter(arguments),
        Command::Pipeline(arguments) => pipeline::run(arguments),
        Command::Student(arguments) => student::run(arguments, threads),
        Command::Score(arguments) => inference::score::run(arguments),
        Command::Predict(arguments) => inference::predict::run(arguments),
        Command::Import(arguments) => weights::exchange::import(arguments),
        Command::Export(arguments) => weights::exchange::export(arguments),
        Command::Push(arguments) => with_feature!("hub", weights::hub::push, arguments),
        Command::Pull(arguments) => with_feature!("hub", weights::hub::pull, arguments),
        Command::Align(arguments) => attention::align::run(arguments),
        Command::Attention(arguments) => attention::view::run(arguments),
        Command::PruneHeads(arguments) => attention::prune::run(arguments),
        Command::Explain(arguments) => attention::explain::run(arguments),
        Command::Positions(arguments) => attention::positions::run(arguments),
        Command::Bleu(arguments) => bleu::run(arguments),
        Command::Bench(command) => bench::run(command),
        Command::Runs(arguments) => runs::run(arguments),
        Command::Report(arguments) => reports::report::run(arguments),
        Command::Compare(arguments) => reports::compare::run(arguments),
        Command::Top(arguments) => with_feature!("top", reports::top::run, arguments),
        Command::Serve(arguments) => with_feature!("serve", reports::serve::run, arguments),
        Command::Scaling(arguments) => reports::scaling::run(arguments),
        Command::Extrapolate(arguments) => reports::extrapolate::run(arguments),
        Command::Average(arguments) => weights::average::run(arguments),
        Command::Merge(arguments) => weights::merge::run(arguments),
        Command::Quantize(arguments) => weights::quantize::run(arguments),
        Command::Shortlist(arguments) => weights::shortlist::run(arguments),
        Command::Page(arguments) => weights::page::run(arguments),
        Command::Languages(command) => languages::run(command),
        Command::Tokenizer(command) => tokenizer::run(command),
        Command::Embeddings(command) => embeddings::run(command),
        Command::Theory(command) => theory::run(command),
        Command::Inspect(arguments) => inspect::run(arguments),
        Command::Config(command) => config::run(command),
        Command::Docs(arguments) => setup::docs::run(arguments),
        Command::Doctor(arguments) => setup::doctor::run(arguments),
        Command::Completions(arguments) => setup::completions::run(arguments),
        Command::Manual(arguments) => setup::manual::run(arguments),
    }
}
