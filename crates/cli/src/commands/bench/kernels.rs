//! `taper bench kernels`: measures which share of the processor's peak speed each kernel of matrix
//! products reaches, on matrices with the shapes of training.

use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde::Serialize;
use taper_ops::products::{Factor, multiply, peak_rate};
use taper_ops::rng::Counter;
use taper_ops::{Kernel, Products};

use super::gpu_kernels;
use crate::arguments::BenchKernels;
use crate::text::print_line;

/// Default number of rows of a layer's input.
const ROWS: usize = 3000;
/// Number of iterations of the loop that measures the peak. The loop then takes about as long as
/// the smallest product.
const ROUNDS: usize = 20_000;

/// A linear layer of a model.
#[derive(Debug, Clone, Copy)]
struct Layer {
    name: &'static str,
    inputs: usize,
    outputs: usize,
}

/// Linear layers of the presets `tiny` and `base` of `bench train`.
const LAYERS: [Layer; 10] = [
    layer("tiny attention, in", 128, 384),
    layer("tiny attention, out", 128, 128),
    layer("tiny feed-forward, in", 128, 256),
    layer("tiny feed-forward, out", 256, 128),
    layer("tiny output", 128, 10_000),
    layer("base attention, in", 512, 1536),
    layer("base attention, out", 512, 512),
    layer("base feed-forward, in", 512, 2048),
    layer("base feed-forward, out", 2048, 512),
    layer("base output", 512, 10_000),
];

const fn layer(name: &'static str, inputs: usize, outputs: usize) -> Layer {
    Layer { name, inputs, outputs }
}

/// Names of the three matrix products of a layer.
const PASSES: [&str; 3] = ["forward", "gradient of the input", "gradient of the weight"];

/// A kernel and the precision of its products.
type Variant = (Kernel, Products);

/// Measurement of one product by one kernel.
#[derive(Debug, Serialize)]
struct Measurement {
    threads: usize,
    layer: &'static str,
    pass: &'static str,
    shape: [usize; 3],
    kernel: &'static str,
    dtype: &'static str,
    /// Billions of multiplications and additions per second.
    rate: f64,
    /// Highest possible rate, in billions per second: the rate of the kernel's multiply-add
    /// instructions if all operands are in registers. For the `gemm` crate, it is measured with the
    /// fastest f32 multiply-add instructions of this machine.
    peak: f64,
}

/// Runs the command.
pub(crate) fn run(arguments: &BenchKernels) -> Result<()> {
    if arguments.device != "cpu" {
        return gpu_kernels::run(arguments);
    }
    if arguments.rows == Some(0) || arguments.repeats == 0 || arguments.threads.contains(&0) {
        bail!("--rows, --repeats and --threads must be at least 1");
    }
    let layers: Vec<Layer> =
        LAYERS.into_iter().filter(|layer| layer.name.contains(&arguments.layers)).collect();
    if layers.is_empty() {
        let names = LAYERS.map(|layer| layer.name).join("; ");
        bail!(
            "--layers {:?}: no layer has this text in its name; the layers are: {names}",
            arguments.layers
        );
    }
    taper_ops::allocator::keep_freed_pages();
    let mut all = Vec::new();
    for &threads in &arguments.threads {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        let pool = pool.context("cannot start the threads")?;
        for layer in &layers {
            let found = pool.install(|| measure(layer, threads, arguments));
            if !arguments.json {
                print(layer, &found)?;
            }
            all.extend(found);
        }
    }
    if arguments.json {
        print_line(&serde_json::to_string_pretty(&all)?)?;
    }
    Ok(())
}

/// Returns the kernels of this machine, each with every precision that it serves.
fn variants() -> Vec<Variant> {
    let all = Kernel::ALL.into_iter();
    all.flat_map(|kernel| [Products::F32, Products::Bf16].map(|products| (kernel, products)))
        .filter(|(kernel, products)| kernel.serves(*products))
        .collect()
}

/// Returns the kernel whose peak limits `kernel`: `kernel` itself, or for the `gemm` crate the
/// kernel with the fastest f32 multiply-adds of this machine.
fn limit(kernel: Kernel) -> Option<Kernel> {
    if kernel != Kernel::Gemm {
        return Some(kernel);
    }
    [Kernel::Fma512, Kernel::Fma256, Kernel::Neon, Kernel::Simd128]
        .into_iter()
        .find(|kernel| kernel.is_here())
}

/// Measures the peak and every product in turn, `--repeats` times, and keeps the highest rate of
/// each: other work on the machine only adds time.
fn measure(layer: &Layer, threads: usize, arguments: &BenchKernels) -> Vec<Measurement> {
    let &Layer { name, inputs, outputs } = layer;
    let rows = arguments.rows.unwrap_or(ROWS);
    let shapes = [[rows, inputs, outputs], [rows, outputs, inputs], [outputs, rows, inputs]];
    let (x, weight) = (random(1, rows * inputs), random(2, inputs * outputs));
    let (gradient, mut out) = (random(3, rows * outputs), vec![0.0; rows * inputs.max(outputs)]);
    out.resize(out.len().max(inputs * outputs), 0.0);
    let variants = variants();
    let (mut peaks, mut rates) =
        (vec![0.0_f64; variants.len()], vec![[0.0_f64; 3]; variants.len()]);
    for _ in 0..arguments.repeats {
        for (variant, (peak, rates)) in variants.iter().zip(peaks.iter_mut().zip(&mut rates)) {
            *peak = peak.max(peak_rate(variant.0, ROUNDS).map_or(0.0, |rate| 1e-9 * rate));
            for (pass, rate) in rates.iter_mut().enumerate() {
                let ([m, k, n], plain) = (shapes[pass], |values| factor(values, false));
                let (a, b) = match pass {
                    0 => (plain(&x), factor(&weight, true)),
                    1 => (plain(&gradient), plain(&weight)),
                    _ => (factor(&gradient, true), plain(&x)),
                };
                let began = Instant::now();
                let served = multiply(*variant, (m, k, n), a, b, &mut out[..m * n]);
                let seconds = began.elapsed().as_secs_f64();
                *rate = rate.max(if served { giga(m * k * n, seconds) } else { 0.0 });
            }
        }
    }
    // Kernels with the same instructions share one peak, the highest one that was measured for any
    // of them. A single measurement may be too low, because a processor that was doing other work
    // does not reach its full rate at once.
    let limits = variants.iter().map(|variant| limit(variant.0));
    let limits: Vec<_> = limits.zip(&peaks).map(|(kernel, &peak)| (kernel, peak)).collect();
    let highest = |kernel| {
        limits.iter().filter(|(other, _)| *other == kernel).map(|one| one.1).fold(0.0, f64::max)
    };
    let peaks = limits.iter().map(|(kernel, _)| highest(*kernel));
    let of_variant = |((variant, peak), rates): ((&Variant, f64), [f64; 3])| {
        let (kernel, dtype) = names(*variant);
        std::array::from_fn::<_, 3, _>(|pass| Measurement {
            threads,
            layer: name,
            pass: PASSES[pass],
            shape: shapes[pass],
            kernel,
            dtype,
            rate: rates[pass],
            peak,
        })
    };
    variants.iter().zip(peaks).zip(rates).flat_map(of_variant).collect()
}

fn factor(values: &[f32], transposed: bool) -> Factor<'_> {
    Factor { values, transposed }
}

/// Returns the billions of multiplications and additions per second, both counted.
fn giga(multiply_adds: usize, seconds: f64) -> f64 {
    2e-9 * multiply_adds as f64 / seconds
}

fn random(key: u64, count: usize) -> Vec<f32> {
    let counter = Counter::new(key);
    (0..count as u64).map(|i| counter.normal_at(i) as f32).collect()
}

fn names((kernel, products): Variant) -> (&'static str, &'static str) {
    (kernel.name(), if products == Products::Bf16 { "bf16" } else { "f32" })
}

/// Prints a block of lines for a layer, one line for each kernel.
fn print(layer: &Layer, found: &[Measurement]) -> Result<()> {
    let Layer { name, inputs, outputs } = layer;
    let threads = found.first().map_or(0, |one| one.threads);
    print_line(&format!("{name}, {inputs} → {outputs}; threads: {threads}"))?;
    print_line(&format!(
        "  {:<12} {:>8} {:>14} {:>14} {:>14}",
        "kernel", "peak", "forward", "∂ input", "∂ weight"
    ))?;
    for passes in found.chunks(PASSES.len()) {
        let Some(Measurement { kernel, dtype, peak, .. }) = passes.first() else { continue };
        let cells: String = passes
            .iter()
            .map(|one| format!(" {:>7.0} ({:>3.0} %)", one.rate, 100.0 * one.rate / one.peak))
            .collect();
        let variant = format!("{kernel} {dtype}");
        print_line(&format!("  {variant:<12} {peak:>8.0}{cells}"))?;
    }
    Ok(())
}
