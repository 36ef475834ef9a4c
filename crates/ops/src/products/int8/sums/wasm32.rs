//! Sums with the SIMD instructions of WebAssembly.

use std::arch::wasm32::*;

sum! {
    /// Sums of two columns, with two partial sums for each, for products of i8 by i8.
    Simd128(v128): 2 columns of i8 + 0, v128, v128;
    start(_from) i32x4_splat(0);
    quad(from) i16x8_extend_low_i8x16(v128_load32_splat(from.cast()));
    weights(from) i16x8_load_extend_i8x8(from);
    plus(sums, quad, weights) i32x4_add(sums, i32x4_dot_i16x8(quad, weights));
    store(sums, to) {
        let even = i32x4_shuffle::<0, 2, 4, 6>(sums, sums);
        let odd = i32x4_shuffle::<1, 3, 5, 7>(sums, sums);
        v128_store64_lane::<0>(i32x4_add(even, odd), to.cast())
    };
}
