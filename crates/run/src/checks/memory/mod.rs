//! Check, before the first update, that a training with the settings in its recipe (TOML file) fits
//! into memory.
//!
//! The largest batch of the recipe is tried: its loss and gradients are computed and discarded, and
//! the allocator reports the memory that was used. A formula would have to know every buffer of
//! every operation, whereas a measurement needs no upkeep. The estimate of [`crate::checks::cost`]
//! only prevents the trial itself from exhausting the memory.

mod system;
mod trial;

use anyhow::{Result, bail};
use candle_core::Device;
use taper_data::{AUTO, Prepared, TokenizerPair};
use taper_ops::device;

use crate::checks::counting::{Scalars, scalars, training_state_bytes};
use crate::config::RunConfig;
use crate::event::{RecipeNotice, RunEvent, RunObserver};
use crate::numbers::{bytes, grouped};
use crate::tasks::{TaskModel, Vocabularies, cost_of, vocabularies};
use system::resident;
use trial::{LEAST_TOKENS, Trial};

pub use system::{available, peak, total};
pub(crate) use trial::unread_bytes;

/// Largest number of tokens in a batch that `"auto"` chooses: as many as in Vaswani et al. 2017,
/// section 5.1. Larger batches might fit into memory, but do not always make a better model.
const MOST_TOKENS: usize = 25_000;
/// Users are warned if a batch has fewer tokens than this: most of a processor is then idle, and
/// gradients are noisy.
const FEW_TOKENS: usize = 1024;

/// Limit on the memory of a training.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    /// Limit in bytes on the memory of this process; `None` if it is limited only by what the
    /// system has available.
    bytes: Option<u64>,
    /// Words about where the limit comes from, for error messages.
    origin: &'static str,
    /// Number of processes that train together.
    processes: usize,
}

impl Budget {
    /// Budget of one of `processes` processes that train together. `here` of them are on this
    /// machine and share its memory. `given` is the limit in bytes for the processes on this
    /// machine together; `None` for the available memory. A GPU is not shared: each process uses
    /// one of its own.
    ///
    /// # Errors
    /// When the device does not report its memory.
    pub fn for_process(
        given: Option<u64>,
        processes: usize,
        here: usize,
        device: &Device,
    ) -> Result<Self> {
        let origin = origin(given);
        if here <= 1 || !device.is_cpu() {
            return Ok(Self { bytes: given, origin, processes });
        }
        let bytes = Some(limit(given, device)? / here as u64);
        let origin = " (its share among the processes of this machine)";
        Ok(Self { bytes, origin, processes })
    }
}

/// Tries the largest batch of the recipe `config` on `model`. Returns the token budget, that is,
/// the largest number of tokens in a batch. If the recipe has `"auto"`, this is the largest number
/// with which training fits into memory; otherwise it is the number in the recipe.
///
/// # Errors
/// When the batch does not fit; the message has a token budget that fits, if one is known.
pub fn fit<M: TaskModel>(
    config: &RunConfig,
    model: &M,
    prepared: &Prepared,
    budget: &Budget,
    observer: &mut dyn RunObserver,
) -> Result<usize> {
    let trial = Trial::new(config, model, prepared, budget.processes)?;
    let limit = limit(budget.bytes, model.device())?;
    let wanted = config.data.batching.max_tokens;
    if wanted != AUTO {
        require(&trial, wanted, limit, model.device(), budget)?;
        return Ok(wanted);
    }
    let most = trial.of_text(MOST_TOKENS);
    match trial.largest(limit, most)? {
        // Even a batch of the whole text has only `most` tokens, so a larger budget changes
        // nothing.
        Some(tokens) if tokens == most => Ok(MOST_TOKENS),
        Some(tokens) => {
            if tokens < FEW_TOKENS {
                observer
                    .observe(&RunEvent::notice(RecipeNotice::SmallBatches { tokens, limit }))?;
            }
            Ok(tokens)
        }
        None => {
            let message = format!(
                "data.batching.max_tokens = \"auto\": not even batches of {LEAST_TOKENS} tokens fit \
                 into {} of memory",
                bytes(limit)
            );
            // On a GPU, the trial of the smallest batch can have failed; its error says why.
            match trial.needed(LEAST_TOKENS.min(most), limit) {
                Err(error) => Err(error.context(message)),
                Ok(_) => bail!(message),
            }
        }
    }
}

/// Checks that training with batches of up to `wanted` tokens stays below `limit` bytes.
///
/// # Errors
/// When such batches do not fit; the message has a token budget that fits, if one is known.
fn require<M: TaskModel>(
    trial: &Trial<'_, M>,
    wanted: usize,
    limit: u64,
    device: &Device,
    budget: &Budget,
) -> Result<()> {
    // The text may be too short for batches of `wanted` tokens.
    let tried = trial.of_text(wanted);
    // If the estimate says that the batch is too large, a size that fits is determined first, so
    // that the error can name it.
    let is_close = trial.estimate(tried) > limit;
    let fitting = if is_close { trial.largest(limit, tried)? } else { None };
    if fitting == Some(tried) {
        return Ok(());
    }
    let needed = match trial.needed(tried, limit) {
        Ok(needed) => needed,
        // On a GPU, the error of the trial can mean that memory is exhausted.
        Err(error) if !device.is_cpu() => {
            let advice = match trial.largest(limit, tried)? {
                Some(tokens) => format!("; data.batching.max_tokens = {tokens} fits"),
                None => String::new(),
            };
            return Err(error.context(too_large(wanted) + &advice));
        }
        Err(error) => return Err(error.context(too_large(wanted))),
    };
    if needed > limit {
        let advice = match fitting {
            Some(tokens) => {
                // An eighth is subtracted, because the next process may use some MiB more from the
                // start.
                let advised = (tokens - tokens / 8).max(LEAST_TOKENS.min(tokens));
                format!("set data.batching.max_tokens = {advised}, which fits, or \"auto\"")
            }
            None if is_close => "no batch fits: use a smaller model or more memory".to_owned(),
            None => "set a smaller data.batching.max_tokens, or \"auto\"".to_owned(),
        };
        bail!(
            "training takes {} of memory with batches of {wanted} tokens, but the limit is {}{}; \
             {advice}",
            bytes(needed),
            bytes(limit),
            budget.origin,
        );
    }
    Ok(())
}

/// Refuses to train a model if even its weights, gradients and moments do not fit into memory. This
/// check comes before memory is allocated.
///
/// # Errors
/// When they do not fit into the memory of `budget`; the message has the size of the model and the
/// available memory.
pub fn require_state(
    config: &RunConfig,
    tokenizers: &TokenizerPair,
    budget: &Budget,
    device: &Device,
) -> Result<()> {
    let Scalars { trained, frozen, frozen_bytes, .. } =
        parameters(config, vocabularies(tokenizers));
    let limit = limit(budget.bytes, device)?;
    let needed =
        training_state_bytes(config, trained, budget.processes).saturating_add(frozen_bytes);
    require_room(
        trained.saturating_add(frozen),
        needed,
        "weights, gradients and moments",
        limit,
        budget.origin,
    )
}

/// Refuses to load a model if even its weights do not fit into memory. This check comes before
/// memory is allocated.
///
/// # Errors
/// When they do not fit; the message has the size of the model and the available memory.
pub fn require_weights(
    config: &RunConfig,
    vocabularies: Vocabularies,
    device: &Device,
) -> Result<()> {
    let Scalars { trained, frozen, frozen_bytes, .. } = parameters(config, vocabularies);
    let needed = trained.saturating_mul(4).saturating_add(frozen_bytes);
    let limit = limit(None, device)?;
    require_room(trained.saturating_add(frozen), needed, "weights", limit, origin(None))
}

/// Numbers of scalars in the parameters of the model that `config` describes.
fn parameters(config: &RunConfig, vocabularies: Vocabularies) -> Scalars {
    let all = cost_of(config, vocabularies, &Device::Cpu).parameters;
    scalars(config, vocabularies, all)
}

/// Refuses a model if `needed`, the bytes for `content`, exceed `limit`, the limit in bytes on the
/// memory of the process. The message also has the number of `parameters`, and the `origin` of the
/// limit.
fn require_room(
    parameters: u64,
    needed: u64,
    content: &str,
    limit: u64,
    origin: &str,
) -> Result<()> {
    if needed > limit {
        bail!(
            "a model of {} parameters takes {} of memory for {content} alone, but the limit is \
             {}{}; make [model] or the vocabulary smaller, or use more memory",
            grouped(parameters),
            bytes(needed),
            bytes(limit),
            origin
        );
    }
    Ok(())
}

/// Limit in bytes on the memory of the process or, on a GPU, on the GPU's memory. It is `budget` if
/// this is given, and otherwise the memory in use now plus the memory that is available. If the
/// system does not report how much is available, there is no limit. Only a trial that fails then
/// shows that memory is exhausted.
fn limit(budget: Option<u64>, device: &Device) -> Result<u64> {
    if let Some(budget) = budget {
        return Ok(budget);
    }
    Ok(match device::memory(device)? {
        Some(memory) => memory.in_use.saturating_add(memory.available),
        None => available().map_or(u64::MAX, |free| resident().unwrap_or(0) + free),
    })
}

/// Memory in use now, in bytes: by the process or, on a GPU, of the GPU's memory.
fn in_use(device: &Device) -> Result<u64> {
    let of_gpu = device::memory(device)?;
    Ok(of_gpu.map_or_else(|| resident().unwrap_or(0), |memory| memory.in_use))
}

/// Words about where the limit `budget` comes from, for error messages; empty if no limit was
/// given.
fn origin(budget: Option<u64>) -> &'static str {
    if budget.is_some() { " (the given budget)" } else { "" }
}

/// Number of bytes that a text such as `4GiB`, `512 MB` or `1000` states.
///
/// # Errors
/// When the text has another form; the message is for the command line.
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
        Ok(number) if number * factor >= 1.0 => Ok((number * factor) as u64),
        _ => Err(format!("`{number}` is not a size: expected for example 4GiB")),
    }
}

fn too_large(tokens: usize) -> String {
    format!(
        "the largest batch of data.batching.max_tokens = {tokens} cannot be computed; a smaller \
         value or \"auto\" may help"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_their_units() {
        assert_eq!(parse_bytes("4GiB"), Ok(4 << 30));
        assert_eq!(parse_bytes("1.5 MB"), Ok(1_500_000));
        assert_eq!(parse_bytes("123"), Ok(123));
        assert_eq!(parse_bytes("0.5KiB"), Ok(512));
        for wrong in ["", "GiB", "4 apples", "-1", "0", "0.5", "0.0001 KB", "1e400"] {
            assert!(parse_bytes(wrong).is_err(), "{wrong}");
        }
    }
}
