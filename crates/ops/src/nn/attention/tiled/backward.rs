//! Backward pass of attention in tiles (small blocks of scores).

use super::super::layout::{Columns, KEY, Layout, QUERY, Span, VALUE};
use super::super::operands::{Gradients, Operands};
use super::passes::{Known, Region, Terms, go_back, scale_tile};
use super::pieces::pieces;
use super::products::{Rows, Tile, TileProducts, stride};
use super::{BLOCK, STEP, chunks, rows, terms};
use crate::float::Float;
use crate::parallel::add;
use crate::products::{Matrix, PANEL};
use crate::profile::{even, region};
use crate::shared::{Shared, Write};
use crate::spec::{AttentionShape, Sight};
use crate::sums::blocked_sum;
use rayon::prelude::*;
use std::ops::Range;

/// Adjoint of the result (gradient of the loss with respect to it), with what the forward pass
/// computed.
#[derive(Clone, Copy)]
pub(in super::super) struct Adjoint<'a, T> {
    pub(in super::super) values: &'a [T],
    /// The result that the forward pass computed.
    pub(in super::super) out: &'a [T],
    pub(in super::super) log_sums: &'a [T],
}

impl<'a, T: Float> Adjoint<'a, T> {
    pub(super) fn as_f32(&self) -> Option<Adjoint<'a, f32>> {
        Some(Adjoint {
            values: T::as_f32(self.values)?,
            out: T::as_f32(self.out)?,
            log_sums: T::as_f32(self.log_sums)?,
        })
    }
}

/// Operands and numbers that all blocks of keys share, for one query head in one sequence.
struct Ready<'a, P: TileProducts> {
    query: P::Operand<'a>,
    query_rows: P::Operand<'a>,
    adjoint: P::Operand<'a>,
    adjoint_rows: P::Operand<'a>,
    /// Inner product of the result and its adjoint, `Σ dO ⊙ O`, for each query.
    products: Vec<P::Value>,
    log_sums: Vec<P::Value>,
    sight: Option<Sight>,
}

/// A block of keys and values, prepared for all query heads that share them.
struct Block<'a, P: TileProducts> {
    keys: Range<usize>,
    key: P::Operand<'a>,
    key_rows: P::Operand<'a>,
    value: P::Operand<'a>,
}

/// A task: some of the blocks of keys of one key head. The blocks of a head are divided among
/// `chunks` tasks; `chunk` is the index of this task among them. The blocks belong to one sequence,
/// or to all sequences if these add to the gradient with respect to the same bias.
struct Task {
    sequences: Range<usize>,
    /// Query heads that share these keys.
    heads: Range<usize>,
    chunk: usize,
}

/// Working memory of a thread.
struct Worker<P: TileProducts> {
    products: P::Worker,
    weights: Tile<P::Value>,
    scores: Tile<P::Value>,
    key: Vec<P::Value>,
    value: Vec<P::Value>,
}

/// Runs the backward pass, with the products `products`; see [`super::backward`].
///
/// # Safety
/// As for [`super::backward`].
pub(super) unsafe fn run<P: TileProducts>(
    products: &P,
    layout: &Layout,
    operands: &Operands<'_, P::Value>,
    adjoint: &Adjoint<'_, P::Value>,
    to: &Gradients<P::Value>,
) {
    let AttentionShape { heads, key_value_heads, head_width, .. } = layout.shape();
    let group_size = layout.shape().group();
    let spans: Vec<&Span> = layout.long_spans().collect();
    let pairs = spans.len() * heads;
    let ready: Vec<Ready<'_, P>> = region(even(pairs), || {
        (0..pairs)
            .into_par_iter()
            .with_max_len(1)
            .map(|i| prepare(products, layout, operands, adjoint, spans[i / heads], i % heads))
            .collect()
    });
    let most = spans.iter().map(|span| chunks(span.keys)).max().unwrap_or(0);
    let groups = if to.bias.is_some() { 1 } else { spans.len() };
    // If sequences add to the gradient with respect to the same bias, all of them are divided in
    // the same way. If they were divided differently, the same elements of this gradient could
    // belong to several tasks, which would add to them at the same time.
    let chunks_of = |span: &Span| if to.bias.is_some() { most } else { chunks(span.keys) };
    let tasks: Vec<Task> = (0..groups * key_value_heads * most)
        .map(|i| {
            let (head, chunk) = (i / most % key_value_heads, i % most);
            let group = i / most / key_value_heads;
            let sequences = if groups == 1 { 0..spans.len() } else { group..group + 1 };
            let heads = head * group_size..(head + 1) * group_size;
            Task { sequences, heads, chunk }
        })
        .collect();
    let worker = || {
        let sums = || vec![P::Value::default(); BLOCK * stride(head_width)];
        Worker::<P> {
            products: products.worker(),
            weights: Tile::new(STEP),
            scores: Tile::new(STEP),
            key: sums(),
            value: sums(),
        }
    };
    // Contributions to the gradients with respect to the queries, by task, sequence and head.
    let mut parts: Vec<Vec<Vec<Vec<P::Value>>>> = Vec::new();
    let one_task = |worker: &mut Worker<P>, task: &Task| {
        let of_sequence = |sequence: usize| {
            let (span, first) = (spans[sequence], sequence * heads);
            let ready = &ready[first + task.heads.start..first + task.heads.end];
            let first_head = task.heads.start;
            let pass = Pass { products, layout, operands, to, span, first_head, ready };
            // SAFETY: each task has its own keys in the columns of their head; they are the same
            // positions in all sequences that share a bias.
            unsafe { pass.keys_of_chunk(worker, task.chunk, chunks_of(span)) }
        };
        task.sequences.clone().map(of_sequence).collect()
    };
    region(even(tasks.len()), || {
        tasks.par_iter().with_max_len(1).map_init(worker, one_task).collect_into_vec(&mut parts);
    });
    let part = |sequence: usize, head: usize, chunk: usize| {
        let (group, within) = if groups == 1 { (0, sequence) } else { (sequence, 0) };
        let task = (group * key_value_heads + head / group_size) * most + chunk;
        parts[task][within].get(head % group_size).map_or(&[][..], Vec::as_slice)
    };
    let combine = |i: usize| {
        let (sequence, head) = (i / heads, i % heads);
        let (span, dh) = (spans[sequence], head_width);
        for query in 0..span.queries {
            let row = query * stride(dh)..query * stride(dh) + dh;
            let mut sum = part(sequence, head, 0)[row.clone()].to_vec();
            let others = (1..most).map(|chunk| part(sequence, head, chunk));
            for part in others.filter(|part| !part.is_empty()) {
                add(&mut sum, &part[row.clone()]);
            }
            let at = operands.at[QUERY];
            // SAFETY: each head of each sequence has its own elements in the gradient.
            unsafe { to.put(QUERY, at, span.query + query, head, &sum) };
        }
    };
    region(even(pairs), || (0..pairs).into_par_iter().with_max_len(1).for_each(combine));
}

fn prepare<'a, P: TileProducts>(
    products: &P,
    layout: &Layout,
    operands: &Operands<'a, P::Value>,
    adjoint: &Adjoint<'a, P::Value>,
    span: &Span,
    head: usize,
) -> Ready<'a, P> {
    let query = rows(operands, QUERY, layout, (span, head), 0..span.queries);
    let (width, dh) = (layout.width(), layout.shape().head_width);
    let columns = Columns { stride: width, column: 0 };
    let of_out = Rows { values: adjoint.values, at: columns.head(span.query, head, dh), ..query };
    let of_query = |query: usize| {
        let first = (span.query + query) * width + head * dh;
        let slices = [&adjoint.values[first..first + dh], &adjoint.out[first..first + dh]];
        blocked_sum(slices, |[adjoint, out]| adjoint * out)
    };
    let log_sum =
        |query: usize| adjoint.log_sums[(span.query + query) * layout.shape().heads + head];
    Ready {
        query: products.left(query),
        query_rows: products.summed(query),
        adjoint: products.left(of_out),
        adjoint_rows: products.summed(of_out),
        products: (0..span.queries).map(of_query).collect(),
        log_sums: (0..span.queries).map(log_sum).collect(),
        sight: Sight::new(&layout.spec, head, span.keys),
    }
}

/// Backward pass of one key head in one sequence, and of the query heads that share it.
struct Pass<'a, 'b, P: TileProducts> {
    products: &'a P,
    layout: &'a Layout,
    operands: &'a Operands<'b, P::Value>,
    to: &'a Gradients<P::Value>,
    span: &'a Span,
    first_head: usize,
    /// Prepared operands of each of these query heads.
    ready: &'a [Ready<'b, P>],
}

impl<P: TileProducts> Pass<'_, '_, P> {
    /// Writes the gradients with respect to the keys and values in one task's share of the blocks:
    /// task number `chunk` of `chunks`. Returns, for each query head, what these blocks add to the
    /// gradients with respect to the queries. Returns an empty list if the task has no block.
    ///
    /// # Safety
    /// No other thread reads or writes these gradients at the same time. The same holds for the
    /// part of the bias's gradient that belongs to these keys.
    unsafe fn keys_of_chunk(
        &self,
        worker: &mut Worker<P>,
        chunk: usize,
        chunks: usize,
    ) -> Vec<Vec<P::Value>> {
        if chunk >= chunks || chunk * BLOCK >= self.span.keys {
            return Vec::new();
        }
        let rows = self.span.queries.next_multiple_of(PANEL);
        let size = rows * stride(self.layout.shape().head_width);
        let mut queries = vec![vec![P::Value::default(); size]; self.ready.len()];
        for first in (chunk * BLOCK..self.span.keys).step_by(chunks * BLOCK) {
            let keys = first..(first + BLOCK).min(self.span.keys);
            // SAFETY: as the caller promises.
            unsafe { self.block_of_keys(worker, keys, &mut queries) };
        }
        queries
    }

    /// Writes the gradients with respect to the keys and values of one block. Adds what the block
    /// contributes to the gradients of queries to `to_queries`.
    ///
    /// # Safety
    /// As for [`Self::keys_of_chunk`].
    unsafe fn block_of_keys(
        &self,
        worker: &mut Worker<P>,
        keys: Range<usize>,
        to_queries: &mut [Vec<P::Value>],
    ) {
        let Self { layout, operands, span, first_head, .. } = *self;
        let dh = layout.shape().head_width;
        let of_part = |part| rows(operands, part, layout, (span, first_head), keys.clone());
        let block = Block {
            keys: keys.clone(),
            key: self.products.right(of_part(KEY)),
            key_rows: self.products.summed(of_part(KEY)),
            value: self.products.right(of_part(VALUE)),
        };
        worker.key.fill(P::Value::default());
        worker.value.fill(P::Value::default());
        for (head, to_query) in to_queries.iter_mut().enumerate() {
            // SAFETY: as the caller promises.
            unsafe { self.head(worker, &block, head, to_query) };
        }
        let head = layout.shape().key_value_head(first_head);
        for (i, key) in keys.enumerate() {
            let row = i * stride(dh)..i * stride(dh) + dh;
            let place = span.key + key;
            // SAFETY: as the caller promises.
            unsafe {
                self.to.put(KEY, operands.at[KEY], place, head, &worker.key[row.clone()]);
                self.to.put(VALUE, operands.at[VALUE], place, head, &worker.value[row]);
            }
        }
    }

    /// Adds the contributions of one query head to the gradients with respect to the queries and a
    /// block of keys and values. `number`: index of the query head among those that share the keys.
    ///
    /// # Safety
    /// As for [`Self::keys_of_chunk`].
    unsafe fn head(
        &self,
        worker: &mut Worker<P>,
        Block { keys, key, key_rows, value }: &Block<'_, P>,
        number: usize,
        to_query: &mut [P::Value],
    ) {
        let Self { layout, operands, span, .. } = *self;
        let (head, ready) = (self.first_head + number, &self.ready[number]);
        let stride = stride(layout.shape().head_width);
        let terms = terms(operands, layout, (span, head));
        let of_panel = |panel: usize| panel * PANEL..((panel + 1) * PANEL).min(keys.len());
        let pieces = pieces(keys.len().div_ceil(PANEL), |panel, seen| {
            let within = of_panel(panel);
            let keys = keys.start + within.start..keys.start + within.end;
            self.seen(&terms, ready.sight.as_ref(), keys, seen);
        });
        for piece in pieces {
            let (panel, within) = (piece.panel * PANEL, of_panel(piece.panel));
            let queries = piece.passing;
            let at = Region {
                query: queries.start,
                queries: queries.len(),
                key: keys.start + panel,
                keys: within.len(),
            };
            let (weights, scores) = (worker.weights.rows(), worker.scores.rows());
            let left = (&ready.query, queries.clone());
            self.products.multiply(&mut worker.products, left, (key, within.clone()), weights);
            let left = (&ready.adjoint, queries.clone());
            let right = (value, within.clone());
            self.products.multiply(&mut worker.products, left, right, scores);
            let known = Known {
                log_sums: &ready.log_sums[queries.clone()],
                products: &ready.products[queries.clone()],
            };
            let used = at.queries.next_multiple_of(PANEL);
            go_back(&mut weights[..used], &mut scores[..used], at, &terms, known);
            if let Some(sight) = &ready.sight {
                at.clear(sight, terms.start, [&mut *weights, &mut *scores]);
            }
            if let Some(bias) = self.to.bias {
                // SAFETY: as the caller promises.
                unsafe { self.add_to_bias(bias, head, at, scores) };
            }
            scale_tile(&mut scores[..used], terms.scale);
            let across = Matrix::rows(PANEL).transposed();
            let sums = panel * stride..(panel + PANEL) * stride;
            let shape = (within.len(), at.queries);
            self.products.add_weighted(
                &mut worker.products,
                (weights.as_flattened(), across),
                shape,
                (&ready.adjoint_rows, at.query),
                &mut worker.value[sums.clone()],
                Write::Add,
            );
            self.products.add_weighted(
                &mut worker.products,
                (scores.as_flattened(), across),
                shape,
                (&ready.query_rows, at.query),
                &mut worker.key[sums],
                Write::Add,
            );
            self.products.add_weighted(
                &mut worker.products,
                (scores.as_flattened(), Matrix::rows(PANEL)),
                (at.queries, within.len()),
                (key_rows, panel),
                &mut to_query[at.query * stride..],
                Write::Add,
            );
        }
    }

    /// Writes to `ranges` the ranges of queries that see at least one of `keys`.
    fn seen(
        &self,
        terms: &Terms<'_, P::Value>,
        sight: Option<&Sight>,
        keys: Range<usize>,
        ranges: &mut Vec<Range<usize>>,
    ) {
        let (count, start) = (self.span.queries, terms.start);
        let Some(sight) = sight else {
            let first = if terms.causal { keys.start.saturating_sub(start) } else { 0 };
            ranges.clear();
            if first < count {
                ranges.push(first..count);
            }
            return;
        };
        sight.queries_of(keys, start..start + count, ranges);
        for queries in ranges {
            *queries = queries.start - start..queries.end - start;
        }
    }

    /// Adds the adjoints of the scores in a tile to the gradient with respect to the bias.
    ///
    /// # Safety
    /// No other thread reads or writes the gradient with respect to the bias of these keys at the
    /// same time.
    unsafe fn add_to_bias(
        &self,
        bias: Shared<P::Value>,
        head: usize,
        at: Region,
        scores: &[[P::Value; PANEL]],
    ) {
        let Some((_, size, row)) = self.operands.bias else { return };
        for (scores, query) in scores.iter().take(at.queries).zip(at.query..) {
            let first = head * size + query * row + at.key;
            // SAFETY: as the caller promises.
            add(unsafe { bias.range(first..first + at.keys) }, &scores[..at.keys]);
        }
    }
}
