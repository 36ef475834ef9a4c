//! The command line: every command, flag and help text, and the settings that follow from them.

mod attention;
mod bench;
mod bleu;
mod embeddings;
mod inference;
mod inspect;
mod languages;
mod made_text;
mod options;
mod pipeline;
mod reports;
mod setup;
mod student;
mod theory;
mod tokenizer;
mod training;
mod weights;

use std::sync::LazyLock;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};

use crate::text::standard_output;
use crate::{features, program};

pub(crate) use attention::{
    Align, AlignCommand, AlignEvaluate, Attention, Explain, PositionsArguments, PruneHeads,
};
pub(crate) use bench::{
    BenchAttention, BenchCommand, BenchDecode, BenchKernels, BenchNetwork, BenchTrain, Preset,
};
pub(crate) use bleu::{Bleu, MetricName, OutputFormat};
pub(crate) use embeddings::{
    EmbeddingsAnalogy, EmbeddingsCommand, EmbeddingsConvert, EmbeddingsEvaluate, EmbeddingsNearest,
    EmbeddingsResume, EmbeddingsSimilarities, EmbeddingsTrain, VectorFile,
};
pub(crate) use inference::{Evaluate, Form, Generate, Predict, Score, TextArguments, Translate};
pub(crate) use inspect::{ConfigCommand, Inspect, Runs};
pub(crate) use languages::{
    LanguageModelFile, LanguagesCommand, LanguagesEvaluate, LanguagesIdentify, LanguagesTrain,
};
pub(crate) use made_text::{Backtranslate, Distill, Diversify, Filter};
pub(crate) use options::{
    Checkpoint, Control, ItemRules, Loading, Overrides, Search, SpecialTokenRule, SpecialTokens,
    Strict, Weights,
};
pub(crate) use pipeline::Pipeline;
pub(crate) use reports::{
    Compare, Extrapolate, PageLanguage, Pictures, Report, Scaling, Serve, Top,
};
pub(crate) use setup::{Completions, Docs, Doctor, Manual, Quickstart};
pub(crate) use student::Student;
pub(crate) use theory::{TheoryCommand, TheoryRasp, TheoryShow, TheoryTuring};
pub(crate) use tokenizer::{
    TokenizerCommand, TokenizerEncode, TokenizerFile, TokenizerPieces, TokenizerTrain,
};
pub(crate) use training::{Finetune, Init, Resume, Train, TrainOutput, Transport, Tune};
pub(crate) use weights::{
    Average, Export, Format, Import, Merge, PageOfRun, Pull, Push, Quantize, ShortlistOfRun,
};

/// Train, resume, translate and evaluate Transformer translation models.
#[derive(Debug, Parser)]
#[command(name = "taper", version, about, propagate_version = true, long_version = about_build())]
pub(crate) struct Arguments {
    /// Number of threads on the CPU; no result depends on it [default: the recipe's, else one for
    /// each core]
    #[arg(long, global = true, value_name = "N")]
    pub(crate) threads: Option<usize>,
    /// Command to run.
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Arguments {
    /// Parses the arguments of this process; ends the process if they do not parse. If they ask for
    /// help or for the version, prints it and returns `None`.
    ///
    /// # Errors
    /// When standard output cannot be written.
    pub(crate) fn of_process() -> Result<Option<Self>> {
        match Self::try_parse_from(bleu::spell_out(program::words())) {
            Ok(arguments) => Ok(Some(arguments)),
            Err(error) if error.use_stderr() => error.exit(),
            Err(help) => {
                standard_output()?;
                help.print().context("cannot write to standard output")?;
                Ok(None)
            }
        }
    }
}

/// Returns version, commit, features and kernel of this program, for bug reports.
pub(crate) fn about_build() -> &'static str {
    static ABOUT: LazyLock<String> = LazyLock::new(about);
    &ABOUT
}

fn about() -> String {
    let kernel = taper_ops::Kernel::best(taper_ops::Products::F32).name();
    format!(
        "{} (commit {}; features {}; kernel {kernel})",
        env!("CARGO_PKG_VERSION"),
        option_env!("TAPER_COMMIT").unwrap_or("unknown"),
        features::built().join(", "),
    )
}

/// Commands, one module each in `commands/`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Train a first model on a corpus that comes with the program
    Quickstart(Quickstart),
    /// Inspect a text and write a recipe for it, ready to train
    Init(Init),
    /// Train a finished model (a run, or a folder of the library Transformers) further with your
    /// own text
    Finetune(Box<Finetune>),
    /// Train a model from a recipe (a TOML file)
    Train(Train),
    /// Continue an interrupted run, exactly from its last checkpoint
    Resume(Resume),
    /// Translate standard input, a file, or lines typed at a terminal
    Translate(Translate),
    /// Continue a text, with a run whose task is language-model
    Generate(Generate),
    /// Decode and score the test sets of a run
    Evaluate(Evaluate),
    /// Find the search settings, or the weights for reranking, that give the best translations of
    /// the validation set, and write them to the run
    Tune(Tune),
    /// Make training pairs from text in the target language, by translating it into the source
    /// language
    Backtranslate(Backtranslate),
    /// Translate the training text of a run with this run, or with an ensemble, so that a smaller
    /// model (a student) can be trained on the translations
    Distill(Distill),
    /// Extend a corpus by pairs that models of both directions make from it
    Diversify(Diversify),
    /// Remove the pairs of a corpus to which models of both directions give the lowest
    /// probabilities
    Filter(Filter),
    /// Run the steps that a file lists, such as trainings, texts that models make, and scores;
    /// finished steps are not repeated
    Pipeline(Pipeline),
    /// Make a small and fast model that translates as a run does, and a page with it that
    /// translates in a browser
    Student(Student),
    /// Compute the log-probabilities that a translation model gives to existing translations, or
    /// that a language model gives to texts, or to several continuations of a text
    Score(Score),
    /// Label texts or images, describe images, or choose the text that matches an image, depending
    /// on the run's task
    Predict(Predict),
    /// Make a run from a model in a folder of the library Transformers, or of the engine CTranslate2
    Import(Import),
    /// Write a run's model for other programs: as a model of the library Transformers, or for the
    /// engine CTranslate2
    Export(Export),
    /// Upload a folder of a model to the Hugging Face hub
    Push(Push),
    /// Download a folder of a model from the Hugging Face hub
    Pull(Pull),
    /// Align words of sentences and their translations, by attention
    Align(Box<Align>),
    /// Show the attention of a model on a text, by layer and head: in the terminal, as a page or a
    /// picture
    Attention(Box<Attention>),
    /// Measure the loss of a model without each of its heads
    PruneHeads(PruneHeads),
    /// Show the path of one text through a model: pieces, vectors, attention, beam, probabilities
    Explain(Explain),
    /// Show position encodings in numbers and figures
    Positions(PositionsArguments),
    /// Score a translation against one or more references, like sacreBLEU
    Bleu(Box<Bleu>),
    /// Measure speed and memory
    #[command(subcommand)]
    Bench(BenchCommand),
    /// List runs: state, progress and scores
    Runs(Runs),
    /// Write a page about a run: curves, data, recipe, scores, every test sentence
    Report(Report),
    /// Compare runs: scores with significance, recipes, sentences won and lost
    Compare(Compare),
    /// Watch runs on the whole terminal: curves, samples, checkpoints
    Top(Top),
    /// Serve runs to browsers and programs: a page to try them, and an API
    Serve(Box<Serve>),
    /// Fit the scaling laws of how losses of language models fall with size and data
    Scaling(Scaling),
    /// Compute the perplexity of language models on blocks longer than in training
    Extrapolate(Extrapolate),
    /// Average the weights of a run's last checkpoints
    Average(Average),
    /// Add a run's adapters to the weights that they change, which makes an ordinary run
    Merge(Merge),
    /// Round a run's weights to int8, into a folder of a quarter of the size, for translation
    Quantize(Quantize),
    /// Make the shortlist of a run: for each source token, its likeliest translations. With
    /// --shortlist, translations contain only these tokens, and take less time
    Shortlist(ShortlistOfRun),
    /// Write a page of one file that translates in a browser, without a server or a network
    Page(PageOfRun),
    /// Identify the language of each line, or train a model for this
    #[command(subcommand)]
    Languages(LanguagesCommand),
    /// Train a tokenizer, or apply one
    #[command(subcommand)]
    Tokenizer(TokenizerCommand),
    /// Train and query word vectors
    #[command(subcommand)]
    Embeddings(EmbeddingsCommand),
    /// Build models whose weights are set by hand, and run them: Turing machines, small programs,
    /// and claims about what attention can compute
    #[command(subcommand)]
    Theory(TheoryCommand),
    /// Show layers, parameters, FLOPs per token and memory of a run or a recipe
    Inspect(Inspect),
    /// Show a recipe with every default written out, or check it
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Open the manual, if one is installed beside the program
    Docs(Docs),
    /// Show this machine's hardware and software and what training on it needs, and check that it
    /// computes correctly; ends with 1 if something fails
    Doctor(Doctor),
    /// Print a completion script for a shell
    Completions(Completions),
    /// Write the manual's pages, for `man`
    Manual(Manual),
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_consistent() {
        Arguments::command().debug_assert();
    }
}
