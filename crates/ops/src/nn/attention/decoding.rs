//! Attention of single queries, as decoding token by token asks for it (Vaswani et al. 2017,
//! section 3.2).
//!
//! **Decision.** The keys and values of a token are written once and never move. Which of them a
//! hypothesis has for its past is told by a table of rows, so that reordering hypotheses reorders
//! small integers. The alternative, a cache that is copied when hypotheses branch and when it
//! grows, took a third of a beam search.
//!
//! What a query gets depends on nothing but itself and what it sees: not on the other queries, nor
//! on their number.

use crate::float::{Float, vectorised};
use crate::host::{Host, for_float};
use crate::spec::{ABSENT, Seen};
use crate::sums::{blocked_max, blocked_sum};
use crate::tape::is_fused;
use candle_core::{Result, Tensor};
use rayon::prelude::*;
use std::ops::Range;

/// `softmax(q Kᵀ / √Dh + biases) V` of each query and head, without gradients.
///
/// # Shapes
/// `query (R, D)` → `(R, D)`.
///
/// # Errors
/// When the shapes disagree, heads do not divide `D`, or a row does not exist.
pub fn decoding_attention(query: &Tensor, seen: Seen<'_>, heads: usize) -> Result<Tensor> {
    check(seen, query.dims2()?, heads)?;
    let (whole, blocks, bias) = match seen {
        Seen::Source { key_value, .. } => (Some(key_value), [].as_slice(), None),
        Seen::Past { text, blocks, bias, .. } => (text.map(|(text, _)| text), blocks, bias),
    };
    let inputs: Vec<&Tensor> = [query].into_iter().chain(bias).chain(whole).chain(blocks).collect();
    if !is_fused(None, &inputs) {
        return crate::composed::decoding_attention(query, seen, heads);
    }
    crate::profile::time(
        "attention",
        || for_float!(query, T => fused::<T>(query, (whole, blocks), seen, heads)),
    )
}

fn check(seen: Seen<'_>, (queries, width): (usize, usize), heads: usize) -> Result<()> {
    if heads == 0 || !width.is_multiple_of(heads) {
        candle_core::bail!("attention: {heads} heads do not divide width {width}");
    }
    let whole = |key_value: &Tensor, rows: &[Range<usize>]| -> Result<bool> {
        let (keys, columns) = key_value.dims2()?;
        Ok(columns == 2 * width
            && rows.len() == queries
            && rows.iter().all(|range| range.start <= range.end && range.end <= keys))
    };
    let fits = match seen {
        Seen::Source { key_value, rows } => whole(key_value, rows)?,
        Seen::Past { text, blocks, history, bias, slopes } => {
            let mut fits =
                blocks.len() == history.len() && slopes.is_none_or(|slopes| slopes.len() == heads);
            if let Some((key_value, rows)) = text {
                fits &= whole(key_value, rows)?;
            }
            for (block, rows) in blocks.iter().zip(history) {
                let (keys, columns) = block.dims2()?;
                fits &= columns == 2 * width
                    && rows.len() == queries
                    && rows.iter().all(|&row| row == ABSENT || (row as usize) < keys);
            }
            if let Some(bias) = bias {
                let shape = bias.dims3()?;
                let keys = |query| seen.keys(query);
                fits = fits
                    && (shape.0, shape.1 > 0) == (heads, true)
                    && (0..queries).map(keys).max().is_none_or(|longest| shape.2 >= longest);
            }
            fits
        }
    };
    if !fits {
        candle_core::bail!(
            "attention: {queries} queries of width {width} with {heads} heads do not fit what \
             they see"
        );
    }
    Ok(())
}

/// What is added to scores, and its shape `(H, queries, keys)`.
type Bias<'a, T> = (&'a [T], (usize, usize, usize));

/// Queries of a task.
const QUERIES: usize = 8;

fn fused<T: Float>(
    query: &Tensor,
    (whole, blocks): (Option<&Tensor>, &[Tensor]),
    seen: Seen<'_>,
    heads: usize,
) -> Result<Tensor> {
    let (rows, width) = query.dims2()?;
    let (bias, slopes) = match seen {
        Seen::Source { .. } => (None, None),
        Seen::Past { bias, slopes, .. } => (bias, slopes),
    };
    let (query_host, bias_host) = (Host::new(query)?, bias.map(Host::new).transpose()?);
    let queries = query_host.elements::<T>()?;
    let bias = match (&bias_host, bias) {
        (Some(host), Some(bias)) => Some((host.elements::<T>()?, bias.dims3()?)),
        _ => None,
    };
    let slopes: Option<Vec<T>> =
        slopes.map(|slopes| slopes.iter().map(|&slope| T::of(slope)).collect());
    let whole = whole.map(Host::new).transpose()?;
    let whole = whole.as_ref().map(Host::elements::<T>).transpose()?.unwrap_or_default();
    let hosts = blocks.iter().map(Host::new).collect::<Result<Vec<_>>>()?;
    let blocks = hosts.iter().map(Host::elements::<T>).collect::<Result<Vec<_>>>()?;
    let mut out = vec![T::default(); rows * width];
    out.par_chunks_mut(QUERIES * width).enumerate().for_each_init(
        || (Vec::new(), Vec::new()),
        |(pairs, weights), (chunk, out)| {
            for (i, out) in out.chunks_exact_mut(width).enumerate() {
                let query = chunk * QUERIES + i;
                pairs.clear();
                let (ranges, history) = match seen {
                    Seen::Source { rows, .. } => (Some(rows), [].as_slice()),
                    Seen::Past { text, history, .. } => (text.map(|(_, rows)| rows), history),
                };
                if let Some(ranges) = ranges {
                    let Range { start, end } = ranges[query];
                    pairs.extend(whole[2 * width * start..2 * width * end].chunks_exact(2 * width));
                }
                let rows = blocks.iter().zip(history).map(|(block, rows)| (block, rows[query]));
                pairs.extend(
                    rows.filter(|&(_, row)| row != ABSENT)
                        .map(|(block, row)| &block[2 * width * row as usize..][..2 * width]),
                );
                weights.clear();
                weights.resize(heads * pairs.len(), T::default());
                attend(
                    &queries[query * width..(query + 1) * width],
                    pairs,
                    weights,
                    bias,
                    slopes.as_deref(),
                    out,
                );
            }
        },
    );
    Tensor::from_vec(out, (rows, width), query.device())
}

vectorised! {
    /// One query, `pairs` being the key and value of each token that it sees; `weights (H, keys)`
    /// is scratch, and `out` is zero.
    fn attend<T>(
        query: &[T],
        pairs: &[&[T]],
        weights: &mut [T],
        bias: Option<Bias<'_, T>>,
        slopes: Option<&[T]>,
        out: &mut [T],
    ) {
        let (width, keys) = (query.len(), pairs.len());
        if keys == 0 {
            return;
        }
        let heads = weights.len() / keys;
        let head_width = width / heads;
        let scale = T::of(1.0 / (head_width as f64).sqrt());
        for (j, pair) in pairs.iter().enumerate() {
            for head in 0..heads {
                let at = head * head_width..(head + 1) * head_width;
                let slices = [&query[at.clone()], &pair[at]];
                weights[head * keys + j] = scale * blocked_sum(slices, |[query, key]| query * key);
            }
        }
        for (head, weights) in weights.chunks_exact_mut(keys).enumerate() {
            if let Some(slopes) = slopes {
                for (j, weight) in weights.iter_mut().enumerate() {
                    *weight -= slopes[head] * T::of((keys - 1 - j) as f64);
                }
            }
            if let Some((bias, (_, queries, columns))) = bias {
                let first = head * queries * columns + columns - keys;
                for (weight, bias) in weights.iter_mut().zip(&bias[first..]) {
                    *weight += *bias;
                }
            }
            let largest = blocked_max(weights);
            for weight in weights.iter_mut() {
                *weight = (*weight - largest).exp();
            }
            let total = T::of(1.0) / blocked_sum([&*weights], |[weight]| weight);
            for weight in weights.iter_mut() {
                *weight *= total;
            }
        }
        for (j, pair) in pairs.iter().enumerate() {
            for head in 0..heads {
                let at = head * head_width..(head + 1) * head_width;
                let weight = weights[head * keys + j];
                for (out, value) in out[at.clone()].iter_mut().zip(&pair[width..][at]) {
                    *out += weight * *value;
                }
            }
        }
    }
}
