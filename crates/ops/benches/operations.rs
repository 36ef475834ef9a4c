//! Measures the time of the forward and backward pass of every operation, once fused, and once
//! composed of Candle's operations. The layers have the sizes of two models, tiny and base. Also
//! measures matrix products with each kernel that the machine supports. `cargo bench -p taper-ops`
//! runs all benchmarks, `cargo bench -p taper-ops -- attention` those whose name contains
//! "attention". There is no option for the number of threads; set `RAYON_NUM_THREADS=1` in the
//! environment.

use candle_core::{DType, Device, Result, Tensor, Var};
use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use taper_ops::products::{Factor, multiply};
use taper_ops::rng::Counter;
use taper_ops::{
    Activation, AdamStep, AttentionShape, AttentionSpec, CrossEntropySpec, Dropout, EmbeddingSpec,
    HierarchicalSpec, Kernel, LinearAttentionSpec, LinearSpec, NormSpec, ParameterStore, Products,
    Tape, composed,
};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    taper_ops::allocator::keep_freed_pages();
    taper_ops::threads::in_pool(&Device::Cpu, divan::main);
}

/// Number of tokens in a batch; [`SENTENCE`] is the number of tokens in a sentence.
const TOKENS: usize = 2048;
const SENTENCE: usize = 16;
/// Number of words in the vocabulary.
const CLASSES: usize = 10_000;

/// Sizes of the layers of a model.
#[derive(Clone, Copy)]
struct Size {
    name: &'static str,
    width: usize,
    hidden: usize,
    heads: usize,
}

const SIZES: [Size; 2] = [
    Size { name: "tiny", width: 128, hidden: 256, heads: 4 },
    Size { name: "base", width: 512, hidden: 2048, heads: 8 },
];

/// How an operation is computed.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    Fused(Products),
    Composed,
}

#[derive(Clone, Copy)]
struct Case {
    size: Size,
    way: Way,
}

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let way = match self.way {
            Way::Fused(Products::F32) => "fused f32",
            Way::Fused(Products::Bf16) => "fused bf16",
            Way::Composed => "composed f32",
        };
        write!(f, "{} {way}", self.size.name)
    }
}

impl Case {
    fn products(&self) -> Products {
        if let Way::Fused(products) = self.way { products } else { Products::F32 }
    }
}

/// Every size of model with every implementation.
fn all() -> Vec<Case> {
    let ways = [Way::Fused(Products::F32), Way::Fused(Products::Bf16), Way::Composed];
    SIZES.into_iter().flat_map(|size| ways.map(|way| Case { size, way })).collect()
}

/// Every size of model with every implementation except bf16 products, for operations that contain
/// no matrix product.
fn without_products() -> Vec<Case> {
    all().into_iter().filter(|case| case.way != Way::Fused(Products::Bf16)).collect()
}

fn random(shape: &[usize], key: u64) -> Var {
    let counter = Counter::new(key);
    let values: Vec<f32> = (0..shape.iter().product::<usize>() as u64)
        .map(|i| 0.05 * counter.normal_at(i) as f32)
        .collect();
    Tensor::from_vec(values, shape, &Device::Cpu)
        .and_then(|values| Var::from_tensor(&values))
        .expect("memory")
}

fn lengths() -> std::sync::Arc<[usize]> {
    vec![SENTENCE; TOKENS / SENTENCE].into()
}

/// Measures the forward and the backward pass. The adjoint of the result (the gradient of the loss
/// with respect to it) consists of ones.
fn run(
    bencher: Bencher<'_, '_>,
    case: &Case,
    fused: impl Fn(&Tape) -> Result<Tensor>,
    composed: impl Fn() -> Result<Tensor>,
) {
    let bencher = bencher.counter(ItemsCount::new(TOKENS));
    if case.way == Way::Composed {
        return bencher
            .bench_local(|| composed().and_then(|out| out.backward()).expect("a gradient"));
    }
    let ones = fused(&Tape::new()).and_then(|out| out.ones_like()).expect("a result");
    bencher.bench_local(|| {
        let tape = Tape::new();
        let out = fused(&tape).expect("a result");
        tape.differentiate(&out, &ones).expect("a gradient")
    });
}

#[divan::bench(args = all(), max_time = 1)]
fn linear_with_activation_and_dropout(bencher: Bencher<'_, '_>, case: &Case) {
    let Size { width, hidden, .. } = case.size;
    let (x, weight, bias) =
        (random(&[TOKENS, width], 1), random(&[hidden, width], 2), random(&[hidden], 3));
    let spec = LinearSpec {
        activation: Activation::Relu,
        dropout: Dropout::new(0.1, 1),
        products: case.products(),
    };
    run(
        bencher,
        case,
        |tape| taper_ops::linear(Some(tape), &x, &weight, Some(&bias), None, &spec),
        || composed::linear(&x, &weight, Some(&bias), None, &spec),
    );
}

#[divan::bench(args = all(), max_time = 1)]
fn linear_onto_a_residual(bencher: Bencher<'_, '_>, case: &Case) {
    let Size { width, hidden, .. } = case.size;
    let (x, weight, bias) =
        (random(&[TOKENS, hidden], 1), random(&[width, hidden], 2), random(&[width], 3));
    let residual = random(&[TOKENS, width], 4);
    let spec = LinearSpec {
        dropout: Dropout::new(0.1, 1),
        products: case.products(),
        ..Default::default()
    };
    run(
        bencher,
        case,
        |tape| taper_ops::linear(Some(tape), &x, &weight, Some(&bias), Some(&residual), &spec),
        || composed::linear(&x, &weight, Some(&bias), Some(&residual), &spec),
    );
}

#[divan::bench(args = without_products(), max_time = 1)]
fn layer_norm(bencher: Bencher<'_, '_>, case: &Case) {
    let width = case.size.width;
    let (x, weight, bias) = (random(&[TOKENS, width], 1), random(&[width], 2), random(&[width], 3));
    let spec = NormSpec::layer(1e-5);
    run(
        bencher,
        case,
        |tape| taper_ops::norm(Some(tape), &x, &weight, Some(&bias), &spec),
        || composed::norm(&x, &weight, Some(&bias), &spec),
    );
}

#[divan::bench(args = all(), max_time = 1)]
fn self_attention(bencher: Bencher<'_, '_>, case: &Case) {
    let qkv = random(&[TOKENS, 3 * case.size.width], 1);
    let spec = AttentionSpec {
        causal: true,
        dropout: Dropout::new(0.1, 1),
        products: case.products(),
        ..AttentionSpec::new(AttentionShape::dividing(case.size.width, case.size.heads), lengths())
    };
    let fused = |tape: &Tape| taper_ops::self_attention(Some(tape), &qkv, None, &spec);
    run(bencher, case, fused, || composed::self_attention(&qkv, None, &spec));
}

#[divan::bench(args = all(), max_time = 1)]
fn linear_attention(bencher: Bencher<'_, '_>, case: &Case) {
    let qkv = random(&[TOKENS, 3 * case.size.width], 1);
    let spec = LinearAttentionSpec {
        heads: case.size.heads,
        lengths: lengths(),
        causal: true,
        products: case.products(),
    };
    let fused = |tape: &Tape| taper_ops::linear_attention(Some(tape), &qkv, None, &spec);
    run(bencher, case, fused, || Ok(composed::linear_attention(&qkv, None, &spec)?.0));
}

#[divan::bench(args = all(), max_time = 1)]
fn hierarchical_attention(bencher: Bencher<'_, '_>, case: &Case) {
    let qkv = random(&[TOKENS, 3 * case.size.width], 1);
    let spec = HierarchicalSpec {
        heads: case.size.heads,
        lengths: lengths(),
        causal: true,
        chunk: 8,
        levels: 1,
        dropout: Dropout::new(0.1, 1),
        products: case.products(),
    };
    let fused = |tape: &Tape| taper_ops::hierarchical_attention(Some(tape), &qkv, &spec);
    run(bencher, case, fused, || composed::hierarchical_attention(&qkv, &spec));
}

#[divan::bench(args = without_products(), max_time = 1)]
fn embedding(bencher: Bencher<'_, '_>, case: &Case) {
    let counter = Counter::new(5);
    let spec = EmbeddingSpec {
        ids: (0..TOKENS as u64).map(|i| (counter.u64_at(i) % CLASSES as u64) as u32).collect(),
        positions: (0..TOKENS).map(|i| (i % SENTENCE) as u32).collect(),
        scale: (case.size.width as f64).sqrt(),
        dropout: Dropout::new(0.1, 1),
    };
    let (table, positions) =
        (random(&[CLASSES, case.size.width], 1), random(&[SENTENCE, case.size.width], 2));
    run(
        bencher,
        case,
        |tape| taper_ops::embedding(Some(tape), &table, Some(&positions), &spec),
        || composed::embedding(&table, Some(&positions), &spec),
    );
}

#[divan::bench(args = all(), max_time = 2)]
fn cross_entropy(bencher: Bencher<'_, '_>, case: &Case) {
    let (hidden, weight) =
        (random(&[TOKENS, case.size.width], 1), random(&[CLASSES, case.size.width], 2));
    let targets: Vec<u32> = (0..TOKENS as u32).map(|i| i * 7 % CLASSES as u32).collect();
    let spec = CrossEntropySpec {
        smoothing: 0.1,
        r_drop: 0.0,
        scale: 1.0 / TOKENS as f64,
        products: case.products(),
    };
    run(
        bencher,
        case,
        |tape| {
            Ok(taper_ops::smoothed_cross_entropy(Some(tape), &hidden, &weight, &targets, &spec)?.0)
        },
        || Ok(composed::smoothed_cross_entropy(&hidden, &weight, &targets, &spec)?.0),
    );
}

/// Measures an update of an embedding and of a layer's matrices.
#[divan::bench(args = without_products(), max_time = 1)]
fn adam(bencher: Bencher<'_, '_>, case: &Case) {
    let Size { width, hidden, .. } = case.size;
    let mut store = ParameterStore::new(&Device::Cpu);
    for (name, rows, columns) in [
        ("table", CLASSES, width),
        ("qkv", 3 * width, width),
        ("up", hidden, width),
        ("down", width, hidden),
    ] {
        store.add(name, &[rows, columns], vec![0.01; rows * columns]).expect("memory");
    }
    let buffer = |value: f32| {
        Tensor::full(value, store.len(), &Device::Cpu)
            .and_then(|x| x.to_dtype(DType::F32))
            .expect("memory")
    };
    let (gradients, mut moments) = (buffer(0.1), [buffer(0.0), buffer(0.0)]);
    let step = AdamStep {
        learning_rate: 1e-4,
        beta1: 0.9,
        beta2: 0.98,
        epsilon: 1e-9,
        weight_decay: 0.0,
        decoupled: true,
        step: 10,
        gradient_scale: 0.5,
    };
    let update = if case.way == Way::Composed { composed::adam_step } else { taper_ops::adam_step };
    let bencher = bencher.counter(ItemsCount::new(store.len()));
    bencher.bench_local(|| {
        update(&store, 0..store.len(), &gradients, &mut moments, &step).expect("an update")
    });
}

/// A matrix product of shape (rows, summed dimension, columns), with its kernel.
#[derive(Clone, Copy)]
struct Product {
    shape: (usize, usize, usize),
    kernel: Kernel,
    products: Products,
}

impl std::fmt::Display for Product {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ((m, k, n), rounding) =
            (self.shape, if self.products == Products::F32 { "f32" } else { "bf16" });
        write!(f, "{m} x {k} x {n} {rounding} {}", self.kernel.name())
    }
}

/// Returns each product with each kernel that supports it.
fn products() -> Vec<Product> {
    let shapes = [(TOKENS, 128, 256), (TOKENS, 512, 2048), (512, TOKENS, 2048)];
    let ways = [Products::F32, Products::Bf16]
        .into_iter()
        .flat_map(|products| Kernel::ALL.map(|kernel| (kernel, products)));
    let ways: Vec<_> = ways.filter(|(kernel, products)| kernel.serves(*products)).collect();
    shapes
        .into_iter()
        .flat_map(|shape| {
            ways.iter().map(move |&(kernel, products)| Product { shape, kernel, products })
        })
        .collect()
}

/// Measures a matrix product; the benchmark counts multiplications and additions as items.
#[divan::bench(args = products(), max_time = 1)]
fn matrix_product(bencher: Bencher<'_, '_>, case: &Product) {
    let (m, k, n) = case.shape;
    let values = |count: usize, key: u64| {
        let counter = Counter::new(key);
        (0..count as u64).map(|i| counter.normal_at(i) as f32).collect::<Vec<_>>()
    };
    let (a, b, mut out) = (values(m * k, 1), values(k * n, 2), vec![0.0; m * n]);
    let (how, factor) =
        ((case.kernel, case.products), |values| Factor { values, transposed: false });
    let bencher = bencher.counter(ItemsCount::new(2 * m * k * n));
    bencher.bench_local(|| {
        multiply(how, case.shape, factor(black_box(&a)), factor(black_box(&b)), &mut out)
    });
}
