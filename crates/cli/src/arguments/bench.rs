//! Arguments of the commands under `bench`.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::{Search, Weights};

/// Commands under `bench`.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Training steps on batches from a file: forward, loss, backward, clipping, Adam
    Train(BenchTrain),
    /// Translate a text: sentences and tokens per second, time to the first translation, peak
    /// memory
    Decode(BenchDecode),
    /// Multiply matrices of the shapes of training, with each kernel of this machine, and compare
    /// with the processor's speed on registers alone; on a GPU, run each kernel of a training step,
    /// and compare its bytes per second with those of a copy
    Kernels(BenchKernels),
    /// Attention alone, of each kind at each length: time, memory, and their growth
    Attention(BenchAttention),
    /// Updates of several processes over simulated networks of given speeds: the time of an update,
    /// and the share of the speed without a network that remains; with an exchange that begins when
    /// all gradients are computed, and with one that begins earlier
    Network(BenchNetwork),
}

/// Arguments of `bench train`.
#[derive(Debug, Args)]
pub(crate) struct BenchTrain {
    /// Batches: a safetensors file with int32 `src.N` and `tgt.N`, padded with 0, targets with
    /// begin and end symbols
    #[arg(long, value_name = "FILE")]
    pub(crate) batches: PathBuf,
    /// Shape of the model
    #[arg(long, value_enum, default_value = "base")]
    pub(crate) preset: Preset,
    /// Recipe whose `[model]` is used instead of --preset
    #[arg(long, value_name = "CONFIG", conflicts_with = "preset")]
    pub(crate) recipe: Option<PathBuf>,
    /// f32, bf16 for matrix products (on a GPU: for all activations), or auto for the faster of
    /// them
    #[arg(long, default_value = "f32")]
    pub(crate) dtype: String,
    /// auto, cpu, cuda, cuda:N or metal
    #[arg(long, default_value = "cpu")]
    pub(crate) device: String,
    /// Number of measured steps
    #[arg(long, default_value_t = 20)]
    pub(crate) steps: usize,
    /// Number of steps before the measured ones
    #[arg(long, default_value_t = 3)]
    pub(crate) warmup: usize,
    /// Vocabulary size
    #[arg(long, default_value_t = 10_000)]
    pub(crate) vocab: usize,
    /// R-Drop's α; each batch passes through the model twice
    #[arg(long, value_name = "ALPHA", default_value_t = 0.0)]
    pub(crate) r_drop: f64,
    /// Rate of all dropouts [default: the preset's]
    #[arg(long)]
    pub(crate) dropout: Option<f64>,
    /// Use plain Candle operations and autodiff instead of the fused operations
    #[arg(long)]
    pub(crate) composed: bool,
    /// Predict the times on these numbers of cores, from the time of each parallel region on one
    /// thread and its number of tasks; needs `--threads 1`
    #[arg(long, value_name = "N,…", value_delimiter = ',', conflicts_with = "composed")]
    pub(crate) cores: Vec<NonZeroUsize>,
    /// Print the measurements as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `bench network`.
#[derive(Debug, Args)]
pub(crate) struct BenchNetwork {
    /// Batches, as for `bench train`
    #[arg(long, value_name = "FILE")]
    pub(crate) batches: PathBuf,
    /// Shape of the model
    #[arg(long, value_enum, default_value = "base")]
    pub(crate) preset: Preset,
    /// f32, bf16 for matrix products, or auto for the faster of them
    #[arg(long, default_value = "f32")]
    pub(crate) dtype: String,
    /// Sending rate of each process, in gigabits per second
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,10")]
    pub(crate) gigabits: Vec<f64>,
    /// Delay of every transfer, in microseconds
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub(crate) delay: u64,
    /// Number of processes, which share the threads
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub(crate) processes: usize,
    /// MiB of gradients that are exchanged at a time
    #[arg(long, value_name = "N", default_value_t = 25.0)]
    pub(crate) bucket_mib: f64,
    /// Number of measured updates; the first update is not measured
    #[arg(long, default_value_t = 3)]
    pub(crate) steps: usize,
    /// Vocabulary size
    #[arg(long, default_value_t = 10_000)]
    pub(crate) vocab: usize,
    /// Print the measurements as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Model shapes that papers measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Preset {
    /// 4 + 4 layers, width 128, feed-forward 256, 4 heads, dropout 0.3
    Tiny,
    /// 4 + 4 layers, width 256, feed-forward 1024, 4 heads, dropout 0.3
    Small,
    /// 6 + 6 layers, width 512, feed-forward 2048, 8 heads, dropout 0.1
    Base,
    /// 6 + 6 layers, width 1024, feed-forward 4096, 16 heads, dropout 0.3
    Big,
}

/// Arguments of `bench decode`.
#[derive(Debug, Args)]
pub(crate) struct BenchDecode {
    /// Folder of the run
    pub(crate) run: PathBuf,
    /// Text to translate, one sentence per line
    #[arg(long, short, value_name = "FILE")]
    pub(crate) input: PathBuf,
    /// Number of times the text is translated; rates are medians
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub(crate) repeats: usize,
    #[command(flatten)]
    pub(crate) search: Search,
    #[command(flatten)]
    pub(crate) weights: Weights,
    /// Override one key of the run's configuration; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Print as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `bench kernels`.
#[derive(Debug, Args)]
pub(crate) struct BenchKernels {
    /// Layers with this text in their name, such as `base` or `feed-forward, in`; on a GPU, `base`
    /// or `big`
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) layers: String,
    /// Number of rows of a layer's input: the tokens of a batch [default: 3000; 25000 on a GPU]
    #[arg(long, value_name = "N")]
    pub(crate) rows: Option<usize>,
    /// cpu, cuda or cuda:N
    #[arg(long, default_value = "cpu")]
    pub(crate) device: String,
    /// Numbers of threads; each gives one table
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,2")]
    pub(crate) threads: Vec<usize>,
    /// Number of times each product is timed; the shortest time is reported
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) repeats: usize,
    /// Print as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `bench attention`.
#[derive(Debug, Args)]
pub(crate) struct BenchAttention {
    /// Kinds of attention, by their names in a recipe [default: all kinds that an encoder can have
    /// or, with --causal, a decoder]
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    pub(crate) kinds: Vec<String>,
    /// Number of tokens of a sequence; if it is below 2048, a batch has several sequences, with
    /// 2048 tokens in all
    #[arg(
        long,
        value_name = "N",
        value_delimiter = ',',
        default_value = "512,1024,2048,4096,8192"
    )]
    pub(crate) lengths: Vec<usize>,
    /// Heads
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub(crate) heads: usize,
    /// Width of a head
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub(crate) head_width: usize,
    /// Window of sparse attention
    #[arg(long, value_name = "TOKENS", default_value_t = 256)]
    pub(crate) window: usize,
    /// Hide later tokens from each token
    #[arg(long)]
    pub(crate) causal: bool,
    /// Seconds for which each measurement is repeated; the shortest time is reported
    #[arg(long, value_name = "S", default_value_t = 1.0)]
    pub(crate) seconds: f64,
    /// Print as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Draw a chart into this file: the time of a forward and backward pass by the length of a
    /// sequence, with logarithmic axes
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
}
