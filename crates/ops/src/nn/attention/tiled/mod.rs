//! Attention in tiles (small blocks of scores). Its memory grows linearly with the length of a
//! sequence, not with the square of the length (Dao et al. 2022, "FlashAttention", algorithms 1 and
//! 4; Dao 2023).
//!
//! The forward pass goes over the keys with an online softmax, which is corrected whenever a larger
//! score occurs. It keeps only `L = ln Σ exp(score)` for each query. The backward pass recomputes
//! the weights, `P = exp(S - L)`. Let O be the result, dO its adjoint (the gradient of the loss
//! with respect to it), and V the values. The adjoint of the scores S is `dS = P ⊙ (dP - D)`, where
//! `dP = dO Vᵀ`, and `D = Σ dO ⊙ O` for each query. The dropout mask is computed again from its
//! key.
//!
//! Tiles in which no query sees a key are not computed ([`pieces`]).
//!
//! **Decision.** A task of the forward pass is a block of queries of one head. A task of the
//! backward pass is a set of blocks of keys. No other task writes the gradients with respect to
//! these keys. The task sums its contributions to the gradients with respect to the queries in its
//! own memory. So the backward pass takes five matrix products; with separate passes for keys and
//! for queries it would take seven.

mod backward;
mod forward;
mod passes;
mod pieces;
pub(super) mod products;

use super::layout::{Layout, QUERY, Span};
use super::operands::{Gradients, Operands};
use crate::float::Float;
use crate::products::Packing;
use crate::shared::Shared;
use crate::spec::mask_index;
use passes::Terms;
use products::{PackedTiles, Plain, Rows};
use std::marker::PhantomData;
use std::ops::Range;

pub(super) use backward::Adjoint;
pub(super) use pieces::computed_pairs;

/// Number of rows that a task holds. In the forward pass, a task holds a block of queries and goes
/// over all keys in steps. In the backward pass, it holds a block of keys and goes over all
/// queries. The data of the held rows stays in the second-level cache. The more rows are held, the
/// less often the rows on the other side are read.
const BLOCK: usize = 256;
/// Number of rows over which a task goes in one step: keys in the forward pass, queries in the
/// backward pass.
const STEP: usize = 128;

/// Returns the number of tasks in the backward pass for each key head of a sequence with `keys`
/// keys. There are at most four, each with at least one block. If sequences share a bias, each
/// sequence is divided among as many tasks as the longest one. The blocks are dealt out to the
/// tasks in turn, so that under a causal mask all tasks have nearly the same work.
fn chunks(keys: usize) -> usize {
    (keys / BLOCK).clamp(1, 4)
}

/// Computes attention for the long sequences of a batch. Writes their rows of the result to `out`.
/// Writes the logarithm of the softmax denominator of each query and head, `(N, H)`, to `log_sums`.
///
/// # Safety
/// No other thread reads or writes these rows of `out` at the same time; afterwards they are
/// initialised.
pub(super) unsafe fn forward<T: Float>(
    layout: &Layout,
    operands: &Operands<'_, T>,
    out: Shared<T>,
    log_sums: &mut [T],
) {
    // SAFETY: as the caller promises.
    unsafe {
        if let Some(packing) = Packing::best_for_panels(layout.spec.products)
            && let (Some(operands), Some(out)) = (operands.as_f32(), T::shared_f32(out))
            && let Some(log_sums) = T::shared_f32(Shared::new(log_sums))
        {
            return forward::run(&PackedTiles(packing), layout, &operands, out, log_sums);
        }
        let plain = Plain { products: layout.spec.products, values: PhantomData };
        forward::run(&plain, layout, operands, out, Shared::new(log_sums));
    }
}

/// Writes the adjoints of query, key and value of the long sequences, and adds the contribution of
/// these sequences to the adjoint of the bias.
///
/// # Safety
/// As for [`forward`], for the rows of the adjoints instead of those of the result.
pub(super) unsafe fn backward<T: Float>(
    layout: &Layout,
    operands: &Operands<'_, T>,
    adjoint: &Adjoint<'_, T>,
    to: &Gradients<T>,
) {
    // SAFETY: as the caller promises.
    unsafe {
        if let Some(packing) = Packing::best_for_panels(layout.spec.products)
            && let Some(operands) = operands.as_f32()
            && let (Some(adjoint), Some(to)) = (adjoint.as_f32(), to.as_f32())
        {
            return backward::run(&PackedTiles(packing), layout, &operands, &adjoint, &to);
        }
        let plain = Plain { products: layout.spec.products, values: PhantomData };
        backward::run(&plain, layout, operands, adjoint, to);
    }
}

/// Returns rows of a sequence's queries, keys or values (`part`), in the columns of the head that
/// the query head `head` uses.
fn rows<'a, T: Float>(
    operands: &Operands<'a, T>,
    part: usize,
    layout: &Layout,
    (span, head): (&Span, usize),
    rows: Range<usize>,
) -> Rows<'a, T> {
    let first = if part == QUERY { span.query } else { span.key };
    Rows {
        values: operands.values[part],
        at: operands.at[part].head(
            first + rows.start,
            layout.head_of(part, head),
            layout.shape().head_width,
        ),
        count: rows.len(),
        width: layout.shape().head_width,
    }
}

/// Returns the settings for computing scores from products, for one head of a sequence.
fn terms<'a, T: Float>(
    operands: &Operands<'a, T>,
    layout: &Layout,
    (span, head): (&Span, usize),
) -> Terms<'a, T> {
    let spec = &layout.spec;
    let number = |row| mask_index(row, spec.shape.heads, head, layout.longest_key, 0);
    Terms {
        scale: layout.scale(),
        slope: T::cast(spec.slopes.as_ref().map_or(0.0, |slopes| slopes[head])),
        bias: operands.bias.map(|(bias, size, row)| (&bias[head * size..(head + 1) * size], row)),
        causal: spec.causal,
        start: spec.query_start,
        dropout: spec.dropout,
        mask: (number(span.query), number(1) - number(0)),
    }
}
