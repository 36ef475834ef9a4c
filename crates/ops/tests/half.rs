//! Compares operations that are composed of Candle's, in bf16 and f16, the types of GPUs, with f64,
//! forward and backward. A result must be rounded only once. A sum must not stop growing, as a long
//! sum in bf16 would.

mod common;

use candle_core::{DType, Device, Result, Tensor, Var};
use common::largest_of;
use taper_ops::rng::{Counter, mix};
use taper_ops::{
    Activation, AttentionShape, AttentionSpec, CrossEntropySpec, Dropout, LinearSpec, NormSpec,
    Products, Turns, composed,
};

/// Returns the smallest relative distance between neighbouring numbers of a type, which is also the
/// largest relative error of rounding to the type.
fn spacing(dtype: DType) -> f64 {
    if dtype == DType::BF16 { 2f64.powi(-8) } else { 2f64.powi(-11) }
}

const HALVES: [DType; 2] = [DType::BF16, DType::F16];

/// Returns random values around `mean` that both half types and f32 represent exactly.
fn values(shape: &[usize], mean: f64, key: u64) -> Result<Tensor> {
    let counter = Counter::new(mix(5, &[key]));
    let count = shape.iter().product::<usize>() as u64;
    let values: Vec<f64> = (0..count).map(|i| mean + counter.normal_at(i)).collect();
    let exact = Tensor::from_vec(values, shape, &Device::Cpu)?.to_dtype(DType::BF16)?;
    exact.to_dtype(DType::F16)?.to_dtype(DType::F64)
}

/// Returns the largest difference, relative to the largest exact value; NaN if any value is NaN.
fn distance(ours: &Tensor, exact: &Tensor) -> Result<f64> {
    let ours = ours.to_dtype(DType::F64)?.flatten_all()?.to_vec1::<f64>()?;
    let exact = exact.to_dtype(DType::F64)?.flatten_all()?.to_vec1::<f64>()?;
    let largest = exact.iter().fold(0.0, |largest: f64, x| largest.max(x.abs()));
    Ok(largest_of(ours.iter().zip(&exact).map(|(ours, exact)| ours - exact)) / largest)
}

/// Returns the errors of an operation in half precision, in units of the type's spacing. The first
/// is the error of the result. Then follows the error of a gradient for each input: the gradient of
/// the sum of all result elements with respect to the input. The first `halves` inputs are
/// activations, in the half type; the other inputs are parameters, in f32.
fn errors(
    dtype: DType,
    inputs: &[Tensor],
    halves: usize,
    operation: &dyn Fn(&[Var]) -> Result<Tensor>,
) -> Result<Vec<f64>> {
    let run = |types: [DType; 2]| -> Result<Vec<Tensor>> {
        let vars = inputs.iter().enumerate().map(|(index, input)| {
            Var::from_tensor(&input.to_dtype(types[usize::from(index >= halves)])?)
        });
        let vars = vars.collect::<Result<Vec<_>>>()?;
        let out = operation(&vars)?;
        let gradients = out.to_dtype(DType::F64)?.sum_all()?.backward()?;
        let gradient = |var: &Var| gradients.get(var).expect("a gradient").clone();
        Ok([out].into_iter().chain(vars.iter().map(gradient)).collect())
    };
    let (ours, exact) = (run([dtype, DType::F32])?, run([DType::F64; 2])?);
    let pairs = ours.iter().zip(&exact);
    pairs.map(|(ours, exact)| Ok(distance(ours, exact)? / spacing(dtype))).collect()
}

#[test]
fn what_follows_a_product_is_rounded_once_and_bias_gradients_keep_growing() -> Result<()> {
    // So many rows that a sum in either type would stop growing: the gradient with respect to a
    // bias is 5000.
    let inputs = [
        values(&[5000, 16], 0.0, 1)?,
        values(&[24, 16], 0.0, 2)?,
        values(&[24], 0.0, 3)?,
        values(&[5000, 24], 0.0, 4)?,
    ];
    for dtype in HALVES {
        for activation in [
            Activation::Identity,
            Activation::Relu,
            Activation::Gelu,
            Activation::GeluTanh,
            Activation::Swish,
            Activation::QuickGelu,
        ] {
            let spec = LinearSpec { activation, ..LinearSpec::default() };
            let without = &inputs[..3];
            let linear = |v: &[Var]| composed::linear(&v[0], &v[1], Some(&v[2]), None, &spec);
            let mut errors = errors(dtype, without, 1, &linear)?;
            if activation == Activation::Relu {
                // A sum close to zero can be rounded to the other sign, so that relu has another
                // derivative.
                errors.remove(1);
            }
            for error in errors {
                assert!(error < 3.0, "{dtype:?}, {activation:?}: {error} spacings");
            }
        }
        let spec = LinearSpec { dropout: Dropout::new(0.1, 7), ..LinearSpec::default() };
        let onto = |v: &[Var]| composed::linear(&v[0], &v[2], Some(&v[3]), Some(&v[1]), &spec);
        let inputs = [0, 3, 1, 2].map(|index| inputs[index].clone());
        for error in errors(dtype, &inputs, 2, &onto)? {
            assert!(error < 3.0, "{dtype:?}, onto a residual: {error} spacings");
        }
    }
    Ok(())
}

#[test]
fn norms_are_taken_in_f32() -> Result<()> {
    // Values far from zero, whose squares overflow f16, and whose mean in bf16 would be off by
    // whole units.
    let inputs = [values(&[3000, 48], 300.0, 1)?, values(&[48], 1.0, 2)?, values(&[48], 0.0, 3)?];
    for dtype in HALVES {
        let spec = NormSpec::layer(1e-5);
        let norm = |v: &[Var]| composed::norm(&v[0], &v[1], Some(&v[2]), &spec);
        let errors = errors(dtype, &inputs, 1, &norm)?;
        // The gradient with respect to the input is not compared, because it is a small difference
        // of large numbers.
        for error in [errors[0], errors[2], errors[3]] {
            assert!(error < 2.0, "{dtype:?}: {error} spacings");
        }
    }
    Ok(())
}

#[test]
fn a_softmax_over_many_keys_sums_to_one() -> Result<()> {
    let (tokens, width, heads) = (700, 8, 2);
    let inputs = [values(&[tokens, 3 * width], 0.0, 1)?, values(&[heads, tokens, tokens], 0.0, 2)?];
    let spec = AttentionSpec {
        slopes: Some([0.001, 0.002].into()),
        ..AttentionSpec::new(AttentionShape::dividing(width, heads), [tokens])
    };
    for dtype in HALVES {
        let qkv = inputs[0].to_dtype(dtype)?;
        let (query, key) = (qkv.narrow(1, 0, width)?, qkv.narrow(1, width, width)?);
        let weights = composed::attention_weights(&query, &key, None, &spec)?;
        let sums = weights.sum(3)?.to_dtype(DType::F64)?.flatten_all()?.to_vec1::<f64>()?;
        assert!(sums.iter().all(|sum| (sum - 1.0).abs() < 1e-5), "{dtype:?}");
        let attend = |v: &[Var]| composed::self_attention(&v[0], Some(&v[1]), &spec);
        let errors = errors(dtype, &inputs, 1, &attend)?;
        // Scores are results of matrix products, and are rounded before the softmax.
        assert!(errors[0] < 6.0, "{dtype:?}: {errors:?} spacings");
    }
    Ok(())
}

#[test]
fn the_loss_of_many_tokens_and_classes_is_taken_in_f32() -> Result<()> {
    let (rows, classes, width) = (600, 3000, 8);
    let targets: Vec<u32> = (0..rows as u32).map(|row| row * 7 % classes as u32).collect();
    let (hidden, weight) = (values(&[rows, width], 0.0, 1)?, values(&[classes, width], 0.0, 2)?);
    for r_drop in [0.0, 1.5] {
        let spec =
            CrossEntropySpec { smoothing: 0.1, r_drop, scale: 1e-3, products: Products::F32 };
        let sums = |dtype: DType| -> Result<[f64; 3]> {
            let hidden = hidden.to_dtype(dtype)?;
            let (_, sums) = composed::smoothed_cross_entropy(&hidden, &weight, &targets, &spec)?;
            Ok([sums.smoothed, sums.nll, sums.divergence])
        };
        let exact = sums(DType::F64)?;
        for dtype in HALVES {
            for (ours, exact) in sums(dtype)?.into_iter().zip(exact) {
                // Logits are results of matrix products, and are rounded; their errors cancel in
                // the sum.
                let error = (ours - exact).abs() / (1.0 + exact.abs());
                assert!(error < spacing(dtype), "{dtype:?}: {ours}, exactly {exact}");
            }
        }
    }
    Ok(())
}

#[test]
fn positions_turn_in_f32() -> Result<()> {
    let x = values(&[400, 16], 0.0, 1)?;
    let positions: Vec<u32> = (0..400).map(|row| 5 * row).collect();
    for dtype in HALVES {
        let turn = |v: &[Var]| composed::rotary(&v[0], (&positions, Turns::default()), 8, 16);
        for error in errors(dtype, std::slice::from_ref(&x), 1, &turn)? {
            assert!(error < 1.0, "{dtype:?}: {error} spacings");
        }
    }
    Ok(())
}
