//! `taper bench attention`: time and memory of each kind of self-attention by sequence length, and
//! the exponents of their growth.
//!
//! Each kind and length is measured in a separate process, because the peak memory of a process
//! never falls.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use candle_core::{Device, Tensor, Var};
use serde::{Deserialize, Serialize};
use taper_model::{
    AttentionConfig, AttentionKind, ModelConfig, Pass, Positions, UnprojectedAttention,
};
use taper_ops::rng::Counter;
use taper_plots::{Axis, Chart, Figure, Series};

use crate::arguments::BenchAttention;
use crate::program;
use crate::text::print_line;
use taper_run::checks::memory;
use taper_run::folder::files::write_atomically;
use taper_run::numbers::bytes;

/// Number of tokens in a batch of short sequences.
const TOKENS: usize = 2048;
/// Number of tokens of the short sequence that is processed once before all measurements.
const REHEARSED: usize = 64;
/// Number of levels of summaries in hierarchical attention, more than any sequence needs.
const LEVELS: usize = 16;

/// Measurement of one kind of attention at one sequence length.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Measurement {
    kind: String,
    length: usize,
    sequences: usize,
    causal: bool,
    /// Seconds of the fastest forward pass, computed as in training, so that a backward pass can
    /// follow.
    forward: f64,
    /// Seconds of the fastest forward and backward pass.
    both: f64,
    /// Growth of the process's peak memory, in bytes; `None` if the system does not report it.
    memory: Option<u64>,
    /// Multiplications and additions of the forward pass, by formula.
    forward_flops: f64,
}

impl Measurement {
    fn tokens(&self) -> f64 {
        (self.sequences * self.length) as f64
    }
}

/// Exponents `b` for one kind of attention. A cost of one sequence of `n` tokens is fitted as
/// `a · nᵇ`.
#[derive(Debug, Serialize)]
struct Growth {
    kind: String,
    forward: f64,
    both: f64,
    memory: Option<f64>,
}

/// Runs the command.
pub(crate) fn run(arguments: &BenchAttention) -> Result<()> {
    ensure!(!arguments.lengths.contains(&0), "--lengths: a sequence must have at least one token");
    let kinds: Vec<AttentionKind> =
        arguments.kinds.iter().map(|name| kind(name)).collect::<Result<_>>()?;
    if let ([kind], [length]) = (kinds.as_slice(), arguments.lengths.as_slice()) {
        let found = [measure(arguments, *kind, *length)?];
        if let Some(path) = &arguments.svg {
            let drawing = drawn(&found, &[growth(kind.name(), &found)])?;
            write_atomically(path, drawing.as_bytes())?;
        }
        return if arguments.json {
            print_line(&serde_json::json!({ "measurements": found }).to_string())
        } else {
            table(&found, &[])
        };
    }
    // Linformer attention cannot be used in a decoder, and Transformer-XL attention cannot be used
    // in an encoder.
    let other = match arguments.causal {
        true => AttentionKind::Linformer,
        false => AttentionKind::TransformerXl,
    };
    let all = AttentionKind::ALL.into_iter().filter(|&kind| kind != other);
    let kinds = if kinds.is_empty() { all.collect() } else { kinds };
    let mut found = Vec::new();
    for kind in &kinds {
        for &length in &arguments.lengths {
            found.push(in_process(arguments, kind.name(), length)?);
        }
    }
    let growth: Vec<Growth> = kinds.iter().map(|kind| growth(kind.name(), &found)).collect();
    if let Some(path) = &arguments.svg {
        write_atomically(path, drawn(&found, &growth)?.as_bytes())?;
    }
    if arguments.json {
        let threads = rayon::current_num_threads();
        let record = serde_json::json!({
            "threads": threads, "heads": arguments.heads, "head_width": arguments.head_width,
            "window": arguments.window, "measurements": found, "exponents": growth,
        });
        print_line(&serde_json::to_string_pretty(&record)?)
    } else {
        table(&found, &growth)
    }
}

fn kind(name: &str) -> Result<AttentionKind> {
    AttentionKind::ALL.into_iter().find(|kind| kind.name() == name).with_context(|| {
        let names = AttentionKind::ALL.map(AttentionKind::name);
        format!("--kinds {name:?}: no such kind; there are {}", names.join(", "))
    })
}

/// Measures in a new process of this program, which prints the measurement as JSON.
fn in_process(arguments: &BenchAttention, name: &str, length: usize) -> Result<Measurement> {
    let mut command = program::again()?;
    command.args(["bench", "attention", "--json", "--kinds", name]);
    for (option, value) in [
        ("--lengths", length.to_string()),
        ("--heads", arguments.heads.to_string()),
        ("--head-width", arguments.head_width.to_string()),
        ("--window", arguments.window.to_string()),
        ("--seconds", arguments.seconds.to_string()),
        ("--threads", rayon::current_num_threads().to_string()),
    ] {
        command.args([option, &value]);
    }
    if arguments.causal {
        command.arg("--causal");
    }
    let output = command.output().context("cannot start this program")?;
    if !output.status.success() {
        bail!("{name}, {length} tokens: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let mut record: serde_json::Value = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("{name}, {length} tokens: no measurement"))?;
    Ok(serde_json::from_value(record["measurements"][0].take())?)
}

/// Draws the time of a forward and backward pass by the length of a sequence, as SVG. Each kind of
/// attention has a line, which is labelled with the exponent of its growth.
fn drawn(found: &[Measurement], growth: &[Growth]) -> Result<String> {
    let line = |growth: &Growth| {
        let own = found.iter().filter(|one| one.kind == growth.kind);
        let points = own.map(|one| {
            let milliseconds = 1e3 * one.both / one.sequences as f64;
            (one.length as f64, milliseconds)
        });
        let name = match growth.both.is_finite() {
            true => format!("{}, n to the {:.2}", growth.kind, growth.both),
            false => growth.kind.clone(),
        };
        Series::line(name, points.collect())
    };
    let lines = growth.iter().map(line).collect();
    let chart = Chart::new(Axis::log("tokens"), Axis::log("milliseconds with gradient"), lines);
    let described = "The time of each kind of self-attention, forward and back, by the length of a \
                     sequence, with the exponent of its growth.";
    Ok(Figure::new("Time by length", described, chart).draw()?.standalone())
}

fn measure(arguments: &BenchAttention, kind: AttentionKind, length: usize) -> Result<Measurement> {
    taper_ops::allocator::keep_freed_pages();
    let BenchAttention { heads, head_width, window, causal, .. } = *arguments;
    let mut config = ModelConfig {
        d_model: heads * head_width,
        heads,
        attention_dropout: 0.0,
        // A Transformer-XL has its own position encoding.
        positions: Positions::None,
        ..ModelConfig::default()
    };
    let other = AttentionConfig::default();
    let length_of_sums = length.max(other.rank);
    let own = AttentionConfig { kind, window, length: length_of_sums, levels: LEVELS, ..other };
    *if causal { &mut config.decoder_attention } else { &mut config.encoder_attention } = own;
    let attention = UnprojectedAttention::new(&config, causal, 0)?;
    let sequences = (TOKENS / length).max(1);
    let lengths: Arc<[usize]> = vec![length; sequences].into();
    let rows = sequences * length;
    let inputs = Var::from_tensor(&normal(rows, attention.input_width(), 1)?)?;
    // Attention is first computed once for a short sequence, which needs little memory. This makes
    // the buffers that are kept for all later computations, so that they are not measured. The
    // input is detached from Candle's gradient tape; for recorded inputs, attention would be
    // computed by Candle's own operations.
    let few = normal(REHEARSED, attention.input_width(), 1)?.detach();
    let out = attention.attend(&few, &[REHEARSED].into(), &Pass::evaluate())?;
    let adjoint = normal(rows, out.dim(1)?, 2)?;
    drop((few, out));
    let before = memory::peak();
    let (mut forward, mut both) = (f64::MAX, f64::MAX);
    let start = Instant::now();
    let mut rounds = 0;
    while rounds < 2 || start.elapsed().as_secs_f64() < arguments.seconds {
        let (there, back) =
            taper_ops::threads::in_pool(inputs.device(), || -> Result<(f64, f64)> {
                let pass = Pass::train(1, rounds, 0);
                let begin = Instant::now();
                let out = attention.attend(&inputs, &lengths, &pass)?;
                let there = begin.elapsed().as_secs_f64();
                let tape = pass.into_tape().context("a training pass has a tape")?;
                tape.differentiate(&out, &adjoint)?;
                Ok((there, begin.elapsed().as_secs_f64()))
            })?;
        (forward, both) = (forward.min(there), both.min(back));
        rounds += 1;
    }
    let grown = memory::peak().zip(before).map(|(peak, before)| peak.saturating_sub(before));
    Ok(Measurement {
        kind: kind.name().to_owned(),
        length,
        sequences,
        causal,
        forward,
        both,
        memory: grown,
        forward_flops: sequences as f64 * attention.forward_flops(length),
    })
}

fn normal(rows: usize, columns: usize, key: u64) -> Result<Tensor> {
    let counter = Counter::new(key);
    let values: Vec<f32> =
        (0..(rows * columns) as u64).map(|i| counter.normal_at(i) as f32).collect();
    Ok(Tensor::from_vec(values, (rows, columns), &Device::Cpu)?)
}

fn growth(name: &str, found: &[Measurement]) -> Growth {
    let own: Vec<&Measurement> = found.iter().filter(|one| one.kind == name).collect();
    // Short sequences were measured in a batch, but the cost of a single sequence is fitted.
    let of = |cost: &dyn Fn(&Measurement) -> f64| {
        slope(own.iter().map(|one| {
            let length = one.length as f64;
            (length.ln(), (cost(one) / one.tokens() * length).ln())
        }))
    };
    let memory = own.iter().all(|one| one.memory.is_some_and(|bytes| bytes > 0));
    Growth {
        kind: name.to_owned(),
        forward: of(&|one| one.forward),
        both: of(&|one| one.both),
        memory: memory.then(|| of(&|one| one.memory.unwrap_or(0) as f64)),
    }
}

/// Returns the slope of the least-squares line; NaN for fewer than two different points.
fn slope(points: impl Iterator<Item = (f64, f64)> + Clone) -> f64 {
    let count = points.clone().count() as f64;
    let mean_x = points.clone().map(|(x, _)| x).sum::<f64>() / count;
    let mean_y = points.clone().map(|(_, y)| y).sum::<f64>() / count;
    let covariance: f64 = points.clone().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    covariance / points.map(|(x, _)| (x - mean_x).powi(2)).sum::<f64>()
}

fn table(found: &[Measurement], growth: &[Growth]) -> Result<()> {
    print_line(&format!(
        "{:9} {:>7} {:>13} {:>17} {:>12} {:>10}",
        "kind", "tokens", "forward, ms", "with gradient, ms", "µs a token", "memory"
    ))?;
    for one in found {
        print_line(&format!(
            "{:9} {:>7} {:>13.2} {:>17.2} {:>12.3} {:>10}",
            one.kind,
            one.length,
            1e3 * one.forward,
            1e3 * one.both,
            1e6 * one.both / one.tokens(),
            one.memory.map_or_else(|| "unknown".to_owned(), bytes)
        ))?;
    }
    for Growth { kind, forward, both, memory } in growth.iter().filter(|it| it.both.is_finite()) {
        let memory = memory.map_or_else(String::new, |memory| format!(", memory {memory:.2}"));
        print_line(&format!(
            "{kind}: grows with the length to the power of {forward:.2} forward, {both:.2} with \
             gradient{memory}"
        ))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponents_are_found() {
        let of = |length: usize| Measurement {
            kind: "full".to_owned(),
            length,
            sequences: TOKENS.div_ceil(length),
            causal: false,
            // Time of a whole batch, which has `TOKENS` tokens, or one sequence if that is longer.
            forward: 3e-9 * (TOKENS.max(length) * length) as f64,
            both: 1e-6 * TOKENS.max(length) as f64,
            memory: Some(8 * TOKENS.max(length) as u64),
            forward_flops: 0.0,
        };
        let growth = growth("full", &[512, 1024, 4096, 8192].map(of));
        assert!((growth.forward - 2.0).abs() < 1e-9 && (growth.both - 1.0).abs() < 1e-9);
        assert!(growth.memory.is_some_and(|memory| (memory - 1.0).abs() < 1e-9));
    }
}
