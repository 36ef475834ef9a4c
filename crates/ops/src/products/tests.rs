//! Compares every kernel of this machine with sums in f64, and with the other kernels.

use super::*;
use crate::rng::Counter;

fn random(key: u64, count: usize) -> Vec<f32> {
    let counter = Counter::new(key);
    (0..count as u64).map(|i| counter.normal_at(i) as f32).collect()
}

/// Shapes (m, k, n), from a single value to several blocks. In each dimension, some sizes consist
/// of whole blocks, and others leave the last block partly empty.
const SHAPES: [(usize, usize, usize); 8] = [
    (1, 1, 1),
    (5, 7, 3),
    (32, 32, 32),
    (33, 65, 31),
    (100, 130, 70),
    (3, 600, 200),
    (300, 40, 17),
    (64, 1300, 96),
];

/// Ways to compute a product: whether `a` is transposed in memory, whether `b` is, and whether the
/// product replaces values or is added to them.
const WAYS: [(bool, bool, Write); 4] = [
    (false, false, Write::Replace),
    (true, false, Write::Add),
    (false, true, Write::Add),
    (true, true, Write::Replace),
];

fn oriented(turned: bool, rows: usize, columns: usize) -> Matrix {
    if turned { Matrix::rows(rows).transposed() } else { Matrix::rows(columns) }
}

/// Computes the product of slices, starting from a copy of `start` in the destination.
fn run(
    (m, k, n): (usize, usize, usize),
    a: (&[f32], Matrix),
    b: (&[f32], Matrix),
    start: &[f32],
    write: Write,
    how: (Kernel, Products, Threads),
) -> Vec<f32> {
    let mut out = start.to_vec();
    let to = (Shared::new(&mut out), Matrix::rows(n));
    // SAFETY: only this function uses `out`.
    unsafe { product_f32((m, k, n), a, b, to, write, how, None) };
    out
}

fn round(products: Products, value: f32) -> f32 {
    if products == Products::Bf16 { half::bf16::from_f32(value).to_f32() } else { value }
}

/// Calls `test` for every kernel of this machine, with every type of products that it supports.
fn every_kernel(test: impl Fn(Kernel, Products)) {
    for products in [Products::F32, Products::Bf16] {
        Kernel::ALL
            .into_iter()
            .filter(|kernel| kernel.serves(products))
            .for_each(|kernel| test(kernel, products));
    }
}

/// Compares every kernel of this machine with sums in f64, for all [`SHAPES`] and operands in every
/// orientation.
#[test]
fn kernels_agree_with_f64() {
    for (m, k, n) in SHAPES {
        let (a, b, start) = (random(1, m * k), random(2, k * n), random(3, m * n));
        for (a_turned, b_turned, write) in WAYS {
            let (a_at, b_at) = (oriented(a_turned, m, k), oriented(b_turned, k, n));
            for products in [Products::F32, Products::Bf16] {
                let wide = |values: &[f32], i: usize| f64::from(round(products, values[i]));
                let mut expected: Vec<f64> = start
                    .iter()
                    .map(|&x| if write == Write::Add { f64::from(x) } else { 0.0 })
                    .collect();
                for i in 0..m {
                    for j in 0..n {
                        for p in 0..k {
                            expected[i * n + j] += wide(&a, i * a_at.row + p * a_at.column)
                                * wide(&b, p * b_at.row + j * b_at.column);
                        }
                    }
                }
                for kernel in Kernel::ALL.into_iter().filter(|kernel| kernel.serves(products)) {
                    for threads in [Threads::All, Threads::One] {
                        let how = (kernel, products, threads);
                        let out = run((m, k, n), (&a, a_at), (&b, b_at), &start, write, how);
                        let error = out
                            .iter()
                            .zip(&expected)
                            .map(|(x, y)| (f64::from(*x) - y).abs())
                            // In the total order, NaN comes after infinity.
                            .max_by(f64::total_cmp)
                            .unwrap();
                        // Multiply-add kernels and, without AVX-512, the `gemm` crate sum over all
                        // of `k` sequentially: here the error is at most 5.2e-6.
                        let bound = match kernel {
                            Kernel::Tiles | Kernel::Dots => 3e-6,
                            _ => 6e-6,
                        } * (k as f64).sqrt().max(2.0);
                        assert!(
                            error < bound,
                            "{m}×{k}×{n} {products:?} {kernel:?} {write:?} {threads:?}: off by \
                             {error}, bound {bound}"
                        );
                    }
                }
            }
        }
    }
}

/// Checks that the multiply-add kernels give the same bits as a loop that computes one result after
/// the other. So every processor with such a kernel gives the same bits.
#[test]
fn multiply_adds_are_summed_in_order() {
    for (m, k, n) in SHAPES {
        let (a, b, start) = (random(1, m * k), random(2, k * n), random(3, m * n));
        for (a_turned, b_turned, write) in WAYS {
            let (a_at, b_at) = (oriented(a_turned, m, k), oriented(b_turned, k, n));
            every_kernel(|kernel, products| {
                if matches!(kernel, Kernel::Tiles | Kernel::Dots | Kernel::Gemm) {
                    return;
                }
                let how = (kernel, products, Threads::One);
                let out = run((m, k, n), (&a, a_at), (&b, b_at), &start, write, how);
                for (i, row) in out.chunks_exact(n).enumerate() {
                    for (j, &found) in row.iter().enumerate() {
                        let first = if write == Write::Add { start[i * n + j] } else { 0.0 };
                        let sum = (0..k).fold(first, |sum, p| {
                            let a = round(products, a[i * a_at.row + p * a_at.column]);
                            let b = round(products, b[p * b_at.row + j * b_at.column]);
                            a.mul_add(b, sum)
                        });
                        assert!(
                            found.to_bits() == sum.to_bits(),
                            "{m}×{k}×{n} {products:?} {kernel:?} {write:?}: {found}, in order {sum}"
                        );
                    }
                }
            });
        }
    }
}

/// Checks kernels that pack their operands: no bit of a result depends on the division among
/// threads, or on other rows and columns of the operands.
#[test]
fn results_depend_on_their_operands_alone() {
    for (m, k, n) in [(300, 257, 65), (70, 1300, 200), (33, 65, 1200)] {
        let (a, b, start) = (random(1, m * k), random(2, k * n), random(3, m * n));
        every_kernel(|kernel, products| {
            let (a_at, b_at) = (Matrix::rows(k), oriented(true, k, n));
            let with = |threads| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                let how = (kernel, products, Threads::All);
                pool.install(|| run((m, k, n), (&a, a_at), (&b, b_at), &start, Write::Add, how))
            };
            let one = with(1);
            for threads in [2, 3, 8, 16] {
                assert!(one == with(threads), "{m}×{k}×{n} {products:?} {kernel:?}: {threads}");
            }
            if kernel == Kernel::Gemm {
                return;
            }
            let how = (kernel, products, Threads::One);
            let together = run((m, k, n), (&a, a_at), (&b, b_at), &start, Write::Replace, how);
            for (row, together) in together.chunks_exact(n).enumerate().step_by(13) {
                let (a, start) = ((&a[row * k..][..k], a_at), vec![f32::NAN; n]);
                let alone = run((1, k, n), a, (&b, b_at), &start, Write::Replace, how);
                assert!(alone == together, "{m}×{k}×{n} {products:?} {kernel:?}: row {row}");
            }
        });
    }
}

/// Checks that values that are not finite affect only the results of their own row.
#[test]
fn what_is_not_finite_is_seen_in_its_row_alone() {
    let (m, k, n) = (40, 70, 40);
    let (mut a, b) = (random(1, m * k), random(2, k * n));
    a[3 * k + 5] = f32::NAN;
    a[35 * k] = f32::INFINITY;
    every_kernel(|kernel, products| {
        let (a, b) = ((a.as_slice(), Matrix::rows(k)), (b.as_slice(), Matrix::rows(n)));
        let how = (kernel, products, Threads::One);
        let out = run((m, k, n), a, b, &vec![0.0; m * n], Write::Replace, how);
        for (i, row) in out.chunks_exact(n).enumerate() {
            let finite = row.iter().all(|value| value.is_finite());
            assert!(finite != [3, 35].contains(&i), "{kernel:?} {products:?}: row {i}");
        }
        assert!(out[3 * n..4 * n].iter().all(|value| value.is_nan()));
    });
}

/// Checks that an f32 product made of bf16 parts is no less accurate than one of f32 multiply-adds.
#[test]
fn split_products_are_as_accurate_as_f32() {
    if !Kernel::Tiles.serves(Products::F32) {
        return;
    }
    for k in [32, 128, 512, 2048] {
        let (m, n) = (64, 64);
        // If all values are positive, errors of the parts in the same direction would add up.
        for shift in [0.0, 1.0] {
            let (a, b) = (random(4, m * k), random(5, k * n));
            let (a, b): (Vec<f32>, Vec<f32>) = (
                a.iter().map(|x| x.abs() * shift + x * (1.0 - shift)).collect(),
                b.iter().map(|x| x.abs() * shift + x * (1.0 - shift)).collect(),
            );
            let error = |kernel| {
                let (a, b) = ((a.as_slice(), Matrix::rows(k)), (b.as_slice(), Matrix::rows(n)));
                let how = (kernel, Products::F32, Threads::One);
                let out = run((m, k, n), a, b, &vec![0.0; m * n], Write::Replace, how);
                let mut sum = 0.0;
                for i in 0..m {
                    for j in 0..n {
                        let exact: f64 = (0..k)
                            .map(|p| f64::from(a.0[i * k + p]) * f64::from(b.0[p * n + j]))
                            .sum();
                        sum += (f64::from(out[i * n + j]) - exact).powi(2);
                    }
                }
                (sum / (m * n) as f64).sqrt()
            };
            let (split, plain) = (error(Kernel::Tiles), error(Kernel::Gemm));
            assert!(
                split <= 1.5 * plain,
                "k {k}, shift {shift}: root mean square error {split:e} against {plain:e}"
            );
        }
    }
}
