//! The residual connection with dropout on its branch: `x + dropout(f(x))` (Vaswani et al. 2017, section 5.4).

use crate::dropout::{Dropout, added, dropped};
use crate::parallel::{CHUNK, zip_chunks};
use crate::real::{Host, Real, elements, for_real, is_fused};
use candle_core::{CpuStorage, CustomOp2, Layout, Result, Shape, Tensor, WithDType};
use rayon::prelude::*;

/// `residual + dropout(branch)`.
///
/// # Shapes
/// Both inputs and the result have the same shape.
///
/// # Errors
/// When the shapes differ.
pub fn residual(residual: &Tensor, branch: &Tensor, dropout: Dropout) -> Result<Tensor> {
    if !dropout.is_active() {
        return residual + branch;
    }
    if is_fused(residual) {
        return residual.contiguous()?.apply_op2(&branch.contiguous()?, Residual { dropout });
    }
    crate::composed::residual(residual, branch, dropout)
}

struct Residual {
    dropout: Dropout,
}

impl CustomOp2 for Residual {
    fn name(&self) -> &'static str {
        "residual-dropout"
    }

    fn cpu_fwd(&self, x: &CpuStorage, x_at: &Layout, branch: &CpuStorage, branch_at: &Layout) -> Result<(CpuStorage, Shape)> {
        if x_at.shape() != branch_at.shape() {
            candle_core::bail!("residual: shapes {:?} and {:?} differ", x_at.shape(), branch_at.shape());
        }
        for_real!(x, T => {
            let (x, branch) = (elements::<T>(x, x_at)?, elements::<T>(branch, branch_at)?);
            let mut out = vec![T::default(); x.len()];
            out.par_chunks_mut(CHUNK).enumerate().for_each(|(chunk, out)| {
                let range = chunk * CHUNK..chunk * CHUNK + out.len();
                added(&x[range.clone()], &branch[range], out, chunk * CHUNK, self.dropout);
            });
            Ok((T::to_cpu_storage_owned(out), x_at.shape().clone()))
        })
    }

    fn bwd(&self, _x: &Tensor, _branch: &Tensor, _res: &Tensor, grad: &Tensor) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let grad = grad.contiguous()?;
        let branch = for_real!(&grad, T => drop_elements::<T>(&grad, self.dropout)?);
        Ok((Some(grad), Some(branch)))
    }
}

/// `dropout(input)` outside the graph: for backward passes, which repeat the mask of the forward pass.
pub(crate) fn drop_elements<T: Real>(input: &Tensor, dropout: Dropout) -> Result<Tensor> {
    let host = Host::new(input);
    let values = host.elements::<T>()?;
    let mut out = vec![T::default(); values.len()];
    zip_chunks(values, &mut out, |first, values, out| dropped(values, out, first, dropout));
    Tensor::from_vec(out, input.shape(), input.device())
}
