//! Label-smoothed cross entropy in Candle's primitives.

use crate::spec::{CrossEntropySpec, LossSums};
use candle_core::{DType, Device, IndexOp, Result, Tensor};

/// See [`crate::smoothed_cross_entropy()`]; holds all logits.
///
/// # Shapes
/// As [`crate::smoothed_cross_entropy()`].
///
/// # Errors
/// When the shapes disagree.
pub fn smoothed_cross_entropy(
    hidden: &Tensor,
    weight: &Tensor,
    targets: &[u32],
    spec: &CrossEntropySpec,
) -> Result<(Tensor, LossSums)> {
    let CrossEntropySpec { smoothing, r_drop, scale, .. } = *spec;
    let wide = if hidden.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
    let logits = hidden.matmul(&weight.to_dtype(hidden.dtype())?.t()?)?.to_dtype(wide)?; // (N, V)
    let (rows, classes) = logits.dims2()?;
    let largest = logits.detach().max_keepdim(1)?;
    let shifted = logits.broadcast_sub(&largest)?;
    let log_total = shifted.exp()?.sum_keepdim(1)?.log()?; // (N, 1)
    let log_probs = shifted.broadcast_sub(&log_total)?;
    let index = Tensor::from_vec(targets.to_vec(), (rows, 1), hidden.device())?;
    let nll = log_probs.gather(&index, 1)?.neg()?.sum_all()?;
    let uniform = (log_probs.sum_all()?.neg()? / classes as f64)?;
    let smoothed = ((&nll * (1.0 - smoothing))? + (uniform * smoothing)?)?;
    let predictions = logits.argmax(1)?.to_vec1::<u32>()?;
    let correct =
        predictions.iter().zip(targets).filter(|(prediction, target)| prediction == target).count();
    // On the host: Metal has no f64.
    let number = |x: &Tensor| x.to_device(&Device::Cpu)?.to_dtype(DType::F64)?.to_scalar::<f64>();
    let mut sums =
        LossSums { smoothed: number(&smoothed)?, nll: number(&nll)?, correct, divergence: 0.0 };
    if r_drop > 0.0 {
        let (p, q) = (log_probs.i(..rows / 2)?, log_probs.i(rows / 2..)?);
        // KL(p‖q) + KL(q‖p)
        let divergence = ((p.exp()? - q.exp()?)? * (p - q)?)?.sum_all()?;
        sums.divergence = number(&divergence)?;
        return Ok((((smoothed + (divergence * r_drop)?)? * scale)?, sums));
    }
    Ok(((smoothed * scale)?, sums))
}
