//! `taper bench kernels --device cuda`: measures the memory bandwidth that each GPU kernel reaches,
//! and compares it with the bandwidth of a plain copy. The tensors have the shapes of a large
//! training batch.

use anyhow::{Context, Result, bail};
use candle_core::DType;
use serde::Serialize;
use taper_ops::device::{KernelSizes, KernelTime, kernel_times};
use taper_run::checks::device;

use super::round;
use crate::arguments::BenchKernels;
use crate::text::print_line;

/// Default number of tokens of a batch. The sentences are stored one after another, without
/// padding.
const ROWS: usize = 25_000;

/// The presets of `bench train` that are compared. Each has the width of the model, the number of
/// attention heads, and the width of the feed-forward layers.
const PRESETS: [(&str, [usize; 3]); 2] = [("base", [512, 8, 2048]), ("big", [1024, 16, 4096])];

/// Number of tokens of a sentence.
const LENGTH: usize = 46;
/// Number of tokens in the vocabulary.
const VOCABULARY: usize = 10_000;

/// Measurement of one kernel on tensors with the shapes of one preset.
#[derive(Debug, Serialize)]
struct Measurement {
    preset: &'static str,
    dtype: &'static str,
    kernel: &'static str,
    shape: [usize; 2],
    bytes: u64,
    microseconds: f64,
    /// Billions of bytes a second.
    rate: f64,
    /// Bandwidth of the kernel divided by that of a copy.
    share: f64,
}

/// Runs the command.
pub(super) fn run(arguments: &BenchKernels) -> Result<()> {
    if arguments.rows == Some(0) || arguments.repeats == 0 {
        bail!("--rows and --repeats must be at least 1");
    }
    let presets: Vec<_> =
        PRESETS.into_iter().filter(|(name, _)| name.contains(&arguments.layers)).collect();
    if presets.is_empty() {
        let names = PRESETS.map(|(name, _)| name).join(" and ");
        bail!("--layers {:?}: no such layers; on a GPU there are {names}", arguments.layers);
    }
    let device = device::open(&arguments.device)?;
    let mut all = Vec::new();
    for (preset, [width, heads, feed_forward]) in presets {
        for (dtype, name) in [(DType::BF16, "bf16"), (DType::F32, "f32")] {
            let sizes = KernelSizes {
                rows: arguments.rows.unwrap_or(ROWS),
                length: LENGTH,
                width,
                heads,
                feed_forward,
                vocabulary: VOCABULARY,
                dtype,
            };
            let found = kernel_times(&device, &sizes, arguments.repeats)
                .with_context(|| format!("the kernels of {preset} in {name}"))?;
            let copy = found.first().map_or(f64::NAN, KernelTime::bandwidth);
            let measurement = |time: KernelTime| Measurement {
                preset,
                dtype: name,
                kernel: time.kernel,
                shape: time.shape,
                bytes: time.bytes,
                microseconds: round(1e6 * time.seconds, 2),
                rate: round(1e-9 * time.bandwidth(), 1),
                share: round(time.bandwidth() / copy, 3),
            };
            let found: Vec<_> = found.into_iter().map(measurement).collect();
            if !arguments.json {
                print(preset, name, &found)?;
            }
            all.extend(found);
        }
    }
    if arguments.json {
        print_line(&serde_json::to_string_pretty(&all)?)?;
    }
    Ok(())
}

fn print(preset: &str, dtype: &str, found: &[Measurement]) -> Result<()> {
    print_line(&format!("{preset} in {dtype}"))?;
    print_line(&format!(
        "  {:<28} {:>16} {:>9} {:>9} {:>8} {:>6}",
        "kernel", "shape", "MB", "µs", "GB/s", "share"
    ))?;
    for one in found {
        let [rows, columns] = one.shape;
        print_line(&format!(
            "  {:<28} {:>16} {:>9.1} {:>9.1} {:>8.0} {:>4.0} %",
            one.kernel,
            format!("{rows} × {columns}"),
            one.bytes as f64 / 1e6,
            one.microseconds,
            one.rate,
            100.0 * one.share
        ))?;
    }
    Ok(())
}
