//! Measures the time of the forward and backward pass of attention for sequences of several
//! lengths, and prints a line of JSON for each length. `scripts/bench/attention.py` runs it
//! alternately with PyTorch.
//!
//! Example: `cargo bench -p taper-ops --bench attention -- --lengths 512,2048 --causal`.
//! Further options are `--heads`, `--width` (of a head), `--tokens` (in a batch; a longer sequence
//! is a batch by itself), `--dtype bf16`, `--dropout` and `--seconds` (to measure each length).
//! `RAYON_NUM_THREADS` sets the number of threads.

use candle_core::{Device, Result, Tensor, Var};
use std::time::Instant;
use taper_ops::rng::Counter;
use taper_ops::{AttentionShape, AttentionSpec, Dropout, Products, Tape, self_attention};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Returns the value of a command-line option, if it is given.
fn option(name: &str) -> Option<String> {
    let mut arguments = std::env::args().skip_while(|argument| argument != name);
    arguments.next().and_then(|_| arguments.next())
}

fn number(name: &str, default: f64) -> f64 {
    option(name).map_or(default, |value| value.parse().expect("a number"))
}

fn random(shape: &[usize], key: u64) -> Tensor {
    let counter = Counter::new(key);
    let count = shape.iter().product::<usize>() as u64;
    let values: Vec<f32> = (0..count).map(|i| counter.normal_at(i) as f32).collect();
    Tensor::from_vec(values, shape, &Device::Cpu).expect("memory")
}

/// Returns the processor time of all threads together, in seconds.
#[cfg(unix)]
fn processor_time() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call only fills the structure.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

#[cfg(not(unix))]
fn processor_time() -> f64 {
    f64::NAN
}

/// Smallest wall-clock time and smallest processor time so far, in seconds.
#[derive(Clone, Copy)]
struct Least(f64, f64);

impl Least {
    fn time<R>(&mut self, work: impl FnOnce() -> R) -> R {
        let (wall, processor) = (Instant::now(), processor_time());
        let result = work();
        self.0 = self.0.min(wall.elapsed().as_secs_f64());
        self.1 = self.1.min(processor_time() - processor);
        result
    }
}

fn measure(length: usize) -> Result<()> {
    let (heads, head_width) = (number("--heads", 8.0) as usize, number("--width", 64.0) as usize);
    let sequences = (number("--tokens", 2048.0) as usize / length).max(1);
    let lengths: std::sync::Arc<[usize]> = vec![length; sequences].into();
    let causal = std::env::args().any(|argument| argument == "--causal");
    let products = match option("--dtype").as_deref() {
        Some("bf16") => Products::Bf16,
        _ => Products::F32,
    };
    let spec = AttentionSpec {
        causal,
        dropout: Dropout::new(number("--dropout", 0.0), 1),
        products,
        ..AttentionSpec::new(AttentionShape::with_heads(heads, head_width), lengths)
    };
    let (rows, width) = (sequences * length, heads * head_width);
    let qkv = Var::from_tensor(&random(&[rows, 3 * width], 1))?;
    let adjoint = random(&[rows, width], 2);
    let (mut forward, mut backward) = (Least(f64::MAX, f64::MAX), Least(f64::MAX, f64::MAX));
    let (start, mut rounds) = (Instant::now(), 0);
    while rounds < 2 || start.elapsed().as_secs_f64() < number("--seconds", 2.0) {
        let tape = Tape::new();
        let out = forward.time(|| self_attention(Some(&tape), &qkv, None, &spec))?;
        drop(backward.time(|| tape.differentiate(&out, &adjoint))?);
        rounds += 1;
    }
    println!(
        "{{\"length\": {length}, \"sequences\": {sequences}, \"causal\": {causal}, \
         \"forward\": {:.6}, \"backward\": {:.6}, \"processor\": {:.6}, \"rounds\": {rounds}}}",
        forward.0,
        backward.0,
        forward.1 + backward.1
    );
    Ok(())
}

fn main() -> Result<()> {
    taper_ops::allocator::keep_freed_pages();
    let lengths = option("--lengths").unwrap_or_else(|| "16,64,256,512,2048,8192".to_owned());
    taper_ops::threads::in_pool(&Device::Cpu, || {
        lengths.split(',').try_for_each(|length| measure(length.parse().expect("a length")))
    })
}
