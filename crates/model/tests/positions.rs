//! Tests that compare position encodings and single attention layers with direct formulas and with
//! PyTorch (`scripts/golden/layers/positions.py` and `scripts/golden/attention/attention.py`).

mod common;

use candle_core::{DType, Device, Tensor, Var};
use common::{TestResult, golden};
use std::collections::HashMap;
use std::sync::Arc;
use taper_model::positions::{alibi_slopes, sinusoids, t5_bucket};
use taper_model::{RelativeBuckets, RotaryConfig, RotaryPairs, RotaryScaling, SinusoidFrequencies};
use taper_ops::{
    AttentionShape, AttentionSpec, LinearSpec, Tape, Turns, cross_attention, linear, rotary,
    self_attention,
};

/// Euclidean norm of `ours - theirs`. It is absolute, and not relative to the norms of the two
/// tensors.
fn distance(ours: &Tensor, theirs: &Tensor) -> f64 {
    assert_eq!(ours.dims(), theirs.dims());
    let wide = |x: &Tensor| x.to_dtype(DType::F64).unwrap();
    (wide(ours) - wide(theirs))
        .unwrap()
        .sqr()
        .unwrap()
        .sum_all()
        .unwrap()
        .to_scalar::<f64>()
        .unwrap()
        .sqrt()
}

fn norm(x: &Tensor) -> f64 {
    distance(x, &x.zeros_like().unwrap())
}

#[test]
fn sinusoids_are_the_formula() -> TestResult {
    let file = golden("layers/positions");
    let (paper, other) = (SinusoidFrequencies::Paper, SinusoidFrequencies::Tensor2Tensor);
    for (halves, frequencies, key) in [
        (false, paper, "sinusoidal.interleaved"),
        (true, paper, "sinusoidal.halves"),
        (true, other, "sinusoidal.halves_tensor2tensor"),
    ] {
        let (count, width) = file[key].dims2()?;
        for first in [0, 5] {
            let rows = sinusoids(first..count, width, halves, frequencies);
            let ours = Tensor::from_vec(rows, (count - first, width), &Device::Cpu)?;
            let theirs = file[key].narrow(0, first, count - first)?;
            assert!(distance(&ours, &theirs) < 1e-6, "{key} from {first}");
        }
    }
    Ok(())
}

#[test]
fn rotary_turns_pairs_by_their_position() -> TestResult {
    let file = golden("layers/positions");
    let offset =
        file["rotary.offset"].flatten_all()?.to_dtype(DType::F64)?.to_vec1::<f64>()?[0] as u32;
    for part in ["query", "key"] {
        let (heads, length, width) = file[&format!("rotary.{part}")].dims3()?;
        let rows =
            |key: &str| file[key].transpose(0, 1)?.contiguous()?.reshape((length, heads * width));
        for (start, expected) in [
            (0, format!("rotary.{part}_rotated")),
            (offset, format!("rotary.{part}_rotated_from_offset")),
        ] {
            let positions: Arc<[u32]> = (start..start + length as u32).collect();
            let ours = rotary(
                None,
                &rows(&format!("rotary.{part}"))?,
                (&positions, Turns::default()),
                width,
                heads * width,
            )?;
            let error = distance(&ours, &rows(&expected)?);
            assert!(error < 3e-6, "{expected}: {error}");
        }
    }
    Ok(())
}

#[test]
fn scaled_rotary_positions_are_those_of_transformers() -> TestResult {
    let file = golden("layers/rotary");
    let positions: Arc<[u32]> = file["positions"].to_vec1::<u32>()?.into();
    let plain = RotaryConfig::default();
    let original_length = Some(64);
    let llama3 = RotaryConfig { scaling: RotaryScaling::Llama3, original_length, ..plain };
    let yarn = RotaryConfig { scaling: RotaryScaling::Yarn, original_length, ..plain };
    for (name, own) in [
        ("base", RotaryConfig { base: 5e5, ..plain }),
        ("linear", RotaryConfig { scaling: RotaryScaling::Interpolation, factor: 4.0, ..plain }),
        ("llama3", RotaryConfig { base: 5e5, factor: 8.0, ..llama3 }),
        ("yarn", RotaryConfig { factor: 4.0, ..yarn }),
        (
            "yarn_narrow",
            RotaryConfig {
                factor: 16.0,
                slow_rotations: Some(0.5),
                fast_rotations: Some(4.0),
                magnitude: Some(1.1),
                ..yarn
            },
        ),
    ] {
        for (pairs, key) in
            [(RotaryPairs::Halves, "halves"), (RotaryPairs::Interleaved, "interleaved")]
        {
            let turns = RotaryConfig { pairs, ..own }.turns(16);
            let ours = rotary(None, &file["x"], (&positions, turns), 16, 48)?;
            let theirs = &file[&format!("{name}.{key}")];
            // Transformers computes frequencies in f32. At the last position, 120, this makes a
            // difference.
            let error = distance(&ours, theirs) / norm(theirs);
            assert!(error < 3e-6, "{name}, {key}: {error}");
            // If Candle tracks the input, the plain Candle operation runs.
            let x = Var::from_tensor(&file["x"])?;
            let error = distance(&rotary(None, &x, (&positions, turns), 16, 48)?, &ours);
            assert!(error < 1e-5, "{name}, {key}, composed: {error}");
        }
    }
    Ok(())
}

#[test]
fn alibi_slopes_are_the_papers() -> TestResult {
    let file = golden("layers/positions");
    for heads in [4, 6, 8] {
        let ours = Tensor::from_vec(alibi_slopes(heads), heads, &Device::Cpu)?;
        assert!(
            distance(&ours, &file[&format!("alibi.slopes.{heads}")].flatten_all()?) < 1e-6,
            "{heads} heads"
        );
    }
    Ok(())
}

#[test]
fn t5_buckets_are_the_papers() -> TestResult {
    let file = golden("layers/positions");
    let relative = file["t5.relative_positions"].to_vec1::<i64>()?;
    for (causal, key) in [(false, "t5.buckets.bidirectional"), (true, "t5.buckets.causal")] {
        for (&relative, expected) in relative.iter().zip(file[key].to_vec1::<u32>()?) {
            let (query, position) = (1000_i64, 1000 + relative);
            assert_eq!(
                t5_bucket(query as usize, position as usize, causal, RelativeBuckets::default()),
                expected as usize,
                "{key}, key - query = {relative}"
            );
        }
    }
    Ok(())
}

/// Compares buckets with those of Hugging Face Transformers, also for distances at the border
/// between two buckets (`scripts/golden/layers/t5_buckets.py`).
#[test]
fn t5_buckets_are_those_of_transformers() -> TestResult {
    let file = golden("layers/t5-buckets");
    let relative = file["relative_positions"].to_vec1::<i64>()?;
    for shape in file["shapes"].to_vec2::<u32>()? {
        let of = RelativeBuckets { count: shape[0] as usize, distance: shape[1] as usize };
        for (causal, kind) in [(true, "causal"), (false, "bidirectional")] {
            let key = format!("{}.{}.{kind}", of.count, of.distance);
            let ours = |&relative: &i64| t5_bucket(1000, (1000 + relative) as usize, causal, of);
            let ours: Vec<u32> = relative.iter().map(|at| ours(at) as u32).collect();
            assert_eq!(ours, file[&key].to_vec1::<u32>()?, "{key}");
        }
    }
    Ok(())
}

fn spec(file: &HashMap<String, Tensor>, queries: &str, keys: &str, causal: bool) -> AttentionSpec {
    let lengths = |key: &str| {
        file[key].to_vec1::<u32>().unwrap().into_iter().map(|length| length as usize).collect()
    };
    AttentionSpec {
        key_lengths: lengths(keys),
        causal,
        ..AttentionSpec::new(AttentionShape::dividing(16, 4), lengths(queries))
    }
}

/// Runs `f` on variables, and compares its result and all gradients with a golden file, which has
/// the results of PyTorch. The result may have an absolute error of 3e-6, and a gradient a relative
/// error of 1e-5.
fn check(
    file: &HashMap<String, Tensor>,
    case: &str,
    names: &[&str],
    f: impl Fn(Option<&Tape>, &HashMap<String, Var>) -> candle_core::Result<Tensor>,
) -> TestResult {
    let vars: HashMap<String, Var> = names
        .iter()
        .map(|name| (name.to_string(), Var::from_tensor(&file[&format!("{case}.{name}")]).unwrap()))
        .collect();
    let tape = Tape::new();
    let out = f(Some(&tape), &vars)?;
    let error = distance(&out, &file[&format!("{case}.output")]);
    assert!(error < 3e-6, "{case}: output {error}");
    let gradients = tape.differentiate(&out, &file[&format!("{case}.output_gradient")])?;
    for name in names {
        let expected = &file[&format!("{case}.grad.{name}")];
        let error = distance(&gradients.get(&vars[*name])?.ok_or(*name)?, expected);
        assert!(
            error < 1e-5 * norm(expected),
            "{case}: gradient of {name}: {error} of {}",
            norm(expected)
        );
    }
    Ok(())
}

fn project(
    tape: Option<&Tape>,
    x: &Tensor,
    vars: &HashMap<String, Var>,
    name: &str,
) -> candle_core::Result<Tensor> {
    linear(
        tape,
        x,
        &vars[&format!("{name}.weight")],
        Some(&vars[&format!("{name}.bias")]),
        None,
        &LinearSpec::default(),
    )
}

#[test]
fn attention_is_pytorchs() -> TestResult {
    let file = golden("attention/attention");
    for (case, causal) in [("self", false), ("self_causal", true)] {
        let spec = spec(&file, &format!("{case}.lengths"), &format!("{case}.lengths"), causal);
        check(
            &file,
            case,
            &["input", "qkv.weight", "qkv.bias", "out.weight", "out.bias"],
            |tape, vars| {
                project(
                    tape,
                    &self_attention(
                        tape,
                        &project(tape, &vars["input"], vars, "qkv")?,
                        None,
                        &spec,
                    )?,
                    vars,
                    "out",
                )
            },
        )?;
    }
    let spec = spec(&file, "cross.query_lengths", "cross.key_lengths", false);
    let names =
        ["query", "key", "q.weight", "q.bias", "kv.weight", "kv.bias", "out.weight", "out.bias"];
    check(&file, "cross", &names, |tape, vars| {
        let (query, key_value) =
            (project(tape, &vars["query"], vars, "q")?, project(tape, &vars["key"], vars, "kv")?);
        project(tape, &cross_attention(tape, &query, &key_value, None, &spec)?, vars, "out")
    })
}
