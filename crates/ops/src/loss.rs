//! Output projection and label-smoothed cross entropy in one operation that never holds all logits.
//!
//! Szegedy et al. 2016, section 7: the target distribution is `(1 - ε)` on the true class plus `ε / V` on
//! every class. With `p = softmax(h Wᵀ)` the loss of a token is `-(1 - ε) ln p_y - ε/V Σ ln p_v`, as PyTorch's
//! `CrossEntropyLoss(label_smoothing=ε)` has it, and its gradient by the logits is `p - target`.
//!
//! The gradient is known as soon as the softmax is, so the forward pass computes it row chunk by row chunk and
//! keeps only the gradients of `h` and `W`; the backward pass scales them.

use crate::matmul::{Into, Matrix, all_threads, matmul};
use crate::real::{Real, blocked_sum, elements, for_real, is_fused, vectorised};
use candle_core::{CpuStorage, CustomOp2, Layout, Result, Shape, Tensor};
use rayon::prelude::*;
use std::sync::{Arc, Mutex, OnceLock};

/// Rows of logits that exist at a time.
const LOGIT_ROWS: usize = 256;

/// Sums over the target tokens of a batch.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct LossSums {
    /// Label-smoothed cross entropy, in nats.
    pub smoothed: f64,
    /// Negative log-likelihood of the true tokens, in nats.
    pub nll: f64,
    /// Tokens whose true class has the highest logit (the first one, where several tie).
    pub correct: usize,
}

impl LossSums {
    fn add(&mut self, other: &Self) {
        self.smoothed += other.smoothed;
        self.nll += other.nll;
        self.correct += other.correct;
    }
}

/// `scale · Σ` of the label-smoothed cross entropy of `softmax(hidden weightᵀ)`, and the unscaled sums.
///
/// # Shapes
/// `hidden (N, D)`, `weight (V, D)`, `targets` N class numbers → scalar.
///
/// # Errors
/// When the shapes disagree or a target is not below `V`.
pub fn smoothed_cross_entropy(hidden: &Tensor, weight: &Tensor, targets: &[u32], smoothing: f64, scale: f64) -> Result<(Tensor, LossSums)> {
    let (rows, classes) = (hidden.dim(0)?, weight.dim(0)?);
    if targets.len() != rows || hidden.dim(1)? != weight.dim(1)? {
        candle_core::bail!("cross entropy: hidden {:?}, weight {:?}, {} targets", hidden.shape(), weight.shape(), targets.len());
    }
    if let Some(target) = targets.iter().find(|&&target| target as usize >= classes) {
        candle_core::bail!("cross entropy: target {target} in a vocabulary of {classes}");
    }
    if !is_fused(hidden) {
        return crate::composed::smoothed_cross_entropy(hidden, weight, targets, smoothing, scale);
    }
    let sums = Arc::new(Mutex::new(LossSums::default()));
    let tracked = hidden.track_op() || weight.track_op();
    let op = CrossEntropy { targets: targets.to_vec(), smoothing, scale, tracked, sums: sums.clone(), grads: OnceLock::new() };
    let loss = hidden.contiguous()?.apply_op2(&weight.contiguous()?, op)?;
    let sums = *sums.lock().map_err(|_| candle_core::Error::Msg("cross entropy: a worker panicked".into()))?;
    Ok((loss, sums))
}

struct CrossEntropy {
    targets: Vec<u32>,
    smoothing: f64,
    scale: f64,
    /// Whether a gradient will be asked for.
    tracked: bool,
    sums: Arc<Mutex<LossSums>>,
    grads: OnceLock<(Tensor, Tensor)>,
}

impl CrossEntropy {
    fn forward<T: Real>(&self, hidden: &[T], weight: &[T], width: usize) -> Result<(CpuStorage, Shape)> {
        let (rows, classes) = (self.targets.len(), weight.len() / width.max(1));
        let count = if self.tracked { 1 } else { 0 };
        let mut grad_hidden = vec![T::default(); count * hidden.len()];
        let mut grad_weight = vec![T::default(); count * weight.len()];
        let mut logits = vec![T::default(); LOGIT_ROWS.min(rows) * classes];
        let mut sums = LossSums::default();
        for start in (0..rows).step_by(LOGIT_ROWS) {
            let chunk = LOGIT_ROWS.min(rows - start);
            let logits = &mut logits[..chunk * classes];
            let hidden_at = Matrix::rows(width).at(start * width);
            let logits_at = Matrix::rows(classes);
            matmul(
                (chunk, width, classes),
                (hidden, hidden_at),
                (weight, Matrix::rows(width).transposed()),
                (logits, logits_at),
                Into::Replace,
                T::of(1.0),
                all_threads(),
            );
            let targets = &self.targets[start..start + chunk];
            let (smoothing, scale) = (self.smoothing, if self.tracked { Some(T::of(self.scale)) } else { None });
            let row_sums: Vec<LossSums> = logits
                .par_chunks_mut(classes)
                .zip(targets.par_iter())
                .map(|(row, &target)| loss_row(row, target as usize, smoothing, scale))
                .collect();
            row_sums.iter().for_each(|row| sums.add(row));
            if self.tracked {
                matmul(
                    (chunk, classes, width),
                    (logits, logits_at),
                    (weight, Matrix::rows(width)),
                    (&mut grad_hidden, hidden_at),
                    Into::Replace,
                    T::of(1.0),
                    all_threads(),
                );
                matmul(
                    (classes, chunk, width),
                    (logits, logits_at.transposed()),
                    (hidden, hidden_at),
                    (&mut grad_weight, Matrix::rows(width)),
                    Into::Add,
                    T::of(1.0),
                    all_threads(),
                );
            }
        }
        if self.tracked {
            let device = candle_core::Device::Cpu;
            let _ = self
                .grads
                .set((Tensor::from_vec(grad_hidden, (rows, width), &device)?, Tensor::from_vec(grad_weight, (classes, width), &device)?));
        }
        if let Ok(mut slot) = self.sums.lock() {
            *slot = sums;
        }
        Ok((T::to_cpu_storage_owned(vec![T::of(sums.smoothed * self.scale)]), Shape::from(())))
    }
}

impl CustomOp2 for CrossEntropy {
    fn name(&self) -> &'static str {
        "smoothed-cross-entropy"
    }

    fn cpu_fwd(&self, hidden: &CpuStorage, at: &Layout, weight: &CpuStorage, weight_at: &Layout) -> Result<(CpuStorage, Shape)> {
        let (_, width) = at.shape().dims2()?;
        for_real!(hidden, T => self.forward(elements::<T>(hidden, at)?, elements::<T>(weight, weight_at)?, width))
    }

    fn bwd(&self, _hidden: &Tensor, _weight: &Tensor, _res: &Tensor, grad: &Tensor) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let Some((hidden, weight)) = self.grads.get() else { candle_core::bail!("cross entropy: backward before forward") };
        let grad = grad.to_dtype(candle_core::DType::F64)?.to_scalar::<f64>()?;
        // The usual root of the graph has gradient 1: hand the tensors over as they are.
        if grad == 1.0 {
            return Ok((Some(hidden.clone()), Some(weight.clone())));
        }
        Ok((Some((hidden * grad)?), Some((weight * grad)?)))
    }
}

vectorised! {
    /// The sums of one token; the logits become their gradient when a scale is given.
    fn loss_row<T>(row: &mut [T], target: usize, smoothing: f64, scale: Option<T>) -> LossSums {
        let classes = row.len();
        let mut largest = T::NEGATIVE_INFINITY;
        for &logit in row.iter() {
            largest = if logit > largest { logit } else { largest };
        }
        let true_logit = row[target];
        let first_largest = row[..target].iter().all(|&logit| logit < largest);
        let logit_sum = blocked_sum(classes, |i| row[i]);
        for logit in row.iter_mut() {
            *logit = (*logit - largest).exp();
        }
        let total = blocked_sum(classes, |i| row[i]);
        let log_total = (largest + total.ln()).wide();
        let nll = log_total - true_logit.wide();
        let uniform = log_total - logit_sum.wide() / classes as f64;
        if let Some(scale) = scale {
            let (factor, share) = (scale / total, scale * T::of(smoothing / classes as f64));
            for value in row.iter_mut() {
                *value = *value * factor - share;
            }
            row[target] -= scale * T::of(1.0 - smoothing);
        }
        LossSums {
            smoothed: (1.0 - smoothing) * nll + smoothing * uniform,
            nll,
            correct: usize::from(true_logit == largest && first_largest),
        }
    }
}
