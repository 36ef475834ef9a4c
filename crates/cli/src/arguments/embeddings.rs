//! Arguments of the commands under `embeddings`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use taper_embeddings::Format;
use taper_embeddings::training::{Architecture, Limits, TrainingSettings};

/// The commands under `embeddings`.
#[derive(Debug, Subcommand)]
pub(crate) enum EmbeddingsCommand {
    /// Make vectors of the words of a text: skip-gram or CBOW, with negative sampling
    Train(EmbeddingsTrain),
    /// Continue an interrupted training, exactly where it stands
    Resume(EmbeddingsResume),
    /// The words whose vectors lie nearest
    Nearest(EmbeddingsNearest),
    /// The word that is to C as B is to A
    Analogy(EmbeddingsAnalogy),
    /// Compare vectors with what people say about the similarity of words
    Evaluate(EmbeddingsEvaluate),
    /// Write vectors in another format
    Convert(EmbeddingsConvert),
}

/// Arguments of `embeddings train`.
#[derive(Debug, Args)]
pub(crate) struct EmbeddingsTrain {
    /// Files of text, one sentence a line, words between spaces; .gz, .zst, .xz, .bz2 and .zip are
    /// decompressed
    #[arg(required = true, value_name = "TEXT")]
    pub(crate) files: Vec<PathBuf>,
    /// Folder that receives the vectors, the vocabulary and the state of training
    #[arg(long, short, value_name = "DIR")]
    pub(crate) output: PathBuf,
    /// What predicts what
    #[arg(long, value_enum, default_value = "skip-gram", value_name = "KIND")]
    pub(crate) architecture: ArchitectureChoice,
    /// Numbers of a vector
    #[arg(long, default_value_t = TrainingSettings::default().dimensions, value_name = "N")]
    pub(crate) dimensions: usize,
    /// Words on each side at most; so many as is drawn from 1 to this are used
    #[arg(long, default_value_t = TrainingSettings::default().window, value_name = "N")]
    pub(crate) window: usize,
    /// Words drawn that do not belong to a word, for each that does
    #[arg(long, default_value_t = TrainingSettings::default().negatives, value_name = "N")]
    pub(crate) negatives: usize,
    /// Passes over the text
    #[arg(long, default_value_t = TrainingSettings::default().epochs, value_name = "N")]
    pub(crate) epochs: u64,
    /// The learning rate at the beginning
    #[arg(long, default_value_t = TrainingSettings::default().learning_rate, value_name = "RATE")]
    pub(crate) learning_rate: f64,
    /// The learning rate at the end, to which it falls along a line
    #[arg(long, default_value_t = TrainingSettings::default().last_learning_rate, value_name = "RATE")]
    pub(crate) last_learning_rate: f64,
    /// The part of the text from which on a word is learned from less often; 0 for never
    #[arg(long, default_value_t = TrainingSettings::default().subsampling, value_name = "PART")]
    pub(crate) subsampling: f64,
    /// How often a word must come to get a vector
    #[arg(long, default_value_t = TrainingSettings::default().min_count, value_name = "N")]
    pub(crate) min_count: u64,
    /// Words that get a vector at most, the most frequent [default: all]
    #[arg(long, value_name = "N")]
    pub(crate) max_words: Option<usize>,
    /// Make upper case lower
    #[arg(long)]
    pub(crate) lowercase: bool,
    /// What random numbers are drawn from
    #[arg(long, default_value_t = TrainingSettings::default().seed, value_name = "N")]
    pub(crate) seed: u64,
    /// How the vectors are written
    #[arg(long, value_enum, default_value = "binary")]
    pub(crate) format: FormatChoice,
    #[command(flatten)]
    pub(crate) limits: EmbeddingsLimits,
}

/// Arguments of `embeddings resume`.
#[derive(Debug, Args)]
pub(crate) struct EmbeddingsResume {
    /// The folder of the training
    pub(crate) folder: PathBuf,
    #[command(flatten)]
    pub(crate) limits: EmbeddingsLimits,
}

/// What `embeddings train` and `embeddings resume` share.
#[derive(Debug, Args)]
pub(crate) struct EmbeddingsLimits {
    /// Memory that training may take, for example 4GiB [default: what the system has available]
    #[arg(long, value_name = "SIZE", value_parser = taper_run::checks::memory::parse_bytes)]
    pub(crate) memory: Option<u64>,
    /// Minutes between checkpoints
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) save_minutes: u64,
}

/// Which vectors are asked.
#[derive(Debug, Args)]
pub(crate) struct VectorFile {
    /// A file of vectors, text or binary, or the folder of a training
    pub(crate) vectors: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `embeddings nearest`.
#[derive(Debug, Args)]
pub(crate) struct EmbeddingsNearest {
    #[command(flatten)]
    pub(crate) file: VectorFile,
    /// Words; of several, the mean of their directions is what others are near to
    #[arg(required = true, value_name = "WORD")]
    pub(crate) words: Vec<String>,
    /// How many are named
    #[arg(long, short, default_value_t = 10, value_name = "N")]
    pub(crate) count: usize,
}

/// Arguments of `embeddings analogy`.
#[derive(Debug, Args)]
pub(crate) struct EmbeddingsAnalogy {
    #[command(flatten)]
    pub(crate) file: VectorFile,
    /// As `man`
    #[arg(value_name = "A")]
    pub(crate) a: String,
    /// As `king`
    #[arg(value_name = "B")]
    pub(crate) b: String,
    /// As `woman`
    #[arg(value_name = "C")]
    pub(crate) c: String,
    /// How many are named
    #[arg(long, short, default_value_t = 5, value_name = "N")]
    pub(crate) count: usize,
}

/// Arguments of `embeddings evaluate`.
#[derive(Debug, Args)]
pub(crate) struct EmbeddingsEvaluate {
    #[command(flatten)]
    pub(crate) file: VectorFile,
    /// Files of two words and a judgement a line, as WordSim-353 and SimLex-999 are
    #[arg(required = true, value_name = "PAIRS")]
    pub(crate) sets: Vec<PathBuf>,
}

/// Arguments of `embeddings convert`.
#[derive(Debug, Args)]
pub(crate) struct EmbeddingsConvert {
    /// A file of vectors, text or binary, or the folder of a training
    pub(crate) vectors: PathBuf,
    /// The file to write
    pub(crate) output: PathBuf,
    /// Its format
    #[arg(long, value_enum)]
    pub(crate) format: FormatChoice,
}

/// What predicts what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ArchitectureChoice {
    /// A word predicts each word around it
    SkipGram,
    /// The mean of the words around predicts the word
    Cbow,
}

/// How a file holds vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FormatChoice {
    /// Bytes of 32-bit numbers
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
    /// What the vectors come of.
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
    /// What training may take, where the system has so much memory `available`.
    pub(crate) fn limits(&self, format: Format, available: Option<u64>) -> Limits {
        let save_every = Duration::from_secs(self.save_minutes.saturating_mul(60));
        Limits { memory: self.memory.or(available), save_every, format }
    }
}
