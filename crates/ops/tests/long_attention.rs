//! Tests attention on sequences so long that it is computed in tiles (small blocks of scores). It
//! is compared with the composed operation (the same, composed of Candle's operations), and with
//! finite differences along random directions. The number of threads and the other sequences of a
//! batch must not change the results.

mod common;

use candle_core::{DType, Device, Result, Tensor, Var};
use common::{adjoint, has_fused_multiply_adds, random, scalar, values};
use std::sync::Arc;
use taper_ops::{AttentionShape, AttentionSpec, Dropout, Products, Sparse, Tape, composed};

/// A setting of attention with two heads.
#[derive(Clone, Default)]
struct AttentionCase {
    name: &'static str,
    queries: Vec<usize>,
    /// Lengths of the keys; `None` for self-attention, whose keys have the lengths of the queries.
    keys: Option<Vec<usize>>,
    causal: bool,
    alibi: bool,
    bias: bool,
    rate: f64,
    sparse: Option<Sparse>,
    /// True if both heads share keys and values.
    is_grouped: bool,
}

impl AttentionCase {
    fn new(name: &'static str, queries: &[usize]) -> Self {
        let queries = queries.to_vec();
        Self { name, queries, ..Self::default() }
    }

    /// Returns the case with a sparse pattern.
    fn sparse(self, sparse: Sparse) -> Self {
        Self { sparse: Some(sparse), ..self }
    }

    /// Settings whose lengths are below, at and above multiples of a panel (32 rows) and of a block
    /// of rows. Some sequences are so short that they are not computed in tiles.
    fn all() -> Vec<Self> {
        let case = Self::new;
        vec![
            case("full", &[530]),
            Self { causal: true, ..case("causal", &[5, 289, 257]) },
            Self { alibi: true, rate: 0.3, ..case("ALiBi, dropout", &[512, 3]) },
            Self {
                bias: true,
                causal: true,
                rate: 0.2,
                ..case("causal, bias, dropout", &[7, 270, 258])
            },
            Self { keys: Some(vec![2050, 4, 800]), ..case("cross", &[130, 2, 380]) },
            Self {
                is_grouped: true,
                causal: true,
                alibi: true,
                rate: 0.1,
                ..case("shared keys, causal", &[520, 6, 300])
            },
            Self {
                is_grouped: true,
                bias: true,
                keys: Some(vec![900, 1030]),
                ..case("shared keys, cross, bias", &[300, 513])
            },
            Self { is_grouped: true, ..case("shared keys, random", &[600]) }.sparse(Sparse {
                block: 32,
                random: 2,
                seed: 5,
                ..Sparse::window(2)
            }),
            Self {
                keys: Some(vec![2700]),
                bias: true,
                rate: 0.4,
                ..case("cross, bias, dropout", &[100])
            },
            Self { causal: true, rate: 0.2, ..case("causal window, dropout", &[5, 689, 257]) }
                .sparse(Sparse::window(70)),
            Self { alibi: true, ..case("window, ALiBi", &[530]) }.sparse(Sparse::window(9)),
            Self { causal: true, ..case("dilated, global", &[600]) }.sparse(Sparse {
                dilation: 3,
                first: 2,
                ..Sparse::window(40)
            }),
            case("far dilated, global", &[600]).sparse(Sparse {
                dilation: 60,
                first: 33,
                last: 1,
                ..Sparse::window(4)
            }),
            Self { causal: true, alibi: true, rate: 0.1, ..case("random, causal", &[400, 900]) }
                .sparse(Sparse { block: 50, random: 3, seed: 7, first: 1, ..Sparse::window(2) }),
            Self { bias: true, ..case("random, bias", &[700, 300]) }.sparse(Sparse {
                block: 32,
                random: 2,
                seed: 8,
                first: 1,
                last: 1,
                ..Sparse::window(2)
            }),
        ]
    }

    fn shape(&self, width: usize) -> AttentionShape {
        let shape = AttentionShape::dividing(width, 2);
        if self.is_grouped { shape.grouped(1) } else { shape }
    }

    /// Returns the shape of attention for inputs that [`inputs`](Self::inputs) made.
    fn shape_of(&self, v: &[Var]) -> AttentionShape {
        let columns = v[0].dims()[1];
        let parts = if self.is_grouped { 2 } else { 3 };
        self.shape(if self.keys.is_some() { columns } else { columns / parts })
    }

    fn spec(&self, v: &[Var], products: Products) -> AttentionSpec {
        AttentionSpec {
            shape: self.shape_of(v),
            query_lengths: self.queries.clone().into(),
            key_lengths: self.keys.as_ref().unwrap_or(&self.queries).clone().into(),
            causal: self.causal,
            sparse: self.sparse,
            dual_chunk: None,
            query_start: 0,
            slopes: self.alibi.then(|| Arc::from([0.05, 0.2])),
            dropout: Dropout::new(self.rate, 9),
            products,
        }
    }

    /// Makes the projections of all tokens, without padding, whose queries have this width. Also
    /// makes the bias.
    fn inputs(&self, width: usize) -> Vec<Var> {
        let count = |lengths: &[usize]| lengths.iter().sum::<usize>();
        let longest = |lengths: &[usize]| lengths.iter().copied().max().unwrap_or(0);
        let keys = self.keys.as_ref().unwrap_or(&self.queries);
        let shape = self.shape(width);
        let mut inputs = match &self.keys {
            None => vec![random(&[count(&self.queries), shape.projected_width()], 1)],
            Some(keys) => vec![
                random(&[count(&self.queries), width], 1),
                random(&[count(keys), 2 * shape.key_value_width()], 2),
            ],
        };
        if self.bias {
            inputs.push(random(&[2, longest(&self.queries), longest(keys) + 1], 3));
        }
        inputs
    }

    fn fused(&self, tape: Option<&Tape>, v: &[Var], products: Products) -> Result<Tensor> {
        let (spec, bias) = (self.spec(v, products), self.bias.then(|| v[v.len() - 1].as_tensor()));
        match self.keys {
            None => taper_ops::self_attention(tape, &v[0], bias, &spec),
            Some(_) => taper_ops::cross_attention(tape, &v[0], &v[1], bias, &spec),
        }
    }

    fn composed(&self, v: &[Var]) -> Result<Tensor> {
        let bias = self.bias.then(|| v[v.len() - 1].as_tensor());
        match self.keys {
            None => composed::self_attention(&v[0], bias, &self.spec(v, Products::F32)),
            Some(_) => composed::cross_attention(&v[0], &v[1], bias, &self.spec(v, Products::F32)),
        }
    }
}

fn norm(x: &Tensor) -> f64 {
    x.to_dtype(DType::F64)
        .unwrap()
        .sqr()
        .unwrap()
        .sum_all()
        .unwrap()
        .to_scalar::<f64>()
        .unwrap()
        .sqrt()
}

fn distance(ours: &Tensor, theirs: &Tensor) -> f64 {
    norm(&(ours - theirs).unwrap()) / norm(theirs)
}

/// Returns the distance of the result, and of each gradient, from the composed ones.
fn distances(case: &AttentionCase, inputs: &[Var], products: Products) -> Vec<f64> {
    let tape = Tape::new();
    let (ours, theirs) =
        (case.fused(Some(&tape), inputs, products).unwrap(), case.composed(inputs).unwrap());
    let adjoint = adjoint(&ours).to_dtype(ours.dtype()).unwrap();
    let gradients = tape.differentiate(&ours, &adjoint).unwrap();
    let composed = theirs.mul(&adjoint).unwrap().sum_all().unwrap().backward().unwrap();
    let of_input =
        |x: &Var| distance(&gradients.get(x).unwrap().unwrap(), composed.get(x).unwrap());
    [distance(&ours, &theirs)].into_iter().chain(inputs.iter().map(of_input)).collect()
}

#[test]
fn in_f64_it_is_the_composed_attention() {
    for case in AttentionCase::all() {
        let distances = distances(&case, &case.inputs(6), Products::F32);
        assert!(distances.iter().all(|x| *x < 1e-12), "{}: {distances:?}", case.name);
    }
}

#[test]
fn in_f32_it_is_the_composed_attention_to_rounding() {
    let as_f32 = |x: &Var| Var::from_tensor(&x.to_dtype(DType::F32).unwrap()).unwrap();
    // Without fused multiply-adds, every product of two numbers is rounded before it is added.
    let rounding = if has_fused_multiply_adds() { 2e-6 } else { 4e-6 };
    for case in AttentionCase::all() {
        let inputs: Vec<Var> = case.inputs(70).iter().map(as_f32).collect();
        for (products, bound) in [(Products::F32, rounding), (Products::Bf16, 2e-2)] {
            let distances = distances(&case, &inputs, products);
            let name = case.name;
            assert!(distances.iter().all(|x| *x < bound), "{name} {products:?}: {distances:?}");
        }
    }
}

/// Compares `Σ gradient ⊙ direction` with the central difference along a random direction.
#[test]
fn gradients_are_finite_differences() {
    for case in AttentionCase::all() {
        let inputs = case.inputs(6);
        let tape = Tape::new();
        let out = case.fused(Some(&tape), &inputs, Products::F32).unwrap();
        let gradients = tape.differentiate(&out, &adjoint(&out)).unwrap();
        for (number, input) in inputs.iter().enumerate() {
            let gradient = gradients.get(input).unwrap().unwrap();
            let direction = random(input.dims(), 20 + number as u64);
            let expected =
                gradient.mul(&direction).unwrap().sum_all().unwrap().to_scalar::<f64>().unwrap();
            let start = input.copy().unwrap();
            let at = |step: f64| {
                input.set(&(&start + (direction.as_tensor() * step).unwrap()).unwrap()).unwrap();
                let out = case.fused(Some(&Tape::new()), &inputs, Products::F32).unwrap();
                scalar(&out).unwrap().to_scalar::<f64>().unwrap()
            };
            let step = 1e-5;
            let difference = (at(step) - at(-step)) / (2.0 * step);
            input.set(&start).unwrap();
            assert!(
                (expected - difference).abs() < 1e-6 * (1.0 + difference.abs()),
                "{}, input {number}: {expected}, finite difference {difference}",
                case.name
            );
        }
    }
}

/// Returns the bits of the result and of all gradients, in f32.
fn all_bits(case: &AttentionCase, inputs: &[Var], products: Products) -> Vec<Vec<u32>> {
    let bits = |x: &Tensor| {
        let values = x.flatten_all().unwrap().to_vec1::<f32>().unwrap();
        values.into_iter().map(f32::to_bits).collect()
    };
    let tape = Tape::new();
    let out = case.fused(Some(&tape), inputs, products).unwrap();
    let adjoint = adjoint(&out).to_dtype(DType::F32).unwrap();
    let gradients = tape.differentiate(&out, &adjoint).unwrap();
    let of_inputs = inputs.iter().map(|x| bits(&gradients.get(x).unwrap().unwrap()));
    [bits(&out)].into_iter().chain(of_inputs).collect()
}

#[test]
fn results_do_not_depend_on_threads() {
    let cases = [
        AttentionCase { causal: true, rate: 0.1, ..AttentionCase::new("causal", &[560, 20, 300]) },
        AttentionCase { bias: true, ..AttentionCase::new("bias", &[530, 520]) },
        AttentionCase {
            is_grouped: true,
            bias: true,
            ..AttentionCase::new("shared keys", &[700, 560])
        },
        // Sequences of different lengths, which add to the gradient with respect to the same bias.
        AttentionCase {
            bias: true,
            ..AttentionCase::new("unlike lengths, bias", &[1100, 700, 900, 1100])
        },
        AttentionCase { bias: true, ..AttentionCase::new("sparse", &[530, 820]) }.sparse(Sparse {
            block: 40,
            random: 2,
            ..Sparse::window(2)
        }),
    ];
    for case in cases {
        let inputs: Vec<Var> = case
            .inputs(32)
            .iter()
            .map(|x| Var::from_tensor(&x.to_dtype(DType::F32).unwrap()).unwrap())
            .collect();
        for products in [Products::F32, Products::Bf16] {
            let run = |threads: usize| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                pool.install(|| all_bits(&case, &inputs, products))
            };
            let one = run(1);
            assert!(one == run(2) && one == run(5), "{} {products:?}", case.name);
        }
    }
}

/// Checks that the result and gradients of a sequence have the same bits in any batch.
#[test]
fn a_batch_is_its_sequences() {
    let lengths = [300, 40, 560];
    let window = Sparse { block: 16, random: 1, ..Sparse::window(3) };
    for sparse in [None, Some(window)] {
        let batch = AttentionCase { causal: true, sparse, ..AttentionCase::new("batch", &lengths) };
        check_batch(&batch, &lengths);
    }
}

fn check_batch(batch: &AttentionCase, lengths: &[usize]) {
    let qkv = random(&[lengths.iter().sum(), 96], 1).to_dtype(DType::F32).unwrap();
    let weights = adjoint(&Tensor::zeros((900, 32), DType::F64, &Device::Cpu).unwrap())
        .to_dtype(DType::F32)
        .unwrap();
    let run = |case: &AttentionCase, from: usize, count: usize| {
        let input = Var::from_tensor(&qkv.narrow(0, from, count).unwrap()).unwrap();
        let tape = Tape::new();
        let out = case.fused(Some(&tape), std::slice::from_ref(&input), Products::F32).unwrap();
        let adjoint = weights.narrow(0, from, count).unwrap().contiguous().unwrap();
        let gradient = tape.differentiate(&out, &adjoint).unwrap().get(&input).unwrap().unwrap();
        (out.to_vec2::<f32>().unwrap(), gradient.to_vec2::<f32>().unwrap())
    };
    let (all, all_gradients) = run(batch, 0, 900);
    let mut first = 0;
    for &length in lengths {
        let alone = AttentionCase { queries: vec![length], ..batch.clone() };
        let (out, gradients) = run(&alone, first, length);
        assert!(out == all[first..first + length], "{length}");
        assert!(gradients == all_gradients[first..first + length], "{length}");
        first += length;
    }
}

/// Checks that a window as long as the sequence gives the same bits as no window.
#[test]
fn a_window_as_long_as_the_sequence_is_full_attention() {
    for (causal, block) in [(true, 1), (false, 1), (true, 7)] {
        let full = AttentionCase { causal, ..AttentionCase::new("full", &[690, 40]) };
        let inputs: Vec<Var> = full
            .inputs(32)
            .iter()
            .map(|x| Var::from_tensor(&x.to_dtype(DType::F32).unwrap()).unwrap())
            .collect();
        let expected = all_bits(&full, &inputs, Products::F32);
        for window in [690, usize::MAX] {
            let sparse = full.clone().sparse(Sparse { block, ..Sparse::window(window) });
            assert!(all_bits(&sparse, &inputs, Products::F32) == expected, "{causal} {block}");
        }
        let narrow = full.clone().sparse(Sparse { block, ..Sparse::window(20) });
        assert!(all_bits(&narrow, &inputs, Products::F32) != expected);
    }
}

/// Tests queries whose first position is later than the first position of the keys, as when a
/// prompt is continued.
#[test]
fn queries_may_start_among_their_keys() {
    let case = AttentionCase {
        keys: Some(vec![900]),
        causal: true,
        ..AttentionCase::new("continued", &[200])
    };
    let inputs = [random(&[200, 6], 1), random(&[900, 12], 2)];
    let spec = AttentionSpec { query_start: 700, ..case.spec(&inputs, Products::F32) };
    let [query, key_value] = inputs;
    let tape = Tape::new();
    let ours = taper_ops::cross_attention(Some(&tape), &query, &key_value, None, &spec).unwrap();
    let theirs = composed::cross_attention(&query, &key_value, None, &spec).unwrap();
    assert!(distance(&ours, &theirs) < 1e-12);
    let ours = tape.differentiate(&ours, &adjoint(&ours)).unwrap();
    let theirs = scalar(&theirs).unwrap().backward().unwrap();
    for input in [&query, &key_value] {
        let gradient = ours.get(input).unwrap().unwrap();
        assert!(distance(&gradient, theirs.get(input).unwrap()) < 1e-12);
    }
    assert_eq!(values(&query).len(), 1200);
}

#[test]
fn every_kernel() {
    common::again_through_every_kernel("every_kernel");
}
