//! The command line: every command, flag and help text.

mod bleu;

use std::num::NonZero;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::{Args, Parser, Subcommand, ValueEnum};
use taper_decoding::DecodingConfig;
use taper_run::{LoadSettings, LoadedRun, TrainSettings};

pub(crate) use bleu::{Bleu, Metric, OutputFormat};

use crate::decoding_arguments::{BenchDecode, Control, OverlongArguments};

/// Train, resume, translate and evaluate Transformer translation models.
#[derive(Debug, Parser)]
#[command(name = "taper", version, about, propagate_version = true)]
pub(crate) struct Arguments {
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

/// The commands, one module each in `commands/`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Train a model from a recipe (a TOML file)
    Train(Train),
    /// Continue an interrupted run, exactly where its last checkpoint stands
    Resume(Resume),
    /// Translate standard input, a file, or what you type at a terminal
    Translate(Translate),
    /// Decode the test sets of a run and score them
    Evaluate(Evaluate),
    /// Log-probabilities that a run's model gives to existing translations
    Score(Score),
    /// Score a translation against one or more references, as sacreBLEU does
    Bleu(Box<Bleu>),
    /// Measure speed and memory
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Average the weights of a run's last checkpoints
    Average(Average),
    /// Train a tokenizer, or apply one
    #[command(subcommand)]
    Tokenizer(TokenizerCommand),
    /// Layers, parameters, FLOPs per token and memory of a run or a recipe
    Inspect(Inspect),
    /// Show a recipe with every default written out, or check it
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Print a completion script for a shell
    Completions(Completions),
}

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
    /// Continue the run if its folder exists already
    #[arg(long)]
    pub(crate) resume: bool,
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

/// What `train` and `resume` share.
#[derive(Debug, Args)]
pub(crate) struct TrainOutput {
    /// auto, cpu, cuda, cuda:N or metal [default: the recipe's]
    #[arg(long)]
    pub(crate) device: Option<String>,
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
    /// What of these options is for the training itself.
    pub(crate) fn settings(&self) -> TrainSettings {
        TrainSettings {
            device: self.device.clone(),
            memory: self.memory,
            rescue: self.rescue.clone(),
            accept_changes: self.accept_changes,
        }
    }
}

/// Overrides of single keys.
#[derive(Debug, Args)]
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
}

impl Weights {
    /// Loads the run at `root` with these weights and with `overrides` of its recipe.
    ///
    /// # Errors
    /// As [`LoadedRun::open`].
    pub(crate) fn load(&self, root: &Path, overrides: &[String]) -> Result<LoadedRun> {
        let (checkpoint, device) = (self.checkpoint.clone(), self.device.clone());
        LoadedRun::open(root, &LoadSettings { checkpoint, device, overrides: overrides.to_vec() })
    }
}

/// How to search for translations.
#[derive(Debug, Args)]
pub(crate) struct Search {
    /// Hypotheses kept at each step; 1 is greedy search [default: the run's]
    #[arg(long)]
    pub(crate) beam: Option<usize>,
    /// Exponent of the length penalty [default: the run's]
    #[arg(long, value_name = "ALPHA")]
    pub(crate) length_penalty: Option<f64>,
}

impl Search {
    /// Puts the options, and the number of translations that are asked for, into `config`.
    ///
    /// # Errors
    /// When the result cannot be searched with.
    pub(crate) fn apply(&self, config: &mut DecodingConfig, n_best: Option<usize>) -> Result<()> {
        if let Some(beam) = self.beam {
            if config.sampling.is_active() {
                bail!(
                    "--beam has no effect where translations are drawn: leave it out, or the options of drawing; where the recipe draws, search with --set decoding.sampling.temperature=0"
                );
            }
            config.beam_size = beam;
            config.n_best = config.n_best.min(beam.max(1));
        }
        if let Some(n_best) = n_best {
            config.n_best = n_best;
            // Asking for n translations without a beam means at least as wide a self.
            if self.beam.is_none() && !config.sampling.is_active() {
                config.beam_size = config.beam_size.max(n_best);
            }
        }
        if let Some(alpha) = self.length_penalty {
            config.length_penalty = alpha;
        }
        config.validate()?;
        Ok(())
    }
}

/// Arguments of `translate`.
#[derive(Debug, Args)]
pub(crate) struct Translate {
    /// Folder of the run
    pub(crate) run: PathBuf,
    /// Text to translate, one sentence a line [default: standard input]
    #[arg(long, short, value_name = "FILE")]
    pub(crate) input: Option<PathBuf>,
    /// Where the translations go, by way of FILE.part [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) search: Search,
    /// Print the N best translations of each line with their scores, tab-separated
    #[arg(long, value_name = "N")]
    pub(crate) n_best: Option<usize>,
    #[command(flatten)]
    pub(crate) control: Control,
    /// Lines that are read, translated and written together; with 1 each line of a pipe is
    /// answered before the next is read [default: 128, growing to 4096]
    #[arg(long, value_name = "LINES")]
    pub(crate) window: Option<NonZero<usize>>,
    /// What each translation must begin with, one line for each line of the input
    #[arg(long, value_name = "FILE")]
    pub(crate) prefix: Option<PathBuf>,
    /// More runs or checkpoint folders that decide together with RUN; they need its tokenizer
    #[arg(long, value_name = "RUN_OR_CHECKPOINT", num_args = 1..)]
    pub(crate) ensemble: Vec<PathBuf>,
    /// Add to each translation a tab and its alignment, as source-target pairs of token positions
    /// from 0
    #[arg(long)]
    pub(crate) alignments: bool,
    #[command(flatten)]
    pub(crate) overlong: OverlongArguments,
    #[command(flatten)]
    pub(crate) weights: Weights,
    #[command(flatten)]
    pub(crate) overrides: Overrides,
    /// One JSON object a line: line number, source, translations with scores
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `evaluate`.
#[derive(Debug, Args)]
pub(crate) struct Evaluate {
    /// Folder of the run
    pub(crate) run: PathBuf,
    /// Stem of a split of the run's data, for example val; may be repeated [default: data.test]
    #[arg(long, value_name = "NAME")]
    pub(crate) split: Vec<String>,
    #[command(flatten)]
    pub(crate) search: Search,
    #[command(flatten)]
    pub(crate) weights: Weights,
    #[command(flatten)]
    pub(crate) overrides: Overrides,
    /// Print the scores as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `score`.
#[derive(Debug, Args)]
pub(crate) struct Score {
    /// Folder of the run
    pub(crate) run: PathBuf,
    /// Source sentences, one a line
    #[arg(long, value_name = "FILE")]
    pub(crate) source: PathBuf,
    /// Their translations, one a line
    #[arg(long, value_name = "FILE")]
    pub(crate) target: PathBuf,
    /// The most tokens of a line; a longer one is refused [default: the run's
    /// data.cleaning.max_tokens, the most it was trained on]
    #[arg(long, value_name = "N")]
    pub(crate) max_tokens: Option<usize>,
    #[command(flatten)]
    pub(crate) weights: Weights,
    /// One JSON object a line, with the log-probability of each token
    #[arg(long)]
    pub(crate) json: bool,
}

/// The commands under `bench`.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Training steps on batches from a file: forward, loss, backward, clipping, Adam
    Train(BenchTrain),
    /// Translate a text: sentences and tokens per second, time to the first translation, peak
    /// memory
    Decode(BenchDecode),
}

/// Arguments of `average`.
#[derive(Debug, Args)]
pub(crate) struct Average {
    /// Folder of the run
    pub(crate) run: PathBuf,
    /// How many of the newest checkpoints to average [default: the run's training.average_last,
    /// else all]
    #[arg(long, value_name = "K")]
    pub(crate) last: Option<usize>,
}

/// The commands under `tokenizer`.
#[derive(Debug, Subcommand)]
pub(crate) enum TokenizerCommand {
    /// Train the tokenizer that a recipe describes
    Train(TokenizerTrain),
    /// Text to token ids (or pieces), one line at a time from standard input
    Encode(TokenizerEncode),
    /// Token ids back to text, one line at a time from standard input
    Decode(TokenizerFile),
}

/// Arguments of `tokenizer train`.
#[derive(Debug, Args)]
pub(crate) struct TokenizerTrain {
    /// The recipe
    pub(crate) config: PathBuf,
    /// Folder that receives the tokenizer
    #[arg(long, short, value_name = "DIR")]
    pub(crate) output: PathBuf,
    #[command(flatten)]
    pub(crate) overrides: Overrides,
}

/// Which tokenizer file to use.
#[derive(Debug, Args)]
pub(crate) struct TokenizerFile {
    /// A tokenizer.json, or the folder of a run
    pub(crate) tokenizer: PathBuf,
    /// Of a run with two tokenizers, use the target side's
    #[arg(long)]
    pub(crate) target: bool,
}

/// Arguments of `tokenizer encode`.
#[derive(Debug, Args)]
pub(crate) struct TokenizerEncode {
    #[command(flatten)]
    pub(crate) file: TokenizerFile,
    /// Print pieces of text instead of ids
    #[arg(long)]
    pub(crate) pieces: bool,
}

/// Arguments of `inspect`.
#[derive(Debug, Args)]
pub(crate) struct Inspect {
    /// Folder of a run, or a recipe
    pub(crate) target: PathBuf,
    #[command(flatten)]
    pub(crate) overrides: Overrides,
    /// Print as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The commands under `config`.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print the resolved recipe, every default written out
    Show(ConfigFile),
    /// Check keys, types and combinations; train nothing
    Check(ConfigFile),
}

/// A recipe with overrides.
#[derive(Debug, Args)]
pub(crate) struct ConfigFile {
    /// The recipe
    pub(crate) config: PathBuf,
    #[command(flatten)]
    pub(crate) overrides: Overrides,
    /// Print as JSON
    #[arg(long)]
    pub(crate) json: bool,
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
    /// f32, or bf16 for matrix products (on a GPU: for all activations)
    #[arg(long, default_value = "f32")]
    pub(crate) dtype: String,
    /// auto, cpu, cuda, cuda:N or metal
    #[arg(long, default_value = "cpu")]
    pub(crate) device: String,
    /// Threads on the CPU [default: all cores]
    #[arg(long)]
    pub(crate) threads: Option<usize>,
    /// Steps that are measured
    #[arg(long, default_value_t = 20)]
    pub(crate) steps: usize,
    /// Steps before them
    #[arg(long, default_value_t = 3)]
    pub(crate) warmup: usize,
    /// Entries of the vocabulary
    #[arg(long, default_value_t = 10_000)]
    pub(crate) vocab: usize,
    /// R-Drop's α: each batch passes through the model twice
    #[arg(long, value_name = "ALPHA", default_value_t = 0.0)]
    pub(crate) r_drop: f64,
    /// Every dropout rate [default: the preset's]
    #[arg(long)]
    pub(crate) dropout: Option<f64>,
    /// Plain Candle operations and autodiff instead of the fused ones
    #[arg(long)]
    pub(crate) composed: bool,
    /// Print the measurements as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Shapes of models that papers measure.
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

/// Arguments of `completions`.
#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell
    pub(crate) shell: clap_complete::Shell,
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
