//! Arguments of `train` and `resume`.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use taper_run::TrainSettings;
use taper_run::folder::Command;

use super::Overrides;

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
    /// Begin with the weights, and the tokenizer, of a run or of a checkpoint's folder
    #[arg(long, value_name = "RUN_OR_CHECKPOINT")]
    pub(crate) from: Option<PathBuf>,
    /// Take these alone of --from: encoder, decoder, embeddings, a module such as encoder.layers.0, or
    /// names of parameters with * and ?; with commas between them
    #[arg(long, value_name = "PARTS", value_delimiter = ',', requires = "from")]
    pub(crate) only: Vec<String>,
    /// With --from, have a tokenizer of the recipe's own, and take the embeddings of the tokens that
    /// both have
    #[arg(long, requires = "from")]
    pub(crate) own_tokenizer: bool,
    /// Parameters that are not trained, by their names with * and ?, such as 'encoder.*': further ones
    /// to training.freeze; may be repeated
    #[arg(long, value_name = "PATTERN")]
    pub(crate) freeze: Vec<String>,
    /// Continue the run if its folder exists already
    #[arg(long)]
    pub(crate) resume: bool,
    /// Prepare, check and measure a few updates, say how long training will take, and keep nothing
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

/// How processes that train together talk to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Way {
    /// By TCP, each with each
    Sockets,
    /// By the MPI that has started them, in a program that was built with it
    Mpi,
    /// From GPU to GPU, in a program that was built with NCCL; the rest by TCP
    Nccl,
}

impl Way {
    /// The way of processes that MPI's own program has started, or not.
    pub(crate) const fn usual(by_mpi: bool) -> Self {
        if by_mpi && cfg!(feature = "mpi") { Self::Mpi } else { Self::Sockets }
    }
}

/// What `train` and `resume` share.
#[derive(Debug, Clone, Args)]
pub(crate) struct TrainOutput {
    /// auto, cpu, cuda, cuda:N or metal [default: the recipe's]
    #[arg(long)]
    pub(crate) device: Option<String>,
    /// Train with so many processes of this machine, which divide its cores and threads; they share
    /// the micro-batches of each update, and the result is that of one
    #[arg(long, value_name = "N")]
    pub(crate) processes: Option<usize>,
    /// How several processes talk to each other [default: mpi where mpirun has started them and the
    /// program knows it, otherwise sockets]
    #[arg(long, value_name = "WAY", value_enum)]
    pub(crate) exchange: Option<Way>,
    /// Report as JSON lines on standard output
    #[arg(long)]
    pub(crate) json: bool,
    /// Memory that training may take, for example 4GiB [default: what the system has available]
    #[arg(long, value_name = "SIZE", value_parser = taper_run::checks::memory::parse_bytes)]
    pub(crate) memory: Option<u64>,
    /// Where the state is saved if the run's folder takes no more [default: taper-rescue in the
    /// system's temporary folder]
    #[arg(long, value_name = "DIR")]
    pub(crate) rescue: Option<PathBuf>,
    /// Resume although the text or the recipe's [data] (but for the tokenizer), [model] or dtype
    /// have changed; with --from of `train`, take what fits another [model]
    #[arg(long)]
    pub(crate) accept_changes: bool,
}

impl TrainOutput {
    /// What of these options is for the training itself; a new one may begin with the weights of
    /// another run, or of a checkpoint.
    pub(crate) fn settings(&self, from: Option<&Path>) -> TrainSettings {
        TrainSettings {
            from: from.map(Path::to_owned),
            device: self.device.clone(),
            memory: self.memory,
            rescue: self.rescue.clone(),
            command: Some(Command::of(env!("CARGO_PKG_VERSION"), typed())),
            accept_changes: self.accept_changes,
            ..TrainSettings::default()
        }
    }
}

/// The command line of this process.
fn typed() -> Vec<String> {
    std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect()
}
