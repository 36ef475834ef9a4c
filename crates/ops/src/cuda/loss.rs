//! Cross entropy of a block of logits in one kernel. It reads the logits twice, and then replaces
//! them with the gradient of the loss.

use super::launch::{address_of, empty, launch, suffix, word};
use super::row_sums::sum_rows;
use crate::kernels::BlockOfLoss;
use crate::spec::CrossEntropySpec;
use candle_core::{DType, Result, Tensor, bail};

/// Number of logits in a block: 128 MiB in half precision. The whole gradient with respect to the
/// weight is read and written once for each block, so larger blocks mean less memory traffic.
pub(super) const LOGITS: usize = 1 << 26;

/// Computes the sums and the gradient of a block, without R-Drop; see
/// [`Kernels::block_of_loss`](crate::kernels::Kernels::block_of_loss).
///
/// # Shapes
/// The shapes of [`Kernels::block_of_loss`](crate::kernels::Kernels::block_of_loss).
pub(super) fn cross_entropy(
    logits: &Tensor,
    targets: &Tensor,
    spec: &CrossEntropySpec,
    differentiate: bool,
) -> Result<BlockOfLoss> {
    let (rows, classes) = logits.dims2()?;
    if targets.elem_count() != rows {
        bail!("{} targets do not fit {rows} rows of logits", targets.elem_count());
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
    // SAFETY: each row has one block of threads, `classes` logits, four sums, and a target that is
    // below `classes`, as the caller has checked. Nothing reads the logits afterwards.
    unsafe { launch(device, &name, (rows, 1), &arguments)? };
    Ok((sum_rows(&sums)?, differentiate.then(|| logits.clone())))
}
