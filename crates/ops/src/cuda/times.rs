//! Measures the time of each kernel; see [`crate::device::kernel_times`].

use super::adam::adam_step;
use super::attention::{Attention, Columns, Sequences};
use super::launch::{address_of, empty};
use super::layer_norm::{LayerNorm, layer_norm};
use super::linear::Epilogue;
use super::loss::{LOGITS, cross_entropy};
use super::rows::looked_up;
use super::softmax;
use crate::device::{KernelSizes, KernelTime};
use crate::products::Products;
use crate::spec::{Activation, AdamStep, AttentionShape, CrossEntropySpec, Dropout};
use crate::tape::ParameterStore;
use candle_core::{DType, Device, Result, Tensor};
use std::time::Instant;

/// Number of launches in a series: so many that the two synchronisations around a series take
/// negligible time.
const LAUNCHES: u32 = 20;
/// Number of bytes that the measured copy reads.
const COPIED: usize = 256 << 20;

/// Measurements of kernels on one device.
struct Times<'a> {
    device: &'a Device,
    dtype: DType,
    repeats: usize,
    found: Vec<KernelTime>,
}

/// Measures kernels; see [`crate::device::kernel_times`].
///
/// # Errors
/// Errors of [`crate::device::kernel_times`].
pub(super) fn kernel_times(
    device: &Device,
    sizes: &KernelSizes,
    repeats: usize,
) -> Result<Vec<KernelTime>> {
    let mut times = Times { device, dtype: sizes.dtype, repeats, found: Vec::new() };
    times.copy()?;
    times.layers(sizes)?;
    times.attention(sizes)?;
    times.loss(sizes)?;
    times.parameters(sizes)?;
    Ok(times.found)
}

impl Times<'_> {
    /// Measures a kernel that reads and writes `bytes` bytes in total for each element of an input
    /// of this shape.
    fn measure(
        &mut self,
        kernel: &'static str,
        shape: [usize; 2],
        bytes: usize,
        mut launch: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        let mut seconds = f64::INFINITY;
        launch()?;
        for _ in 0..self.repeats.max(1) {
            self.device.synchronize()?;
            let began = Instant::now();
            for _ in 0..LAUNCHES {
                launch()?;
            }
            self.device.synchronize()?;
            seconds = seconds.min(began.elapsed().as_secs_f64() / f64::from(LAUNCHES));
        }
        let bytes = (shape[0] * shape[1] * bytes) as u64;
        self.found.push(KernelTime { kernel, shape, bytes, seconds });
        Ok(())
    }

    /// Makes activations that are not all zero.
    fn activations(&self, rows: usize, columns: usize) -> Result<Tensor> {
        let row = Tensor::arange(0f32, columns as f32, self.device)?.affine(0.7, -3.0)?.sin()?;
        row.to_dtype(self.dtype)?.broadcast_as((rows, columns))?.contiguous()
    }

    fn copy(&mut self) -> Result<()> {
        let columns = COPIED / size_of::<f32>() / 1024;
        let x = Tensor::zeros((1024, columns), DType::F32, self.device)?;
        self.measure("copy", [1024, columns], 2 * size_of::<f32>(), || x.copy().map(|_| ()))
    }

    fn layers(&mut self, sizes: &KernelSizes) -> Result<()> {
        let &KernelSizes { rows, width, feed_forward, .. } = sizes;
        let element = self.dtype.size_in_bytes();
        let (x, residual) = (self.activations(rows, width)?, self.activations(rows, width)?);
        let bias = Tensor::zeros(width, DType::F32, self.device)?;
        let weight = bias.ones_like()?;
        let shape = [rows, width];
        let end = Epilogue { activation: Activation::Identity, dropout: Dropout::new(0.1, 7) };
        self.measure("bias, dropout, residual", shape, 3 * element, || {
            end.forward(&x, Some(&bias), Some(&residual)).map(|_| ())
        })?;
        self.measure("bias, dropout: gradient", shape, 2 * element, || {
            end.back(&x, Some(&bias), &residual).map(|_| ())
        })?;
        let plain = Epilogue { activation: Activation::Identity, dropout: Dropout::none() };
        self.measure("bias: gradient", shape, element, || {
            plain.back(&x, Some(&bias), &residual).map(|_| ())
        })?;
        self.measure("dropout", shape, 2 * element, || {
            x.apply_op1_no_bwd(&end.dropout).map(|_| ())
        })?;
        self.measure("layer norm", shape, 2 * element, || {
            layer_norm(None, &x, &weight, Some(&bias), 1e-5).map(|_| ())
        })?;
        let norm = LayerNorm { x: x.clone(), weight, epsilon: 1e-5 };
        // Two kernels; each of them reads both inputs.
        self.measure("layer norm: gradients", shape, 5 * element, || {
            let (_, statistics) = norm.back_to_x(&residual)?;
            norm.parameter_sums(&residual, &statistics).map(|_| ())
        })?;
        let (inner, gradient) =
            (self.activations(rows, feed_forward)?, self.activations(rows, feed_forward)?);
        let bias = Tensor::zeros(feed_forward, DType::F32, self.device)?;
        let shape = [rows, feed_forward];
        for (names, activation) in [
            (["bias, relu", "bias, relu: gradient"], Activation::Relu),
            (["bias, gelu", "bias, gelu: gradient"], Activation::Gelu),
        ] {
            let inside = Epilogue { activation, dropout: Dropout::none() };
            self.measure(names[0], shape, 2 * element, || {
                inside.forward(&inner, Some(&bias), None).map(|_| ())
            })?;
            self.measure(names[1], shape, 3 * element, || {
                inside.back(&inner, Some(&bias), &gradient).map(|_| ())
            })?;
        }
        Ok(())
    }

    fn attention(&mut self, sizes: &KernelSizes) -> Result<()> {
        let &KernelSizes { length, width, heads, .. } = sizes;
        let (batch, element) = (sizes.rows.div_ceil(length), self.dtype.size_in_bytes());
        let rows = batch * length;
        let starts: Vec<u32> = (0..=batch).map(|sequence| (sequence * length) as u32).collect();
        let starts = Tensor::from_slice(&starts, batch + 1, self.device)?;
        let sequences = Sequences {
            shape: AttentionShape::dividing(width, heads),
            longest: [length; 2],
            rows: [rows; 2],
            starts: [starts.clone(), starts.clone()],
            mask: Tensor::zeros((batch, 1, length, length), DType::F32, self.device)?,
            dropout: Dropout::new(0.1, 7),
        };
        let device = self.device.as_cuda_device()?;
        let (mask, dtype) = (sequences.mask.clone(), self.dtype);
        let attention = Attention::new(sequences, dtype)?;
        let packed = self.activations(rows, width)?;
        let columns = Columns::new(address_of(&packed)?, dtype, width, 0);
        self.measure("heads apart", [rows, width], 2 * element, || {
            attention.split(device, 0, columns, heads, 1.0).map(|_| ())
        })?;
        let apart = attention.split(device, 0, columns, heads, 1.0)?;
        self.measure("heads together", [rows, width], 2 * element, || {
            attention.merge(0, &apart, columns, 1.0)
        })?;
        let scores = self.activations(batch * heads * length, length)?;
        let scores = scores.reshape((batch, heads, length, length))?;
        let shape = [batch * heads * length, length];
        let weights = attention.softmax()?;
        // The mask is read once for each head, but from memory only the first time, so it is not
        // counted.
        self.measure("softmax", shape, 2 * element, || {
            softmax::forward(weights, &scores, &mask, &starts).map(|_| ())
        })?;
        self.measure("softmax: gradient", shape, 3 * element, || {
            softmax::back(weights, &scores, &mask, &starts, &scores).map(|_| ())
        })
    }

    fn loss(&mut self, sizes: &KernelSizes) -> Result<()> {
        let classes = sizes.vocabulary;
        let rows = (LOGITS / classes.max(1)).clamp(1, sizes.rows.max(1));
        let element = self.dtype.size_in_bytes();
        let logits = self.activations(rows, classes)?;
        let targets = Tensor::zeros((rows, 1), DType::U32, self.device)?;
        let spec =
            CrossEntropySpec { smoothing: 0.1, r_drop: 0.0, scale: 1.0, products: Products::F32 };
        for (name, differentiate, bytes) in
            [("loss", false, element), ("loss and gradient", true, 2 * element)]
        {
            self.measure(name, [rows, classes], bytes, || {
                cross_entropy(&logits, &targets, &spec, differentiate).map(|_| ())
            })?;
        }
        Ok(())
    }

    fn parameters(&mut self, sizes: &KernelSizes) -> Result<()> {
        let &KernelSizes { rows, width, vocabulary, .. } = sizes;
        let count = vocabulary * width;
        let mut store = ParameterStore::new(self.device);
        store.add("table", &[vocabulary, width], vec![0.5; count])?;
        let table = store.parameters()[0].var().as_detached_tensor();
        let ids: Vec<u32> = (0..rows).map(|row| (row * 7919 % vocabulary) as u32).collect();
        let ids = Tensor::from_vec(ids, rows, self.device)?;
        self.measure("rows by number", [rows, width], 2 * size_of::<f32>(), || {
            looked_up(&table, &ids).map(|_| ())
        })?;
        let shape = [vocabulary, width];
        let half = if self.dtype == DType::F32 { DType::BF16 } else { self.dtype };
        self.measure("weights to half (Candle's)", shape, 4 + half.size_in_bytes(), || {
            table.to_dtype(half).map(|_| ())
        })?;
        let gradient = empty(count, DType::F32, self.device.as_cuda_device()?)?.zeros_like()?;
        let mut moments = [gradient.zeros_like()?, gradient.zeros_like()?];
        let step = AdamStep {
            learning_rate: 1e-3,
            beta1: 0.9,
            beta2: 0.98,
            epsilon: 1e-9,
            weight_decay: 0.0,
            step: 1,
            gradient_scale: 1.0,
            decoupled: true,
        };
        self.measure("Adam", shape, 7 * size_of::<f32>(), || {
            adam_step(&store, &(0..count), &gradient, &mut moments, &step)
        })
    }
}
