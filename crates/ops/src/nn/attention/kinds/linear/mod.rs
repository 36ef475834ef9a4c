//! Linear attention (Katharopoulos et al. 2020, "Transformers are RNNs", section 3). With random
//! features, it is a Performer (Choromanski et al. 2021, "Rethinking Attention with Performers").
//!
//! Sequences are processed in chunks. Within a chunk, products of the features of queries and keys
//! are computed directly. All tokens before the chunk are summed up in a state. The features, the
//! state and the products of a chunk fit in the cache, because their size does not depend on the
//! length of the sequence. For the backward pass, the forward pass keeps all denominators, and the
//! state before every eighth chunk. The backward pass recomputes the other states.
//!
//! Random features of keys are divided by `exp(c)`, where c is the largest exponent so far, so that
//! they do not overflow. The number c is updated with each chunk here, and with each token in
//! decoding. When it grows, earlier sums are scaled down.

mod backward;
mod features;
mod forward;
mod layout;
mod state;

use crate::composed;
use crate::float::Float;
use crate::host::{Host, for_float};
use crate::nn::attention::kinds::heads::PackedLayout;
use crate::products::Packing;
use crate::shared::{Shared, Write, filled};
use crate::spec::attention::kinds::{LinearAttentionShape, LinearAttentionSpec};
use crate::tape::{Adjoints, Tape, is_fused};
use backward::Known;
use candle_core::{Result, Tensor};
use features::Features;
use forward::{Outputs, SavedSums};
use layout::{CHUNK, Layout};
use std::marker::PhantomData;

use crate::nn::attention::layout::{KEY, QUERY, VALUE};
use crate::nn::attention::tiled::products::{PackedTiles, Plain};

/// Computes linear attention of queries, keys and values that are in one tensor:
///
/// ```text
/// O_i = φ(q_i)ᵀ Σ_j φ(k_j) v_jᵀ / (φ(q_i)ᵀ Σ_j φ(k_j) + ε)
/// ```
///
/// for each head, over all tokens j of the sequence or, under a causal mask, over j ≤ i
/// (Katharopoulos et al. 2020, equations 5 and 9). Without `vectors`, `φ(x) = elu(x) + 1`. With
/// `vectors` ω, the features are random: `φ(x) = exp(ωx − ‖x‖² / 2)`, applied to `x / Dh^¼`
/// (Choromanski et al. 2021, lemma 1). The vectors are constants.
///
/// # Shapes
/// `qkv (N, 3·D)`: query, key and value side by side, each `(H, Dh)`; `vectors (M, Dh)` → `(N, D)`.
///
/// # Errors
/// If the shapes disagree.
pub fn linear_attention(
    tape: Option<&Tape>,
    qkv: &Tensor,
    vectors: Option<&Tensor>,
    spec: &LinearAttentionSpec,
) -> Result<Tensor> {
    let layout = Layout::new(spec, spec.shape(qkv, vectors)?, vectors.is_some());
    if !is_fused(tape, &[qkv])? {
        return composed::on_tape(tape, "linear attention", &[qkv], |v| {
            Ok(composed::linear_attention(&v[0], vectors, spec)?.0)
        });
    }
    crate::profile::time(
        "linear attention",
        || for_float!(qkv, T => Ok(attend::<T>(tape, qkv, vectors, layout, false)?.0)),
    )
}

/// Computes [`linear_attention`] without gradients, and also the sums after the last token of each
/// sequence: `Σ φ(k) (v, 1)ᵀ` for each head. With random features, the sums have been divided by
/// `exp(c)` for each head, and are followed by these numbers c.
///
/// # Shapes
/// The inputs of [`linear_attention`] → the result, `(N, D)`, and, for B sequences, the sums,
/// `(B, H·M·(Dh + 1))`, or `(B, H·M·(Dh + 1) + H)` with random features.
///
/// # Errors
/// If the shapes disagree.
pub fn linear_attention_after(
    qkv: &Tensor,
    vectors: Option<&Tensor>,
    spec: &LinearAttentionSpec,
) -> Result<(Tensor, Tensor)> {
    let layout = Layout::new(spec, spec.shape(qkv, vectors)?, vectors.is_some());
    if !is_fused(None, &[qkv])? {
        return composed::linear_attention(qkv, vectors, spec);
    }
    let shape = (layout.sequences.len(), layout.last_size());
    for_float!(qkv, T => {
        let (out, last) = attend::<T>(None, qkv, vectors, layout, true)?;
        Ok((out, Tensor::from_vec(last, shape, qkv.device())?))
    })
}

/// Returns the number of scalars that [`linear_attention`] keeps for the backward pass, in addition
/// to its input: the result, denominators, states, and, with random features, exponents and
/// vectors. `width` is the width of all heads together; `features` is the number of random features
/// of a head, or `None` for `elu(x) + 1`.
#[must_use]
pub fn kept_by_linear_attention(
    spec: &LinearAttentionSpec,
    width: usize,
    features: Option<usize>,
) -> usize {
    let layout = Layout::for_width(spec, width, features);
    let LinearAttentionShape { tokens, head, features } = layout.shape;
    let vectors = if layout.is_random { features.saturating_mul(head) } else { 0 };
    let of_tokens = tokens.saturating_mul(width.saturating_add(spec.heads));
    [layout.states(), layout.exponents(), vectors]
        .into_iter()
        .fold(of_tokens, usize::saturating_add)
}

/// Returns the number of multiplications and additions in the forward products of
/// [`linear_attention`]. These products add each chunk to the state, read from the state, and
/// compute random features. Under a causal mask, they also compute the pairs within chunks. `width`
/// and `features` are as for [`kept_by_linear_attention`].
#[must_use]
pub fn linear_attention_arithmetic(
    spec: &LinearAttentionSpec,
    width: usize,
    features: Option<usize>,
) -> f64 {
    let layout = Layout::for_width(spec, width, features);
    let (head, count) = (layout.shape.head as f64, layout.shape.features as f64);
    let of_sequence = |&length: &usize| {
        let (tokens, rest) = (length as f64, (length % CHUNK) as f64);
        let (chunk, whole) = (CHUNK as f64, (length / CHUNK) as f64);
        // Under a causal mask, the first chunk reads from no state, and the last chunk is added to
        // none.
        let (read, added, pairs) = match spec.causal {
            true => {
                let last = if rest > 0.0 { rest } else { chunk.min(tokens) };
                (tokens - chunk.min(tokens), tokens - last, whole * chunk * chunk + rest * rest)
            }
            false => (tokens, tokens, 0.0),
        };
        let random = if layout.is_random { 4.0 * tokens * count * head } else { 0.0 };
        random + 2.0 * (read + added) * count * (head + 1.0) + 2.0 * pairs * (count + head + 1.0)
    };
    spec.heads as f64 * spec.lengths.iter().map(of_sequence).sum::<f64>()
}

/// Numbers that the forward pass keeps for the backward pass.
struct Saved<T> {
    denominators: Vec<T>,
    states: Vec<T>,
    exponents: Vec<T>,
}

/// Computes the result and, if `wants_last` is true, the sums after the last token of each sequence
/// (otherwise an empty list).
fn attend<T: Float>(
    tape: Option<&Tape>,
    qkv: &Tensor,
    vectors: Option<&Tensor>,
    layout: Layout,
    wants_last: bool,
) -> Result<(Tensor, Vec<T>)> {
    let vectors = vectors.map(|vectors| scaled::<T>(vectors)).transpose()?;
    let host = Host::new(qkv)?;
    let values = host.elements::<T>()?;
    let size = if wants_last { layout.sequences.len() * layout.last_size() } else { 0 };
    let mut last = vec![T::default(); size];
    let last_to = wants_last.then(|| Shared::new(&mut last));
    let keeps = |count: usize| if tape.is_some() { count } else { 0 };
    let shape = (layout.shape.tokens, layout.width());
    // SAFETY: the pass writes all rows of all heads and, if they are kept, all denominators, states
    // and exponents.
    let (out, (denominators, (states, (exponents, ())))) = unsafe {
        filled(shape.0 * shape.1, |out| {
            filled(keeps(shape.0 * layout.spec.heads), |denominators| {
                filled(keeps(layout.states()), |states| {
                    filled(keeps(layout.exponents()), |exponents| {
                        let kept = SavedSums { denominators, states, exponents };
                        let kept = tape.map(|_| kept);
                        let to = Outputs { out, kept, last: last_to };
                        forward(&layout, values, vectors.as_deref(), to);
                    })
                })
            })
        })
    };
    let out = Tensor::from_vec(out, shape, qkv.device())?;
    drop(host);
    if let Some(tape) = tape {
        let saved = Saved { denominators, states, exponents };
        let (kept, result) = (qkv.clone(), out.clone());
        tape.record::<T>("linear attention", &[qkv], &out, move |adjoint, adjoints| {
            let vectors = vectors.as_deref();
            go_back(&kept, vectors, &layout, &saved, (&adjoint, &result), adjoints)
        })?;
    }
    Ok((out, last))
}

/// Returns the vectors divided by the fourth root of a head's width: `(M, Dh)`.
fn scaled<T: Float>(vectors: &Tensor) -> Result<Vec<T>> {
    let factor = (vectors.dim(1)? as f64).powf(-0.25);
    let scaled = (vectors.to_dtype(candle_core::DType::F64)? * factor)?;
    scaled.to_dtype(T::DTYPE)?.flatten_all()?.to_vec1()
}

fn go_back<T: Float>(
    qkv: &Tensor,
    vectors: Option<&[T]>,
    layout: &Layout,
    saved: &Saved<T>,
    (adjoint, out): (&[T], &Tensor),
    adjoints: &mut Adjoints<'_>,
) -> Result<()> {
    let (host, out) = (Host::new(qkv)?, Host::new(out)?);
    let (values, out) = (host.elements::<T>()?, out.elements::<T>()?);
    let Saved { denominators, states, exponents } = saved;
    let known = Known { adjoint, out, denominators, states, exponents };
    // SAFETY: in both cases, no other thread uses the destination, which is initialised if
    // gradients are added. The pass writes query, key and value, which together are whole rows.
    if adjoints.is_first(qkv) {
        let (gradient, ()) = unsafe {
            filled(values.len(), |to| {
                backward(layout, (values, known), vectors, (to, Write::Replace))
            })
        };
        return adjoints.give(qkv, gradient);
    }
    adjoints.add_with(qkv, |to: &mut [T], write| {
        unsafe { backward(layout, (values, known), vectors, (Shared::new(to), write)) };
        Ok(())
    })
}

/// Runs the forward pass with the fastest kind of matrix products on this processor.
///
/// # Safety
/// As for [`forward::run`].
unsafe fn forward<T: Float>(layout: &Layout, qkv: &[T], vectors: Option<&[T]>, to: Outputs<T>) {
    let size = (layout.shape.features, layout.shape.head);
    // SAFETY: as the caller promises.
    unsafe {
        if let Some(packing) = Packing::best_for_panels(layout.spec.products)
            && let (Some(qkv), Some(to)) = (T::as_f32(qkv), to.as_f32())
        {
            let products = PackedTiles(packing);
            let features = Features::new(&products, vectors.and_then(T::as_f32), size);
            return forward::run(&products, layout, &features, qkv, to);
        }
        let products = Plain { products: layout.spec.products, values: PhantomData };
        let features = Features::new(&products, vectors, size);
        forward::run(&products, layout, &features, qkv, to);
    }
}

/// Runs the backward pass with the fastest kind of matrix products on this processor.
///
/// # Safety
/// As for [`backward::run`].
unsafe fn backward<T: Float>(
    layout: &Layout,
    (qkv, known): (&[T], Known<'_, T>),
    vectors: Option<&[T]>,
    (to, write): (Shared<T>, Write),
) {
    let size = (layout.shape.features, layout.shape.head);
    // SAFETY: as the caller promises.
    unsafe {
        if let Some(packing) = Packing::best_for_panels(layout.spec.products)
            && let (Some(qkv), Some(known)) = (T::as_f32(qkv), known.as_f32())
            && let Some(to) = T::shared_f32(to)
        {
            let products = PackedTiles(packing);
            let features = Features::new(&products, vectors.and_then(T::as_f32), size);
            return backward::run(&products, layout, &features, (qkv, known), (to, write));
        }
        let products = Plain { products: layout.spec.products, values: PhantomData };
        let features = Features::new(&products, vectors, size);
        backward::run(&products, layout, &features, (qkv, known), (to, write));
    }
}
