//! The command line: every command, flag and help text, and the settings that they come to.

mod attention;
mod bench;
mod bleu;
mod embeddings;
mod evaluate;
mod exchange;
mod finetune;
mod generate;
mod init;
mod inspect;
mod items;
mod predict;
mod reports;
mod search;
mod setup;
mod tokenizer;
mod train;
mod translate;
mod tune;

use std::path::Path;
use std::sync::LazyLock;

use anyhow::Result;
use clap::{Args, Parser, Subcommand, ValueEnum};
use taper_run::tasks::TaskModel;
use taper_run::{LoadSettings, LoadedRun, WeightType};

pub(crate) use attention::{
    Align, AlignCommand, AlignEvaluate, Attention, Explain, PositionsArguments, PruneHeads,
};
pub(crate) use bench::{
    BenchAttention, BenchCommand, BenchDecode, BenchKernels, BenchNetwork, BenchTrain, Preset,
};
pub(crate) use bleu::{Bleu, MetricName, OutputFormat};
pub(crate) use embeddings::{
    EmbeddingsAnalogy, EmbeddingsCommand, EmbeddingsConvert, EmbeddingsEvaluate, EmbeddingsNearest,
    EmbeddingsResume, EmbeddingsTrain, VectorFile,
};
pub(crate) use evaluate::{Evaluate, Score};
pub(crate) use exchange::{Export, Format, Import};
pub(crate) use finetune::Finetune;
pub(crate) use generate::Generate;
pub(crate) use init::Init;
pub(crate) use inspect::{Average, Completions, ConfigCommand, Inspect, Merge, Quantize, Runs};
pub(crate) use items::{SpecialTokenRule, SpecialTokens, Strict};
pub(crate) use predict::Predict;
#[cfg(feature = "serve")]
pub(crate) use reports::Serve;
pub(crate) use reports::{Compare, Extrapolate, PageLanguage, Pictures, Report, Scaling, Top};
pub(crate) use search::{Control, Search};
pub(crate) use setup::{Manual, Quickstart};
pub(crate) use tokenizer::{TokenizerCommand, TokenizerEncode, TokenizerFile, TokenizerTrain};
pub(crate) use train::{Resume, Train, TrainOutput, Way};
pub(crate) use translate::{Form, TextArguments, Translate};
pub(crate) use tune::Tune;

/// Train, resume, translate and evaluate Transformer translation models.
#[derive(Debug, Parser)]
#[command(name = "taper", version, about, propagate_version = true, long_version = about_build())]
pub(crate) struct Arguments {
    /// Threads on the CPU; no result depends on them [default: the recipe's, else one for each core]
    #[arg(long, global = true, value_name = "N")]
    pub(crate) threads: Option<usize>,
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Arguments {
    /// The arguments of this process; ends it where they do not parse.
    pub(crate) fn of_process() -> Self {
        Self::parse_from(bleu::spell_out(std::env::args_os()))
    }
}

/// Version, commit, features and kernel: what a report of a fault should say.
pub(crate) fn about_build() -> &'static str {
    static ABOUT: LazyLock<String> = LazyLock::new(about);
    &ABOUT
}

fn about() -> String {
    let features: Vec<&str> = [
        ("serve", cfg!(feature = "serve")),
        ("cuda", cfg!(feature = "cuda")),
        ("metal", cfg!(feature = "metal")),
        ("accelerate", cfg!(feature = "accelerate")),
        ("mkl", cfg!(feature = "mkl")),
        ("mpi", cfg!(feature = "mpi")),
        ("nccl", cfg!(feature = "nccl")),
        ("hub", cfg!(feature = "hub")),
    ]
    .into_iter()
    .filter_map(|(name, is_built)| is_built.then_some(name))
    .collect();
    let kernel = taper_ops::Kernel::best(taper_ops::Products::F32).name();
    format!(
        "{} (commit {}; features {}; kernel {kernel})",
        env!("CARGO_PKG_VERSION"),
        option_env!("TAPER_COMMIT").unwrap_or("unknown"),
        features.join(", "),
    )
}

/// The commands, one module each in `commands/`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Train a first model on a corpus that comes with the program
    Quickstart(Quickstart),
    /// Look at a text and write a recipe for it, ready to train
    Init(Init),
    /// Train a finished model on with text of your own: a run, or a folder of the library
    /// Transformers
    Finetune(Box<Finetune>),
    /// Train a model from a recipe (a TOML file)
    Train(Train),
    /// Continue an interrupted run, exactly where its last checkpoint stands
    Resume(Resume),
    /// Translate standard input, a file, or what you type at a terminal
    Translate(Translate),
    /// Go on with a text, with a run whose task is language-model
    Generate(Generate),
    /// Decode the test sets of a run and score them
    Evaluate(Evaluate),
    /// Find the beam, length penalty and length reward that translate the validation set best, and
    /// write them into the run
    Tune(Tune),
    /// Log-probabilities that a run's model gives to existing translations, or a language model to
    /// texts and to continuations to choose from
    Score(Score),
    /// Label texts or images, describe images, or tell which text belongs to one, as the run's task is
    Predict(Predict),
    /// Make a run of a GPT-2, BERT or ViT as the library Transformers keeps it in a folder
    Import(Import),
    /// Write a run's model for other programs: as a model of the library Transformers, or for the
    /// engine CTranslate2
    Export(Export),
    /// Which words of sentences and of their translations belong together, by attention
    Align(Box<Align>),
    /// Where a model looks in a text, by layer and head: in the terminal, as a page or a picture
    Attention(Box<Attention>),
    /// What a model loses without each of its heads
    PruneHeads(PruneHeads),
    /// The journey of one sentence through a translation model, step by step
    Explain(Explain),
    /// Position encodings in numbers and figures
    Positions(PositionsArguments),
    /// Score a translation against one or more references, as sacreBLEU does
    Bleu(Box<Bleu>),
    /// Measure speed and memory
    #[command(subcommand)]
    Bench(BenchCommand),
    /// List runs: state, progress and scores
    Runs(Runs),
    /// Write a page of a run: curves, data, recipe, scores, every test sentence
    Report(Report),
    /// Put runs side by side: scores with significance, recipes, sentences won and lost
    Compare(Compare),
    /// Watch runs on the whole terminal: curves, samples, checkpoints
    Top(Top),
    /// Serve runs to browsers and programs: a page to try them, and an API
    #[cfg(feature = "serve")]
    Serve(Box<Serve>),
    /// Fit the laws by which the losses of language models fall with size and data
    Scaling(Scaling),
    /// Perplexity of language models on blocks longer than those that they were trained on
    Extrapolate(Extrapolate),
    /// Average the weights of a run's last checkpoints
    Average(Average),
    /// Add a run's adapters to the weights that they change: an ordinary run
    Merge(Merge),
    /// Round a run's weights to int8: a folder of a quarter of the size, to translate with
    Quantize(Quantize),
    /// Train a tokenizer, or apply one
    #[command(subcommand)]
    Tokenizer(TokenizerCommand),
    /// Make vectors of words, and ask them
    #[command(subcommand)]
    Embeddings(EmbeddingsCommand),
    /// Layers, parameters, FLOPs per token and memory of a run or a recipe
    Inspect(Inspect),
    /// Show a recipe with every default written out, or check it
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Tell what this machine has, and check that it computes what it should
    Doctor,
    /// Print a completion script for a shell
    Completions(Completions),
    /// Write the manual's pages, for `man`
    Manual(Manual),
}

/// Overrides of single keys.
#[derive(Debug, Clone, Args)]
pub(crate) struct Overrides {
    /// Override one key of the recipe; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
}

/// Which weights of a run to use, and where to compute.
#[derive(Debug, Args)]
pub(crate) struct Weights {
    /// best, last, average, a name such as step-00001000, or the path of a checkpoint folder
    /// [default: average if there and not older than last, else best, else last]
    #[arg(long)]
    pub(crate) checkpoint: Option<String>,
    /// auto, cpu, cuda, cuda:N or metal [default: the run's]
    #[arg(long)]
    pub(crate) device: Option<String>,
    /// What matrices are multiplied in [default: int8 where the weights were saved so, else the
    /// run's dtype]
    #[arg(long = "weights", value_enum, value_name = "TYPE")]
    pub(crate) weight_type: Option<WeightChoice>,
}

/// What matrices are multiplied in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum WeightChoice {
    /// 32 bits, as the weights were trained
    F32,
    /// Weights and activations rounded to bf16
    Bf16,
    /// Weights and activations rounded to 8 bits, of models that write text: the fastest on most
    /// processors
    Int8,
}

impl From<WeightChoice> for WeightType {
    fn from(choice: WeightChoice) -> Self {
        match choice {
            WeightChoice::F32 => Self::F32,
            WeightChoice::Bf16 => Self::Bf16,
            WeightChoice::Int8 => Self::Int8,
        }
    }
}

impl Weights {
    /// Loads the run at `root` with these weights and with `overrides` of its recipe.
    ///
    /// # Errors
    /// As [`LoadedRun::open`].
    pub(crate) fn load<M: TaskModel>(
        &self,
        root: &Path,
        overrides: &[String],
    ) -> Result<LoadedRun<M>> {
        LoadedRun::open(root, &self.settings(overrides))
    }

    /// Which weights these are, of a recipe with `overrides`.
    pub(crate) fn settings(&self, overrides: &[String]) -> LoadSettings {
        LoadSettings {
            checkpoint: self.checkpoint.clone(),
            device: self.device.clone(),
            weights: self.weight_type.map(WeightType::from),
            overrides: overrides.to_vec(),
        }
    }
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
