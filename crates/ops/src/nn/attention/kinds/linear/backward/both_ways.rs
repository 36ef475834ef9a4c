//! Gradients of linear attention if each token sees its whole sequence.

use super::super::layout::Sequence;
use super::super::{KEY, QUERY, VALUE};
use super::{Pass, Side, Worker};
use crate::nn::attention::tiled::products::TileProducts;
use crate::shared::Write;
use std::ops::Range;

impl<P: TileProducts> Pass<'_, '_, P> {
    /// Computes the gradients of all heads in two loops. The first loop goes over the queries: it
    /// computes their gradients, and adds the queries to the state `behind`. The second loop goes
    /// over the keys: it computes the gradients with respect to keys and values from this state.
    ///
    /// # Safety
    /// As for [`Self::causal`].
    pub(super) unsafe fn both_ways(
        &self,
        worker: &mut Worker<P>,
        sequence: &Sequence,
        heads: &Range<usize>,
    ) {
        let (mut before, mut behind) =
            (vec![self.empty(); heads.len()], vec![self.empty(); heads.len()]);
        for (before, head) in before.iter_mut().zip(heads.clone()) {
            before.read(&self.known.states[self.layout.state_at(sequence, 0, head)..]);
            before.left_out = self.exponent(sequence, 0, head);
        }
        for (_, rows) in sequence.chunks() {
            for ((before, behind), head) in before.iter().zip(&mut behind).zip(heads.clone()) {
                self.adjoints(worker, head, &rows);
                let (query, scratch) = (self.rows(QUERY, head, &rows), &mut worker.products);
                self.features.queries(self.products, scratch, query, &mut worker.query);
                self.through_state(worker, before, Side::Query, head, &rows, Write::Replace);
                self.add_queries(worker, behind, 0, rows.len());
                // SAFETY: as the caller promises.
                unsafe { self.features_back(worker, Side::Query, head, &rows, 0) };
            }
        }
        for (_, rows) in sequence.chunks() {
            for ((before, behind), head) in before.iter().zip(&behind).zip(heads.clone()) {
                let (key, scratch) = (self.rows(KEY, head, &rows), &mut worker.products);
                let exponent = before.left_out;
                self.features.keys(self.products, scratch, key, exponent, &mut worker.key);
                self.through_state(worker, behind, Side::Key, head, &rows, Write::Replace);
                // SAFETY: as the caller promises.
                unsafe { self.features_back(worker, Side::Key, head, &rows, 0) };
                self.read_behind(worker, behind, 0, rows.len(), Write::Replace);
                // SAFETY: as the caller promises.
                unsafe { self.put(VALUE, head, &rows, &worker.of_rows) };
            }
        }
    }
}
