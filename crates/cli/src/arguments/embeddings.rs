//! Arguments of the commands under `embeddings`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use taper_embeddings::Format;
use taper_embeddings::training::{Architecture, Limits, TrainingSettings};

use crate::arguments::PageLanguage;

/// Commands under `embeddings`.
#[derive(Debug, Subcommand)]
pub(crate) enum EmbeddingsCommand {
    /// Train vectors of the words of a text: skip-gram or CBOW, with negative sampling
    Train(EmbeddingsTrain),
    /// Continue an interrupted training exactly where it stopped
    Resume(EmbeddingsResume),
    /// Find the words with the nearest vectors
    Nearest(EmbeddingsNearest),
    /// Find the word that is to C as B is to A
    Analogy(EmbeddingsAnalogy),
    /// Compute the cosines of all pairs of some words, as a table or a drawing
    Similarities(EmbeddingsSimilarities),
    /// Compare vectors with people's judgements of word similarity
    Evaluate(EmbeddingsEvaluate),
    /// Write vectors in another format
    Convert(EmbeddingsConvert),
}

/// Arguments of `embeddings train`.
#[derive(Debug, Args)]
pub(crate) struct EmbeddingsTrain {
    /// Text files, one sentence per line, words divided by spaces; .gz, .zst, .xz, .bz2 and .zip
    /// are decompressed
    #[arg(required = true, value_name = "TEXT")]
    pub(crate) files: Vec<PathBuf>,
    /// Folder for the vectors, the vocabulary and the state of training
    #[arg(long, short, value_name = "DIR")]
    pub(crate) output: PathBuf,
    /// Training objective
    #[arg(long, value_enum, default_value = "skip-gram", value_name = "KIND")]
    pub(crate) architecture: ArchitectureChoice,
    /// Dimensions of a vector
    #[arg(long, default_value_t = TrainingSettings::default().dimensions, value_name = "N")]
    pub(crate) dimensions: usize,
    /// Largest number of context words on each side; the actual number is drawn from 1 to this
    #[arg(long, default_value_t = TrainingSettings::default().window, value_name = "N")]
    pub(crate) window: usize,
    /// Number of negative samples for each positive one
    #[arg(long, default_value_t = TrainingSettings::default().negatives, value_name = "N")]
    pub(crate) negatives: usize,
    /// Passes over the text
    #[arg(long, default_value_t = TrainingSettings::default().epochs, value_name = "N")]
    pub(crate) epochs: u64,
    /// Initial learning rate
    #[arg(long, default_value_t = TrainingSettings::default().learning_rate, value_name = "RATE")]
    pub(crate) learning_rate: f64,
    /// Final learning rate, reached by linear decay
    #[arg(long, default_value_t = TrainingSettings::default().last_learning_rate, value_name = "RATE")]
    pub(crate) last_learning_rate: f64,
    /// Relative frequency above which a word is subsampled; 0: never
    #[arg(long, default_value_t = TrainingSettings::default().subsampling, value_name = "PART")]
    pub(crate) subsampling: f64,
    /// Number of occurrences that a word needs to get a vector
    #[arg(long, default_value_t = TrainingSettings::default().min_count, value_name = "N")]
    pub(crate) min_count: u64,
    /// Largest number of words that get a vector; only the most frequent words are kept [default:
    /// all]
    #[arg(long, value_name = "N")]
    pub(crate) max_words: Option<usize>,
    /// Convert the text to lower case
    #[arg(long)]
    pub(crate) lowercase: bool,
    /// Seed of the random numbers
    #[arg(long, default_value_t = TrainingSettings::default().seed, value_name = "N")]
    pub(crate) seed: u64,
    /// File format of the vectors
    #[arg(long, value_enum, default_value = "binary")]
    pub(crate) format: FormatChoice,
    #[command(flatten)]
    pub(crate) limits: EmbeddingsLimits,
}

/// Arguments of `embeddings resume`.
#[derive(Debug, Args)]
pub(crate) struct EmbeddingsResume {
    /// Folder of the training
    pub(crate) folder: PathBuf,
    #[command(flatten)]
    pub(crate) limits: EmbeddingsLimits,
}

/// Options that `embeddings train` and `embeddings resume` share.
#[derive(Debug, Args)]
pub(crate) struct EmbeddingsLimits {
    /// Memory that training may use, for example 4GiB [default: what the system has available]
    #[arg(long, value_name = "SIZE", value_parser = taper_run::checks::memory::parse_bytes)]
    pub(crate) memory: Option<u64>,
    /// Minutes between checkpoints
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) save_minutes: u64,
}

/// Vectors to query.
#[derive(Debug, Args)]
pub(crate) struct VectorFile {
    /// File of vectors, text or binary, or folder of a training
    pub(crate) vectors: PathBuf,
    /// Print as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `embeddings nearest`.
#[derive(Debug, Args)]
pub(crate) struct EmbeddingsNearest {
    #[command(flatten)]
    pub(crate) file: VectorFile,
    /// Words; several words are replaced by the mean of their directions
    #[arg(required = true, value_name = "WORD")]
    pub(crate) words: Vec<String>,
    /// Number of words to print
    #[arg(long, short, default_value_t = 10, value_name = "N")]
    pub(crate) count: usize,
}

/// Arguments of `embeddings analogy`.
#[derive(Debug, Args)]
pub(crate) struct EmbeddingsAnalogy {
    #[command(flatten)]
    pub(crate) file: VectorFile,
    /// A, for example `man`
    #[arg(value_name = "A")]
    pub(crate) a: String,
    /// B, for example `king`
    #[arg(value_name = "B")]
    pub(crate) b: String,
    /// C, for example `woman`
    #[arg(value_name = "C")]
    pub(crate) c: String,
    /// Number of words to print
    #[arg(long, short, default_value_t = 5, value_name = "N")]
    pub(crate) count: usize,
}

/// Arguments of `embeddings similarities`.
#[derive(Debug, Args)]
pub(crate) struct EmbeddingsSimilarities {
    #[command(flatten)]
    pub(crate) file: VectorFile,
    /// Words to compare
    #[arg(required = true, num_args = 2.., value_name = "WORD")]
    pub(crate) words: Vec<String>,
    /// Draw the cosines into this file
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    /// The language of the drawing
    #[arg(long, value_enum, default_value_t)]
    pub(crate) language: PageLanguage,
}

/// Arguments of `embeddings evaluate`.
#[derive(Debug, Args)]
pub(crate) struct EmbeddingsEvaluate {
    #[command(flatten)]
    pub(crate) file: VectorFile,
    /// Files with two words and a judgement on each line, such as WordSim-353 and SimLex-999
    #[arg(required = true, value_name = "PAIRS")]
    pub(crate) sets: Vec<PathBuf>,
}

/// Arguments of `embeddings convert`.
#[derive(Debug, Args)]
pub(crate) struct EmbeddingsConvert {
    /// File of vectors, text or binary, or folder of a training
    pub(crate) vectors: PathBuf,
    /// File to write
    pub(crate) output: PathBuf,
    /// Format of the new file
    #[arg(long, value_enum)]
    pub(crate) format: FormatChoice,
}

/// Training objective of word vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ArchitectureChoice {
    /// A word predicts each word of its context
    SkipGram,
    /// The mean of the context words predicts the word
    Cbow,
}

/// File format of vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FormatChoice {
    /// Binary 32-bit numbers
    Binary,
    /// Decimal numbers
    Text,
}

impl From<FormatChoice> for Format {
    fn from(choice: FormatChoice) -> Self {
        match choice {
            FormatChoice::Binary => Self::Binary,
            FormatChoice::Text => Self::Text,
        }
    }
}

impl EmbeddingsTrain {
    /// Returns the settings that determine the vectors.
    pub(crate) fn settings(&self) -> TrainingSettings {
        TrainingSettings {
            architecture: match self.architecture {
                ArchitectureChoice::SkipGram => Architecture::SkipGram,
                ArchitectureChoice::Cbow => Architecture::Cbow,
            },
            dimensions: self.dimensions,
            window: self.window,
            negatives: self.negatives,
            epochs: self.epochs,
            learning_rate: self.learning_rate,
            last_learning_rate: self.last_learning_rate,
            subsampling: self.subsampling,
            min_count: self.min_count,
            max_words: self.max_words,
            lowercase: self.lowercase,
            seed: self.seed,
        }
    }
}

impl EmbeddingsLimits {
    /// Returns the limits of training. Without `--memory`, training may use `available` bytes, the
    /// memory that the system has available; `None` if this is unknown.
    pub(crate) fn limits(&self, format: Format, available: Option<u64>) -> Limits {
        let save_every = Duration::from_secs(self.save_minutes.saturating_mul(60));
        Limits { memory: self.memory.or(available), save_every, format }
    }
}
