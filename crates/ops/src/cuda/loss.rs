//! Cross entropy of a block of logits in one kernel, which reads them twice and leaves their
//! gradient in their place.

use super::launch::{address_of, empty, launch, suffix, word};
use super::row_sums::sum_rows;
use crate::kernels::BlockOfLoss;
use crate::spec::CrossEntropySpec;
use candle_core::{DType, Result, Tensor, bail};

/// Number of logits in a block: 128 MiB in half precision. For each block, the whole gradient of
/// the weight is read and written, but its logits are not copied.
pub(super) const LOGITS: usize = 1 << 26;

/// See [`Kernels::block_of_loss`](crate::kernels::Kernels::block_of_loss); not for pairs of rows.
///
/// # Shapes
/// The shapes of the former.
pub(super) fn cross_entropy(
    logits: &Tensor,
    targets: &Tensor,
    spec: &CrossEntropySpec,
    differentiate: bool,
) -> Result<BlockOfLoss> {
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
}
