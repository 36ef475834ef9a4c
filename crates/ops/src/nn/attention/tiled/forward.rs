//! Forward pass of attention in tiles (small blocks of scores).

use super::super::layout::{KEY, Layout, QUERY, Span, VALUE};
use super::super::operands::Operands;
use super::passes::{Online, Region, rescale, weigh};
use super::pieces::{keys_of, pieces};
use super::products::{Tile, TileProducts, stride};
use super::{BLOCK, STEP, rows, terms};
use crate::float::Float;
use crate::products::{Matrix, PANEL};
use crate::profile::{even, longest_of, region};
use crate::shared::{Shared, Write};
use crate::spec::Sight;
use rayon::prelude::*;
use std::ops::Range;

/// A task: a block of queries, of one head in one sequence.
struct Task<'a> {
    span: &'a Span,
    head: usize,
    queries: Range<usize>,
    /// Index of the task's sequence and head among all pairs of a long sequence and a head.
    number: usize,
}

/// Keys and values of one key head in one sequence, prepared for products.
struct Ready<'a, P: TileProducts> {
    key: P::Operand<'a>,
    value: P::Operand<'a>,
}

/// Working memory of a thread.
struct Worker<P: TileProducts> {
    products: P::Worker,
    tile: Tile<P::Value>,
    /// Scores of the queries in another rotation (dual chunk attention).
    rotated: Tile<P::Value>,
    /// Sums of weighted values for each query, before division by the softmax denominator.
    sums: Vec<P::Value>,
}

/// Runs the forward pass, with the products `products`; see [`super::forward`].
///
/// # Safety
/// As for [`super::forward`]; `log_sums` is initialised.
pub(super) unsafe fn run<P: TileProducts>(
    products: &P,
    layout: &Layout,
    operands: &Operands<'_, P::Value>,
    out: Shared<P::Value>,
    log_sums: Shared<P::Value>,
) {
    let (heads, group) = (layout.shape().heads, layout.shape().group());
    let long: Vec<(&Span, usize)> =
        layout.long_spans().flat_map(|span| (0..heads).map(move |head| (span, head))).collect();
    let prepare = |(span, head): &(&Span, usize)| {
        let keys = |part| rows(operands, part, layout, (span, *head), 0..span.keys);
        Ready { key: products.left(keys(KEY)), value: products.summed(keys(VALUE)) }
    };
    // Heads of a group share keys and values, so these are prepared only once for each group.
    let groups: Vec<&(&Span, usize)> = long.iter().step_by(group).collect();
    let sight = |(span, head): &(&Span, usize)| Sight::new(&layout.spec, *head, span.keys);
    let (ready, sights): (Vec<Ready<'_, P>>, Vec<Option<Sight>>) =
        region(longest_of(|| groups.iter().map(|(span, _)| span.keys)), || {
            let ready = groups.par_iter().with_max_len(1).map(|head| prepare(head)).collect();
            (ready, long.par_iter().map(sight).collect())
        });
    let tasks: Vec<Task<'_>> = long
        .iter()
        .enumerate()
        .flat_map(|(number, &(span, head))| {
            (0..span.queries).step_by(BLOCK).map(move |first| {
                let queries = first..(first + BLOCK).min(span.queries);
                Task { span, head, queries, number }
            })
        })
        .collect();
    let worker = || Worker::<P> {
        products: products.worker(),
        tile: Tile::new(STEP),
        rotated: Tile::new(layout.spec.dual_chunk.map_or(0, |_| STEP)),
        sums: vec![P::Value::default(); BLOCK * stride(layout.shape().head_width)],
    };
    let one_task = |worker: &mut Worker<P>, task: &Task<'_>| {
        let (ready, sight) = (&ready[task.number / group], sights[task.number].as_ref());
        let statistics = attend(products, layout, operands, worker, task, (ready, sight));
        // SAFETY: each task has its own rows in the columns of its head, as the caller promises.
        unsafe { finish(layout, worker, task, &statistics, out, log_sums) };
    };
    region(even(tasks.len()), || {
        tasks.par_iter().with_max_len(1).for_each_init(worker, one_task);
    });
}

/// Computes the weighted sums of values for a block of queries, in `worker.sums`. Returns the
/// softmax statistics of each panel of queries (the rows that a kernel processes together).
fn attend<P: TileProducts>(
    products: &P,
    layout: &Layout,
    operands: &Operands<'_, P::Value>,
    worker: &mut Worker<P>,
    task: &Task<'_>,
    (Ready { key, value }, sight): (&Ready<'_, P>, Option<&Sight>),
) -> Vec<Online<P::Value>> {
    let Task { span, head, .. } = *task;
    let terms = terms(operands, layout, (span, head));
    // In the input, all heads in the first rotation are followed by all heads in the next rotation.
    let rotated = |rotation: usize| {
        let head = rotation * layout.shape().heads + head;
        products.right(rows(operands, QUERY, layout, (span, head), task.queries.clone()))
    };
    let query: Vec<P::Operand<'_>> = (0..layout.spec.rotations()).map(rotated).collect();
    let count = task.queries.len();
    let stride = stride(layout.shape().head_width);
    let panels = count.div_ceil(PANEL);
    let mut online = vec![Online::new(); panels];
    let (tile, other) = (worker.tile.rows(), worker.rotated.rows());
    let of_panel = |panel: usize| panel * PANEL..((panel + 1) * PANEL).min(count);
    let pieces = pieces(panels, |panel, seen| {
        let (queries, first) = (of_panel(panel), terms.start + task.queries.start);
        let positions = first + queries.start..first + queries.end;
        keys_of(sight, terms.causal, positions, span.keys, seen);
    });
    let mut is_begun = vec![false; panels];
    for piece in pieces {
        let (panel, first_key) = (piece.panel, piece.passing.start);
        let (queries, online) = (of_panel(panel), &mut online[panel]);
        let keys = piece.passing.len();
        let at = Region {
            query: task.queries.start + queries.start,
            queries: queries.len(),
            key: first_key,
            keys,
        };
        let mut multiply = |rotation: usize, tile: &mut [[P::Value; PANEL]]| {
            let sides = ((key, piece.passing.clone()), (&query[rotation], queries.clone()));
            products.multiply(&mut worker.products, sides.0, sides.1, tile);
        };
        match layout.spec.dual_chunk {
            None => multiply(0, tile),
            Some(chunks) => {
                let rotations = at.rotations(chunks, terms.start);
                multiply(rotations.start, tile);
                for rotation in rotations.start + 1..rotations.end {
                    multiply(rotation, other);
                    at.take_rotation((chunks, rotation), terms.start, other, tile);
                }
            }
        }
        if let Some(sight) = sight {
            at.hide(sight, terms.start, &mut tile[..keys]);
        }
        let factors = weigh(&mut tile[..keys], at, &terms, online);
        let sums = &mut worker.sums[panel * PANEL * stride..(panel + 1) * PANEL * stride];
        let write = if is_begun[panel] { Write::Add } else { Write::Replace };
        is_begun[panel] = true;
        if let Some(factors) = factors.filter(|_| write == Write::Add) {
            rescale(sums, stride, &factors);
        }
        let weights = (tile.as_flattened(), Matrix::rows(PANEL).transposed());
        let shape = (queries.len(), keys);
        products.add_weighted(
            &mut worker.products,
            weights,
            shape,
            (value, first_key),
            sums,
            write,
        );
    }
    online
}

/// Divides the sums by the softmax denominators, and writes the results to `out` and `log_sums`.
///
/// # Safety
/// No other thread reads or writes the task's rows in the columns of its head at the same time.
unsafe fn finish<P: TileProducts>(
    layout: &Layout,
    worker: &mut Worker<P>,
    task: &Task<'_>,
    statistics: &[Online<P::Value>],
    out: Shared<P::Value>,
    log_sums: Shared<P::Value>,
) {
    let (heads, dh, one) = (layout.shape().heads, layout.shape().head_width, P::Value::cast(1.0));
    let rows = worker.sums.chunks_exact_mut(stride(dh)).zip(task.queries.clone());
    for (i, (sums, query)) in rows.enumerate() {
        let online = &statistics[i / PANEL];
        let (largest, total) = (online.largest[i % PANEL], online.total[i % PANEL]);
        let factor = one / total;
        for sum in &mut sums[..dh] {
            *sum *= factor;
        }
        let row = task.span.query + query;
        // SAFETY: as the caller promises.
        unsafe {
            out.write(row * layout.width() + task.head * dh, &sums[..dh]);
            log_sums.write(row * heads + task.head, &[largest + total.ln()]);
        }
    }
}
