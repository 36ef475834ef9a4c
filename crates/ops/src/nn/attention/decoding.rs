//! Attention of single queries, for decoding token by token (Vaswani et al. 2017, section 3.2).
//!
//! **Decision.** The keys and values of a token are written once and never move. For each
//! hypothesis, a table says which rows of keys and values are its past, so that reordering
//! hypotheses only reorders small integers. The alternative, a cache that is copied whenever
//! hypotheses branch and whenever it grows, took a third of the time of a beam search.
//!
//! If a sparse pattern lets a query see only some of its past tokens, the others stay in the cache,
//! but are not read.
//!
//! The result of a query depends only on the query and on the keys and values that it sees, not on
//! other queries or their number.

use crate::float::{Float, vectorised};
use crate::host::{Host, for_float};
use crate::products::fetch;
use crate::spec::{
    ABSENT, AttentionShape, CachedRows, DualChunk, Sight, Sparse, VisibleKeys, merge,
};
use crate::sums::{blocked_max, blocked_sum};
use crate::tape::is_fused;
use candle_core::{Error, Result, Tensor};
use rayon::prelude::*;
use std::ops::Range;

/// Computes `softmax(scale · q Kᵀ + biases) V` for each query and head, without gradients.
///
/// # Shapes
/// `query (R, r·Q)`, where each row is one query with its r rotations side by side (one, except for
/// dual chunk attention), and Q is the width of queries in `shape` → `(R, Q)`.
///
/// # Errors
/// If the shapes disagree, `shape` is impossible, or a query's key has no row.
pub fn decoding_attention(
    query: &Tensor,
    visible: VisibleKeys<'_>,
    shape: AttentionShape,
) -> Result<Tensor> {
    check(visible, query.dims2()?, shape)?;
    let (whole, steps, bias) = match visible {
        VisibleKeys::Source { key_value, .. } => (Some(key_value), [].as_slice(), None),
        VisibleKeys::Past { kept: CachedRows::Apart { text, steps }, bias, .. } => {
            (text, steps, bias)
        }
        VisibleKeys::Past { kept: CachedRows::Joined { .. }, .. } => {
            crate::device::check(query.device())?;
            return crate::composed::decoding_attention(query, visible, shape);
        }
    };
    let inputs: Vec<&Tensor> = [query].into_iter().chain(bias).chain(whole).chain(steps).collect();
    if !is_fused(None, &inputs)? {
        return crate::composed::decoding_attention(query, visible, shape);
    }
    crate::profile::time(
        "attention",
        || for_float!(query, T => fused::<T>(query, (whole, steps), visible, shape)),
    )
}

fn check(
    visible: VisibleKeys<'_>,
    (queries, width): (usize, usize),
    shape: AttentionShape,
) -> Result<()> {
    if let Some(fault) = shape.fault() {
        candle_core::bail!("attention: {fault}");
    }
    let columns = 2 * shape.key_value_width();
    let whole = |key_value: &Tensor, rows: &[Range<usize>]| -> Result<bool> {
        let (keys, key_columns) = key_value.dims2()?;
        Ok(key_columns == columns
            && rows.len() == queries
            && rows.iter().all(|range| range.start <= range.end && range.end <= keys))
    };
    let fits = match visible {
        VisibleKeys::Source { key_value, rows } => whole(key_value, rows)?,
        VisibleKeys::Past { .. } => past_fits(visible, queries, shape)?,
    };
    let rotations = match visible {
        VisibleKeys::Past { dual_chunk: Some(_), .. } => DualChunk::ROTATIONS,
        _ => 1,
    };
    if !fits || width != rotations * shape.query_width() {
        candle_core::bail!(
            "attention: {queries} queries of width {width} do not fit {shape:?} or the keys that \
             they see"
        );
    }
    Ok(())
}

/// Whether the cached tokens fit `queries` queries of this shape. An error if a setting is
/// impossible.
fn past_fits(visible: VisibleKeys<'_>, queries: usize, shape: AttentionShape) -> Result<bool> {
    let VisibleKeys::Past { kept, text, history, bias, slopes, sparse, dual_chunk } = visible
    else {
        return Ok(false);
    };
    let (heads, columns) = (shape.heads, 2 * shape.key_value_width());
    if let Some(fault) = sparse.and_then(|rule| rule.fault(true)) {
        candle_core::bail!("sparse attention: {fault}, but the settings are {sparse:?}");
    }
    if let Some(fault) = dual_chunk.and_then(DualChunk::fault) {
        candle_core::bail!("dual chunk attention: {fault}, but the settings are {dual_chunk:?}");
    }
    let mut fits =
        kept.steps() == history.len() && slopes.is_none_or(|slopes| slopes.len() == heads);
    let is_wide = |rows: &Tensor| Ok::<_, Error>(rows.dims2()?.1 == columns);
    let read = match kept {
        CachedRows::Apart { text, .. } => text.map_or(Ok(0), |text| text.dim(0))?,
        CachedRows::Joined { text, .. } => text.len(),
    };
    fits &= (text.is_empty() || text.len() == queries)
        && text.iter().all(|range| range.start <= range.end && range.end <= read);
    let of_step = |step: usize| match kept {
        CachedRows::Apart { steps, .. } => steps[step].dim(0),
        CachedRows::Joined { steps, .. } => Ok(steps[step].1 as usize),
    };
    match kept {
        CachedRows::Apart { text, steps } => {
            for rows in text.into_iter().chain(steps) {
                fits &= is_wide(rows)?;
            }
        }
        CachedRows::Joined { rows, .. } => fits &= is_wide(rows)?,
    }
    for (step, rows) in history.iter().enumerate().take(kept.steps()) {
        let keys = of_step(step)?;
        fits &=
            rows.len() == queries && rows.iter().all(|&row| row == ABSENT || (row as usize) < keys);
    }
    if let Some(bias) = bias {
        let shape = bias.dims3()?;
        let keys = |query| visible.keys(query);
        fits = fits
            && (shape.0, shape.1 > 0) == (heads, true)
            && (0..queries).map(keys).max().is_none_or(|longest| shape.2 >= longest);
    }
    Ok(fits)
}

/// Bias that is added to the scores, with its shape `(H, queries, keys)`.
type Bias<'a, T> = (&'a [T], (usize, usize, usize));

/// Number of queries per task.
const QUERIES: usize = 8;

/// Number of values that are processed together, for vector instructions.
const LANES: usize = 16;

/// Number of keys that are prefetched ahead. This pays because the keys of a past are scattered in
/// memory.
const AHEAD: usize = 2;

/// Number of bytes in a cache line.
const LINE: usize = 64;

fn fused<T: Float>(
    query: &Tensor,
    (whole, blocks): (Option<&Tensor>, &[Tensor]),
    visible: VisibleKeys<'_>,
    shape: AttentionShape,
) -> Result<Tensor> {
    let heads = shape.heads;
    let ((rows, columns), width) = (query.dims2()?, shape.query_width());
    let (bias, slopes, sparse, dual_chunk) = match visible {
        VisibleKeys::Source { .. } => (None, None, None, None),
        VisibleKeys::Past { bias, slopes, sparse, dual_chunk, .. } => {
            (bias, slopes, sparse, dual_chunk)
        }
    };
    let (query_host, bias_host) = (Host::new(query)?, bias.map(Host::new).transpose()?);
    let queries = query_host.elements::<T>()?;
    let bias = match (&bias_host, bias) {
        (Some(host), Some(bias)) => Some((host.elements::<T>()?, bias.dims3()?)),
        _ => None,
    };
    let slopes: Option<Vec<T>> =
        slopes.map(|slopes| slopes.iter().map(|&slope| T::cast(slope)).collect());
    let whole = whole.map(Host::new).transpose()?;
    let whole = whole.as_ref().map(Host::elements::<T>).transpose()?.unwrap_or_default();
    let hosts = blocks.iter().map(Host::new).collect::<Result<Vec<_>>>()?;
    let blocks = hosts.iter().map(Host::elements::<T>).collect::<Result<Vec<_>>>()?;
    let pair = 2 * shape.key_value_width();
    let mut out = vec![T::default(); rows * width];
    out.par_chunks_mut(QUERIES * width).enumerate().for_each_init(
        || (Vec::new(), Chosen { dual_chunk, ..Chosen::default() }, Vec::new()),
        |(pairs, chosen, weights), (chunk, out)| {
            for (i, out) in out.chunks_exact_mut(width).enumerate() {
                let query = chunk * QUERIES + i;
                chosen.choose(sparse, heads, visible.keys(query));
                pairs.clear();
                gather(pairs, visible, query, (whole, &blocks), pair, chosen);
                weights.clear();
                weights.resize(heads * pairs.len().next_multiple_of(LANES), T::NEGATIVE_INFINITY);
                attend(
                    &queries[query * columns..(query + 1) * columns],
                    shape,
                    pairs,
                    weights,
                    bias,
                    slopes.as_deref(),
                    chosen,
                    out,
                );
            }
        },
    );
    Tensor::from_vec(out, (rows, width), query.device())
}

/// The keys that a query sees among the keys of its past.
#[derive(Default)]
pub(super) struct Chosen {
    /// Number of keys in the past of the query; the last key is that of the query's own token.
    keys: usize,
    /// Ranges of the keys that at least one head sees, ascending. Their keys are gathered.
    ranges: Vec<Range<usize>>,
    /// Position in the past of each gathered key; empty if all keys are gathered.
    positions: Vec<usize>,
    /// For each head and each of `positions`, whether the key there is hidden from the head:
    /// `(H, positions)`. Empty if all heads see the same keys.
    hidden: Vec<bool>,
    /// Chunks that determine the rotation of the query for each key; `None` if the query has only
    /// one rotation.
    dual_chunk: Option<DualChunk>,
}

impl Chosen {
    fn choose(&mut self, sparse: Option<Sparse>, heads: usize, keys: usize) {
        self.keys = keys;
        self.ranges.clear();
        self.positions.clear();
        self.hidden.clear();
        let Some(rule) = sparse.filter(|_| keys > 0) else {
            self.ranges.push(0..keys);
            return;
        };
        // Heads see different keys only if there are random blocks.
        let heads = if rule.random > 0 { heads } else { 1 };
        let of_head = |head| {
            let mut ranges = Vec::new();
            Sight::for_few(rule, true, head, keys).keys_of(keys - 1..keys, 0..keys, &mut ranges);
            ranges
        };
        let of_heads: Vec<Vec<Range<usize>>> = (0..heads).map(of_head).collect();
        self.ranges.extend(of_heads.iter().flatten().cloned());
        merge(&mut self.ranges);
        self.positions.extend(self.ranges.iter().cloned().flatten());
        if heads > 1 {
            for ranges in &of_heads {
                let mut ranges = ranges.iter().peekable();
                self.hidden.extend(self.positions.iter().map(|&position| {
                    while ranges.next_if(|range| range.end <= position).is_some() {}
                    ranges.peek().is_none_or(|range| position < range.start)
                }));
            }
        }
    }

    /// Returns the position in the past of the gathered key `index`.
    #[inline(always)]
    fn position(&self, index: usize) -> usize {
        self.positions.get(index).copied().unwrap_or(index)
    }

    /// Returns the index of the query's rotation that applies to the gathered key `index`.
    #[inline(always)]
    fn rotation(&self, index: usize) -> usize {
        self.dual_chunk.map_or(0, |chunks| chunks.rotation(self.keys - 1, self.position(index)))
    }
}

/// Appends to `pairs` the key and value, side by side, of each chosen token: first of tokens in the
/// text that was read as a whole, then of later tokens. The rows of other tokens are not read.
fn gather<'a, T>(
    pairs: &mut Vec<&'a [T]>,
    visible: VisibleKeys<'_>,
    query: usize,
    (whole, blocks): (&'a [T], &[&'a [T]]),
    size: usize,
    chosen: &Chosen,
) {
    let (text, history) = match visible {
        VisibleKeys::Source { rows, .. } => (rows[query].clone(), [].as_slice()),
        VisibleKeys::Past { text, history, .. } => {
            (text.get(query).cloned().unwrap_or_default(), history)
        }
    };
    for range in &chosen.ranges {
        let (start, end) = (range.start.min(text.len()), range.end.min(text.len()));
        let rows = &whole[size * (text.start + start)..size * (text.start + end)];
        pairs.extend(rows.chunks_exact(size));
    }
    let row_of_query = |(block, rows): (&&'a [T], &Vec<u32>)| {
        let row = rows[query] as usize;
        (rows[query] != ABSENT).then(|| &block[size * row..size * (row + 1)])
    };
    let stepped = blocks.iter().zip(history).filter_map(row_of_query).zip(text.len()..);
    let mut ranges = chosen.ranges.iter().peekable();
    pairs.extend(stepped.filter_map(|(pair, position)| {
        while ranges.next_if(|range| range.end <= position).is_some() {}
        ranges.peek().is_some_and(|range| range.start <= position).then_some(pair)
    }));
}

/// Prefetches the cache lines of a row.
#[inline(always)]
fn fetch_all<T: Float>(row: &[T]) {
    for line in (0..row.len()).step_by(LINE / size_of::<T>()) {
        fetch(row[line..].as_ptr().cast());
    }
}

vectorised! {
    /// Attends from one query, which is given with all its rotations. `pairs` has the key and value
    /// of each gathered token. `weights` is scratch memory filled with −∞; for each head, it has a
    /// multiple of [`LANES`] values, because exponentials are computed in groups of [`LANES`].
    /// `out` must be zero.
    fn attend<T>(
        query: &[T],
        shape: AttentionShape,
        pairs: &[&[T]],
        weights: &mut [T],
        bias: Option<Bias<'_, T>>,
        slopes: Option<&[T]>,
        chosen: &Chosen,
        out: &mut [T],
    ) {
        let keys = pairs.len();
        if keys == 0 {
            return;
        }
        let row = keys.next_multiple_of(LANES);
        scores(query, shape, pairs, weights, chosen);
        for (head, weights) in weights.chunks_exact_mut(row).enumerate() {
            add_biases((weights, keys), head, bias, slopes, chosen);
            let largest = blocked_max(weights);
            for weight in weights.iter_mut() {
                *weight = (*weight - largest).exp();
            }
            let total = T::cast(1.0) / blocked_sum([&*weights], |[weight]| weight);
            for weight in weights.iter_mut() {
                *weight *= total;
            }
        }
        let of_heads = weights.chunks_exact(row).zip(out.chunks_exact_mut(shape.head_width));
        for (head, (weights, out)) in of_heads.enumerate() {
            let first = shape.key_value_width() + head / shape.group() * shape.head_width;
            sum_values(weights, pairs, first, out);
        }
    }
}

/// Computes the scores of all heads. The scores of each head are in a row of `weights`.
#[inline(always)]
fn scores<T: Float>(
    query: &[T],
    shape: AttentionShape,
    pairs: &[&[T]],
    weights: &mut [T],
    chosen: &Chosen,
) {
    let (head_width, group, width) = (shape.head_width, shape.group(), shape.query_width());
    let (row, scale) = (pairs.len().next_multiple_of(LANES), T::cast(shape.scale));
    pairs.iter().take(AHEAD).for_each(|pair| fetch_all(pair));
    for (j, pair) in pairs.iter().enumerate() {
        if let Some(next) = pairs.get(j + AHEAD) {
            fetch_all(next);
        }
        let keys = pair.chunks_exact(head_width);
        let query = &query[chosen.rotation(j) * width..][..width];
        let groups = query.chunks_exact(group * head_width).zip(keys).enumerate();
        for (number, (queries, key)) in groups {
            for (member, query) in queries.chunks_exact(head_width).enumerate() {
                weights[(number * group + member) * row + j] =
                    scale * blocked_sum([query, key], |[query, key]| query * key);
            }
        }
    }
}

/// Adds terms that depend on positions (ALiBi and relative bias) to the scores of a head, and sets
/// the scores of keys that the head does not see to −∞.
#[inline(always)]
fn add_biases<T: Float>(
    (weights, keys): (&mut [T], usize),
    head: usize,
    bias: Option<Bias<'_, T>>,
    slopes: Option<&[T]>,
    chosen: &Chosen,
) {
    if let Some(slopes) = slopes {
        for (j, weight) in weights[..keys].iter_mut().enumerate() {
            let distance = chosen.keys - 1 - chosen.position(j);
            *weight -= slopes[head] * T::cast(distance as f64);
        }
    }
    if let Some((bias, (_, queries, columns))) = bias {
        let first = head * queries * columns + columns - chosen.keys;
        if chosen.positions.is_empty() {
            for (weight, bias) in weights[..keys].iter_mut().zip(&bias[first..]) {
                *weight += *bias;
            }
        } else {
            for (weight, position) in weights.iter_mut().zip(&chosen.positions) {
                *weight += bias[first + position];
            }
        }
    }
    if let Some(hidden) = chosen.hidden.get(head * keys..(head + 1) * keys) {
        for (weight, is_hidden) in weights.iter_mut().zip(hidden) {
            if *is_hidden {
                *weight = T::NEGATIVE_INFINITY;
            }
        }
    }
}

/// Computes the weighted sum of the values of a head; `first` is the column of the head's first
/// value in `pairs`.
#[inline(always)]
fn sum_values<T: Float>(weights: &[T], pairs: &[&[T]], first: usize, out: &mut [T]) {
    let (blocks, rest) = out.as_chunks_mut::<LANES>();
    for (block, out) in blocks.iter_mut().enumerate() {
        let first = first + block * LANES;
        // The sums for these columns stay in registers.
        let mut sums = [T::default(); LANES];
        for (weight, pair) in weights.iter().zip(pairs) {
            for (sum, value) in sums.iter_mut().zip(&pair[first..first + LANES]) {
                *sum += *weight * *value;
            }
        }
        *out = sums;
    }
    let first = first + blocks.len() * LANES;
    for (weight, pair) in weights.iter().zip(pairs) {
        for (out, value) in rest.iter_mut().zip(&pair[first..]) {
            *out += *weight * *value;
        }
    }
}
