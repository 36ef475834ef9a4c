//! Norm of the gradient, by which it is clipped (Pascanu et al. 2013, section 3.2).

use crate::float::vectorised;
use crate::host::Host;
use crate::parallel::CHUNK;
use crate::profile::{even, region};
use candle_core::{Result, Tensor};
use rayon::prelude::*;

/// Number of elements whose squares are summed together. A buffer that is cut between chunks has
/// the same sums as in one piece.
pub const NORM_CHUNK: usize = CHUNK;

/// Computes the Euclidean norm of a flat buffer, summed in f64.
///
/// # Shapes
/// `flat (total,)` → a number.
///
/// # Errors
/// If the buffer is not f32.
pub fn global_norm(flat: &Tensor) -> Result<f64> {
    Ok(sums_of_squares(flat)?.iter().sum::<f64>().sqrt())
}

/// Computes the sums of squares of a flat buffer, one for each [`NORM_CHUNK`] elements and one for
/// the rest; the norm is the root of their sum, in this order.
///
/// # Shapes
/// `flat (total,)` → a number for each chunk.
///
/// # Errors
/// If the buffer is not f32.
pub fn sums_of_squares(flat: &Tensor) -> Result<Vec<f64>> {
    crate::device::check(flat.device())?;
    if !flat.device().is_cpu() {
        return composed_sums_of_squares(flat);
    }
    let host = Host::new(flat)?;
    let values = host.elements::<f32>()?;
    Ok(crate::profile::time("gradient norm", || {
        region(even(values.len().div_ceil(NORM_CHUNK)), || {
            values.par_chunks(NORM_CHUNK).map(squares::<f32>).collect()
        })
    }))
}

/// Computes [`sums_of_squares`] with Candle's primitives: each chunk is summed in f32.
fn composed_sums_of_squares(flat: &Tensor) -> Result<Vec<f64>> {
    let whole = flat.elem_count() / NORM_CHUNK;
    let rest = flat.elem_count() - whole * NORM_CHUNK;
    let squares = flat.sqr()?;
    let mut sums = Vec::with_capacity(2);
    if whole > 0 {
        let chunks = squares.narrow(0, 0, whole * NORM_CHUNK)?.reshape((whole, NORM_CHUNK))?;
        sums.push(chunks.sum(1)?);
    }
    if rest > 0 {
        sums.push(squares.narrow(0, whole * NORM_CHUNK, rest)?.sum_keepdim(0)?);
    }
    if sums.is_empty() {
        return Ok(Vec::new());
    }
    // One read from the device.
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
            let (fused, composed) =
                (sums_of_squares(&flat).unwrap(), composed_sums_of_squares(&flat).unwrap());
            assert_eq!((fused.len(), composed.len()), (count.div_ceil(NORM_CHUNK), fused.len()));
            for (fused, composed) in fused.iter().zip(&composed) {
                assert!((fused / composed - 1.0).abs() < 1e-5, "{fused} {composed}");
            }
        }
    }
}
