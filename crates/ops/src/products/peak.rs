//! What a processor could do at most: multiply-adds on registers alone.

use super::Kernel;

/// Registers with a sum each: more than a multiply-add takes cycles, times as many as begin in one.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
const SUMS: usize = 12;

/// Runs `rounds` times through the multiply-adds that `kernel` is made of, on registers alone and
/// on the calling thread; returns how many numbers were multiplied and added. The time that it
/// takes is what a product would take if operands came for nothing. `None` where the processor does
/// not have them, and for the `gemm` crate, which has none of its own.
#[must_use]
pub fn multiply_adds_on_registers(kernel: Kernel, rounds: usize) -> Option<usize> {
    if !kernel.is_here() {
        return None;
    }
    // SAFETY: the processor has the kernel's instructions.
    let each = unsafe {
        match kernel {
            #[cfg(target_arch = "x86_64")]
            Kernel::Tiles => super::amx::Tiles::configure().multiply_zeros(rounds),
            #[cfg(target_arch = "x86_64")]
            Kernel::Dots => super::dot::multiply_registers::<SUMS>(rounds),
            #[cfg(target_arch = "x86_64")]
            Kernel::Fma512 => super::fma::avx512::multiply_registers::<SUMS>(rounds),
            #[cfg(target_arch = "x86_64")]
            Kernel::Fma256 => super::fma::avx2::multiply_registers::<SUMS>(rounds),
            #[cfg(target_arch = "aarch64")]
            Kernel::Neon => super::fma::neon::multiply_registers::<{ 2 * SUMS }>(rounds),
            _ => return None,
        }
    };
    Some(rounds * each)
}
