//! The norm of the gradient, by which it is clipped (Pascanu et al. 2013, section 3.2).

use crate::float::vectorised;
use crate::host::Host;
use crate::parallel::CHUNK;
use candle_core::{Result, Tensor};
use rayon::prelude::*;

/// The Euclidean norm of a flat buffer, summed in f64, on a GPU in f32.
///
/// # Shapes
/// `flat (total,)` → a number.
///
/// # Errors
/// When the buffer is not f32.
pub fn global_norm(flat: &Tensor) -> Result<f64> {
    if !flat.device().is_cpu() {
        return Ok(f64::from(flat.sqr()?.sum_all()?.to_scalar::<f32>()?).sqrt());
    }
    let host = Host::new(flat)?;
    let values = host.elements::<f32>()?;
    let parts: Vec<f64> = crate::profile::time("gradient norm", || {
        values.par_chunks(CHUNK).map(squares::<f32>).collect()
    });
    Ok(parts.iter().sum::<f64>().sqrt())
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
