//! Gradients of linear attention under a causal mask. Chunks are processed from the last to the
//! first.

use super::super::layout::{CHUNK, Sequence};
use super::super::state::{State, add_to_past, clear_future};
use super::super::{KEY, QUERY, VALUE};
use super::{Pass, Side, Worker};
use crate::float::Float;
use crate::nn::attention::kinds::heads::WeighedRows;
use crate::nn::attention::tiled::products::{Rows, TileProducts, stride};
use crate::products::Matrix;
use crate::shared::Write;
use std::ops::Range;

impl<P: TileProducts> Pass<'_, '_, P> {
    /// Computes the gradients with respect to the queries, keys and values of some heads of a
    /// sequence.
    ///
    /// # Safety
    /// No other thread reads or writes these gradients at the same time.
    pub(super) unsafe fn causal(
        &self,
        worker: &mut Worker<P>,
        sequence: &Sequence,
        heads: &Range<usize>,
    ) {
        let mut behind = vec![self.empty(); heads.len()];
        for (group, chunks) in sequence.groups().rev() {
            for (behind, head) in behind.iter_mut().zip(heads.clone()) {
                self.states_of_group(worker, (sequence, head), (group, &chunks));
                for chunk in chunks.clone().rev() {
                    // SAFETY: as the caller promises.
                    unsafe {
                        self.causal_chunk(worker, behind, (sequence, head), (chunks.start, chunk));
                    }
                }
            }
        }
    }

    /// Computes the features of the tokens in a group of consecutive chunks. Also computes the
    /// state (sums over earlier tokens) before each chunk of the group. With random features, this
    /// state has been divided by the same factor `exp(c)` as the features of the chunk's keys.
    fn states_of_group(
        &self,
        worker: &mut Worker<P>,
        (sequence, head): (&Sequence, usize),
        (group, chunks): (usize, &Range<usize>),
    ) {
        let (layout, products, features) = (self.layout, self.products, self.features);
        let Worker { products: own, query, key, states, .. } = worker;
        let panel = CHUNK * stride(features.count);
        let first = &mut states[0];
        first.clear();
        first.left_out = self.exponent(sequence, chunks.start, head);
        if group > 0 {
            first.read(&self.known.states[layout.state_at(sequence, group, head)..]);
            first.left_out = self.exponent(sequence, chunks.start - 1, head);
        }
        for (i, chunk) in chunks.clone().enumerate() {
            let rows = sequence.rows_of(chunk);
            let part = i * panel..;
            let exponent = self.exponent(sequence, chunk, head);
            features.queries(
                products,
                own,
                self.rows(QUERY, head, &rows),
                &mut query[part.clone()],
            );
            let (key, of_keys) = (&mut key[part], self.rows(KEY, head, &rows));
            features.keys(products, own, of_keys, exponent, key);
            states[i].leave_out(exponent);
            if chunk + 1 < chunks.end {
                let (before, after) = states.split_at_mut(i + 1);
                after[0].clone_from(&before[i]);
                let value = products.summed(self.rows(VALUE, head, &rows));
                after[0].add(products, own, (key, rows.len()), &value, None);
            }
        }
    }

    /// Processes one chunk of a head.
    ///
    /// # Safety
    /// As for [`Self::causal`].
    unsafe fn causal_chunk(
        &self,
        worker: &mut Worker<P>,
        behind: &mut State<P::Value>,
        (sequence, head): (&Sequence, usize),
        (first, chunk): (usize, usize),
    ) {
        let (products, features) = (self.products, self.features.count);
        let (rows, index) = (sequence.rows_of(chunk), chunk - first);
        let (count, panel) = (rows.len(), CHUNK * stride(features));
        let is_last = rows.end == sequence.first + sequence.length;
        // The forward pass divided the features of this chunk's keys by `exp(c)`, where c never
        // decreases from one chunk to the next. The sums over later tokens, in `behind`, are scaled
        // for the c of the next chunk. Here they are rescaled for the c of this chunk. This c is
        // not larger, so the factor is at most 1.
        let exponent = self.exponent(sequence, chunk, head);
        if !is_last {
            behind.scale((exponent - behind.left_out).exp());
        }
        behind.left_out = exponent;
        self.adjoints(worker, head, &rows);
        self.scores(worker, head, &rows, index * panel);
        let (at, past) = (Matrix::rows(stride(features)), Matrix::rows(stride(count)));
        let shape = (count, count);

        let keys = Rows { values: &worker.key[index * panel..], at, count, width: features };
        let weights = (worker.of_scores.as_slice(), past);
        let (scratch, of_features) = (&mut worker.products, &mut worker.of_features);
        products.weigh(scratch, weights, shape, keys, of_features, Write::Replace);
        if chunk > 0 {
            let before = std::mem::replace(&mut worker.states[index], State::none());
            self.through_state(worker, &before, Side::Query, head, &rows, Write::Add);
            worker.states[index] = before;
        }
        // SAFETY: as the caller promises.
        unsafe { self.features_back(worker, Side::Query, head, &rows, index * panel) };

        let queries = Rows { values: &worker.query[index * panel..], at, count, width: features };
        let weights = (worker.of_scores.as_slice(), past.transposed());
        let (scratch, of_features) = (&mut worker.products, &mut worker.of_features);
        products.weigh(scratch, weights, shape, queries, of_features, Write::Replace);
        if !is_last {
            self.through_state(worker, behind, Side::Key, head, &rows, Write::Add);
        }
        // SAFETY: as the caller promises.
        unsafe { self.features_back(worker, Side::Key, head, &rows, index * panel) };

        let adjoint = self.adjoint_rows(&worker.adjoint, count);
        let weights = (worker.scores.as_slice(), past.transposed());
        let (scratch, of_rows) = (&mut worker.products, &mut worker.of_rows);
        products.weigh(scratch, weights, shape, adjoint, of_rows, Write::Replace);
        if !is_last {
            self.read_behind(worker, behind, index * panel, count, Write::Add);
        }
        // SAFETY: as the caller promises.
        unsafe { self.put(VALUE, head, &rows, &worker.of_rows) };
        if chunk > 0 {
            self.add_queries(worker, behind, index * panel, count);
        }
    }

    /// Computes the products of query features and key features in a chunk, and the adjoints of
    /// these products (gradients of the loss with respect to them). Products of a query and a later
    /// key, and their adjoints, are zero. The chunk's features begin at index `at` of the features
    /// in `worker`.
    fn scores(&self, worker: &mut Worker<P>, head: usize, rows: &Range<usize>, at: usize) {
        let (products, features, count) = (self.products, self.features.count, rows.len());
        let Worker { products: own, query, key, scores, of_scores, adjoint, .. } = worker;
        let of_row = Matrix::rows(stride(features));
        let keys =
            Rows { values: &key[at..], at: of_row.transposed(), count: features, width: count };
        let shape = (count, features);
        products.weigh(own, (&query[at..], of_row), shape, keys, scores, Write::Replace);
        clear_future(scores, stride(count), &mut worker.of_rows[..count]);
        let value = self.rows(VALUE, head, rows);
        let values = Rows { at: value.at.transposed(), count: value.width, width: count, ..value };
        let adjoint = (adjoint.as_slice(), Matrix::rows(stride(value.width)));
        let shape = (count, value.width);
        products.weigh(own, adjoint, shape, values, of_scores, Write::Replace);
        add_to_past(of_scores, stride(count), &worker.of_denominators[..count]);
    }
}
