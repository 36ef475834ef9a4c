//! Attention of single queries, for decoding token by token (Vaswani et al. 2017, section 3.2).
//!
//! **Decision.** The keys and values of a token are written once and never move. For each
//! hypothesis of a beam search, a table says which rows of keys and values are its past. So if
//! hypotheses are reordered, only small integers are moved. The alternative is a cache that is
//! copied whenever hypotheses branch and whenever it grows. It took a third of the time of a beam
//! search.
//!
//! If a sparse pattern lets a query see only some of its past tokens, the hidden tokens stay in the
//! cache, but are not read.
//!
//! The result of a query depends only on the query, and on the keys and values that it sees. Other
//! queries do not change it.

mod attend;
mod chosen;
mod rows;

use self::attend::attend;
use self::chosen::Chosen;
use self::rows::{Bf16Rows, Int8Rows, Rows};
use crate::float::Float;
use crate::host::{Host, for_float};
use crate::spec::{
    ABSENT, AttentionShape, CachedRows, CompactElements, CompactRows, DualChunk, VisibleKeys,
};
use crate::tape::is_fused;
use candle_core::{Error, Result, Tensor};
use rayon::prelude::*;
use std::ops::Range;
use std::sync::Arc;

/// Computes `softmax(scale · q Kᵀ + biases) V` for each query and head, without gradients.
///
/// # Shapes
/// `query (R, r·Q)`: each row is one query. With dual chunk attention, the row has r copies of the
/// query side by side, each rotated by another position; otherwise r is 1. Q is the width of
/// queries in `shape` → `(R, Q)`.
///
/// # Errors
/// If the shapes disagree, `shape` is impossible, or there is no row for a key that a query sees.
pub fn decoding_attention(
    query: &Tensor,
    visible: VisibleKeys<'_>,
    shape: AttentionShape,
) -> Result<Tensor> {
    check(visible, query.dims2()?, shape)?;
    let (tensors, bias): (Vec<&Tensor>, _) = match visible {
        VisibleKeys::Source { key_value, .. } => (vec![key_value], None),
        VisibleKeys::Past { kept: CachedRows::Apart { text, steps }, bias, .. } => {
            (text.into_iter().chain(steps).collect(), bias)
        }
        VisibleKeys::Past { kept: CachedRows::Compact { .. }, bias, .. } => (Vec::new(), bias),
        VisibleKeys::Past { kept: CachedRows::Joined { .. }, .. } => {
            crate::device::check(query.device())?;
            return crate::composed::decoding_attention(query, visible, shape);
        }
    };
    let inputs: Vec<&Tensor> = [query].into_iter().chain(bias).chain(tensors).collect();
    if !is_fused(None, &inputs)? {
        return crate::composed::decoding_attention(query, visible, shape);
    }
    crate::profile::time(
        "attention",
        || for_float!(query, T => attend_to_rows::<T>(query, visible, shape)),
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

/// Whether the cached tokens fit `queries` queries of this shape. Returns an error if a setting is
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
    let read = kept.texts()?;
    fits &= (text.is_empty() || text.len() == queries)
        && text.iter().all(|range| range.start <= range.end && range.end <= read);
    let of_step = |step: usize| match kept {
        CachedRows::Apart { steps, .. } => steps[step].dim(0),
        CachedRows::Joined { steps, .. } => Ok(steps[step].1 as usize),
        CachedRows::Compact { steps, .. } => Ok(steps[step].count()),
    };
    match kept {
        CachedRows::Apart { text, steps } => {
            for rows in text.into_iter().chain(steps) {
                fits &= is_wide(rows)?;
            }
        }
        CachedRows::Joined { rows, .. } => fits &= is_wide(rows)?,
        CachedRows::Compact { text, steps } => {
            let mut all = text.into_iter().chain(steps.iter().map(|step| &**step));
            fits &= all.all(|rows| (rows.width(), rows.block()) == (columns, shape.head_width));
        }
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

/// Number of queries per task.
const QUERIES: usize = 8;

/// Number of values that are processed together, for vector instructions.
const LANES: usize = 16;

/// Number of bytes in a cache line.
const LINE: usize = 64;

/// Attends to the rows of `visible`, which are tensors or are cached in a compact type.
fn attend_to_rows<T: Float>(
    query: &Tensor,
    visible: VisibleKeys<'_>,
    shape: AttentionShape,
) -> Result<Tensor> {
    let (text, steps) = match visible {
        VisibleKeys::Source { key_value, .. } => (Some(key_value), [].as_slice()),
        VisibleKeys::Past { kept: CachedRows::Apart { text, steps }, .. } => (text, steps),
        VisibleKeys::Past { kept: CachedRows::Compact { text, steps }, .. } => {
            return attend_to_compact::<T>(query, (text, steps), visible, shape);
        }
        VisibleKeys::Past { kept: CachedRows::Joined { .. }, .. } => {
            candle_core::bail!("rows in one tensor have no kernel")
        }
    };
    let text = text.map(Host::new).transpose()?;
    let text = text.as_ref().map(Host::elements::<T>).transpose()?;
    let steps = steps.iter().map(Host::new).collect::<Result<Vec<_>>>()?;
    let steps = steps.iter().map(Host::elements::<T>).collect::<Result<Vec<_>>>()?;
    fused::<T, &[T]>(query, (text, &steps), visible, shape)
}

/// Attends to rows of a compact cache, which must all be in bf16 or all in int8.
fn attend_to_compact<T: Float>(
    query: &Tensor,
    (text, steps): (Option<&CompactRows>, &[Arc<CompactRows>]),
    visible: VisibleKeys<'_>,
    shape: AttentionShape,
) -> Result<Tensor> {
    let all = text.into_iter().chain(steps.iter().map(|step| &**step));
    let (mut in_bf16, mut in_int8) = (Vec::new(), Vec::new());
    for rows in all {
        match rows.elements() {
            CompactElements::Bf16(codes) => in_bf16.push(Bf16Rows(codes)),
            CompactElements::Int8(codes, scales) => {
                in_int8.push(Int8Rows { codes, scales, block: rows.block() });
            }
        }
    }
    let texts = usize::from(text.is_some());
    match (in_bf16.is_empty(), in_int8.is_empty()) {
        (true, _) => {
            let (text, steps) = in_int8.split_at(texts);
            fused::<T, _>(query, (text.first().copied(), steps), visible, shape)
        }
        (false, true) => {
            let (text, steps) = in_bf16.split_at(texts);
            fused::<T, _>(query, (text.first().copied(), steps), visible, shape)
        }
        (false, false) => candle_core::bail!("a cache has rows in bf16 and in int8"),
    }
}

/// Attends from each query to the rows that it sees: `text` has the rows of texts that were read in
/// a single pass (prompts or a source), and `steps` has the rows of each decoding step.
fn fused<T: Float, R: Rows<T>>(
    query: &Tensor,
    (text, steps): (Option<R>, &[R]),
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
    let pair = 2 * shape.key_value_width();
    let mut out = vec![T::default(); rows * width];
    out.par_chunks_mut(QUERIES * width).enumerate().for_each_init(
        || (Vec::new(), Chosen { dual_chunk, ..Chosen::default() }, Vec::new()),
        |(pairs, chosen, weights), (chunk, out)| {
            for (i, out) in out.chunks_exact_mut(width).enumerate() {
                let query = chunk * QUERIES + i;
                chosen.choose(sparse, heads, visible.keys(query));
                pairs.clear();
                gather::<T, R>(pairs, visible, query, (text, steps), pair, chosen);
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

/// Appends to `pairs` the key and value, side by side, of each chosen token. Tokens of the text
/// that was read in a single pass come first, then later tokens. The rows of other tokens are not
/// read.
fn gather<T: Float, R: Rows<T>>(
    pairs: &mut Vec<R::Row>,
    visible: VisibleKeys<'_>,
    query: usize,
    (text_rows, steps): (Option<R>, &[R]),
    size: usize,
    chosen: &Chosen,
) {
    let (text, history) = match visible {
        VisibleKeys::Source { rows, .. } => (rows[query].clone(), [].as_slice()),
        VisibleKeys::Past { text, history, .. } => {
            (text.get(query).cloned().unwrap_or_default(), history)
        }
    };
    if let Some(rows) = text_rows {
        for range in &chosen.ranges {
            let (start, end) = (range.start.min(text.len()), range.end.min(text.len()));
            let seen = text.start + start..text.start + end;
            pairs.extend(seen.map(|index| rows.row(index, size)));
        }
    }
    let row_of_query = |(block, rows): (&R, &Vec<u32>)| {
        let row = rows[query] as usize;
        (rows[query] != ABSENT).then(|| block.row(row, size))
    };
    let stepped = steps.iter().zip(history).filter_map(row_of_query).zip(text.len()..);
    let mut ranges = chosen.ranges.iter().peekable();
    pairs.extend(stepped.filter_map(|(pair, position)| {
        while ranges.next_if(|range| range.end <= position).is_some() {}
        ranges.peek().is_some_and(|range| range.start <= position).then_some(pair)
    }));
}
