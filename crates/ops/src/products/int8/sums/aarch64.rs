//! Sums on NEON, with and without its dot product.

use super::Sum;
use std::arch::aarch64::*;

/// Sums of four columns, for products of i8 by i8.
#[derive(Clone, Copy)]
pub(in super::super) struct NeonDot(int32x4_t);

impl Sum for NeonDot {
    type Activation = i8;
    type Quad = int8x16_t;
    type Weights = int8x16_t;
    const COLUMNS: usize = 4;
    const SHIFT: i32 = 0;

    #[inline(always)]
    fn stored(bits: u32) -> i8 {
        bits as i8
    }

    #[inline(always)]
    unsafe fn start(_: *const i32) -> Self {
        // SAFETY: the caller's promise, here and below.
        Self(unsafe { vdupq_n_s32(0) })
    }

    #[inline(always)]
    unsafe fn quad(from: *const i8) -> int8x16_t {
        // SAFETY: as above.
        unsafe { vreinterpretq_s8_s32(vdupq_n_s32(from.cast::<i32>().read_unaligned())) }
    }

    #[inline(always)]
    unsafe fn weights(from: *const i8) -> int8x16_t {
        // SAFETY: as above.
        unsafe { vld1q_s8(from) }
    }

    /// Written by name: Rust has no stable function for this instruction.
    #[inline(always)]
    unsafe fn plus(self, quad: int8x16_t, weights: int8x16_t) -> Self {
        let mut sums = self.0;
        // SAFETY: as above; the instruction only uses the three registers.
        unsafe {
            std::arch::asm!(
                ".arch_extension dotprod",
                "sdot {sums:v}.4s, {weights:v}.16b, {quad:v}.16b",
                sums = inout(vreg) sums,
                weights = in(vreg) weights,
                quad = in(vreg) quad,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        Self(sums)
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut i32) {
        // SAFETY: as above.
        unsafe { vst1q_s32(to, self.0) }
    }
}

/// Two columns with two sums each, for products of i8 by i8.
#[derive(Clone, Copy)]
pub(in super::super) struct Neon(int32x4_t);

impl Sum for Neon {
    type Activation = i8;
    type Quad = int8x8_t;
    type Weights = int8x8_t;
    const COLUMNS: usize = 2;
    const SHIFT: i32 = 0;

    #[inline(always)]
    fn stored(bits: u32) -> i8 {
        bits as i8
    }

    #[inline(always)]
    unsafe fn start(_: *const i32) -> Self {
        // SAFETY: as above.
        Self(unsafe { vdupq_n_s32(0) })
    }

    #[inline(always)]
    unsafe fn quad(from: *const i8) -> int8x8_t {
        // SAFETY: as above.
        unsafe { vreinterpret_s8_s32(vdup_n_s32(from.cast::<i32>().read_unaligned())) }
    }

    #[inline(always)]
    unsafe fn weights(from: *const i8) -> int8x8_t {
        // SAFETY: as above.
        unsafe { vld1_s8(from) }
    }

    #[inline(always)]
    unsafe fn plus(self, quad: int8x8_t, weights: int8x8_t) -> Self {
        // SAFETY: as above. A product of two 8-bit values fits 16 bits.
        Self(unsafe { vpadalq_s16(self.0, vmull_s8(quad, weights)) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut i32) {
        // SAFETY: as above.
        unsafe { vst1_s32(to, vpadd_s32(vget_low_s32(self.0), vget_high_s32(self.0))) }
    }
}
