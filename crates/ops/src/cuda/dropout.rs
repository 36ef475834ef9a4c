//! Dropout in one kernel, which computes the mask where it is used.

use super::launch::{Argument, address, launch, no_host, room, suffix, walking_in_pieces};
use crate::spec::Dropout;
use candle_core::backend::BackendStorage;
use candle_core::{CpuStorage, CudaStorage, CustomOp1, Layout, Result, Shape, Tensor};

impl Dropout {
    /// Returns the arguments of a kernel that determine the dropout.
    pub(super) fn arguments(&self) -> [Argument; 3] {
        let (key, threshold, kept) = self.drawn();
        [key.into(), threshold.into(), kept.into()]
    }
}

impl CustomOp1 for Dropout {
    fn name(&self) -> &'static str {
        "dropout"
    }

    fn cpu_fwd(&self, _: &CpuStorage, _: &Layout) -> Result<(CpuStorage, Shape)> {
        no_host("dropout")
    }

    fn cuda_fwd(&self, x: &CudaStorage, layout: &Layout) -> Result<(CudaStorage, Shape)> {
        let count = layout.shape().elem_count();
        let out = room(&x.device, x.dtype(), count)?;
        let name = format!("drop_{}", suffix(x.dtype())?);
        let [key, threshold, kept] = self.arguments();
        let arguments = [
            address(x, layout)?.into(),
            address(&out, &Layout::contiguous(count))?.into(),
            (count as u64).into(),
            key,
            threshold,
            kept,
        ];
        // SAFETY: both have `count` elements of the type.
        unsafe { launch(&x.device, &name, walking_in_pieces(count, x.dtype()), &arguments)? };
        Ok((out, layout.shape().clone()))
    }

    fn bwd(&self, _: &Tensor, _: &Tensor, gradient: &Tensor) -> Result<Option<Tensor>> {
        gradient.contiguous()?.apply_op1_no_bwd(self).map(Some)
    }
}
