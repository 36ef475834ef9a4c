//! Arguments of `train` and `resume`.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use taper_run::TrainSettings;
use taper_run::folder::Command;

use crate::arguments::Overrides;

/// Arguments of `train`.
#[derive(Debug, Args)]
pub(crate) struct Train {
    /// The recipe, for example configs/quickstart.toml
    pub(crate) config: PathBuf,
    /// Folder of the run [default: runs/<name of the recipe>]
    #[arg(long, value_name = "DIR")]
    pub(crate) run: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) overrides: Overrides,
    /// Begin with the weights and the tokenizer of a run or of a checkpoint folder
    #[arg(long, value_name = "RUN_OR_CHECKPOINT")]
    pub(crate) from: Option<PathBuf>,
    /// Parts to take from --from: encoder, decoder, embeddings, a module such as encoder.layers.0,
    /// or names of parameters with * and ?; separated by commas
    #[arg(long, value_name = "PARTS", value_delimiter = ',', requires = "from")]
    pub(crate) only: Vec<String>,
    /// With --from, train a new tokenizer for the recipe, and take the embeddings of common tokens
    #[arg(long, requires = "from")]
    pub(crate) own_tokenizer: bool,
    /// Names of parameters that are not trained, with * and ?, such as 'encoder.*', in addition to
    /// training.freeze; may be repeated
    #[arg(long, value_name = "PATTERN")]
    pub(crate) freeze: Vec<String>,
    /// Continue the run if its folder already exists
    #[arg(long)]
    pub(crate) resume: bool,
    /// Prepare, check and measure a few updates, estimate the duration of training, and keep
    /// nothing
    #[arg(long, conflicts_with = "resume")]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) output: TrainOutput,
}

/// Arguments of `resume`.
#[derive(Debug, Args)]
pub(crate) struct Resume {
    /// Folder of the run
    pub(crate) run: PathBuf,
    /// Go back to an earlier checkpoint: best, step-00001000, or the path of a checkpoint folder
    /// [default: last]
    #[arg(long, value_name = "CHECKPOINT")]
    pub(crate) from: Option<String>,
    #[command(flatten)]
    pub(crate) overrides: Overrides,
    #[command(flatten)]
    pub(crate) output: TrainOutput,
}

/// Means of communication between processes that train together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Transport {
    /// TCP, between each pair
    Sockets,
    /// The MPI that has started the processes, in a program built with MPI
    Mpi,
    /// GPU to GPU, in a program built with NCCL; the rest by TCP
    Nccl,
}

impl Transport {
    /// Returns the default means of communication. `by_mpi` is true if MPI's launcher has started
    /// the processes.
    pub(crate) const fn usual(by_mpi: bool) -> Self {
        if by_mpi && cfg!(feature = "mpi") { Self::Mpi } else { Self::Sockets }
    }
}

/// Options that `train` and `resume` share.
#[derive(Debug, Clone, Args)]
pub(crate) struct TrainOutput {
    /// auto, cpu, cuda, cuda:N or metal [default: the recipe's]
    #[arg(long)]
    pub(crate) device: Option<String>,
    /// Number of processes to train with on this machine: they divide its cores and threads and
    /// share the micro-batches of each update; the result equals that of a single process
    #[arg(long, value_name = "N")]
    pub(crate) processes: Option<usize>,
    /// Means of communication between several processes [default: mpi if mpirun has started them
    /// and the program supports it, otherwise sockets]
    #[arg(long, value_name = "WAY", value_enum)]
    pub(crate) exchange: Option<Transport>,
    /// Report as JSON lines on standard output
    #[arg(long)]
    pub(crate) json: bool,
    /// Memory that training may use, for example 4GiB [default: what the system has available]
    #[arg(long, value_name = "SIZE", value_parser = taper_run::checks::memory::parse_bytes)]
    pub(crate) memory: Option<u64>,
    /// Folder for the state if the run's folder cannot take it [default: taper-rescue in the
    /// system's temporary folder]
    #[arg(long, value_name = "DIR")]
    pub(crate) rescue: Option<PathBuf>,
    /// Resume although the text or the recipe's [data] (except for the tokenizer), [model] or dtype
    /// have changed; with --from of `train`, take the parts that fit another [model]
    #[arg(long)]
    pub(crate) accept_changes: bool,
}

impl TrainOutput {
    /// Returns the settings of the training. `from` is the run or checkpoint that gives a new run
    /// its first weights; `None` if the weights are initialised at random.
    pub(crate) fn settings(&self, from: Option<&Path>) -> TrainSettings {
        TrainSettings {
            from: from.map(Path::to_owned),
            device: self.device.clone(),
            memory: self.memory,
            rescue: self.rescue.clone(),
            command: Some(Command::new(env!("CARGO_PKG_VERSION"), typed())),
            accept_changes: self.accept_changes,
            ..TrainSettings::default()
        }
    }
}

/// Returns the command line of this process.
fn typed() -> Vec<String> {
    crate::program::words().map(|word| word.to_string_lossy().into_owned()).collect()
}
