//! Helpers for the tests of operations.

// Each test program uses only some of these helpers.
#![allow(dead_code)]

use candle_core::{DType, Device, Result, Tensor, Var};
use taper_ops::rng::{Counter, mix};
use taper_ops::{Kernel, Tape};

/// Runs the other tests of this program again with each matrix kernel of this machine. Each run is
/// a new process, because a process chooses a kernel only once. `caller` is the name of the calling
/// test.
pub(crate) fn again_through_every_kernel(caller: &str) {
    for kernel in Kernel::ALL.into_iter().filter(|kernel| kernel.is_here()) {
        let mut again = std::process::Command::new(std::env::current_exe().unwrap());
        let output =
            again.args(["--skip", caller]).env("TAPER_KERNEL", kernel.name()).output().unwrap();
        assert!(output.status.success(), "{kernel:?}: {}", String::from_utf8_lossy(&output.stdout));
    }
}

pub(crate) fn random(shape: &[usize], key: u64) -> Var {
    let counter = Counter::new(mix(11, &[key]));
    let values: Vec<f64> =
        (0..shape.iter().product::<usize>() as u64).map(|i| counter.normal_at(i)).collect();
    Var::from_tensor(&Tensor::from_vec(values, shape, &Device::Cpu).unwrap()).unwrap()
}

pub(crate) fn values(x: &Tensor) -> Vec<f64> {
    x.flatten_all().unwrap().to_vec1().unwrap()
}

/// Returns the largest of some distances; NaN if any of them is NaN, so that no bound holds.
pub(crate) fn largest_of(distances: impl IntoIterator<Item = f64>) -> f64 {
    // In the total order, NaN comes after infinity; `f64::max` would leave it out.
    distances.into_iter().map(f64::abs).max_by(f64::total_cmp).unwrap_or(0.0)
}

/// Makes a scalar in which every element of a result has a different weight. So an error in any
/// gradient is noticed.
pub(crate) fn scalar(out: &Tensor) -> Result<Tensor> {
    let count = out.elem_count();
    let weights: Vec<f64> = (0..count).map(|i| (i as f64 * 0.7).sin() + 0.3).collect();
    (out.flatten_all()? * Tensor::from_vec(weights, count, out.device())?)?.sum_all()
}

/// Returns the weights of [`scalar`], in the shape of `out`. The backward pass of the tape starts
/// with them, as the adjoint of `out` (the gradient of the loss with respect to it).
pub(crate) fn adjoint(out: &Tensor) -> Tensor {
    let weights: Vec<f64> = (0..out.elem_count()).map(|i| (i as f64 * 0.7).sin() + 0.3).collect();
    Tensor::from_vec(weights, out.shape(), out.device()).unwrap()
}

pub(crate) type Fused<'a> = &'a dyn Fn(Option<&Tape>, &[Var]) -> Result<Tensor>;
pub(crate) type Oracle<'a> = &'a dyn Fn(&[Var]) -> Result<Tensor>;

/// Compares results and gradients of the fused operation with those of `oracle`, which is composed
/// of Candle's operations. Also compares gradients with central differences.
pub(crate) fn check(name: &str, inputs: &[Var], fused: Fused<'_>, oracle: Oracle<'_>) {
    let tape = Tape::new();
    let (ours, theirs) = (fused(Some(&tape), inputs).unwrap(), oracle(inputs).unwrap());
    assert!(tape.knows(&ours), "{name}: not fused");
    for (i, (ours, theirs)) in values(&ours).iter().zip(values(&theirs)).enumerate() {
        assert!(
            (ours - theirs).abs() < 1e-9 * (1.0 + theirs.abs()),
            "{name}: element {i}: {ours}, composed {theirs}"
        );
    }
    let ours = tape.differentiate(&ours, &adjoint(&ours)).unwrap();
    let theirs = scalar(&theirs).unwrap().backward().unwrap();
    for (number, input) in inputs.iter().enumerate() {
        let gradient = values(
            &ours
                .get(input)
                .unwrap()
                .unwrap_or_else(|| panic!("{name}: input {number} got no gradient")),
        );
        let composed = values(theirs.get(input).unwrap());
        let start = values(input);
        for i in 0..start.len() {
            assert!(
                (gradient[i] - composed[i]).abs() < 1e-8 * (1.0 + composed[i].abs()),
                "{name}: gradient {i} of input {number}: {}, composed {}",
                gradient[i],
                composed[i]
            );
            let at = |step: f64| {
                let mut moved = start.clone();
                moved[i] += step;
                input.set(&Tensor::from_vec(moved, input.dims(), &Device::Cpu).unwrap()).unwrap();
                scalar(&fused(Some(&Tape::new()), inputs).unwrap())
                    .unwrap()
                    .to_scalar::<f64>()
                    .unwrap()
            };
            let step = 1e-5;
            let difference = (at(step) - at(-step)) / (2.0 * step);
            assert!(
                (gradient[i] - difference).abs() < 1e-6 * (1.0 + difference.abs()),
                "{name}: gradient {i} of input {number}: {}, finite difference {difference}",
                gradient[i]
            );
        }
        input.set(&Tensor::from_vec(start, input.dims(), &Device::Cpu).unwrap()).unwrap();
    }
}

/// Rows of the result, and rows of the gradient.
pub(crate) type Rows = [Vec<Vec<f32>>; 2];

/// Runs `run` for sequences of these lengths, on one thread and on three, and for each sequence
/// alone. Checks that the bits are the same.
pub(crate) fn check_threads_and_neighbours(
    name: &str,
    input: &Var,
    lengths: &[usize],
    run: impl Fn(&Var, &[usize]) -> Result<Rows> + Sync,
) -> Result<()> {
    let on = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| run(input, lengths)).unwrap()
    };
    let together = on(1);
    assert!(on(3) == together, "{name}: three threads");
    let mut first = 0;
    for &length in lengths {
        if length > 0 {
            let own = Var::from_tensor(&input.narrow(0, first, length)?.contiguous()?)?;
            let alone = run(&own, &[length])?;
            for (alone, together) in alone.iter().zip(&together) {
                assert!(alone == &together[first..first + length], "{name}, {length} tokens");
            }
        }
        first += length;
    }
    Ok(())
}

pub(crate) fn has_fused_multiply_adds() -> bool {
    #[cfg(target_arch = "x86_64")]
    return is_x86_feature_detected!("fma");
    #[cfg(not(target_arch = "x86_64"))]
    return cfg!(target_arch = "aarch64");
}

/// Returns the distance of two tensors in f64, relative to the norm of the second.
pub(crate) fn relative(ours: &Tensor, theirs: &Tensor) -> f64 {
    let (ours, theirs) = (ours.to_dtype(DType::F64).unwrap(), theirs.to_dtype(DType::F64).unwrap());
    let square = |x: &Tensor| x.sqr().unwrap().sum_all().unwrap().to_scalar::<f64>().unwrap();
    (square(&(&ours - &theirs).unwrap()) / square(&theirs)).sqrt()
}
