//! Tests recurrent layers and related operations. Fused operations are compared with finite
//! differences and with operations composed of Candle's. They run with every matrix kernel and on
//! any number of threads.

mod common;

use candle_core::{DType, Device, Result, Tensor, Var};
use common::{adjoint, again_through_every_kernel, check, random, values};
use std::ops::Range;
use std::sync::Arc;
use taper_ops::{
    AdditiveAttention, Cell, Dropout, Products, Recurred, Recurrence, RecurrenceSpec,
    StateGradients, Tape, composed,
};

const LENGTHS: [usize; 4] = [3, 1, 5, 2];
const SOURCES: [Range<usize>; 4] = [0..2, 2..6, 6..7, 8..11];
const WIDTH: usize = 3;

fn spec(cell: Cell, backwards: bool) -> RecurrenceSpec {
    RecurrenceSpec {
        cell,
        lengths: LENGTHS.into(),
        backwards,
        attended: Arc::from(SOURCES),
        wants_weights: true,
        state_gradients: None,
        products: Products::F32,
    }
}

/// Makes inputs, weight, bias and initial states; and query, energy, keys, values and context of
/// attention.
fn tensors(cell: Cell, width: usize) -> Vec<Var> {
    let (rows, gates) = (LENGTHS.iter().sum::<usize>(), cell.gates() * width);
    vec![
        random(&[rows, gates], 1),
        random(&[gates, width], 2),
        random(&[gates], 3),
        random(&[LENGTHS.len(), cell.vectors() * width], 4),
        random(&[4, width], 5),
        random(&[4], 6),
        random(&[11, 4], 7),
        random(&[11, 5], 8),
        random(&[gates, 5], 9),
    ]
}

/// Describes a layer with the tensors of [`tensors`], in the same order. `v` has at least the first
/// two; without a bias or initial states, these are missing. Attention needs all nine.
fn given<T: AsRef<Tensor>>(v: &[T]) -> Recurrence<'_> {
    let tensor = |at: usize| v.get(at).map(AsRef::as_ref);
    Recurrence {
        inputs: v[0].as_ref(),
        weight: v[1].as_ref(),
        bias: tensor(2),
        initial: tensor(3),
        attention: (v.len() > 4).then(|| AdditiveAttention {
            query: v[4].as_ref(),
            energy: v[5].as_ref(),
            keys: v[6].as_ref(),
            values: v[7].as_ref(),
            context: v[8].as_ref(),
        }),
    }
}

/// A tensor in a form that [`given`] accepts.
struct Held(Tensor);

impl AsRef<Tensor> for Held {
    fn as_ref(&self) -> &Tensor {
        &self.0
    }
}

fn held(v: &[Var]) -> Vec<Held> {
    v.iter().map(|var| Held(var.as_tensor().clone())).collect()
}

fn fused(tape: Option<&Tape>, v: &[Var], spec: &RecurrenceSpec) -> Result<Recurred> {
    taper_ops::recurrence(tape, None, &given(&held(v)), spec)
}

#[test]
fn each_cell_with_and_without_attention() {
    for cell in [Cell::Gru, Cell::Lstm] {
        for backwards in [false, true] {
            let (spec, inputs) = (spec(cell, backwards), tensors(cell, WIDTH));
            for count in [2, 3, 4, 9] {
                check(
                    &format!("{cell:?}, backwards {backwards}, {count} tensors"),
                    &inputs[..count],
                    &|tape, v| Ok(fused(tape, v, &spec)?.rows),
                    &|v| Ok(composed::recurrence(&given(&held(v)), &spec)?.rows),
                );
            }
        }
    }
}

#[test]
fn last_states_and_weights_are_the_composed_ones() {
    for cell in [Cell::Gru, Cell::Lstm] {
        let (spec, inputs) = (spec(cell, true), held(&tensors(cell, WIDTH)));
        let detached: Vec<Held> = inputs.iter().map(|x| Held(x.0.detach())).collect();
        let ours = taper_ops::recurrence(None, None, &given(&detached), &spec).unwrap();
        let theirs = composed::recurrence(&given(&inputs), &spec).unwrap();
        for (ours, theirs) in [
            (&ours.last, &theirs.last),
            (ours.weights.as_ref().unwrap(), theirs.weights.as_ref().unwrap()),
        ] {
            assert_eq!(ours.dims(), theirs.dims());
            for (ours, theirs) in values(ours).iter().zip(values(theirs)) {
                assert!((ours - theirs).abs() < 1e-12);
            }
        }
        let sums = values(&ours.weights.unwrap().sum(2).unwrap());
        assert_eq!(sums.iter().filter(|sum| (*sum - 1.0).abs() < 1e-12).count(), 11);
    }
}

/// Checks that single steps, each from the state after the step before, give the same as the whole
/// pass.
#[test]
fn steps_are_the_whole() {
    for cell in [Cell::Gru, Cell::Lstm] {
        let narrow = |x: &Tensor| x.to_dtype(DType::F32).unwrap().detach();
        let all: Vec<Held> = tensors(cell, 40).iter().map(|x| Held(narrow(x))).collect();
        let lengths: Arc<[usize]> = [3; 4].into();
        let picked = |rows: Vec<u32>| {
            let rows = Tensor::new(rows, &Device::Cpu).unwrap();
            all[0].0.index_select(&rows, 0).unwrap()
        };
        let whole = RecurrenceSpec { lengths, ..spec(cell, false) };
        let inputs = picked((0..12).map(|row| row % 11).collect());
        let run = |inputs: Tensor, initial: Tensor, spec: &RecurrenceSpec| {
            let given = Recurrence { inputs: &inputs, initial: Some(&initial), ..given(&all) };
            taper_ops::recurrence(None, None, &given, spec).unwrap()
        };
        let expected = run(inputs, all[3].0.clone(), &whole);
        let mut state = all[3].0.clone();
        let one = RecurrenceSpec { lengths: [1; 4].into(), ..whole.clone() };
        for step in 0..3_u32 {
            let found = run(picked((0..4).map(|i| (i * 3 + step) % 11).collect()), state, &one);
            for sequence in 0..4 {
                let row = |x: &Tensor, row| x.get(row).unwrap().to_vec1::<f32>().unwrap();
                let ours = row(&found.rows, sequence);
                let theirs = row(&expected.rows, sequence * 3 + step as usize);
                for (ours, theirs) in ours.iter().zip(&theirs) {
                    assert!((ours - theirs).abs() < 1e-6, "{cell:?} {step}: {ours} {theirs}");
                }
            }
            state = found.last;
        }
    }
}

/// Compares the recorded norms of the gradients with respect to the states with finite differences.
/// For these, a state is changed, and the later rows of its sequence are computed again.
#[test]
fn gradients_by_states_are_noted() {
    let inputs = tensors(Cell::Gru, WIDTH);
    let noted = StateGradients::default();
    let spec = RecurrenceSpec { state_gradients: Some(noted.clone()), ..spec(Cell::Gru, false) };
    let tape = Tape::new();
    let out = fused(Some(&tape), &inputs[..4], &spec).unwrap().rows;
    let adjoints = tape.differentiate(&out, &common::adjoint(&out)).unwrap();
    let norms = noted.norms();
    assert_eq!(norms.len(), 11);
    let own = values(&common::adjoint(&out));
    let states = values(&out);
    let detached: Vec<Held> = inputs[..4].iter().map(|x| Held(x.detach())).collect();
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let elements = |rows: Range<usize>| rows.start * WIDTH..rows.end * WIDTH;
    let mut first = 0;
    for length in LENGTHS {
        let end = first + length;
        for row in first..end {
            let loss = |state: &[f64]| {
                let of_row = dot(state, &own[elements(row..row + 1)]);
                if row + 1 == end {
                    return of_row;
                }
                let later = detached[0].0.narrow(0, row + 1, end - row - 1).unwrap();
                let initial = Tensor::from_slice(state, (1, WIDTH), &Device::Cpu).unwrap();
                let given =
                    Recurrence { inputs: &later, initial: Some(&initial), ..given(&detached) };
                let spec = RecurrenceSpec {
                    lengths: [end - row - 1].into(),
                    state_gradients: None,
                    ..spec.clone()
                };
                let rows = taper_ops::recurrence(None, None, &given, &spec).unwrap().rows;
                of_row + dot(&values(&rows), &own[elements(row + 1..end)])
            };
            let at = |index: usize, step: f64| {
                let mut state = states[elements(row..row + 1)].to_vec();
                state[index] += step;
                loss(&state)
            };
            let slope = |index: usize| (at(index, 1e-5) - at(index, -1e-5)) / 2e-5;
            let norm = (0..WIDTH).map(|index| slope(index).powi(2)).sum::<f64>().sqrt();
            assert!((norms[row] - norm).abs() < 1e-8, "row {row}: {}, not {norm}", norms[row]);
        }
        first = end;
    }
    // The initial states get a gradient, too.
    assert!(adjoints.get(&inputs[3]).unwrap().is_some());
}

#[test]
fn bf16_rounds_the_operands_of_products_alone() {
    for cell in [Cell::Gru, Cell::Lstm] {
        let all: Vec<Var> = tensors(cell, 32)
            .iter()
            .map(|x| Var::from_tensor(&x.to_dtype(DType::F32).unwrap()).unwrap())
            .collect();
        let run = |products| {
            let tape = Tape::new();
            let spec = RecurrenceSpec { products, ..spec(cell, false) };
            let out = fused(Some(&tape), &all, &spec).unwrap().rows;
            let adjoint = out.ones_like().unwrap();
            let gradient =
                tape.differentiate(&out, &adjoint).unwrap().get(&all[1]).unwrap().unwrap();
            let wide = |x: &Tensor| values(&x.to_dtype(DType::F64).unwrap());
            (wide(&out), wide(&gradient))
        };
        let (exact, rounded) = (run(Products::F32), run(Products::Bf16));
        for (exact, rounded) in [(exact.0, rounded.0), (exact.1, rounded.1)] {
            let norm = |x: &[f64]| x.iter().map(|x| x * x).sum::<f64>().sqrt();
            let apart: Vec<f64> = exact.iter().zip(&rounded).map(|(a, b)| a - b).collect();
            let error = norm(&apart) / norm(&exact);
            assert!(error > 1e-5 && error < 3e-2, "{cell:?}: {error}");
        }
    }
}

#[test]
fn no_bit_depends_on_the_number_of_threads() {
    let all: Vec<Var> = tensors(Cell::Lstm, 48)
        .iter()
        .map(|x| Var::from_tensor(&x.to_dtype(DType::F32).unwrap()).unwrap())
        .collect();
    let run = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let tape = Tape::new();
            let out = fused(Some(&tape), &all, &spec(Cell::Lstm, true)).unwrap().rows;
            let adjoint = out.ones_like().unwrap();
            let gradients = tape.differentiate(&out, &adjoint).unwrap();
            let bits = |x: &Tensor| -> Vec<u32> {
                let values = x.flatten_all().unwrap().to_vec1::<f32>().unwrap();
                values.into_iter().map(f32::to_bits).collect()
            };
            let gradients = all.iter().map(|x| bits(&gradients.get(x).unwrap().unwrap()));
            std::iter::once(bits(&out)).chain(gradients).collect::<Vec<_>>()
        })
    };
    assert_eq!(run(1), run(3));
}

#[test]
fn empty_sequences_keep_their_initial_states() {
    for cell in [Cell::Gru, Cell::Lstm] {
        let mut inputs = tensors(cell, WIDTH);
        inputs[0] = random(&[0, cell.gates() * WIDTH], 1);
        for (count, columns) in [(4, WIDTH), (9, WIDTH + 5)] {
            let spec = RecurrenceSpec {
                lengths: [0; 4].into(),
                wants_weights: count == 9,
                ..spec(cell, false)
            };
            let composed = composed::recurrence(&given(&held(&inputs[..count])), &spec).unwrap();
            for recurred in [composed, fused(None, &inputs[..count], &spec).unwrap()] {
                assert_eq!(recurred.rows.dims(), [0, columns], "{cell:?}");
                assert_eq!(values(&recurred.last), values(&inputs[3]), "{cell:?}");
            }
        }
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let inputs = tensors(Cell::Gru, WIDTH);
    let refused = |spec: &RecurrenceSpec, v: &[Var]| {
        fused(Some(&Tape::new()), v, spec).unwrap_err().to_string()
    };
    let good = spec(Cell::Gru, false);
    let longer = RecurrenceSpec { lengths: [3, 1, 5, 3].into(), ..good.clone() };
    assert!(refused(&longer, &inputs[..4]).contains("12 rows of 4 sequences"));
    assert!(refused(&spec(Cell::Lstm, false), &inputs[..4]).contains("4 gates"));
    let outside = RecurrenceSpec { attended: Arc::from([0..2, 2..6, 6..7, 8..12]), ..good.clone() };
    assert!(refused(&outside, &inputs).contains("keys"));
    let shared = RecurrenceSpec { attended: Arc::from([0..2, 1..6, 6..7, 8..11]), ..good };
    assert!(refused(&shared, &inputs).contains("attend to the same rows"));
}

#[test]
fn columns_and_windows() {
    let inputs = [random(&[6, 4], 1), random(&[6, 3], 2)];
    for rate in [0.0, 0.4] {
        let dropout = Dropout::new(rate, 5);
        check(
            &format!("columns, dropout {rate}"),
            &inputs,
            &|tape, v| taper_ops::columns(tape, &[&v[0], &v[1]], dropout),
            &|v| composed::columns(&[&v[0], &v[1]], dropout),
        );
    }
    // A part without columns changes nothing, and its gradient is empty.
    let (tape, empty) = (Tape::new(), random(&[6, 0], 3));
    let joined = taper_ops::columns(Some(&tape), &[&empty, &inputs[0]], Dropout::none()).unwrap();
    assert_eq!(values(&joined), values(&inputs[0]));
    let gradients = tape.differentiate(&joined, &adjoint(&joined)).unwrap();
    let gradient = gradients.get(&inputs[0]).unwrap().expect("a gradient");
    assert_eq!(values(&gradient), values(&adjoint(&joined)));
    let lengths: Arc<[usize]> = [3, 1, 2].into();
    for around in [(1, 1), (2, 0), (0, 3)] {
        check(
            &format!("windows {around:?}"),
            &inputs[..1],
            &|tape, v| taper_ops::windows(tape, &v[0], &lengths, around),
            &|v| composed::windows(&v[0], &lengths, around),
        );
    }
    let error = taper_ops::windows(None, &inputs[0], &[3].into(), (1, 1)).unwrap_err();
    assert!(error.to_string().contains("6 rows"), "{error}");
}

#[test]
fn through_every_kernel() {
    again_through_every_kernel("through_every_kernel");
}
