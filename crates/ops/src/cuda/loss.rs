//! Cross entropy of a block of logits in one kernel, which reads them twice and leaves their
//! gradient in their place.

use super::launch::{address_of, computes, empty, launch, no_host, suffix, word};
use super::row_sums::sum_rows;
use crate::spec::CrossEntropySpec;
use candle_core::backend::BackendStorage;
use candle_core::{
    CpuStorage, CudaStorage, CustomOp2, DType, Layout, Result, Shape, Storage, Tensor, bail,
};

/// Number of logits in a block: 128 MiB in half precision. Each block adds to the whole gradient of
/// the weight, and no copy of its logits is made.
pub(crate) const LOGITS: usize = 1 << 26;

/// Computes the sums of a block of rows, on the device: smoothed, nll, correct, divergence; and, if
/// requested, the gradient of the loss by the logits, which replaces them. `None` for pairs of
/// rows and for types without a kernel.
///
/// # Shapes
/// `logits (R, V)`, `targets (R, 1)` in u32 and below `V` → `(4,)` in f32, and `(R, V)`.
pub(crate) fn cross_entropy(
    logits: &Tensor,
    targets: &Tensor,
    spec: &CrossEntropySpec,
    differentiate: bool,
) -> Option<Result<(Tensor, Option<Tensor>)>> {
    let computed = || {
        let (rows, classes) = logits.dims2()?;
        if targets.elem_count() != rows {
            bail!("{} targets for {rows} rows of logits", targets.elem_count());
        }
        let device = logits.device().as_cuda_device()?;
        let sums = empty((rows, 4), DType::F32, device)?;
        let arguments = [
            address_of(logits)?.into(),
            address_of(targets)?.into(),
            address_of(&sums)?.into(),
            word(classes)?.into(),
            spec.smoothing.into(),
            spec.scale.into(),
            u32::from(differentiate).into(),
        ];
        let name = format!("cross_entropy_{}", suffix(logits.dtype())?);
        // SAFETY: one block for each row of `classes` logits, which has a target below that, as the
        // caller has checked, and four sums. Nothing reads the logits afterwards.
        unsafe { launch(device, &name, (rows, 1), &arguments)? };
        Ok((sum_rows(&sums)?, differentiate.then(|| logits.clone())))
    };
    (computes(logits.dtype()) && !spec.is_paired()).then(computed)
}

/// Returns `value` with these gradients by `hidden` and `weight`.
///
/// # Shapes
/// `value` is a scalar, each gradient as the tensor before it.
pub(crate) fn with_gradients(
    value: &Tensor,
    (hidden, of_hidden): (&Tensor, Tensor),
    (weight, of_weight): (&Tensor, Tensor),
) -> Result<Tensor> {
    hidden.apply_op2(weight, Loss { value: value.clone(), of_hidden, of_weight })
}

/// A loss whose gradients were computed with it.
struct Loss {
    value: Tensor,
    of_hidden: Tensor,
    of_weight: Tensor,
}

impl CustomOp2 for Loss {
    fn name(&self) -> &'static str {
        "loss"
    }

    fn cpu_fwd(
        &self,
        _: &CpuStorage,
        _: &Layout,
        _: &CpuStorage,
        _: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        no_host(self.name())
    }

    fn cuda_fwd(
        &self,
        _: &CudaStorage,
        _: &Layout,
        _: &CudaStorage,
        _: &Layout,
    ) -> Result<(CudaStorage, Shape)> {
        let (storage, layout) = self.value.storage_and_layout();
        match &*storage {
            Storage::Cuda(storage) => Ok((storage.try_clone(layout)?, layout.shape().clone())),
            _ => bail!("a loss of another device"),
        }
    }

    fn bwd(
        &self,
        hidden: &Tensor,
        weight: &Tensor,
        _: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let scaled = |of: &Tensor, like: &Tensor| {
            of.broadcast_mul(&gradient.to_dtype(of.dtype())?)?.to_dtype(like.dtype())
        };
        Ok((Some(scaled(&self.of_hidden, hidden)?), Some(scaled(&self.of_weight, weight)?)))
    }
}
