//! Measures the peak speed of a processor, with multiply-adds on registers only.

use super::{Kernel, Products};
use std::time::Instant;

/// Number of registers to which products are added, one register after the other. It must be at
/// least the latency of a multiply-add in cycles, times the number of multiply-adds that can begin
/// in a cycle.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "wasm32"))]
const SUMS: usize = 12;

/// Runs the multiply-adds of `kernel` on registers only, `rounds` times and on the calling thread,
/// and returns the number of multiply-adds. A product with as many multiply-adds would take the
/// same time if loading operands cost no time. Returns `None` if the processor does not support the
/// kernel, and for the `gemm` crate, which has no multiply-adds of its own.
#[must_use]
pub fn multiply_adds_on_registers(kernel: Kernel, rounds: usize) -> Option<usize> {
    if !kernel.is_here() {
        return None;
    }
    // SAFETY: the processor has the kernel's instructions.
    let each = unsafe {
        match kernel {
            #[cfg(target_arch = "x86_64")]
            Kernel::Tiles => super::kernels::amx::Tiles::configure().multiply_zeros(rounds),
            #[cfg(target_arch = "x86_64")]
            Kernel::Dots => super::kernels::dot::multiply_registers::<SUMS>(rounds),
            #[cfg(target_arch = "x86_64")]
            Kernel::Fma512 => super::kernels::fma::avx512::multiply_registers::<SUMS>(rounds),
            #[cfg(target_arch = "x86_64")]
            Kernel::Fma256 => super::kernels::fma::avx2::multiply_registers::<SUMS>(rounds),
            #[cfg(target_arch = "aarch64")]
            Kernel::Neon => super::kernels::fma::neon::multiply_registers::<{ 2 * SUMS }>(rounds),
            #[cfg(target_arch = "wasm32")]
            Kernel::Simd128 => super::kernels::fma::simd128::multiply_registers::<SUMS>(rounds),
            _ => return None,
        }
    };
    Some(rounds * each)
}

/// Measures how many multiplications and additions per second all threads of the pool together
/// perform on registers. It measures the instructions of `kernel` or, for the `gemm` crate, the
/// fastest f32 multiply-adds of the processor. Returns `None` if the processor does not have these
/// instructions. Each thread runs `rounds` iterations of about 2 ns each.
#[must_use]
pub fn peak_rate(kernel: Kernel, rounds: usize) -> Option<f64> {
    let limits = [Kernel::Fma512, Kernel::Fma256, Kernel::Neon, Kernel::Simd128];
    let limit = match kernel {
        Kernel::Gemm => limits.into_iter().find(|kernel| kernel.is_here())?,
        kernel => kernel,
    };
    let began = Instant::now();
    let done = rayon::broadcast(|_| multiply_adds_on_registers(limit, rounds));
    let done = done.into_iter().sum::<Option<usize>>()?;
    Some(2.0 * done as f64 / began.elapsed().as_secs_f64())
}

/// Returns how many products of rounded operands `kernel` computes for one product of the requested
/// type. There is more than one only if it splits operands into parts.
#[must_use]
pub const fn products_in_one(kernel: Kernel, products: Products) -> u32 {
    match (kernel, products) {
        // Each f32 operand is split into three bf16 parts, and six of the nine pairs of parts are
        // needed.
        (Kernel::Tiles, Products::F32) => 6,
        _ => 1,
    }
}
