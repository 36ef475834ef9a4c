//! Tests the operations of state-space layers. Fused operations are compared with operations
//! composed of Candle's, with finite differences, with the recurrence and with a convolution. A
//! sequence in two parts must give the same as the whole, and results must not depend on the number
//! of threads.

mod common;

use candle_core::{DType, Device, Result, Tensor, Var};
use common::{adjoint, check, largest_of, random, values};
use std::sync::Arc;
use taper_ops::{
    ConvolutionSpec, ScanInputs, ScanSpec, Tape, causal_convolution, causal_convolution_after,
    composed, selective_scan, selective_scan_after,
};

const LENGTHS: [usize; 4] = [2, 0, 34, 1];

fn inputs<T: std::ops::Deref<Target = Tensor>>(tensors: &[T]) -> ScanInputs<'_> {
    ScanInputs {
        x: &tensors[0],
        delta: &tensors[1],
        in_out: &tensors[2],
        log_decay: &tensors[3],
        skip: &tensors[4],
        gated: &tensors[5],
    }
}

/// Makes the tensors of a scan over `tokens` tokens.
fn variables(tokens: usize, channels: usize, states: usize, selective: bool) -> [Var; 6] {
    let rows = if selective { tokens } else { channels };
    let steps: &[usize] = if selective { &[tokens, channels] } else { &[channels] };
    [
        random(&[tokens, channels], 1),
        random(steps, 2),
        random(&[rows, 2 * states], 3),
        random(&[channels * states], 4),
        random(&[channels], 5),
        random(&[tokens, 2 * channels], 6),
    ]
}

fn specs() -> impl Iterator<Item = ScanSpec> {
    [(true, false), (true, true), (false, false), (false, true)]
        .into_iter()
        .map(|(selective, reverse)| ScanSpec { lengths: LENGTHS.into(), selective, reverse })
}

#[test]
fn convolutions_have_their_gradients() {
    for reverse in [false, true] {
        let spec = ConvolutionSpec { lengths: LENGTHS.into(), reverse };
        for taps in [1, 4] {
            let variables = [random(&[37, 9], 1), random(&[6, taps], 2), random(&[6], 3)];
            check(
                &format!("{taps} taps, reverse {reverse}"),
                &variables,
                &|tape, x| causal_convolution(tape, &x[0], &x[1], &x[2], &spec),
                &|x| composed::causal_convolution(&x[0], &x[1], &x[2], &spec, None),
            );
        }
    }
}

#[test]
fn scans_have_their_gradients() {
    for spec in specs() {
        let variables = variables(37, 18, 2, spec.selective);
        check(
            &format!("{spec:?}"),
            &variables,
            &|tape, x| selective_scan(tape, inputs(x), &spec),
            &|x| Ok(composed::selective_scan(inputs(x), &spec, None)?.0),
        );
    }
}

/// Computes the scan directly by its recurrence, token by token and state by state.
fn recurrence(tensors: &[Var; 6], channels: usize, states: usize, spec: &ScanSpec) -> Vec<f64> {
    let tensors: Vec<Vec<f64>> = tensors.iter().map(|x| values(x)).collect();
    let softplus = |x: f64| x.exp().ln_1p();
    let silu = |x: f64| x / (1.0 + (-x).exp());
    let mut out = vec![0.0; tensors[0].len()];
    let mut first = 0;
    for &length in spec.lengths.iter() {
        for channel in 0..channels {
            let mut state = vec![0.0; states];
            for step in 0..length {
                let token = first + if spec.reverse { length - 1 - step } else { step };
                let at = token * channels + channel;
                let row = if spec.selective { token } else { channel };
                let delta = softplus(tensors[1][if spec.selective { at } else { channel }]);
                let mut sum = tensors[4][channel] * tensors[0][at];
                for (index, state) in state.iter_mut().enumerate() {
                    let decay = -tensors[3][channel * states + index].exp();
                    let side = &tensors[2][row * 2 * states..][..2 * states];
                    *state = (delta * decay).exp() * *state + delta * side[index] * tensors[0][at];
                    sum += side[states + index] * *state;
                }
                out[at] = sum * silu(tensors[5][token * 2 * channels + channels + channel]);
            }
        }
        first += length;
    }
    out
}

fn largest(ours: &Tensor, theirs: &[f64]) -> f64 {
    let ours = values(&ours.to_dtype(DType::F64).unwrap());
    assert_eq!(ours.len(), theirs.len());
    largest_of(ours.iter().zip(theirs).map(|(a, b)| a - b))
}

#[test]
fn scans_are_the_recurrence() -> Result<()> {
    for spec in specs() {
        let variables = variables(37, 18, 2, spec.selective);
        let expected = recurrence(&variables, 18, 2, &spec);
        let tensors = variables.each_ref().map(|x| x.detach());
        let tensors: Vec<&Tensor> = tensors.iter().collect();
        let fused = selective_scan(None, inputs(&tensors), &spec)?;
        let (associative, _) = composed::selective_scan(inputs(&tensors), &spec, None)?;
        for (name, ours) in [("fused", fused), ("associative", associative)] {
            let error = largest(&ours, &expected);
            assert!(error < 1e-12, "{name}, {spec:?}: {error}");
        }
    }
    Ok(())
}

/// Computes two sequences in two parts; the second part continues from the state after the first.
#[test]
fn parts_are_the_whole() -> Result<()> {
    let (channels, states, taps) = (18, 3, 4);
    let cut = |x: &Tensor, parts: [(usize, usize); 2]| -> Result<Tensor> {
        let parts = parts.map(|(start, count)| x.narrow(0, start, count).unwrap());
        Tensor::cat(&parts, 0)?.contiguous()
    };
    // The sequences of 40 and 7 tokens are cut after 35 and 2 tokens.
    let (first, second) = ([(0, 35), (40, 2)], [(35, 5), (42, 5)]);
    let spec =
        |lengths: [usize; 2]| ScanSpec { lengths: lengths.into(), selective: true, reverse: false };
    let tensors = variables(47, channels, states, true).map(|x| x.detach());
    let part = |ranges| -> Result<Vec<Tensor>> {
        (0..6)
            .map(|i| {
                if [3, 4].contains(&i) { Ok(tensors[i].clone()) } else { cut(&tensors[i], ranges) }
            })
            .collect()
    };
    let whole = selective_scan(None, inputs(&tensors.iter().collect::<Vec<_>>()), &spec([40, 7]))?;
    let (before, after) = (part(first)?, part(second)?);
    let (before, after) = (before.iter().collect::<Vec<_>>(), after.iter().collect::<Vec<_>>());
    let (out, state) = selective_scan_after(inputs(&before), &spec([35, 2]), None)?;
    let (composed_out, composed_state) =
        composed::selective_scan(inputs(&before), &spec([35, 2]), None)?;
    assert!(largest(&out, &values(&cut(&whole, first)?)) < 1e-12);
    assert!(largest(&composed_out, &values(&out)) < 1e-12);
    assert!(largest(&composed_state, &values(&state)) < 1e-12);
    let (out, state) = selective_scan_after(inputs(&after), &spec([5, 5]), Some(&state))?;
    let (composed_out, last) =
        composed::selective_scan(inputs(&after), &spec([5, 5]), Some(&composed_state))?;
    assert!(largest(&out, &values(&cut(&whole, second)?)) < 1e-12);
    assert!(largest(&composed_out, &values(&out)) < 1e-12);
    assert!(largest(&last, &values(&state)) < 1e-12);

    let (weight, bias) = (random(&[channels, taps], 8).detach(), random(&[channels], 9).detach());
    let x = &tensors[0];
    let lengths = |lengths: [usize; 2]| ConvolutionSpec { lengths: lengths.into(), reverse: false };
    let whole = causal_convolution(None, x, &weight, &bias, &lengths([40, 7]))?;
    // Takes the three tokens before each cut. In the second sequence there are only two, so that a
    // zero comes first.
    let zero = Tensor::zeros((1, channels), DType::F64, &Device::Cpu)?;
    let before = Tensor::cat(&[&x.narrow(0, 32, 3)?, &zero, &x.narrow(0, 40, 2)?], 0)?;
    let before = before.reshape((2, 3 * channels))?;
    let (x, own) = (cut(x, second)?, lengths([5, 5]));
    let out = causal_convolution_after(&x, &weight, &bias, &own, &before)?;
    assert!(largest(&out, &values(&cut(&whole, second)?)) < 1e-12);
    let out = composed::causal_convolution(&x, &weight, &bias, &own, Some(&before))?;
    assert!(largest(&out, &values(&cut(&whole, second)?)) < 1e-12);
    Ok(())
}

/// Compares with the convolution `y = K * u`, where `K_l = Σ_s C_s exp(l Δ A_s) Δ B_s` (Gu and Dao
/// 2023, equation 3). D and the gate are applied to its result.
#[test]
fn a_scan_that_does_not_select_is_a_convolution() -> Result<()> {
    let (tokens, channels, states) = (50, 5, 4);
    let tensors = variables(tokens, channels, states, false);
    let spec = ScanSpec { lengths: [tokens].into(), selective: false, reverse: false };
    let of_values: Vec<Vec<f64>> = tensors.iter().map(|x| values(x)).collect();
    let [u, delta, sides, log_decay, skip, gated] = of_values.as_slice() else { panic!("six") };
    let mut expected = vec![0.0; tokens * channels];
    for channel in 0..channels {
        let step = delta[channel].exp().ln_1p();
        let of_state = |lag: usize, s: usize| {
            let (into, from) = (sides[channel * 2 * states + s], channel * 2 * states + states + s);
            let decay = -log_decay[channel * states + s].exp();
            sides[from] * (lag as f64 * step * decay).exp() * step * into
        };
        let kernel: Vec<f64> =
            (0..tokens).map(|lag| (0..states).map(|s| of_state(lag, s)).sum()).collect();
        for token in 0..tokens {
            let terms = (0..=token).map(|lag| kernel[lag] * u[(token - lag) * channels + channel]);
            let gate = gated[token * 2 * channels + channels + channel];
            let sum = terms.sum::<f64>() + skip[channel] * u[token * channels + channel];
            expected[token * channels + channel] = sum * gate / (1.0 + (-gate).exp());
        }
    }
    let tensors = tensors.each_ref().map(|x| x.detach());
    let tensors: Vec<&Tensor> = tensors.iter().collect();
    let error = largest(&selective_scan(None, inputs(&tensors), &spec)?, &expected);
    assert!(error < 1e-12, "{error}");
    Ok(())
}

/// Checks, in f32, that results and all gradients have the same bits on one thread and on three.
#[test]
fn threads_change_no_bit() -> Result<()> {
    let lengths: Arc<[usize]> = [300, 40, 517, 1].into();
    let tokens = lengths.iter().sum();
    for selective in [true, false] {
        let tensors = variables(tokens, 150, 16, selective)
            .map(|x| Var::from_tensor(&x.to_dtype(DType::F32).unwrap()).unwrap());
        let spec = ScanSpec { lengths: lengths.clone(), selective, reverse: false };
        let convolution = ConvolutionSpec { lengths: lengths.clone(), reverse: false };
        let filter = Var::from_tensor(&random(&[150, 4], 7).to_dtype(DType::F32)?)?;
        let run = || -> Result<Vec<Vec<f32>>> {
            let tape = Tape::new();
            let x =
                causal_convolution(Some(&tape), &tensors[5], &filter, &tensors[4], &convolution)?;
            let scanned = ScanInputs { x: &x, ..inputs(&tensors) };
            let out = selective_scan(Some(&tape), scanned, &spec)?;
            let gradients = tape.differentiate(&out, &adjoint(&out).to_dtype(DType::F32)?)?;
            let mut found = vec![out.flatten_all()?.to_vec1()?];
            for variable in tensors[1..].iter().chain([&filter]) {
                let gradient = gradients.get(variable)?.expect("reached");
                found.push(gradient.flatten_all()?.to_vec1()?);
            }
            Ok(found)
        };
        let on = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(run).unwrap()
        };
        assert_eq!(on(1), on(3));
    }
    Ok(())
}

#[test]
fn what_does_not_fit_is_refused() -> Result<()> {
    let tensors = variables(4, 6, 3, true);
    let spec = |lengths: &[usize], selective| ScanSpec {
        lengths: lengths.into(),
        selective,
        reverse: false,
    };
    let refused = |spec: ScanSpec| {
        selective_scan(None, inputs(&tensors), &spec).map(|_| ()).unwrap_err().to_string()
    };
    assert!(refused(spec(&[3], true)).contains("3 tokens in sequences"));
    assert!(refused(spec(&[4], false)).starts_with("scan: "));
    let own = ConvolutionSpec { lengths: [4].into(), reverse: false };
    let error =
        causal_convolution(None, &tensors[0], &random(&[7, 2], 1), &tensors[4], &own).unwrap_err();
    assert!(error.to_string().starts_with("convolution: "), "{error}");
    Ok(())
}
