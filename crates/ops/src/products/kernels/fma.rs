//! Products by fused multiply-adds of f32, written once for registers of every width.
//!
//! An operand is packed as lines of [`PANEL`] values, one line for each index of the summed
//! dimension. A block of results stays in registers while the kernel goes along the summed
//! dimension. At each index of this dimension, it reads one line of each operand. The line of the
//! left operand has a value for each row, and the line of the right operand has a value for each
//! column. The product of each pair of these values is added to the result in that row and column
//! (Goto and van de Geijn 2008, section 4).
//!
//! On processors without bf16 instructions, bf16 products use these kernels, too. Their operands
//! are rounded when they are packed; the product of two bf16 values is exact in f32.

use super::vector::Vector;
use crate::products::operand::{AHEAD, DEPTH, Line, Operand, PANEL, Results, fetch_once};

/// Function that computes `a · b` for two panels of depth `depth`. Depending on `to.add`, the
/// product replaces the results or is added to them.
///
/// The processor must have the kernel's instructions, `a` and `b` must have `depth · PANEL` values,
/// and the destination must have 32 rows of 32 values.
pub(in crate::products) type Multiply =
    unsafe fn(a: *const f32, b: *const f32, depth: usize, to: Results);

/// Computes a block of results with `ROWS` rows, and as many columns as `VECTORS` registers hold.
///
/// # Safety
/// As for [`Multiply`], for the rows and columns that begin at the pointers.
#[inline(always)]
unsafe fn multiply_block<V: Vector, const ROWS: usize, const VECTORS: usize>(
    a: *const f32,
    b: *const f32,
    depth: usize,
    Results { first: c, stride, add, .. }: Results,
) {
    // SAFETY: as the caller promises.
    unsafe {
        let mut sums = [[V::zero(); VECTORS]; ROWS];
        if add {
            for (row, sums) in sums.iter_mut().enumerate() {
                for (i, sum) in sums.iter_mut().enumerate() {
                    *sum = V::load(c.add(row * stride + i * V::LANES));
                }
            }
        }
        for k in 0..depth {
            let (a, b) = (a.add(k * PANEL), b.add(k * PANEL));
            if ROWS == 1 {
                for line in 0..PANEL * size_of::<f32>() / size_of::<Line>() {
                    fetch_once(b.cast::<Line>().wrapping_add(AHEAD + line).cast());
                }
            }
            // If there are fewer rows than registers of columns, the values of the rows stay in
            // registers, and the columns are loaded one register at a time. Otherwise the columns
            // stay in registers, and the values of the rows are loaded one by one.
            if ROWS < VECTORS {
                let values: [V; ROWS] = std::array::from_fn(|row| V::splat(*a.add(row)));
                for i in 0..VECTORS {
                    let columns = V::load(b.add(i * V::LANES));
                    for (sums, value) in sums.iter_mut().zip(values) {
                        sums[i] = sums[i].plus_product(value, columns);
                    }
                }
            } else {
                let columns: [V; VECTORS] = std::array::from_fn(|i| V::load(b.add(i * V::LANES)));
                for (row, sums) in sums.iter_mut().enumerate() {
                    let value = V::splat(*a.add(row));
                    for (sum, columns) in sums.iter_mut().zip(columns) {
                        *sum = sum.plus_product(value, columns);
                    }
                }
            }
        }
        for (row, sums) in sums.into_iter().enumerate() {
            for (i, sum) in sums.into_iter().enumerate() {
                sum.store(c.add(row * stride + i * V::LANES));
            }
        }
    }
}

/// Packs one step (32 indices of the summed dimension) of one panel (32 rows or columns) into
/// `lines`. If `round` is true, values are rounded to bf16.
///
/// # Safety
/// The processor has the vector's instructions. The operand is in bounds and packable, and has this
/// panel and this step; `lines` has room for `PANEL · DEPTH` values.
#[inline(always)]
unsafe fn pack_step<V: Vector>(
    operand: &Operand<'_>,
    panel: usize,
    step: usize,
    round: bool,
    lines: &mut [Line],
) {
    let (first, start) = (panel * PANEL, step * DEPTH);
    let (count, depth) = ((operand.count - first).min(PANEL), (operand.depth - start).min(DEPTH));
    let offset = operand.offset + first * operand.outer + start * operand.inner;
    // SAFETY: each line is 16 values, and there are as many lines as these values take.
    let packed: &mut [f32; PANEL * DEPTH] = unsafe { &mut *lines.as_mut_ptr().cast() };
    if operand.inner == 1 {
        let mut edge;
        let (from, stride) = if count == PANEL && depth == DEPTH {
            (operand.values[offset..].as_ptr(), operand.outer)
        } else {
            edge = [0.0; PANEL * DEPTH];
            for (i, edge) in edge.chunks_exact_mut(DEPTH).take(count).enumerate() {
                edge[..depth]
                    .copy_from_slice(&operand.values[offset + i * operand.outer..][..depth]);
            }
            (edge.as_ptr(), DEPTH)
        };
        for i in (0..PANEL).step_by(V::LANES) {
            for k in (0..DEPTH).step_by(V::LANES) {
                // SAFETY: 32 rows of 32 values can be read, as the caller promises, and there is
                // room to write as many.
                unsafe {
                    let to = packed.as_mut_ptr().add(k * PANEL + i);
                    V::transpose(|row| from.add((i + row) * stride + k), to, PANEL);
                }
            }
        }
    } else {
        // Lines of a whole panel are copied separately, because a copy of constant length is
        // compiled without a function call.
        for (k, line) in packed.as_chunks_mut::<PANEL>().0.iter_mut().enumerate() {
            if k < depth && count == PANEL {
                line.copy_from_slice(&operand.values[offset + k * operand.inner..][..PANEL]);
            } else if k < depth {
                line[..count]
                    .copy_from_slice(&operand.values[offset + k * operand.inner..][..count]);
                line[count..].fill(0.0);
            } else {
                line.fill(0.0);
            }
        }
    }
    if round {
        // Not a closure, because closures are compiled without the caller's instructions.
        for value in packed {
            *value = rounded(*value);
        }
    }
}

/// Rounds to the nearest bf16 value, ties to even, like `half::bf16::from_f32`, but without a
/// branch, so that loops vectorise. A NaN becomes a quiet NaN, as in that function. (If it were
/// left unchanged, loops in place would be compiled to masked stores, which take ten times as long
/// on some processors.)
#[inline(always)]
fn rounded(value: f32) -> f32 {
    let bits = value.to_bits();
    let nearest = bits.wrapping_add(0x7fff + ((bits >> 16) & 1));
    let quiet = bits | 0x0040_0000;
    f32::from_bits(if value.is_nan() { quiet } else { nearest } & 0xffff_0000)
}

/// Multiplies and adds on `SUMS` registers, `rounds` times, to measure the peak speed. Returns the
/// number of multiply-adds in one round.
///
/// # Safety
/// The processor has the vector's instructions.
#[inline(always)]
unsafe fn multiply_registers<V: Vector, const SUMS: usize>(rounds: usize) -> usize {
    // SAFETY: as the caller promises; `seen` has room for a register.
    unsafe {
        let factor = V::splat(std::hint::black_box(0.5));
        let mut sums = [factor; SUMS];
        for _ in 0..rounds {
            for sum in &mut sums {
                *sum = sum.plus_product(*sum, factor);
            }
        }
        let mut seen = [0.0; PANEL];
        sums.into_iter().for_each(|sum| {
            sum.store(seen.as_mut_ptr());
            std::hint::black_box(&seen);
        });
    }
    SUMS * V::LANES
}

/// Defines the kernel for registers of one width. Its blocks of results have at most `$rows` rows,
/// and as many columns as `$vectors` registers hold. So the sums and the operands fit in registers.
/// If `$rows` does not divide the 32 rows of a panel, some blocks have one row less. Their sums are
/// too few to keep both multipliers busy. With 3 rows by 4 registers, only 2 of the 32 rows lie in
/// such smaller blocks; with 6 rows by 2 registers, 20 would.
macro_rules! kernel {
    ($name:ident, $feature:literal, $vector:ty, $rows:literal by $vectors:literal) => {
        pub(in crate::products) mod $name {
            use super::*;

            /// Multiplies two panels.
            ///
            /// # Safety
            /// As for [`Multiply`].
            #[target_feature(enable = $feature)]
            pub(crate) unsafe fn multiply(a: *const f32, b: *const f32, depth: usize, to: Results) {
                const BLOCKS: usize = PANEL.div_ceil($rows);
                if to.rows == 1 {
                    // SAFETY: as the caller promises.
                    unsafe {
                        multiply_block::<$vector, 1, { PANEL / <$vector>::LANES }>(a, b, depth, to)
                    };
                    return;
                }
                for column in (0..PANEL).step_by($vectors * <$vector>::LANES) {
                    for block in 0..BLOCKS {
                        // The rows of a panel are divided into blocks of nearly equal size.
                        let row = block * PANEL / BLOCKS;
                        if row >= to.rows {
                            break;
                        }
                        let rows = (block + 1) * PANEL / BLOCKS - row;
                        // SAFETY: as the caller promises; blocks lie within the panel.
                        unsafe {
                            let (a, b) = (a.add(row), b.add(column));
                            let first = to.first.add(row * to.stride + column);
                            let to = Results { first, ..to };
                            if rows == $rows {
                                multiply_block::<$vector, $rows, $vectors>(a, b, depth, to);
                            } else {
                                multiply_block::<$vector, { $rows - 1 }, $vectors>(a, b, depth, to);
                            }
                        }
                    }
                }
            }

            /// Packs one step of one panel; see [`pack_step`](super::pack_step).
            ///
            /// # Safety
            /// As for [`pack_step`](super::pack_step).
            #[target_feature(enable = $feature)]
            pub(crate) unsafe fn pack_step(
                operand: &Operand<'_>,
                panel: usize,
                step: usize,
                round: bool,
                lines: &mut [Line],
            ) {
                // SAFETY: as the caller promises.
                unsafe { super::pack_step::<$vector>(operand, panel, step, round, lines) }
            }

            /// Multiplies and adds on registers, to measure the peak speed.
            ///
            /// # Safety
            /// As for [`multiply_registers`](super::multiply_registers).
            #[target_feature(enable = $feature)]
            pub(crate) unsafe fn multiply_registers<const SUMS: usize>(rounds: usize) -> usize {
                // SAFETY: as the caller promises.
                unsafe { super::multiply_registers::<$vector, SUMS>(rounds) }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
kernel!(avx512, "avx512f", std::arch::x86_64::__m512, 8 by 2);
#[cfg(target_arch = "x86_64")]
kernel!(avx2, "avx2,fma", std::arch::x86_64::__m256, 3 by 4);
#[cfg(target_arch = "aarch64")]
kernel!(neon, "neon", std::arch::aarch64::float32x4_t, 6 by 4);
#[cfg(target_arch = "wasm32")]
kernel!(simd128, "simd128", std::arch::wasm32::v128, 3 by 4);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::products::{Kernel, Matrix, Packing, Products};
    use crate::rng::Counter;

    #[test]
    fn values_are_rounded_as_the_half_crate_does() {
        let halfway = [0x3f80_8000, 0x3f81_8000, 0x3f80_8001, 0x7f7f_ffff, 0xff7f_8000, 1, 0x8000];
        let spread = (0..1 << 16).map(|i: u32| i.wrapping_mul(0x9e37_79b9));
        for value in halfway.into_iter().chain(spread).map(f32::from_bits) {
            let (ours, theirs) = (rounded(value), half::bf16::from_f32(value).to_f32());
            assert!(ours.to_bits() == theirs.to_bits(), "{value:e}: {ours:e}, not {theirs:e}");
        }
    }

    #[test]
    fn a_tile_as_it_lies_is_a_packed_operand() {
        let counter = Counter::new(2);
        let values: Vec<f32> =
            (0..70 * PANEL as u64).map(|i| counter.normal_at(i) as f32).collect();
        let offset = values.as_ptr().align_offset(size_of::<Line>());
        for kernel in [Kernel::Fma512, Kernel::Fma256, Kernel::Neon] {
            let Some(packing) = Packing::for_kernel(kernel, Products::F32) else { continue };
            let tile = |offset, depth| {
                let at = Matrix::rows(PANEL).transposed().at(offset);
                Operand::left(&values, at, PANEL, depth)
            };
            let operand = tile(offset, 2 * DEPTH);
            let mut packed = vec![Line::ZERO; 2 * packing.step_lines()];
            for (step, lines) in packed.chunks_exact_mut(packing.step_lines()).enumerate() {
                packing.pack_step(&operand, 0, step, lines);
            }
            let lines = packing.lines_of(&operand).unwrap();
            assert!(lines.iter().map(|line| line.0).eq(packed.iter().map(|line| line.0)));
            // Half a step has to be packed, and so have data that do not begin at a cache line.
            assert!(packing.lines_of(&tile(offset, DEPTH / 2)).is_none());
            assert!(packing.lines_of(&tile(offset + 1, DEPTH)).is_none());
        }
        if let Some(packing) = Packing::for_kernel(Kernel::Fma256, Products::Bf16) {
            let at = Matrix::rows(PANEL).transposed().at(offset);
            assert!(packing.lines_of(&Operand::left(&values, at, PANEL, DEPTH)).is_none());
        }
    }

    #[test]
    fn both_orientations_pack_as_one_value_at_a_time() {
        let counter = Counter::new(1);
        let values: Vec<f32> = (0..80 * 90).map(|i| counter.normal_at(i) as f32).collect();
        for kernel in [Kernel::Fma512, Kernel::Fma256, Kernel::Neon] {
            for products in [Products::F32, Products::Bf16] {
                let Some(packing) = Packing::for_kernel(kernel, products) else { continue };
                Operand::with_every_kind(&values, |operand| {
                    for panel in 0..operand.panels() {
                        for step in 0..operand.steps() {
                            let mut lines = vec![Line([7; 32]); packing.step_lines()];
                            packing.pack_step(operand, panel, step, &mut lines);
                            let packed = lines.iter().flat_map(|line| {
                                let bits =
                                    |pair: &[u16]| u32::from(pair[0]) | u32::from(pair[1]) << 16;
                                line.0.chunks_exact(2).map(bits).collect::<Vec<_>>()
                            });
                            for (i, bits) in packed.enumerate() {
                                let (k, index) =
                                    (step * DEPTH + i / PANEL, panel * PANEL + i % PANEL);
                                let mut value = operand.value(index, k);
                                if products == Products::Bf16 {
                                    value = half::bf16::from_f32(value).to_f32();
                                }
                                assert!(
                                    bits == value.to_bits(),
                                    "{kernel:?} {products:?} {operand:?}: {index}, {k}"
                                );
                            }
                        }
                    }
                });
            }
        }
    }
}
