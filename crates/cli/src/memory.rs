//! Whether a recipe fits into memory, known before the first update.
//!
//! The largest batch that the recipe allows is tried: its loss and gradients are computed and dropped, and the system says how
//! much memory that took. An estimate by formula would have to know every buffer of every operation; what is measured needs no
//! upkeep. The estimate of [`crate::cost`] only keeps the trial itself from exhausting the memory.

use anyhow::{Context, Result, bail};
use taper_data::{AUTO, DataReport};
use taper_model::{Sequences, Transformer};
use taper_trainer::{MicroBatch, TrainingConfig, rehearse};

use crate::config::RunConfig;
use crate::cost::{Cost, activation_bytes, bytes};

/// The largest budget that is looked for: the batches of Vaswani et al. 2017, section 5.1. Larger ones are a decision about
/// the training, not about memory.
const MOST_TOKENS: usize = 25_000;
/// The smallest.
const LEAST_TOKENS: usize = 64;
/// What a trial may exceed its prediction by before a smaller budget is tried.
const HEADROOM: f64 = 0.93;

/// Tries the largest batch of `config` on `model` and returns the token budget of the batches: the configured one, or for
/// `"auto"` the largest that fits. `budget` is the memory in bytes that the whole process may take; without one, what the
/// system has available.
///
/// # Errors
/// When the batch does not fit, with a token budget that does.
pub(crate) fn fit(config: &RunConfig, model: &Transformer, report: &DataReport, budget: Option<u64>) -> Result<usize> {
    let trial = Trial::new(config, model, report);
    // On a system that says nothing the trial alone must do: a device without memory left fails it.
    let limit = budget.or_else(|| available().map(|free| resident().unwrap_or(0) + free)).unwrap_or(u64::MAX);
    let wanted = config.data.batching.max_tokens;
    if wanted != AUTO {
        let needed = trial.needed(wanted, limit).with_context(|| too_large(wanted))?;
        if needed > limit {
            let advice = match trial.largest(limit)? {
                Some(tokens) => format!("set data.batching.max_tokens = {tokens}, which fits, or \"auto\""),
                None => "no batch fits: use a smaller model or more memory".to_owned(),
            };
            bail!(
                "training takes {} with batches of {wanted} tokens, but may take {}{}; {advice}",
                bytes(needed),
                bytes(limit),
                if budget.is_some() { " (--memory)" } else { "" },
            );
        }
        return Ok(wanted);
    }
    match trial.largest(limit)? {
        Some(tokens) => Ok(tokens),
        None => bail!("data.batching.max_tokens = \"auto\": not even batches of {LEAST_TOKENS} tokens fit into {}", bytes(limit)),
    }
}

/// Reads `4GiB`, `512 MB` or a number of bytes.
///
/// # Errors
/// When it is none of these, in words for the command line.
pub(crate) fn parse_bytes(text: &str) -> std::result::Result<u64, String> {
    let split = text.find(|character: char| !character.is_ascii_digit() && character != '.').unwrap_or(text.len());
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
    format!("the largest batch of data.batching.max_tokens = {tokens} cannot be computed; a smaller value or \"auto\" may help")
}

/// Trials of one model.
struct Trial<'a> {
    model: &'a Transformer,
    training: &'a TrainingConfig,
    /// The longest rows of a side, end marks included.
    longest: (usize, usize),
    /// Moments and moving average, which the trial does not touch.
    state_bytes: u64,
    /// The copies that saving a checkpoint makes of weights and moments: as tensors, as bytes, as a file.
    saving_bytes: u64,
}

impl<'a> Trial<'a> {
    fn new(config: &'a RunConfig, model: &'a Transformer, report: &DataReport) -> Self {
        let cost = Cost::of(config, model);
        let weights = 4 * cost.parameters;
        Self {
            model,
            training: &config.training,
            longest: (report.source.longest + 1, report.target.longest + 1),
            state_bytes: cost.training_state_bytes - 2 * weights,
            saving_bytes: 7 * weights,
        }
    }

    /// Bytes of the process during an update, by formula.
    fn estimate(&self, tokens: usize) -> u64 {
        let tokens = tokens * self.training.objective().passes();
        let activations = activation_bytes(self.model.config(), self.model.vocab_target(), tokens, tokens);
        resident().unwrap_or(0) + self.state_bytes + activations.max(self.saving_bytes)
    }

    /// Bytes of the process during training with batches of so many tokens; by formula where a trial would itself exceed
    /// `limit` by far.
    fn needed(&self, tokens: usize, limit: u64) -> Result<u64> {
        match self.estimate(tokens) {
            estimate if estimate / 2 > limit => Ok(estimate),
            _ => self.run(tokens),
        }
    }

    /// Bytes of the process at the height of an update with batches of so many tokens: as measured where the system measures,
    /// else by formula.
    fn run(&self, tokens: usize) -> Result<u64> {
        let before = resident().unwrap_or(0);
        rehearse(self.model, self.training, &self.largest_batch(tokens))?;
        Ok(peak().map_or_else(|| self.estimate(tokens), |peak| peak.max(before + self.saving_bytes) + self.state_bytes))
    }

    /// The largest budget whose batches keep the process below `limit` bytes. Tried in ascending order, since the system gives
    /// the largest amount so far.
    fn largest(&self, limit: u64) -> Result<Option<usize>> {
        let (mut fitting, mut tokens, mut at_fitting) = (None, LEAST_TOKENS, 0);
        loop {
            // A device without memory left says so by an error.
            let needed = self.needed(tokens, limit).unwrap_or(u64::MAX);
            if needed > limit {
                return Ok(fitting);
            }
            let grown = tokens - fitting.unwrap_or(0);
            let slope = (needed.saturating_sub(at_fitting) as f64 / grown as f64).max(1.0);
            (fitting, at_fitting) = (Some(tokens), needed);
            if tokens == MOST_TOKENS {
                return Ok(fitting);
            }
            // What the last step cost for each token predicts where the limit lies; early steps, that the process had memory
            // for anyway, predict too much.
            let predicted = (tokens as f64 + HEADROOM * (limit - needed) as f64 / slope) as usize;
            let next = predicted.min(4 * tokens).min(MOST_TOKENS);
            // To a multiple of 64, and no closer to the limit than a sixteenth.
            let next = if next == MOST_TOKENS { next } else { next / 64 * 64 };
            if next < tokens + tokens / 16 {
                return Ok(fitting);
            }
            tokens = next;
        }
    }

    /// Rows as long as the longest of the corpus, as many as the budget holds; at least one, as in training.
    fn largest_batch(&self, tokens: usize) -> MicroBatch {
        let (source, target) = self.longest;
        let rows = (tokens / source.max(target)).max(1);
        let row = |length: usize, vocabulary: usize| -> Vec<u32> { (0..length).map(|at| (at % vocabulary) as u32).collect() };
        let (sources, targets) = (row(source, self.model.vocab_source()), row(target, self.model.vocab_target()));
        MicroBatch {
            source: Sequences::pack(&vec![sources; rows]),
            target_in: Sequences::pack(&vec![targets.clone(); rows]),
            target_out: targets.repeat(rows),
        }
    }
}

/// The most memory that the process has had so far.
fn peak() -> Option<u64> {
    status("VmHWM:")
}

/// The memory that the process has now.
fn resident() -> Option<u64> {
    status("VmRSS:")
}

/// The memory that could be had without swapping.
fn available() -> Option<u64> {
    figure("/proc/meminfo", "MemAvailable:")
}

fn status(key: &str) -> Option<u64> {
    figure("/proc/self/status", key)
}

/// A figure of Linux's process file system, in bytes; nothing elsewhere.
fn figure(path: &str, key: &str) -> Option<u64> {
    let text = std::fs::read_to_string(path).ok()?;
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

    #[cfg(target_os = "linux")]
    #[test]
    fn the_system_says_how_much_memory_there_is() {
        let (now, most) = (resident().expect("resident"), peak().expect("peak"));
        assert!(now > 1 << 20 && most >= now, "{now} {most}");
        assert!(available().expect("available") > 1 << 20);
    }
}
