//! Hierarchical attention: sequences are divided into chunks of neighbouring tokens. A token
//! attends to the tokens in its own chunk, and to summaries of other chunks. At higher levels, it
//! attends to summaries of groups of chunks. A summary is the mean of the keys and the mean of the
//! values.
//!
//! The keys and values that the tokens of a chunk see are gathered, summaries first. They are far
//! fewer than the tokens of a long sequence, so the scores with them stay in the cache. The
//! backward pass needs the summaries and, for each query and head, one number,
//! `L = ln Σ exp(score)`.

mod backward;
mod forward;
mod layout;
mod passes;
mod summaries;

use crate::composed;
use crate::float::Float;
use crate::host::{Host, for_float};
use crate::nn::attention::kinds::heads::PackedLayout;
use crate::nn::attention::layout::{KEY, QUERY, VALUE};
use crate::nn::attention::tiled::products::{PackedTiles, Plain};
use crate::products::Packing;
use crate::shared::{Shared, Write, filled};
use crate::spec::attention::kinds::HierarchicalSpec;
use crate::tape::{Adjoints, Tape, is_fused};
use backward::Known;
use candle_core::{Result, Tensor};
use forward::Inputs;
use layout::Layout;
use std::marker::PhantomData;

/// Computes hierarchical attention of queries, keys and values that are in one tensor:
///
/// ```text
/// O_i = (Σ_{j ∈ C} exp(q_i·k_j / √d) v_j + Σ_J |J| exp(q_i·k̄_J / √d) v̄_J) / Z_i
/// ```
///
/// for each head, where C is the chunk of token i. Each J is another chunk that the token sees,
/// with `|J|` tokens, the mean key `k̄_J` and the mean value `v̄_J`; see [`HierarchicalSpec`]. This
/// is the coarsening of Zhu and Soricut 2021 ("H-Transformer-1D", section 4), with two differences:
/// queries are not coarsened, and a chunk of the next level can have any number of chunks.
///
/// # Shapes
/// `qkv (N, 3·D)`: query, key and value side by side, each `(H, Dh)` → `(N, D)`.
///
/// # Errors
/// If the shapes disagree, or there are no chunks or levels.
pub fn hierarchical_attention(
    tape: Option<&Tape>,
    qkv: &Tensor,
    spec: &HierarchicalSpec,
) -> Result<Tensor> {
    let (_, width) = spec.check(qkv)?;
    if !is_fused(tape, &[qkv])? {
        return composed::on_tape(tape, "hierarchical attention", &[qkv], |v| {
            composed::hierarchical_attention(&v[0], spec)
        });
    }
    crate::profile::time(
        "hierarchical attention",
        || for_float!(qkv, T => attend::<T>(tape, qkv, Layout::new(spec, width))),
    )
}

/// Returns the number of scalars that [`hierarchical_attention`] keeps for the backward pass, in
/// addition to its input: the result, a number for each query and head, and the summaries. `width`
/// is the width of all heads together.
#[must_use]
pub fn kept_by_hierarchical_attention(spec: &HierarchicalSpec, width: usize) -> usize {
    let layout = Layout::new(spec, width);
    let of_tokens = layout.tokens.saturating_mul(width.saturating_add(spec.heads));
    of_tokens.saturating_add((2 * layout.summaries()).saturating_mul(width))
}

/// Returns the number of multiplications and additions in the forward products of
/// [`hierarchical_attention`]. These are products of each query with all keys that its chunk sees,
/// and of the weights with the values. `width` is the width of all heads together.
#[must_use]
pub fn hierarchical_attention_arithmetic(spec: &HierarchicalSpec, width: usize) -> f64 {
    let layout = Layout::new(spec, width);
    let of_chunk = |sequence, chunk| {
        let chunk_keys = layout.seen::<f32>(sequence, chunk);
        (chunk_keys.tokens.len() * chunk_keys.all()) as f64
    };
    let chunks = layout
        .sequences
        .iter()
        .flat_map(|sequence| (0..sequence.counts[0]).map(move |chunk| (sequence, chunk)));
    4.0 * width as f64 * chunks.map(|(sequence, chunk)| of_chunk(sequence, chunk)).sum::<f64>()
}

/// Numbers that the forward pass keeps for the backward pass.
struct Saved<T> {
    summaries: Vec<T>,
    log_sums: Vec<T>,
}

fn attend<T: Float>(tape: Option<&Tape>, qkv: &Tensor, layout: Layout) -> Result<Tensor> {
    let host = Host::new(qkv)?;
    let values = host.elements::<T>()?;
    let summaries = summaries::summarise(&layout, values);
    let inputs = Inputs { qkv: values, summaries: &summaries };
    let kept = if tape.is_some() { layout.tokens * layout.spec.heads } else { 0 };
    // SAFETY: the pass writes all rows of all heads and, if they are kept, a number for each query
    // and head.
    let (out, (log_sums, ())) = unsafe {
        filled(layout.tokens * layout.width(), |out| {
            filled(kept, |log_sums| {
                forward(&layout, inputs, (out, tape.map(|_| log_sums)));
            })
        })
    };
    let out = Tensor::from_vec(out, (layout.tokens, layout.width()), qkv.device())?;
    drop(host);
    if let Some(tape) = tape {
        let saved = Saved { summaries, log_sums };
        let (kept, result) = (qkv.clone(), out.clone());
        tape.record::<T>("hierarchical attention", &[qkv], &out, move |adjoint, adjoints| {
            go_back(&kept, &layout, &saved, (&adjoint, &result), adjoints)
        })?;
    }
    Ok(out)
}

fn go_back<T: Float>(
    qkv: &Tensor,
    layout: &Layout,
    saved: &Saved<T>,
    (adjoint, out): (&[T], &Tensor),
    adjoints: &mut Adjoints<'_>,
) -> Result<()> {
    let (host, out) = (Host::new(qkv)?, Host::new(out)?);
    let inputs = Inputs { qkv: host.elements::<T>()?, summaries: &saved.summaries };
    let known = Known { adjoint, out: out.elements::<T>()?, log_sums: &saved.log_sums };
    if adjoints.is_first(qkv) {
        // SAFETY: no other thread uses the destination. The pass writes query, key and value, which
        // together are whole rows.
        let (gradient, ()) = unsafe {
            filled(inputs.qkv.len(), |to| backward(layout, inputs, known, (to, Write::Replace)))
        };
        return adjoints.give(qkv, gradient);
    }
    adjoints.add_with(qkv, |to: &mut [T], write| {
        // SAFETY: as above.
        unsafe { backward(layout, inputs, known, (Shared::new(to), write)) };
        Ok(())
    })
}

/// Runs the forward pass with the fastest kind of matrix products on this processor.
///
/// # Safety
/// As for [`forward::run`].
unsafe fn forward<T: Float>(
    layout: &Layout,
    inputs: Inputs<'_, T>,
    to: (Shared<T>, Option<Shared<T>>),
) {
    // SAFETY: as the caller promises.
    unsafe {
        if let Some(packing) = Packing::best_for_panels(layout.spec.products)
            && let (Some(inputs), Some(out)) = (inputs.as_f32(), T::shared_f32(to.0))
        {
            let to = (out, to.1.and_then(T::shared_f32));
            return forward::run(&PackedTiles(packing), layout, inputs, to);
        }
        let products = Plain { products: layout.spec.products, values: PhantomData };
        forward::run(&products, layout, inputs, to);
    }
}

/// Runs the backward pass with the fastest kind of matrix products on this processor.
///
/// # Safety
/// As for [`backward::run`].
unsafe fn backward<T: Float>(
    layout: &Layout,
    inputs: Inputs<'_, T>,
    known: Known<'_, T>,
    (to, write): (Shared<T>, Write),
) {
    // SAFETY: as the caller promises.
    unsafe {
        if let Some(packing) = Packing::best_for_panels(layout.spec.products)
            && let (Some(inputs), Some(known)) = (inputs.as_f32(), known.as_f32())
            && let Some(to) = T::shared_f32(to)
        {
            let products = PackedTiles(packing);
            return backward::run(&products, layout, inputs, known, (to, write));
        }
        let products = Plain { products: layout.spec.products, values: PhantomData };
        backward::run(&products, layout, inputs, known, (to, write));
    }
}
