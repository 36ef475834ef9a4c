//! Scaled dot-product attention over packed sequences (Vaswani et al. 2017, section 3.2).
//!
//! Sequences are packed: each row of a tensor is a real token, and lengths say where each sequence
//! ends. So there is no padding to mask. A query sees only keys of its own sequence and, under a
//! causal mask, only keys up to its own position. A sparse pattern ([`Sparse`](crate::Sparse)) can
//! hide further keys.
//!
//! For a short sequence, the scores of a head fit in the cache. Its weights are kept for the
//! backward pass ([`stored`]), and sequences are processed in parallel. Long sequences are computed
//! in tiles, small blocks of scores ([`tiled`]), so that memory grows only linearly with the
//! length. Tiles in which no query sees a key are not computed. The choice between the two depends
//! on the sequence alone, not on the batch ([`layout`]).

mod cache;
mod decoding;
#[cfg(feature = "kinds")]
pub(crate) mod kinds;
mod layout;
mod operands;
mod relative_bias;
mod scores;
mod stored;
mod tiled;

pub use cache::Cache;
pub use decoding::decoding_attention;
pub use relative_bias::relative_bias;

use crate::composed;
use crate::device::kernels;
use crate::float::Float;
use crate::host::{Host, for_float};
use crate::shared::{Shared, Write, filled};
use crate::spec::AttentionSpec;
use crate::tape::{Adjoints, Tape, is_fused};
use candle_core::{Result, Tensor};
pub use layout::keeps_scores;
use layout::{Columns, Layout, Span};
use operands::{Gradients, Operands};

/// Computes self-attention, `softmax(scale · Q Kᵀ + biases) V` for each head, of queries, keys and
/// values that are in one tensor.
///
/// # Shapes
/// `qkv (N, Q + 2·K)`: query, key and value side by side, with the widths of an
/// [`AttentionShape`](crate::AttentionShape). With dual chunk attention, each row has several
/// copies of the query, one for each of its rotations. `bias (H, T, T)` is added to the scores of
/// every sequence; `T` is at least the length of the longest sequence → `(N, Q)`.
///
/// # Errors
/// If the lengths do not sum to `N`, the shape does not fit or is impossible, the bias is too
/// small, the number of ALiBi's slopes is not the number of heads, or the sparse pattern is
/// impossible.
pub fn self_attention(
    tape: Option<&Tape>,
    qkv: &Tensor,
    bias: Option<&Tensor>,
    spec: &AttentionSpec,
) -> Result<Tensor> {
    let (rows, stride) = qkv.dims2()?;
    check(
        spec,
        (rows, rows),
        (stride, stride == spec.queries_width() + 2 * spec.shape.key_value_width()),
    )?;
    check_bias(spec, bias)?;
    let columns = |column| Columns { stride, column };
    let key = spec.queries_width();
    let at = [columns(0), columns(key), columns(key + spec.shape.key_value_width())];
    let inputs = Inputs { query: qkv.clone(), key_value: qkv.clone(), bias: bias.cloned() };
    // Queries with several rotations (dual chunk attention) have neither a backward pass in tiles
    // nor a kernel on a GPU.
    let is_rotated = spec.dual_chunk.is_some();
    if !is_fused(tape, &inputs.tensors())? || (is_rotated && tape.is_some()) {
        let inputs: Vec<&Tensor> = [qkv].into_iter().chain(bias).collect();
        let kernels = kernels(tape.is_some(), &inputs)?;
        let attended = match bias {
            None if !is_rotated => kernels.self_attention(tape, qkv, spec),
            _ => None,
        };
        return attended.unwrap_or_else(|| {
            composed::on_tape(tape, "attention", &inputs, |v| {
                composed::self_attention(&v[0], v.get(1), spec)
            })
        });
    }
    for_float!(qkv, T => attend::<T>(tape, inputs, at, Layout::new(spec)))
}

/// Returns the number of scalars that [`self_attention`] keeps for the backward pass in addition to
/// its input. They are the result, the weights of short sequences and, if there are long sequences,
/// one number for each query and head.
#[must_use]
pub fn kept_by_attention(spec: &AttentionSpec) -> usize {
    let layout = Layout::new(spec);
    let has_long = layout.long_spans().next().is_some();
    let log_sums = if has_long { layout.rows().saturating_mul(spec.shape.heads) } else { 0 };
    let of_rows = layout.rows().saturating_mul(layout.width());
    of_rows.saturating_add(layout.weight_count()).saturating_add(log_sums)
}

/// Returns the number of pairs of a query and a key that attention computes on the host, over all
/// sequences and heads. These are all visible pairs, and also the hidden pairs in short sequences
/// and in partly visible tiles. For a pair, the score and the weighted value each take as many
/// multiplications, and as many additions, as a head is wide.
#[must_use]
pub fn computed_pairs(spec: &AttentionSpec) -> u64 {
    let layout = Layout::new(spec);
    let of_span = |span: &Span| match span.is_long() {
        true => tiled::computed_pairs(spec, span),
        false => (spec.shape.heads * span.queries * span.keys) as u64,
    };
    layout.spans.iter().map(of_span).sum()
}

/// Computes cross-attention: queries of one set of sequences attend to keys and values of another.
///
/// # Shapes
/// `query (N, Q)`, or a wider matrix whose first columns are the queries; `key_value (M, 2·K)`,
/// with key and value side by side; `bias (H, Tq, Tk)`, at least as large as the longest sequences
/// → `(N, Q)`.
///
/// # Errors
/// The errors of [`self_attention`].
pub fn cross_attention(
    tape: Option<&Tape>,
    query: &Tensor,
    key_value: &Tensor,
    bias: Option<&Tensor>,
    spec: &AttentionSpec,
) -> Result<Tensor> {
    let ((queries, stride), (keys, key_stride)) = (query.dims2()?, key_value.dims2()?);
    let (width, key_width) = (spec.shape.query_width(), spec.shape.key_value_width());
    check(spec, (queries, keys), (stride, width <= stride && key_stride == 2 * key_width))?;
    check_bias(spec, bias)?;
    if spec.dual_chunk.is_some() {
        candle_core::bail!("dual chunk attention works only between the tokens of one sequence");
    }
    let at = [
        Columns { stride, column: 0 },
        Columns { stride: key_stride, column: 0 },
        Columns { stride: key_stride, column: key_width },
    ];
    let inputs = Inputs { query: query.clone(), key_value: key_value.clone(), bias: bias.cloned() };
    if !is_fused(tape, &inputs.tensors())? {
        let inputs = inputs.tensors();
        let kernels = kernels(tape.is_some(), &inputs)?;
        let attended = match bias {
            None => kernels.cross_attention(tape, query, key_value, spec),
            Some(_) => None,
        };
        return attended.unwrap_or_else(|| {
            composed::on_tape(tape, "attention", &inputs, |v| {
                let query = v[0].narrow(1, 0, width)?.contiguous()?;
                composed::cross_attention(&query, &v[1], v.get(2), spec)
            })
        });
    }
    for_float!(query, T => attend::<T>(tape, inputs, at, Layout::new(spec)))
}

/// Tensors that attention reads. In self-attention, `query` and `key_value` are the same tensor,
/// which has queries, keys and values side by side.
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

    /// Calls `work` with the elements of the tensors; `at` describes the columns of queries, keys
    /// and values.
    fn with_operands<T: Float, R>(
        &self,
        at: [Columns; 3],
        work: impl FnOnce(&Operands<'_, T>) -> R,
    ) -> Result<R> {
        let (query, key_value) = (Host::new(&self.query)?, Host::new(&self.key_value)?);
        let (query, key_value) = (query.elements()?, key_value.elements()?);
        let values = [query, key_value, key_value];
        let Some(bias) = &self.bias else {
            return Ok(work(&Operands { values, at, bias: None }));
        };
        let (_, queries, keys) = bias.dims3()?;
        let host = Host::new(bias)?;
        let bias = Some((host.elements()?, queries * keys, keys));
        Ok(work(&Operands { values, at, bias }))
    }
}

/// Numbers that the forward pass keeps for the backward pass.
struct Saved<T> {
    /// Attention weights of the short sequences.
    weights: Vec<T>,
    /// `ln Σ exp(score)` for each query and head, `(N, H)`; used only for long sequences.
    log_sums: Vec<T>,
}

fn attend<T: Float>(
    tape: Option<&Tape>,
    inputs: Inputs,
    at: [Columns; 3],
    layout: Layout,
) -> Result<Tensor> {
    let (out, saved) = inputs.with_operands(at, |operands| {
        crate::profile::time("attention", || forward(&layout, operands))
    })?;
    let shape = (layout.rows(), layout.width());
    let out = Tensor::from_vec(out, shape, inputs.query.device())?;
    if let Some(tape) = tape {
        // The backward pass needs the result only if there are long sequences.
        let result = layout.long_spans().next().map(|_| out.clone());
        let kept = inputs.clone();
        tape.record::<T>("attention", &inputs.tensors(), &out, move |adjoint, adjoints| {
            let result = result.as_ref().map(Host::new).transpose()?;
            let out = result.as_ref().map(Host::elements::<T>).transpose()?.unwrap_or_default();
            go_back(&kept, at, &layout, &saved, (&adjoint, out), adjoints)
        })?;
    }
    Ok(out)
}

fn forward<T: Float>(layout: &Layout, operands: &Operands<'_, T>) -> (Vec<T>, Saved<T>) {
    let long = layout.long_spans().next().is_some();
    let rows = layout.rows();
    let mut log_sums = vec![T::default(); if long { rows * layout.shape().heads } else { 0 }];
    // SAFETY: short and long sequences together have all rows, and short sequences all weights.
    let (out, (weights, ())) = unsafe {
        filled(rows * layout.width(), |out| {
            filled(layout.weight_count(), |weights| {
                layout.forward(operands, out, weights);
                tiled::forward(layout, operands, out, &mut log_sums);
            })
        })
    };
    (out, Saved { weights, log_sums })
}

fn go_back<T: Float>(
    inputs: &Inputs,
    at: [Columns; 3],
    layout: &Layout,
    saved: &Saved<T>,
    (adjoint, out): (&[T], &[T]),
    adjoints: &mut Adjoints<'_>,
) -> Result<()> {
    let Inputs { query, bias, .. } = inputs;
    let back = |values: [Shared<T>; 3], write| {
        inputs.with_operands(at, |operands| {
            let mut to = Gradients { values, write, bias: None };
            let Saved { weights, log_sums } = saved;
            // SAFETY: no other thread uses the destinations, which are initialised if gradients are
            // added.
            unsafe {
                let mut of_bias = layout.backward(operands, weights, adjoint, &to);
                to.bias = of_bias.as_deref_mut().map(Shared::new);
                let adjoint = tiled::Adjoint { values: adjoint, out, log_sums };
                tiled::backward(layout, operands, &adjoint, &to);
                of_bias
            }
        })
    };
    let of_bias;
    if !inputs.is_one() {
        let is_wider = at[0].stride > layout.width();
        of_bias = give_apart(inputs, is_wider, back, adjoints)?;
    } else if adjoints.is_first(query) || !adjoints.wants(query) {
        // Also runs if only the gradient with respect to the bias is needed, because all gradients
        // are computed together.
        //
        // SAFETY: query, key and value together are a whole row, and the rows of every sequence are
        // written.
        let (gradient, result) =
            unsafe { filled(query.elem_count(), |to| back([to; 3], Write::Replace)) };
        of_bias = result?;
        adjoints.give(query, gradient)?;
    } else {
        let mut result = None;
        adjoints.add_with(query, |out: &mut [T], write| {
            result = back([Shared::new(out); 3], write)?;
            Ok(())
        })?;
        of_bias = result;
    }
    match (bias, of_bias) {
        (Some(bias), Some(gradient)) => adjoints.give(bias, gradient),
        _ => Ok(()),
    }
}

/// Runs `back`, the backward pass of attention. The queries are in one tensor, the keys and values
/// in another. Adds the gradients to those that have been collected for the tensors, and returns
/// the gradient with respect to the bias. If `query` has columns other than the queries, the
/// gradient with respect to these columns is zero.
fn give_apart<T: Float>(
    Inputs { query, key_value, .. }: &Inputs,
    is_wider: bool,
    back: impl Fn([Shared<T>; 3], Write) -> Result<Option<Vec<T>>>,
    adjoints: &mut Adjoints<'_>,
) -> Result<Option<Vec<T>>> {
    let some_keys = |to: Shared<T>| {
        // SAFETY: key and value together are a whole row, and the rows of every sequence are
        // written.
        unsafe { filled(key_value.elem_count(), |keys| back([to, keys, keys], Write::Replace)) }
    };
    let (of_query, (of_keys, of_bias)) = if is_wider {
        let mut of_query = vec![T::default(); query.elem_count()];
        let of_keys = some_keys(Shared::new(&mut of_query));
        (of_query, of_keys)
    } else {
        // SAFETY: the queries are whole rows, and the rows of every sequence are written.
        unsafe { filled(query.elem_count(), some_keys) }
    };
    let of_bias = of_bias?;
    adjoints.give(query, of_query)?;
    adjoints.give(key_value, of_keys)?;
    Ok(of_bias)
}

fn check(
    spec: &AttentionSpec,
    (queries, keys): (usize, usize),
    (width, fits): (usize, bool),
) -> Result<()> {
    let total = |lengths: &[usize]| lengths.iter().sum::<usize>();
    if let Some(fault) = spec.shape.fault() {
        candle_core::bail!("attention: {fault}");
    }
    if !fits {
        candle_core::bail!("attention: projections of width {width} do not fit {:?}", spec.shape);
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
    if let Some(sparse) = spec.sparse {
        if let Some(fault) = sparse.fault(spec.causal) {
            candle_core::bail!("sparse attention: {fault}, but the settings are {sparse:?}");
        }
        let mut lengths = spec.query_lengths.iter().zip(spec.key_lengths.iter());
        if lengths.any(|(queries, keys)| spec.query_start + queries != *keys) {
            candle_core::bail!("sparse attention: the queries must be the last of their keys");
        }
    }
    if let Some(chunks) = spec.dual_chunk {
        if let Some(fault) = chunks.fault() {
            candle_core::bail!("dual chunk attention: {fault}, but the settings are {chunks:?}");
        }
        if !spec.causal {
            candle_core::bail!("dual chunk attention: a token may see only the tokens before it");
        }
    }
    if let Some(slopes) = spec.slopes.as_ref().filter(|slopes| slopes.len() != spec.shape.heads) {
        candle_core::bail!(
            "attention: {} slopes do not fit {} heads: each head needs one slope",
            slopes.len(),
            spec.shape.heads
        );
    }
    Ok(())
}

fn check_bias(spec: &AttentionSpec, bias: Option<&Tensor>) -> Result<()> {
    let longest = |lengths: &[usize]| lengths.iter().copied().max().unwrap_or(0);
    let (queries, keys) = (longest(&spec.query_lengths), longest(&spec.key_lengths));
    if let Some(bias) = bias {
        let shape = bias.dims3()?;
        if shape.0 != spec.shape.heads || shape.1 < queries || shape.2 < keys {
            candle_core::bail!(
                "attention: bias {:?} does not fit {} heads, {queries} queries and {keys} keys",
                bias.shape(),
                spec.shape.heads
            );
        }
    }
    Ok(())
}
