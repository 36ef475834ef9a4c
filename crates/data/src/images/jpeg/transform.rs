//! The inverse cosine transform that libjpeg uses by default, `jidctint.c` (Loeffler, Ligtenberg
//! and Moschytz 1989, "Practical Fast 1-D DCT Algorithms with 11 Multiplications").

use super::Block;

/// Number of fractional bits of the transform's factors.
const CONSTANT: u32 = 13;
/// Number of additional fractional bits of the results of the first pass.
const KEPT: u32 = 2;

/// Samples of a block, each from 0 to 255. `table` is the quantization table.
pub(super) fn samples(block: &Block, table: &[u16; 64]) -> [u8; 64] {
    let mut values = [0; 64];
    for ((value, coefficient), factor) in values.iter_mut().zip(block).zip(table) {
        *value = i32::from(*coefficient).wrapping_mul(i32::from(*factor));
    }
    for column in 0..8 {
        let line = std::array::from_fn(|row| values[8 * row + column]);
        for (row, value) in line_transform(line, CONSTANT - KEPT).into_iter().enumerate() {
            values[8 * row + column] = value;
        }
    }
    let mut samples = [0; 64];
    for (line, to) in values.chunks_exact(8).zip(samples.chunks_exact_mut(8)) {
        let line = std::array::from_fn(|at| line[at]);
        let line = line_transform(line, CONSTANT + KEPT + 3);
        for (to, value) in to.iter_mut().zip(line) {
            *to = (value + 128).clamp(0, 255) as u8;
        }
    }
    samples
}

/// Transforms eight numbers, and rounds off some of their bits.
fn line_transform(line: [i32; 8], shift: u32) -> [i32; 8] {
    let times = |a: i32, b: i32| a.wrapping_mul(b);
    let plus = |a: i32, b: i32| a.wrapping_add(b);
    let minus = |a: i32, b: i32| a.wrapping_sub(b);
    // Even indices, with the factors 0.541196100, -1.847759065 and 0.765366865.
    let both = times(plus(line[2], line[6]), 4433);
    let (low, high) = (plus(both, times(line[6], -15137)), plus(both, times(line[2], 6270)));
    let sum = plus(line[0], line[4]).wrapping_shl(CONSTANT);
    let difference = minus(line[0], line[4]).wrapping_shl(CONSTANT);
    let even = [plus(sum, high), plus(difference, low), minus(difference, low), minus(sum, high)];
    // Odd indices.
    let [a, b, c, d] = [line[7], line[5], line[3], line[1]];
    let all = times(plus(plus(a, c), plus(b, d)), 9633);
    let ad = times(plus(a, d), -7373);
    let bc = times(plus(b, c), -20995);
    let ac = plus(times(plus(a, c), -16069), all);
    let bd = plus(times(plus(b, d), -3196), all);
    let odd = [
        plus(times(d, 12299), plus(ad, bd)),
        plus(times(c, 25172), plus(bc, ac)),
        plus(times(b, 16819), plus(bc, bd)),
        plus(times(a, 2446), plus(ad, ac)),
    ];
    let rounded = |value: i32| value.wrapping_add(1 << (shift - 1)) >> shift;
    std::array::from_fn(|at| match at {
        0..4 => rounded(plus(even[at], odd[at])),
        _ => rounded(minus(even[7 - at], odd[7 - at])),
    })
}
