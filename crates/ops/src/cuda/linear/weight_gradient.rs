//! Gradient with respect to a weight, summed in f32 for any type of the activations.
//!
//! The CUDA library writes the sums of bf16 or f16 products in f32, and can add them to existing
//! values. So no conversion or addition is needed afterwards.

use crate::cuda::launch::{address_of, empty};
use candle_core::cuda_backend::WrapErr;
use candle_core::cuda_backend::cudarc::cublas::{result, sys};
use candle_core::{DType, Result, Tensor, bail};
use std::ffi::c_void;

/// Computes `gradientᵀ · x`. If there is a `sum`, the product is added to it in place.
///
/// # Shapes
/// `gradient (N, O)`, `x (N, I)` of the same type, `sum (O, I)` in f32 → `(O, I)` in f32.
///
/// # Errors
/// If the shapes or types disagree, or the device has no memory left.
pub(in crate::cuda) fn weight_gradient(
    gradient: &Tensor,
    x: &Tensor,
    sum: Option<&Tensor>,
) -> Result<Tensor> {
    let ((rows, outputs), (x_rows, inputs)) = (gradient.dims2()?, x.dims2()?);
    let fits = |sum: &Tensor| sum.dims() == [outputs, inputs] && sum.dtype() == DType::F32;
    if x_rows != rows || x.dtype() != gradient.dtype() || !sum.is_none_or(fits) {
        bail!(
            "a weight's gradient cannot be computed from {:?} and {:?}: rows, types or the sum do \
             not fit",
            gradient.shape(),
            x.shape()
        );
    }
    let kind = library_type(x.dtype())?;
    if rows == 0 {
        return match sum {
            Some(sum) => Ok(sum.clone()),
            None => Tensor::zeros((outputs, inputs), DType::F32, x.device()),
        };
    }
    let device = x.device().as_cuda_device()?;
    crate::profile::count_product(outputs, rows, inputs);
    let (gradient, x) = (gradient.contiguous()?, x.contiguous()?);
    let (kept, out) = match sum {
        Some(sum) => (1.0_f32, sum.clone()),
        None => (0.0, empty((outputs, inputs), DType::F32, device)?),
    };
    let one = 1.0_f32;
    let size = |size: usize| i32::try_from(size).map_err(candle_core::Error::wrap);
    let (m, n, k) = (size(inputs)?, size(outputs)?, size(rows)?);
    let number = |value: &f32| std::ptr::from_ref(value).cast::<c_void>();
    let cublas = device.cublas_handle();
    // The library's matrices are column-major: it sees the transpose of each matrix here, and
    // computes `outᵀ = xᵀ · gradient`.
    // SAFETY: `x` and `gradient` have `rows` rows of `inputs` and of `outputs` elements, and `out`
    // has `outputs` rows of `inputs` elements; all work is queued on the device's single stream.
    unsafe {
        result::gemm_ex(
            *cublas.handle(),
            sys::cublasOperation_t::CUBLAS_OP_N,
            sys::cublasOperation_t::CUBLAS_OP_T,
            m,
            n,
            k,
            number(&one),
            address_of(&x)? as *const c_void,
            kind,
            m,
            address_of(&gradient)? as *const c_void,
            kind,
            n,
            number(&kept),
            address_of(&out)? as *mut c_void,
            sys::cudaDataType_t::CUDA_R_32F,
            m,
            sys::cublasComputeType_t::CUBLAS_COMPUTE_32F,
            sys::cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT_TENSOR_OP,
        )
        .w()?;
    }
    Ok(out)
}

/// Returns the library's name of a type.
fn library_type(dtype: DType) -> Result<sys::cudaDataType_t> {
    match dtype {
        DType::F32 => Ok(sys::cudaDataType_t::CUDA_R_32F),
        DType::F16 => Ok(sys::cudaDataType_t::CUDA_R_16F),
        DType::BF16 => Ok(sys::cudaDataType_t::CUDA_R_16BF),
        other => bail!("no product for CUDA in {other:?}"),
    }
}
