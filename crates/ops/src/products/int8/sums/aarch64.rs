//! Sums with NEON, with and without its dot-product instruction.

use std::arch::aarch64::*;

sum! {
    /// Sums of four columns, for products of i8 by i8.
    NeonDot(int32x4_t): 4 columns of i8 + 0, int8x16_t, int8x16_t;
    start(_from) vdupq_n_s32(0);
    quad(from) vreinterpretq_s8_s32(vdupq_n_s32(from.cast::<i32>().read_unaligned()));
    weights(from) vld1q_s8(from);
    // The instruction is written as assembly, because Rust has no stable function for it. It uses
    // only the three registers.
    plus(sums, quad, weights) {
        let mut sums = sums;
        std::arch::asm!(
            ".arch_extension dotprod",
            "sdot {sums:v}.4s, {weights:v}.16b, {quad:v}.16b",
            sums = inout(vreg) sums,
            weights = in(vreg) weights,
            quad = in(vreg) quad,
            options(pure, nomem, nostack, preserves_flags),
        );
        sums
    };
    store(sums, to) vst1q_s32(to, sums);
}

sum! {
    /// Sums of two columns, with two partial sums for each, for products of i8 by i8.
    Neon(int32x4_t): 2 columns of i8 + 0, int8x8_t, int8x8_t;
    start(_from) vdupq_n_s32(0);
    quad(from) vreinterpret_s8_s32(vdup_n_s32(from.cast::<i32>().read_unaligned()));
    weights(from) vld1_s8(from);
    // The product of two 8-bit values fits in 16 bits.
    plus(sums, quad, weights) vpadalq_s16(sums, vmull_s8(quad, weights));
    store(sums, to) vst1_s32(to, vpadd_s32(vget_low_s32(sums), vget_high_s32(sums)));
}
