//! Norm of the gradient, for clipping (Pascanu et al. 2013, section 3.2).

use crate::float::vectorised;
use crate::host::Host;
use crate::parallel::CHUNK;
use crate::profile::{even, region};
use candle_core::{Result, Tensor};
use rayon::prelude::*;
use std::ops::Range;

/// Number of elements whose squares are added to one sum. If a buffer is split only at multiples of
/// this number, its parts have exactly the same sums as the whole buffer.
pub const NORM_CHUNK: usize = CHUNK;

/// Computes the Euclidean norm of a one-dimensional buffer, with sums in f64.
///
/// # Shapes
/// `flat (total,)` → a number.
///
/// # Errors
/// If the buffer is not f32.
pub fn global_norm(flat: &Tensor) -> Result<f64> {
    let whole = 0..flat.elem_count();
    Ok(sums_of_squares(flat, &[whole])?.iter().sum::<f64>().sqrt())
}

/// Computes sums of squares in segments of a one-dimensional buffer. Each segment has one sum for
/// every [`NORM_CHUNK`] elements, followed by one sum for the remaining elements. The norm of all
/// segments is the square root of the total of all sums, added in their order.
///
/// # Shapes
/// `flat (total,)` → one number for each chunk.
///
/// # Errors
/// If the buffer is not f32.
///
/// # Panics
/// If a segment lies outside the buffer.
pub fn sums_of_squares(flat: &Tensor, segments: &[Range<usize>]) -> Result<Vec<f64>> {
    crate::device::check(flat.device())?;
    if !flat.device().is_cpu() {
        return composed_sums_of_squares(flat, segments);
    }
    let host = Host::new(flat)?;
    let values = host.elements::<f32>()?;
    let chunks: Vec<&[f32]> =
        segments.iter().flat_map(|segment| values[segment.clone()].chunks(NORM_CHUNK)).collect();
    Ok(crate::profile::time("gradient norm", || {
        region(even(chunks.len()), || {
            chunks.par_iter().map(|chunk| squares::<f32>(chunk)).collect()
        })
    }))
}

/// Computes [`sums_of_squares`] with Candle's operations. Unlike in that function, each chunk is
/// summed in f32.
fn composed_sums_of_squares(flat: &Tensor, segments: &[Range<usize>]) -> Result<Vec<f64>> {
    let squares = flat.sqr()?;
    let mut sums = Vec::with_capacity(2 * segments.len());
    for segment in segments {
        let whole = segment.len() / NORM_CHUNK;
        let (start, in_chunks) = (segment.start, whole * NORM_CHUNK);
        if whole > 0 {
            let chunks = squares.narrow(0, start, in_chunks)?.reshape((whole, NORM_CHUNK))?;
            sums.push(chunks.sum(1)?);
        }
        if in_chunks < segment.len() {
            let rest = squares.narrow(0, start + in_chunks, segment.len() - in_chunks)?;
            sums.push(rest.sum_keepdim(0)?);
        }
    }
    if sums.is_empty() {
        return Ok(Vec::new());
    }
    // All sums are read from the device in a single transfer.
    Ok(Tensor::cat(&sums, 0)?.to_vec1::<f32>()?.into_iter().map(f64::from).collect())
}

vectorised! {
    fn squares<T>(values: &[T]) -> f64 {
        let mut lanes = [0.0; 16];
        let blocks = values.chunks_exact(16);
        let rest = blocks.remainder().iter().fold(0.0, |sum, x| sum + x.wide() * x.wide());
        for block in blocks {
            for (lane, x) in lanes.iter_mut().zip(block) {
                *lane += x.wide() * x.wide();
            }
        }
        lanes.iter().sum::<f64>() + rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;

    #[test]
    fn composed_sums_are_the_fused_ones() {
        for count in [5, NORM_CHUNK, 2 * NORM_CHUNK + 7] {
            let values: Vec<f32> = (0..count).map(|i| (i as f32 * 0.37).sin()).collect();
            let flat = Tensor::from_vec(values, count, &Device::Cpu).unwrap();
            let segments = [0..count / 3, count / 3..count];
            let fused = sums_of_squares(&flat, &segments).unwrap();
            let composed = composed_sums_of_squares(&flat, &segments).unwrap();
            let chunks: usize = segments.iter().map(|part| part.len().div_ceil(NORM_CHUNK)).sum();
            assert_eq!((fused.len(), composed.len()), (chunks, chunks));
            for (fused, composed) in fused.iter().zip(&composed) {
                assert!((fused - composed).abs() <= 1e-5 * composed, "{fused} {composed}");
            }
        }
    }
}
