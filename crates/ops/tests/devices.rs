//! Tests every operation on the device that TAPER_TEST_DEVICE names (`cpu` by default, `cuda` or
//! `metal`), in each type and with odd shapes. Results and gradients are compared with f64 on the
//! host.
//!
//! On the device, the tape computes gradients, as in training. On the host, Candle differentiates
//! the composed operations (the same operations, composed of Candle's). With the device `cpu`, the
//! tape runs fused operations in f32, and composed ones in the other types. Everything is one test:
//! only the thread that opened a GPU is allowed to use it, and each test runs on a separate thread.

mod common;

use candle_core::{DType, Device, Result, Tensor, Var};
use common::largest_of;
use taper_ops::rng::{Counter, mix};
use taper_ops::{
    Activation, AdamStep, AttentionShape, AttentionSpec, Cache, CachedRows, CrossEntropySpec,
    Dropout, EmbeddingSpec, GatedSpec, LinearSpec, MuonStep, NormSpec, NormedColumns,
    ParameterStore, Products, Sparse, Tape, Turns, VisibleKeys, adam_step, composed,
    cross_attention, decoding_attention, device, embedding, gated, global_norm, linear, muon_step,
    norm, norm_columns, relative_bias, rotary, self_attention, smoothed_cross_entropy,
};

fn test_device() -> Result<Device> {
    match std::env::var("TAPER_TEST_DEVICE").as_deref() {
        Ok("cuda") => device::cuda(0),
        Ok("metal") => device::metal(0),
        Ok("cpu") | Err(_) => Ok(Device::Cpu),
        Ok(other) => candle_core::bail!("TAPER_TEST_DEVICE is {other}: set cpu, cuda or metal"),
    }
}

/// Returns random values that all types represent exactly.
fn values(shape: &[usize], key: u64) -> Result<Tensor> {
    let counter = Counter::new(mix(9, &[key]));
    let count = shape.iter().product::<usize>() as u64;
    let values: Vec<f64> = (0..count).map(|i| counter.normal_at(i)).collect();
    let exact = Tensor::from_vec(values, shape, &Device::Cpu)?.to_dtype(DType::BF16)?;
    exact.to_dtype(DType::F16)?.to_dtype(DType::F64)
}

fn on_host(x: &Tensor) -> Result<Vec<f64>> {
    x.to_device(&Device::Cpu)?.to_dtype(DType::F64)?.flatten_all()?.to_vec1()
}

/// Returns the largest difference, relative to the largest exact value; NaN if any value is NaN.
fn distance(ours: &[f64], exact: &[f64]) -> f64 {
    assert_eq!(ours.len(), exact.len());
    let largest = exact.iter().fold(1e-3, |largest: f64, x| largest.max(x.abs()));
    largest_of(ours.iter().zip(exact).map(|(ours, exact)| (ours - exact) / largest))
}

type Operation<'a> = &'a dyn Fn(Option<&Tape>, &[Var]) -> Result<Tensor>;

/// Checks operations on a device in one type.
struct Check {
    device: Device,
    dtype: DType,
    tolerance: f64,
}

impl Check {
    /// Checks an operation. The first `halves` inputs are activations, in the tested type; the
    /// others are parameters, in f32.
    fn operation(
        &self,
        name: &str,
        inputs: &[Tensor],
        halves: usize,
        operation: Operation<'_>,
    ) -> Result<()> {
        let variables = |device: &Device, types: [DType; 2]| {
            let vars = inputs.iter().enumerate().map(|(index, input)| {
                let input = input.to_dtype(types[usize::from(index >= halves)])?;
                Var::from_tensor(&input.to_device(device)?)
            });
            vars.collect::<Result<Vec<_>>>()
        };
        // Each element has a different weight, so that an error in any gradient is noticed.
        let weights = |out: &Tensor| {
            let weights: Vec<f32> =
                (0..out.elem_count()).map(|i| (i as f32 * 0.7).sin() + 0.3).collect();
            let weights = Tensor::from_vec(weights, out.shape(), &Device::Cpu)?;
            weights.to_dtype(out.dtype())?.to_device(out.device())
        };
        let vars = variables(&self.device, [self.dtype, DType::F32])?;
        let tape = Tape::new();
        let out = operation(Some(&tape), &vars)?;
        assert!(tape.knows(&out) && !out.track_op(), "{name}: not on the tape");
        let adjoints = tape.differentiate(&out, &weights(&out)?)?;
        let gradient = |var: &Var| on_host(&adjoints.get(var)?.expect("a gradient"));
        let ours: Result<Vec<_>> =
            [on_host(&out)].into_iter().chain(vars.iter().map(gradient)).collect();
        let ours = ours?;

        let vars = variables(&Device::Cpu, [DType::F64; 2])?;
        let out = operation(None, &vars)?;
        let gradients = out.mul(&weights(&out)?)?.sum_all()?.backward()?;
        let gradient = |var: &Var| on_host(gradients.get(var).expect("a gradient"));
        let exact: Result<Vec<_>> =
            [on_host(&out)].into_iter().chain(vars.iter().map(gradient)).collect();
        let exact = exact?;
        for (place, (ours, exact)) in ours.iter().zip(&exact).enumerate() {
            let error = distance(ours, exact);
            let what = if place == 0 { "result".into() } else { format!("gradient {place}") };
            assert!(error < self.tolerance, "{name} in {:?}, {what}: {error}", self.dtype);
        }
        Ok(())
    }

    fn layers(&self) -> Result<()> {
        let (rows, inner, outer) = (37, 19, 23);
        let inputs = [
            values(&[rows, inner], 1)?,
            values(&[rows, outer], 2)?,
            values(&[outer, inner], 3)?,
            values(&[outer], 4)?,
        ];
        for activation in [
            Activation::Identity,
            Activation::Gelu,
            Activation::GeluTanh,
            Activation::Swish,
            Activation::QuickGelu,
        ] {
            let spec =
                LinearSpec { activation, dropout: Dropout::new(0.2, 5), ..Default::default() };
            self.operation(&format!("linear with {activation:?}"), &inputs, 2, &|tape, v| {
                linear(tape, &v[0], &v[2], Some(&v[3]), Some(&v[1]), &spec)
            })?;
            for dropout in [Dropout::none(), spec.dropout] {
                let spec = LinearSpec { dropout, ..spec };
                let [x, residual, weight, bias] = &inputs;
                let plain = [x.clone(), weight.clone()];
                self.operation(
                    &format!("plain linear with {activation:?}"),
                    &plain,
                    1,
                    &|tape, v| linear(tape, &v[0], &v[1], None, None, &spec),
                )?;
                let biased = [x.clone(), weight.clone(), bias.clone()];
                self.operation(
                    &format!("biased linear with {activation:?}"),
                    &biased,
                    1,
                    &|tape, v| linear(tape, &v[0], &v[1], Some(&v[2]), None, &spec),
                )?;
                let added = [x.clone(), residual.clone(), weight.clone()];
                self.operation(
                    &format!("added linear with {activation:?}"),
                    &added,
                    2,
                    &|tape, v| linear(tape, &v[0], &v[2], None, Some(&v[1]), &spec),
                )?;
            }
        }
        let inputs = [values(&[rows, inner], 1)?, values(&[inner], 2)?, values(&[inner], 3)?];
        for spec in [NormSpec::layer(1e-5), NormSpec::rms(1e-5)] {
            self.operation(&format!("{spec:?}"), &inputs, 1, &|tape, v| {
                norm(tape, &v[0], &v[1], Some(&v[2]), &spec)
            })?;
            self.operation(&format!("{spec:?} without bias"), &inputs[..2], 1, &|tape, v| {
                norm(tape, &v[0], &v[1], None, &spec)
            })?;
        }
        let inputs = [values(&[rows, 3 * inner], 1)?, values(&[inner], 2)?];
        self.operation("norm of columns", &inputs, 1, &|tape, v| {
            let part = NormedColumns { columns: 2 * inner, weight: &v[1], bias: None };
            norm_columns(tape, &v[0], &[part], &NormSpec::rms(1e-5))
        })?;
        let both = [values(&[rows, 2 * inner], 1)?];
        let spec = GatedSpec { activation: Activation::Swish, dropout: Dropout::new(0.2, 5) };
        self.operation("gated swish", &both, 1, &|tape, v| gated(tape, &v[0], &spec))?;
        let spec = EmbeddingSpec {
            ids: [3, 0, 7, 3, 3].into(),
            positions: [0, 1, 0, 1, 2].into(),
            scale: 2.0,
            dropout: Dropout::new(0.3, 9),
        };
        let tables = [values(&[11, inner], 1)?, values(&[5, inner], 2)?];
        self.operation("embedding", &tables, 0, &|tape, v| {
            embedding(tape, &v[0], Some(&v[1]), &spec)
        })?;
        // Looks up rows of activations, and adds rows of a table of positions to them.
        self.operation("rows", &tables, 1, &|tape, v| embedding(tape, &v[0], Some(&v[1]), &spec))?;
        let positions = (0..rows as u32).map(|row| row * 13 % 29).collect();
        let turned = [values(&[rows, 3 * 12], 1)?];
        self.operation("rotary", &turned, 1, &|tape, v| {
            rotary(tape, &v[0], (&positions, Turns::default()), 6, 24)
        })?;
        let buckets: Vec<u32> = (0..35).map(|i| i * 3 % 7).collect();
        self.operation("relative bias", &[values(&[7, 3], 1)?], 0, &|tape, v| {
            relative_bias(tape, &v[0], &buckets.clone().into(), 5, 7)
        })
    }

    fn attention(&self) -> Result<()> {
        let (heads, width) = (3, 21);
        let (lengths, others) = ([5, 1, 9], [4, 7, 2]);
        let plain = AttentionSpec::new(AttentionShape::dividing(width, heads), lengths);
        let qkv = values(&[15, 3 * width], 1)?;
        for (name, spec) in [
            ("attention", plain.clone()),
            ("causal attention", AttentionSpec { causal: true, ..plain.clone() }),
            (
                "attention with dropout",
                AttentionSpec { dropout: Dropout::new(0.3, 1 << 40), ..plain.clone() },
            ),
            (
                "attention with distances",
                AttentionSpec { slopes: Some([0.5, 0.25, 0.1].into()), ..plain.clone() },
            ),
            (
                "attention in a window",
                AttentionSpec { sparse: Some(Sparse::window(2)), ..plain.clone() },
            ),
        ] {
            self.operation(name, std::slice::from_ref(&qkv), 1, &|tape, v| {
                self_attention(tape, &v[0], None, &spec)
            })?;
        }
        let grouped = AttentionSpec { shape: plain.shape.grouped(1), ..plain.clone() };
        let shared = [values(&[15, grouped.shape.projected_width()], 1)?];
        self.operation("attention with shared keys", &shared, 1, &|tape, v| {
            self_attention(tape, &v[0], None, &grouped)
        })?;
        let biased = [qkv, values(&[heads, 9, 9], 2)?];
        self.operation("attention with a bias", &biased, 1, &|tape, v| {
            self_attention(tape, &v[0], Some(&v[1]), &plain)
        })?;
        let across = AttentionSpec { key_lengths: others.into(), ..plain };
        let inputs = [values(&[15, width], 3)?, values(&[13, 2 * width], 4)?];
        self.operation("attention across", &inputs, 2, &|tape, v| {
            cross_attention(tape, &v[0], &v[1], None, &across)
        })?;
        // Three hypotheses of a beam search after two steps; the last two have the same parent.
        let inputs =
            [values(&[3, width], 5)?, values(&[2, 2 * width], 6)?, values(&[3, 2 * width], 7)?];
        let history = [vec![0, 1, 1], vec![0, 1, 2]];
        self.operation("attention to a cache", &inputs, 3, &|tape, v| {
            composed::on_tape(tape, "decoding", &[&v[0], &v[1], &v[2]], |v| {
                let seen = VisibleKeys::Past {
                    kept: CachedRows::Apart { text: None, steps: &v[1..] },
                    text: &[],
                    history: &history,
                    bias: None,
                    slopes: None,
                    sparse: None,
                    dual_chunk: None,
                };
                decoding_attention(&v[0], seen, AttentionShape::dividing(width, heads))
            })
        })
    }

    /// Checks a cache that grows on the device, and the likeliest tokens, which are found there.
    fn decoding(&self) -> Result<()> {
        let (width, slopes) = (21, [0.5, 0.25, 0.1].into());
        let shape = AttentionShape::dividing(width, 3);
        let run = |device: &Device, dtype: DType, mut cache: Cache| -> Result<Vec<f64>> {
            let on = |x: Tensor| x.to_dtype(dtype)?.to_device(device);
            let mut history: Vec<Vec<u32>> = Vec::new();
            cache.add_text(on(values(&[6, 2 * width], 8)?)?)?;
            let mut found = Vec::new();
            for step in 0..40 {
                cache.add_step(on(values(&[3, 2 * width], 10 + step)?)?)?;
                history.push((0..3).map(|row| (row + step as u32) % 3).collect());
                let seen = VisibleKeys::Past {
                    kept: cache.kept().expect("rows"),
                    text: &[0..1, 1..4, 4..6],
                    history: &history,
                    bias: None,
                    slopes: Some(&slopes),
                    sparse: (step % 2 == 0).then(|| Sparse::window(9)),
                    dual_chunk: None,
                };
                let query = on(values(&[3, width], 99 + step)?)?;
                found.extend(on_host(&decoding_attention(&query, seen, shape)?)?);
            }
            Ok(found)
        };
        let ours = run(&self.device, self.dtype, Cache::joined())?;
        let error = distance(&ours, &run(&Device::Cpu, DType::F64, Cache::default())?);
        assert!(error < self.tolerance, "a cache that grows in {:?}: {error}", self.dtype);
        // Logits with many ties.
        let logits: Vec<f32> = (0..3 * 50_021_u64).map(|i| (i * i % 1009) as f32 / 64.0).collect();
        let logits = Tensor::from_vec(logits, (3, 50_021), &Device::Cpu)?;
        let host = composed::likeliest(&logits, 9, &[3, 50_020, 7])?;
        let ours = composed::likeliest(&logits.to_device(&self.device)?, 9, &[3, 50_020, 7])?;
        for (ours, host) in ours.iter().zip(&host) {
            assert_eq!((&ours.tokens, ours.also), (&host.tokens, host.also));
            assert!((ours.normalizer - host.normalizer).abs() < 1e-5, "{ours:?}");
        }
        Ok(())
    }

    fn loss(&self) -> Result<()> {
        let (rows, width, classes) = (14, 9, 31);
        let inputs = [values(&[rows, width], 1)?, values(&[classes, width], 2)?];
        let targets: Vec<u32> = (0..rows as u32).map(|row| row * 5 % classes as u32).collect();
        for r_drop in [0.0, 1.5] {
            let spec =
                CrossEntropySpec { smoothing: 0.1, r_drop, scale: 0.25, products: Products::F32 };
            self.operation(&format!("loss with R-Drop {r_drop}"), &inputs, 1, &|tape, v| {
                Ok(smoothed_cross_entropy(tape, &v[0], &v[1], &targets, &spec)?.0)
            })?;
        }
        Ok(())
    }

    /// Checks that every kernel can be measured, for widths that are not multiples of 16 bytes.
    fn times(&self) -> Result<()> {
        let sizes = device::KernelSizes {
            rows: 10,
            length: 5,
            width: 21,
            heads: 3,
            feed_forward: 35,
            vocabulary: 31,
            dtype: self.dtype,
        };
        match device::kernel_times(&self.device, &sizes, 1) {
            Ok(found) => {
                assert!(found.len() > 15 && found.iter().all(|one| one.bandwidth() > 0.0));
            }
            Err(error) => {
                assert!(!self.device.is_cuda(), "{error}");
                assert!(error.to_string().contains("on a CUDA device"), "{error}");
            }
        }
        for impossible in [
            device::KernelSizes { rows: 0, ..sizes },
            device::KernelSizes { width: 20, ..sizes },
            device::KernelSizes { vocabulary: 0, ..sizes },
        ] {
            let error = device::kernel_times(&self.device, &impossible, 1).unwrap_err();
            assert!(error.to_string().contains("all sizes must be at least 1"), "{error}");
        }
        Ok(())
    }

    /// Checks steps of Adam and of Muon, and the norm of a gradient. They are computed in f32 for
    /// any type of activations.
    fn optimizer(&self) -> Result<()> {
        let run = |device: &Device| -> Result<([Vec<f64>; 2], f64)> {
            let mut store = ParameterStore::new(device);
            let value = |i: usize| (i as f32 * 0.3).sin();
            store.add("matrix", &[7, 5], (0..35).map(value).collect())?;
            store.add("bias", &[3], (0..3).map(value).collect())?;
            let gradient = (0..38).map(|i| (i as f32 * 0.9).cos()).collect();
            let gradient = Tensor::from_vec(gradient, 38, device)?;
            let mut moments = [gradient.zeros_like()?, gradient.zeros_like()?];
            let numbers = AdamStep {
                learning_rate: 0.01,
                beta1: 0.9,
                beta2: 0.98,
                epsilon: 1e-9,
                weight_decay: 0.1,
                step: 0,
                gradient_scale: 0.5,
                decoupled: true,
            };
            for step in 1..=4 {
                let step = AdamStep { step, ..numbers };
                adam_step(&store, 0..38, &gradient, &mut moments, &step)?;
            }
            let by_adam = on_host(&store.flat()?)?;
            store.set_projections("matrix", &[3, 4]);
            for number in 5..=8 {
                let adam = AdamStep { step: number, ..numbers };
                let step = MuonStep { adam, momentum: 0.9 };
                muon_step(&store, 0..38, &gradient, &mut moments, &step)?;
            }
            Ok(([by_adam, on_host(&store.flat()?)?], global_norm(&gradient)?))
        };
        let ((ours, norm), (exact, exact_norm)) = (run(&self.device)?, run(&Device::Cpu)?);
        let error = largest_of([distance(&ours[0], &exact[0]), norm / exact_norm - 1.0]);
        assert!(error < 1e-5, "adam and the norm: {error}");
        // Muon's polynomial magnifies the rounding errors of the smallest singular values some
        // hundred times.
        let error = distance(&ours[1], &exact[1]);
        assert!(error < 1e-4, "muon: {error}");
        Ok(())
    }
}

#[test]
fn every_operation_is_that_of_the_host() -> Result<()> {
    let device = test_device()?;
    // In f32, sums of many terms are rounded in another order. In the other types, the operands are
    // rounded too, by up to 2⁻⁹ (bf16) or 2⁻¹² (f16) of their size.
    for (dtype, tolerance) in [(DType::F32, 2e-5), (DType::BF16, 3e-2), (DType::F16, 4e-3)] {
        let check = Check { device: device.clone(), dtype, tolerance };
        check.layers()?;
        check.attention()?;
        check.decoding()?;
        check.loss()?;
        check.optimizer()?;
        check.times()?;
    }
    Ok(())
}
