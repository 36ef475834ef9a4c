//! Scaled dot-product attention over packed sequences (Vaswani et al. 2017, section 3.2).
//!
//! Sequences are packed: row `n` of a tensor is a real token, and lengths say where each sequence
//! ends. There is no padding to mask; a query sees the keys of its own sequence alone, and under a
//! causal mask those up to its own position. Each (sequence, head) is a small product that fits in
//! cache; sequences run in parallel.

mod decoding;
mod layout;
mod relative_bias;
mod scores;
mod stored;

pub use decoding::decoding_attention;
pub use relative_bias::relative_bias;

use crate::composed;
use crate::float::{Float, for_float};
use crate::host::Host;
use crate::shared::{Shared, Write, filled};
use crate::spec::AttentionSpec;
use crate::tape::{Adjoints, Tape, is_fused};
use candle_core::{Result, Tensor};
use layout::{Columns, Layout};

/// Self-attention on packed projections: `softmax(scale · Q Kᵀ + biases) V` of each head.
///
/// # Shapes
/// `qkv (N, 3·D)`: query, key and value side by side, each `(H, Dh)`; `bias (H, T, T)` with `T` at
/// least the longest sequence, added to the scores of every sequence → `(N, D)`.
///
/// # Errors
/// When lengths do not sum to `N`, heads do not divide `D`, the bias is too small, or there is not
/// one slope for each head.
pub fn self_attention(
    tape: Option<&Tape>,
    qkv: &Tensor,
    bias: Option<&Tensor>,
    spec: &AttentionSpec,
) -> Result<Tensor> {
    let width = qkv.dim(1)? / 3;
    check(spec, (qkv.dim(0)?, qkv.dim(0)?), width, 3 * width == qkv.dim(1)?)?;
    check_bias(spec, bias)?;
    let columns = |column| Columns { stride: 3 * width, column };
    let at = [columns(0), columns(width), columns(2 * width)];
    let inputs = Inputs { query: qkv.clone(), key_value: qkv.clone(), bias: bias.cloned() };
    if !is_fused(tape, &inputs.tensors()) {
        return composed::self_attention(qkv, bias, spec);
    }
    for_float!(qkv, T => attend::<T>(tape, inputs, at, Layout::new(spec, width)))
}

/// Attention of one set of sequences to another.
///
/// # Shapes
/// `query (N, D)`, `key_value (M, 2·D)`: key and value side by side; `bias (H, Tq, Tk)` as for
/// [`self_attention`] → `(N, D)`.
///
/// # Errors
/// As [`self_attention`].
pub fn cross_attention(
    tape: Option<&Tape>,
    query: &Tensor,
    key_value: &Tensor,
    bias: Option<&Tensor>,
    spec: &AttentionSpec,
) -> Result<Tensor> {
    let width = query.dim(1)?;
    check(spec, (query.dim(0)?, key_value.dim(0)?), width, 2 * width == key_value.dim(1)?)?;
    check_bias(spec, bias)?;
    let at = [
        Columns { stride: width, column: 0 },
        Columns { stride: 2 * width, column: 0 },
        Columns { stride: 2 * width, column: width },
    ];
    let inputs = Inputs { query: query.clone(), key_value: key_value.clone(), bias: bias.cloned() };
    if !is_fused(tape, &inputs.tensors()) {
        return composed::cross_attention(query, key_value, bias, spec);
    }
    for_float!(query, T => attend::<T>(tape, inputs, at, Layout::new(spec, width)))
}

/// The tensors that attention reads. In self-attention the first two are one.
#[derive(Clone)]
struct Inputs {
    query: Tensor,
    key_value: Tensor,
    bias: Option<Tensor>,
}

impl Inputs {
    fn tensors(&self) -> Vec<&Tensor> {
        [&self.query, &self.key_value].into_iter().chain(&self.bias).collect()
    }

    fn is_one(&self) -> bool {
        self.query.id() == self.key_value.id()
    }
}

fn attend<T: Float>(
    tape: Option<&Tape>,
    inputs: Inputs,
    at: [Columns; 3],
    layout: Layout,
) -> Result<Tensor> {
    let (query, key_value) = (Host::new(&inputs.query)?, Host::new(&inputs.key_value)?);
    let (query, key_value) = (query.elements::<T>()?, key_value.elements::<T>()?);
    let values = [query, key_value, key_value];
    let (out, weights) =
        crate::profile::time("attention", || layout.forward(values, at, inputs.bias.as_ref()))?;
    let shape = (layout.rows(), layout.width());
    let out = Tensor::from_vec(out, shape, inputs.query.device())?;
    if let Some(tape) = tape {
        let kept = inputs.clone();
        tape.record::<T>("attention", &inputs.tensors(), &out, move |adjoint, adjoints| {
            go_back(&kept, at, &layout, &weights, &adjoint, adjoints)
        })?;
    }
    Ok(out)
}

fn go_back<T: Float>(
    inputs: &Inputs,
    at: [Columns; 3],
    layout: &Layout,
    weights: &[T],
    adjoint: &[T],
    adjoints: &mut Adjoints<'_>,
) -> Result<()> {
    let Inputs { query, key_value, bias } = inputs;
    let (query_host, key_host) = (Host::new(query)?, Host::new(key_value)?);
    let (queries, keys) = (query_host.elements::<T>()?, key_host.elements::<T>()?);
    let values = [queries, keys, keys];
    let back =
        |to, write| layout.backward(values, at, weights, adjoint, (to, write), bias.as_ref());
    let grad_bias;
    if !inputs.is_one() {
        // SAFETY: a row of the one is a query, a row of the other key and value, and `backward`
        // writes the rows of every sequence.
        let (grad_query, (grad_key_value, of_bias)) = unsafe {
            filled(queries.len(), |to: Shared<T>| {
                filled(keys.len(), |to_keys| back([to, to_keys, to_keys], Write::Replace))
            })
        };
        grad_bias = of_bias?;
        adjoints.give(query, grad_query)?;
        adjoints.give(key_value, grad_key_value)?;
    } else if adjoints.is_first(query) || !adjoints.wants(query) {
        // Where its own gradient is not wanted that of the bias is, and is computed beside it.
        //
        // SAFETY: query, key and value are all there is of a row, and `backward` writes the rows
        // of every sequence.
        let (gradient, of_bias) =
            unsafe { filled(queries.len(), |to| back([to; 3], Write::Replace)) };
        grad_bias = of_bias?;
        adjoints.give(query, gradient)?;
    } else {
        let mut of_bias = None;
        adjoints.add_with(query, |out: &mut [T], write| {
            of_bias = back([Shared::new(out); 3], write)?;
            Ok(())
        })?;
        grad_bias = of_bias;
    }
    match (bias, grad_bias) {
        (Some(bias), Some(gradient)) => adjoints.give(bias, gradient),
        _ => Ok(()),
    }
}

fn check(
    spec: &AttentionSpec,
    (queries, keys): (usize, usize),
    width: usize,
    packed: bool,
) -> Result<()> {
    let total = |lengths: &[usize]| lengths.iter().sum::<usize>();
    if !packed || spec.heads == 0 || !width.is_multiple_of(spec.heads) {
        candle_core::bail!(
            "attention: {} heads do not divide width {width}, or the projections do not fit \
             together",
            spec.heads
        );
    }
    if total(&spec.query_lengths) != queries
        || total(&spec.key_lengths) != keys
        || spec.query_lengths.len() != spec.key_lengths.len()
    {
        candle_core::bail!(
            "attention: {queries} queries and {keys} keys, but lengths sum to {} and {}",
            total(&spec.query_lengths),
            total(&spec.key_lengths)
        );
    }
    if let Some(slopes) = spec.slopes.as_ref().filter(|slopes| slopes.len() != spec.heads) {
        candle_core::bail!("attention: {} slopes for {} heads", slopes.len(), spec.heads);
    }
    Ok(())
}

fn check_bias(spec: &AttentionSpec, bias: Option<&Tensor>) -> Result<()> {
    let longest = |lengths: &[usize]| lengths.iter().copied().max().unwrap_or(0);
    let (queries, keys) = (longest(&spec.query_lengths), longest(&spec.key_lengths));
    if let Some(bias) = bias {
        let shape = bias.dims3()?;
        if shape.0 != spec.heads || shape.1 < queries || shape.2 < keys {
            candle_core::bail!(
                "attention: bias {:?} for {} heads, {queries} queries and {keys} keys",
                bias.shape(),
                spec.heads
            );
        }
    }
    Ok(())
}
