//! Whether a recipe fits into memory, known before the first update.
//!
//! The largest batch that the recipe allows is tried: its loss and gradients are computed and
//! dropped, and the system says how much memory that took. An estimate by formula would have to
//! know every buffer of every operation; what is measured needs no upkeep. The estimate of
//! [`crate::checks::cost`] only keeps the trial itself from exhausting the memory.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use candle_core::Device;
use taper_data::{AUTO, Dataset, Prepared, TokenizerPair};
use taper_model::{Batch, Model, Transformer};
use taper_trainer::{TrainingConfig, rehearse};

use crate::checks::cost::{Cost, bytes, grouped, training_state_bytes};
use crate::config::RunConfig;
use crate::training::packed;

/// The largest budget that is looked for: the batches of Vaswani et al. 2017, section 5.1. Larger
/// ones are a decision about the training, not about memory.
const MOST_TOKENS: usize = 25_000;
/// The smallest.
const LEAST_TOKENS: usize = 64;
/// What a trial may exceed its prediction by before a smaller budget is tried.
const HEADROOM: f64 = 0.93;

/// Tries the largest batch of `config` on `model` and returns the token budget of the batches: the
/// configured one, or for `"auto"` the largest that fits. `budget` is the memory in bytes that the
/// whole process may take; without one, what the system has available.
///
/// # Errors
/// When the batch does not fit, with a token budget that does.
pub fn fit(
    config: &RunConfig,
    model: &Transformer,
    prepared: &Prepared,
    budget: Option<u64>,
) -> Result<usize> {
    let trial = Trial::new(config, model, prepared)?;
    let limit = limit(budget);
    let wanted = config.data.batching.max_tokens;
    if wanted != AUTO {
        // Where it may not fit, smaller ones are tried first: the most that the process has had
        // never falls.
        let is_close = trial.estimate(wanted) > limit;
        let fitting = if is_close { trial.largest(limit, wanted)? } else { None };
        if fitting == Some(wanted) {
            return Ok(wanted);
        }
        let needed = trial.needed(wanted, limit).with_context(|| too_large(wanted))?;
        if needed > limit {
            let advice = match fitting {
                Some(tokens) => {
                    // The next process may take a tenth more for the same: it depends on which
                    // thread computes what.
                    let advised = (tokens - tokens / 8).max(LEAST_TOKENS.min(tokens));
                    format!("set data.batching.max_tokens = {advised}, which fits, or \"auto\"")
                }
                None if is_close => "no batch fits: use a smaller model or more memory".to_owned(),
                None => "set a smaller data.batching.max_tokens, or \"auto\"".to_owned(),
            };
            bail!(
                "training takes {} with batches of {wanted} tokens, but may take {}{}; {advice}",
                bytes(needed),
                bytes(limit),
                origin(budget),
            );
        }
        return Ok(wanted);
    }
    match trial.largest(limit, MOST_TOKENS)? {
        Some(tokens) => Ok(tokens),
        None => bail!(
            "data.batching.max_tokens = \"auto\": not even batches of {LEAST_TOKENS} tokens fit into {}",
            bytes(limit)
        ),
    }
}

/// Refuses a model of which not even weights, gradients and moments fit, before memory is taken for
/// any of them.
///
/// # Errors
/// With its size and the memory there is.
pub fn require_state(
    config: &RunConfig,
    tokenizers: &TokenizerPair,
    budget: Option<u64>,
) -> Result<()> {
    let (source, target) = (tokenizers.source(), tokenizers.target());
    let parameters = parameters(config, source.vocabulary_size(), target.vocabulary_size());
    require_room(
        parameters,
        training_state_bytes(config, parameters),
        "weights, gradients and moments",
        budget,
    )
}

/// Refuses a model whose weights alone do not fit, before memory is taken for them.
///
/// # Errors
/// With its size and the memory there is.
pub fn require_weights(config: &RunConfig, source: usize, target: usize) -> Result<()> {
    let parameters = parameters(config, source, target);
    require_room(parameters, parameters.saturating_mul(4), "weights", None)
}

/// The trained scalars of the model that `config` describes.
fn parameters(config: &RunConfig, source: usize, target: usize) -> u64 {
    Transformer::cost_of(&config.model, source, target, &Device::Cpu).parameters
}

/// Refuses a model of so many parameters where the bytes `needed` for `what` exceed what the
/// process may take.
fn require_room(parameters: u64, needed: u64, what: &str, budget: Option<u64>) -> Result<()> {
    let limit = limit(budget);
    if needed > limit {
        bail!(
            "a model of {} parameters takes {} for {what} alone, but may take {}{}; make [model] or the vocabulary smaller, or use more memory",
            grouped(parameters),
            bytes(needed),
            bytes(limit),
            origin(budget)
        );
    }
    Ok(())
}

/// The bytes that the process may take. On a system that says nothing the trial alone must do: a
/// device without memory left fails it.
fn limit(budget: Option<u64>) -> u64 {
    budget.or_else(|| available().map(|free| resident().unwrap_or(0) + free)).unwrap_or(u64::MAX)
}

/// Where such a limit comes from, in an error.
fn origin(budget: Option<u64>) -> &'static str {
    if budget.is_some() { " (--memory)" } else { "" }
}

/// Reads `4GiB`, `512 MB` or a number of bytes.
///
/// # Errors
/// When it is none of these, in words for the command line.
pub fn parse_bytes(text: &str) -> std::result::Result<u64, String> {
    let split = text
        .find(|character: char| !character.is_ascii_digit() && character != '.')
        .unwrap_or(text.len());
    let (number, unit) = (&text[..split], text[split..].trim());
    let factor = match unit {
        "" | "B" => 1.0,
        "KiB" => 1024.0,
        "MiB" => f64::from(1 << 20),
        "GiB" => f64::from(1 << 30),
        "KB" | "kB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        _ => return Err(format!("unknown unit `{unit}`: expected MiB, GiB, MB or GB, as in 4GiB")),
    };
    match number.parse::<f64>() {
        Ok(number) if number > 0.0 => Ok((number * factor) as u64),
        _ => Err(format!("`{number}` is not a size: expected for example 4GiB")),
    }
}

fn too_large(tokens: usize) -> String {
    format!(
        "the largest batch of data.batching.max_tokens = {tokens} cannot be computed; a smaller value or \"auto\" may help"
    )
}

/// Trials of one model.
struct Trial<'a> {
    model: &'a Transformer,
    training: &'a TrainingConfig,
    /// What is trained on.
    data: Arc<dyn Dataset>,
    /// How many times as many tokens as its budget a batch may have: more than 1 where subwords
    /// are sampled.
    growth: f64,
    /// What the trial does not touch: the optimizer's state, the moving average, and the gradients
    /// of all micro-batches but the one at hand.
    state_bytes: u64,
    /// The gradients and the copies that saving a checkpoint makes: of weights, optimizer state and
    /// moving average as tensors; of the state, and of the weights beside a moving average, as a
    /// file.
    saving_bytes: u64,
}

impl<'a> Trial<'a> {
    fn new(config: &'a RunConfig, model: &'a Transformer, prepared: &Prepared) -> Result<Self> {
        let cost = Cost::of(config, model, model.device());
        let weights = 4 * cost.parameters;
        let data = Arc::clone(&prepared.train);
        let growth = Arc::clone(&data).growth(&config.data.batching, config.training.seed)?;
        Ok(Self {
            model,
            training: &config.training,
            data,
            growth,
            state_bytes: cost.training_state_bytes - 2 * weights,
            saving_bytes: (2 + 2 * config.training.state_buffers()) * weights,
        })
    }

    /// The tokens that a batch of budget `tokens` may have.
    fn grown(&self, tokens: usize) -> usize {
        (tokens as f64 * self.growth).ceil() as usize
    }

    /// Bytes of the process during an update, by formula.
    fn estimate(&self, tokens: usize) -> u64 {
        let tokens = self.grown(tokens) * self.training.objective().passes();
        let activations = self.model.cost().activation_bytes(&[tokens; 2]);
        resident().unwrap_or(0) + self.state_bytes + activations.max(self.saving_bytes)
    }

    /// Bytes of the process during training with batches of so many tokens; by formula where a
    /// trial would itself exceed `limit` by far.
    fn needed(&self, tokens: usize, limit: u64) -> Result<u64> {
        match self.estimate(tokens) {
            estimate if estimate / 2 > limit => Ok(estimate),
            _ => self.run(tokens),
        }
    }

    /// Bytes of the process at the height of an update with batches of so many tokens: as measured
    /// where the system measures, else by formula.
    fn run(&self, tokens: usize) -> Result<u64> {
        let before = resident().unwrap_or(0);
        rehearse(self.model, self.training, &self.largest_batch(tokens))?;
        Ok(peak().map_or_else(
            || self.estimate(tokens),
            |peak| peak.max(before + self.saving_bytes) + self.state_bytes,
        ))
    }

    /// The largest budget up to `most` whose batches keep the process below `limit` bytes. Tried in
    /// ascending order, since the system gives the largest amount so far.
    fn largest(&self, limit: u64, most: usize) -> Result<Option<usize>> {
        let (mut fitting, mut tokens, mut at_fitting) = (None, LEAST_TOKENS.min(most), 0);
        loop {
            // A device without memory left says so by an error.
            let needed = self.needed(tokens, limit).unwrap_or(u64::MAX);
            if needed > limit {
                return Ok(fitting);
            }
            let grown = tokens - fitting.unwrap_or(0);
            let slope = (needed.saturating_sub(at_fitting) as f64 / grown as f64).max(1.0);
            let is_first = fitting.is_none();
            (fitting, at_fitting) = (Some(tokens), needed);
            if tokens == most {
                return Ok(fitting);
            }
            // What the last step cost for each token predicts where the limit lies; early steps,
            // that the process had memory for anyway, predict too much.
            let predicted = (tokens as f64 + HEADROOM * (limit - needed) as f64 / slope) as usize;
            // Nearly all that the first one takes is there without any batch.
            let next = if is_first { 4 * tokens } else { predicted.min(4 * tokens) }.min(most);
            // To a multiple of 64, and no closer to the limit than a sixteenth.
            let next = if next == most { next } else { next / 64 * 64 };
            if next < most.min(tokens + tokens / 16) {
                return Ok(fitting);
            }
            tokens = next;
        }
    }

    /// A batch as large as its budget allows.
    fn largest_batch(&self, tokens: usize) -> Batch {
        packed(self.data.largest_batch(self.grown(tokens)))
    }
}

/// The most memory that the process has had so far, in bytes, where the system tells.
pub fn peak() -> Option<u64> {
    status("VmHWM:")
}

/// The memory that the process has now.
fn resident() -> Option<u64> {
    status("VmRSS:")
}

/// The memory that could be had without swapping, and without exceeding what a container, a batch
/// system or `ulimit -v` allows.
pub(crate) fn available() -> Option<u64> {
    let free = figure("/proc/meminfo", "MemAvailable:");
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let allowed = left_to_groups(&groups, Path::new("/sys/fs/cgroup"));
    free.into_iter().chain(allowed).chain(left_of_addresses()).min()
}

/// What the addresses that the process may still ask for hold: half as much, since the allocator
/// asks for more than is used.
#[cfg(target_os = "linux")]
fn left_of_addresses() -> Option<u64> {
    use rustix::process::{Resource, getrlimit};
    Some(getrlimit(Resource::As).current?.saturating_sub(status("VmSize:")?) / 2)
}

#[cfg(not(target_os = "linux"))]
fn left_of_addresses() -> Option<u64> {
    None
}

/// The memory that the control groups of a process, listed in `groups` as /proc/self/cgroup lists
/// them, leave it: the least over each group and those that hold it. Versions 1 and 2 of the
/// interface, mounted at `root`.
fn left_to_groups(groups: &str, root: &Path) -> Option<u64> {
    let mut left = None;
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) =
            (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let (mounted, most, used, cached) = if controllers.is_empty() {
            (root.to_owned(), "memory.max", "memory.current", "inactive_file ")
        } else if controllers.split(',').any(|controller| controller == "memory") {
            (
                root.join("memory"),
                "memory.limit_in_bytes",
                "memory.usage_in_bytes",
                "total_inactive_file ",
            )
        } else {
            continue;
        };
        // In a container the path may be that of the host, of which only the root is mounted.
        let path = path.trim_start_matches('/');
        for group in Path::new(path).ancestors().map(|path| mounted.join(path)) {
            let number =
                |name: &str| fs::read_to_string(group.join(name)).ok()?.trim().parse::<u64>().ok();
            let (Some(most), Some(used)) = (number(most), number(used)) else { continue };
            // Pages of files count as used, but make room.
            let statistics = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
            let cached = statistics
                .lines()
                .find_map(|line| line.strip_prefix(cached)?.trim().parse::<u64>().ok());
            let here = most.saturating_sub(used.saturating_sub(cached.unwrap_or(0)));
            left = Some(left.map_or(here, |least: u64| least.min(here)));
        }
    }
    left
}

fn status(key: &str) -> Option<u64> {
    figure("/proc/self/status", key)
}

/// A figure of Linux's process file system, in bytes; nothing elsewhere.
fn figure(path: &str, key: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_their_units() {
        assert_eq!(parse_bytes("4GiB"), Ok(4 << 30));
        assert_eq!(parse_bytes("1.5 MB"), Ok(1_500_000));
        assert_eq!(parse_bytes("123"), Ok(123));
        for wrong in ["", "GiB", "4 apples", "-1", "0", "1e400"] {
            assert!(parse_bytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn control_groups_limit_the_memory() {
        let folder = tempfile::tempdir().expect("folder");
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().expect("parent")).expect("folder");
            fs::write(path, text).expect("file");
        };
        let left = |groups: &str| left_to_groups(groups, folder.path());
        assert_eq!(left("0::/job/step"), None);
        write("job/step/memory.max", "max\n");
        write("job/step/memory.current", "5000\n");
        assert_eq!(left("0::/job/step"), None, "a group without a limit");
        write("job/memory.max", "10000\n");
        write("job/memory.current", "7000\n");
        assert_eq!(left("0::/job/step"), Some(3000), "the group that holds it has one");
        write("job/memory.stat", "anon 4000\ninactive_file 2000\nactive_file 1000\n");
        assert_eq!(left("0::/job/step\n"), Some(5000));
        write("job/step/memory.max", "5500");
        assert_eq!(left("0::/job/step\n"), Some(500));
        // Version 1, in a container that sees its own group at the root.
        write("memory/memory.limit_in_bytes", "900\n");
        write("memory/memory.usage_in_bytes", "200\n");
        assert_eq!(left("5:cpu,cpuacct:/x\n4:memory:/docker/0123\n"), Some(700));
        assert_eq!(left("nonsense"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_system_says_how_much_memory_there_is() {
        let (now, most) = (resident().expect("resident"), peak().expect("peak"));
        assert!(now > 1 << 20 && most >= now, "{now} {most}");
        assert!(available().expect("available") > 1 << 20);
    }
}
