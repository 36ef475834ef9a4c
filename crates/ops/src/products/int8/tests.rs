//! Compares every kernel of this machine with the plain loop and with sums in f64.

use super::parts::{Block, Parts};
use super::sums::Sum;
use super::*;
use crate::products::{Matrix, Products, Right, product_then};
use crate::rng::{Counter, mix};

fn random(key: u64, count: usize) -> Vec<f32> {
    let counter = Counter::new(key);
    (0..count as u64).map(|i| counter.normal_at(i) as f32).collect()
}

/// Emulates the instruction `vpdpbusd` by its definition, so that loops, layout and shifted
/// activations are also tested on processors that lack it.
#[derive(Clone, Copy)]
struct Emulated([i32; 16]);

impl Sum for Emulated {
    type Activation = u8;
    type Quad = [u8; QUAD];
    type Weights = [[i8; QUAD]; 16];
    const COLUMNS: usize = 16;
    const SHIFT: i32 = 128;

    fn stored(bits: u32) -> u8 {
        bits as u8 ^ 0x80
    }

    unsafe fn start(from: *const i32) -> Self {
        // SAFETY: as the caller promises, here and below.
        Self(unsafe { from.cast::<[i32; 16]>().read_unaligned() })
    }

    unsafe fn quad(from: *const u8) -> Self::Quad {
        // SAFETY: as above.
        unsafe { from.cast::<Self::Quad>().read_unaligned() }
    }

    unsafe fn weights(from: *const i8) -> Self::Weights {
        // SAFETY: as above.
        unsafe { from.cast::<Self::Weights>().read_unaligned() }
    }

    unsafe fn plus(self, quad: Self::Quad, weights: Self::Weights) -> Self {
        let product = |(a, b): (u8, i8)| i32::from(a) * i32::from(b);
        Self(std::array::from_fn(|column| {
            let products = quad.into_iter().zip(weights[column]).map(product);
            products.fold(self.0[column], i32::wrapping_add)
        }))
    }

    unsafe fn store(self, to: *mut i32) {
        // SAFETY: as above.
        unsafe { to.cast::<[i32; 16]>().write_unaligned(self.0) }
    }
}

loops::kernel!(emulated, Emulated, 12 by 2);

/// Returns the name and the functions of every kernel of this machine, and of the emulated one.
fn kernels() -> impl Iterator<Item = (&'static str, Parts)> {
    let here = Int8Kernel::ALL.into_iter().filter(|kernel| kernel.is_here());
    here.map(|kernel| (kernel.name(), kernel.parts())).chain([("emulated", emulated::PARTS)])
}

/// Shapes (rows, depth, columns). In each dimension, some sizes consist of whole blocks, and others
/// leave the last block partly empty.
const SHAPES: [(usize, usize, usize); 10] = [
    (1, 1, 1),
    (2, 3, 5),
    (5, 7, 33),
    (6, 32, 32),
    (13, 66, 31),
    (33, 65, 70),
    (100, 130, 17),
    (3, 600, 200),
    (300, 41, 96),
    (64, 2048, 48),
];

fn multiply(x: &[f32], rows: usize, weights: &PackedInt8) -> Vec<f32> {
    let (inputs, outputs) = (weights.inputs(), weights.outputs());
    let left = (x, Matrix::rows(inputs));
    product_then((rows, inputs, outputs), left, Right::Int8(weights), Products::F32, None)
}

/// Compares sums of integers. Kernels store activations in different ways. The sums of the largest
/// values exceed 16 bits, and also the range in which f32 represents all integers.
#[test]
fn sums_are_exact() {
    for (rows, depth, columns) in SHAPES {
        for extreme in [false, true] {
            let number = |key, i: usize| -> i8 {
                let bits = mix(key, &[i as u64]);
                if extreme {
                    if bits & 3 == 0 { -127 } else { 127 }
                } else {
                    ((bits % 255) as i32 - 127) as i8
                }
            };
            let left: Vec<i8> = (0..rows * depth).map(|i| number(1, i)).collect();
            let right: Vec<i8> = (0..columns * depth).map(|i| number(2, i)).collect();
            let weights = Int8Matrix::from_parts(right.clone(), vec![1.0; columns], depth).unwrap();
            for (kernel, parts) in kernels() {
                compare_sums(kernel, parts, (rows, depth, columns), &left, &right, &weights);
            }
        }
    }
}

/// Compares the sums of a kernel with those over the rounded rows, computed one value at a time.
fn compare_sums(
    kernel: &str,
    parts: Parts,
    (rows, depth, columns): (usize, usize, usize),
    left: &[i8],
    right: &[i8],
    weights: &Int8Matrix,
) {
    // A row of integers that contains the value 127 is rounded to itself.
    let as_f32 = |row: &[i8]| -> Vec<f32> { row.iter().map(|&x| f32::from(x)).collect() };
    let packed = PackedInt8::for_parts(weights, parts).unwrap();
    let Parts { width, activation_bytes, quantise, sums, .. } = parts;
    let stride = packed.quads() * QUAD * activation_bytes;
    let mut stored = vec![0_u8; rows * stride];
    let mut scales = Vec::new();
    for (row, stored) in left.chunks(depth).zip(stored.chunks_mut(stride)) {
        // SAFETY: the kernel is here, and there is room for the row.
        scales.push(unsafe { quantise(&as_f32(row), stored.as_mut_ptr()) });
    }
    for panel in 0..columns.div_ceil(width) {
        let (values, _, starts) = packed.panel(panel);
        let mut ours = vec![i32::MIN; rows * width];
        let all = Block {
            left: stored.as_ptr(),
            stride,
            rows,
            right: values.as_ptr(),
            quads: packed.quads(),
            starts: starts.as_ptr(),
            row_scales: scales.as_ptr(),
            scales: scales.as_ptr(),
            to: ours.as_mut_ptr().cast(),
            to_stride: width,
        };
        // SAFETY: the kernel is here, and there is memory for all rows, quads and sums.
        unsafe { sums(&all) };
        for (row, ours) in ours.chunks(width).enumerate() {
            // The same row, rounded one value at a time.
            let numbers = Int8Matrix::round(&as_f32(&left[row * depth..][..depth]), depth);
            assert_eq!(numbers.scales()[0].to_bits(), scales[row].to_bits());
            for (column, &ours) in ours.iter().enumerate() {
                let column = panel * width + column;
                let weights = right.chunks(depth).nth(column).unwrap_or(&[]);
                let expected: i32 = numbers
                    .values()
                    .iter()
                    .zip(weights)
                    .map(|(&a, &b)| i32::from(a) * i32::from(b))
                    .sum();
                assert_eq!(ours, expected, "{kernel} {rows}×{depth}×{columns}: {row}, {column}");
            }
        }
    }
}

/// Compares results in f32, bit by bit.
#[test]
fn every_kernel_gives_what_the_plain_loop_does() {
    for (rows, depth, columns) in SHAPES {
        let (x, weight) = (random(1, rows * depth), random(2, columns * depth));
        let weights = Int8Matrix::round(&weight, depth);
        let plain = multiply(&x, rows, &PackedInt8::new(&weights, Int8Kernel::Plain).unwrap());
        for (kernel, parts) in kernels() {
            let ours = multiply(&x, rows, &PackedInt8::for_parts(&weights, parts).unwrap());
            let same = ours.iter().zip(&plain).all(|(a, b)| a.to_bits() == b.to_bits());
            assert!(same, "{kernel} {rows}×{depth}×{columns}");
        }
    }
}

/// Compares results with f64. The error comes from rounding both operands. For normally distributed
/// values, a scale is about 3.5 / 127, and the error of a rounded value is 0.29 scales (root mean
/// square).
#[test]
fn products_are_close_to_those_of_f64() {
    let (rows, depth, columns) = (50, 512, 40);
    let (x, weight) = (random(1, rows * depth), random(2, columns * depth));
    let packed = PackedInt8::new(&Int8Matrix::round(&weight, depth), Int8Kernel::best()).unwrap();
    let ours = multiply(&x, rows, &packed);
    let mut squares = 0.0;
    for (row, ours) in ours.chunks(columns).enumerate() {
        for (column, &ours) in ours.iter().enumerate() {
            let (x, weight) = (&x[row * depth..][..depth], &weight[column * depth..][..depth]);
            let exact: f64 = x.iter().zip(weight).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum();
            squares += (f64::from(ours) - exact).powi(2);
        }
    }
    let error = (squares / (rows * columns * depth) as f64).sqrt();
    assert!((0.005..0.015).contains(&error), "{error} for each of the values that are summed");
}

/// Checks that no bit of a result depends on the number of threads or on other rows.
#[test]
fn results_depend_on_their_row_alone() {
    for (rows, depth, columns) in [(300, 257, 130), (70, 300, 2000), (9, 65, 12_000)] {
        let (x, weight) = (random(1, rows * depth), random(2, columns * depth));
        for (kernel, parts) in kernels() {
            let packed = PackedInt8::for_parts(&Int8Matrix::round(&weight, depth), parts).unwrap();
            let with = |threads| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                pool.install(|| multiply(&x, rows, &packed))
            };
            let together = with(1);
            assert!([2, 3, 8].into_iter().all(|threads| with(threads) == together), "{kernel}");
            for (row, together) in together.chunks(columns).enumerate().step_by(7) {
                let alone = multiply(&x[row * depth..][..depth], 1, &packed);
                assert!(alone == together, "{kernel} {rows}×{depth}×{columns}: row {row}");
            }
        }
    }
}

/// Checks that each row is passed to `finish` once, when it is complete, however the work is
/// divided.
#[test]
fn every_row_is_finished_once() {
    for (rows, depth, columns) in [(3, 8, 5), (500, 256, 40), (40, 256, 3000)] {
        let (x, weight) = (random(1, rows * depth), random(2, columns * depth));
        let packed =
            PackedInt8::new(&Int8Matrix::round(&weight, depth), Int8Kernel::best()).unwrap();
        let finish = |first: usize, out: &mut [f32]| {
            for (i, value) in out.iter_mut().enumerate() {
                *value = *value * 2.0 + (first + i / columns) as f32;
            }
        };
        let left = (x.as_slice(), Matrix::rows(depth));
        let shape = (rows, depth, columns);
        let right = Right::Int8(&packed);
        let finished = product_then(shape, left, right, Products::F32, Some(&finish));
        let plain = multiply(&x, rows, &packed);
        for (i, (found, plain)) in finished.iter().zip(plain).enumerate() {
            assert_eq!(*found, plain * 2.0 + (i / columns) as f32);
        }
    }
}

#[test]
fn what_is_not_finite_is_seen_in_its_row_alone() {
    let (rows, depth, columns) = (40, 70, 40);
    let (mut x, weight) = (random(1, rows * depth), random(2, columns * depth));
    x[3 * depth + 5] = f32::NAN;
    x[35 * depth] = f32::INFINITY;
    for (kernel, parts) in kernels() {
        let packed = PackedInt8::for_parts(&Int8Matrix::round(&weight, depth), parts).unwrap();
        for (row, out) in multiply(&x, rows, &packed).chunks_exact(columns).enumerate() {
            let finite = out.iter().all(|value| value.is_finite());
            assert!(finite != [3, 35].contains(&row), "{kernel}: row {row}");
        }
    }
}

#[test]
fn what_could_overflow_is_not_packed() {
    let weights = Int8Matrix::round(&vec![1.0; MOST_DEPTH + 1], MOST_DEPTH + 1);
    assert!(PackedInt8::new(&weights, Int8Kernel::Plain).is_none());
    let depth = MOST_DEPTH;
    let weights = Int8Matrix::round(&vec![1.0; depth], depth);
    for (kernel, parts) in kernels() {
        let packed = PackedInt8::for_parts(&weights, parts).unwrap();
        let ours = multiply(&vec![-1.0; depth], 1, &packed);
        assert!((ours[0] / -(depth as f32) - 1.0).abs() < 1e-4, "{kernel}: {}", ours[0]);
    }
}
