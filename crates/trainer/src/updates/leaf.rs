//! Loss of a micro-batch, gradient of this loss, and sum of the gradients of several micro-batches.
//! All losses and gradients of training are computed here.

use std::ops::Range;

use candle_core::Result as CandleResult;
use taper_model::{Batch, LossOutput, Model, Pass};
use taper_ops::{Gradients, ParameterStore, WhenFinal};

use crate::exchange::{halves, leaves_of, nodes_of};
use crate::{BoxError, TrainingConfig};

/// Micro-batch of an update: a leaf of the binary tree along which the update's gradients are
/// summed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Leaf<'a> {
    pub(crate) batch: &'a Batch,
    /// Number of the update, counted from 1. `number` is the index of the micro-batch in the
    /// update. Dropout depends on both.
    pub(crate) step: u64,
    pub(crate) number: usize,
    /// Number of answers (tokens or classes to predict) in all micro-batches of the update. The
    /// loss of the update is the mean over all answers.
    pub(crate) total: usize,
    /// If true, the loss is computed with plain Candle operations, and its gradient by Candle's
    /// automatic differentiation.
    pub(crate) composed: bool,
}

impl Leaf<'_> {
    /// Returns this micro-batch's share of the update's loss, and the record of the forward pass,
    /// which the backward pass needs.
    pub(crate) fn loss(
        &self,
        model: &dyn Model,
        config: &TrainingConfig,
    ) -> Result<(LossOutput, Pass), BoxError> {
        let pass = Pass::train(config.seed, self.step, self.number as u64)
            .checkpointed(config.checkpoint_activations);
        let pass = if self.composed { pass.composed() } else { pass };
        let scale = 1.0 / self.total.max(1) as f64;
        let output = model.loss(self.batch, &config.objective(), scale, &pass)?;
        Ok((output, pass))
    }

    /// Computes the loss and, if the loss is finite, its gradient, which replaces the values of
    /// `gradients`. During the backward pass, `when_final` is called each time that a further part
    /// of the gradients has its final values, unless plain Candle operations are used.
    pub(crate) fn gradient(
        &self,
        model: &dyn Model,
        config: &TrainingConfig,
        gradients: &mut Gradients,
        when_final: Option<WhenFinal<'_>>,
    ) -> Result<LossOutput, BoxError> {
        let (output, pass) = self.loss(model, config)?;
        if output.objective_sum.is_finite() {
            gradients.zero()?;
            pass.backward_watched(&output, model.parameters(), gradients, when_final)?;
        }
        Ok(output)
    }
}

/// Sums the gradients of leaves (micro-batches) in a fixed binary tree over their indices: the left
/// half of a range and its right half are summed separately, and then the two sums are added. The
/// sum is identical bit for bit for any number of processes, because each process sums complete
/// subtrees.
#[derive(Debug, Default)]
pub(crate) struct GradientTree {
    /// Buffers that are not in use. Together with the buffers in use, there are at most
    /// [`TrainingConfig::gradient_buffers`] of them.
    free: Vec<Gradients>,
}

impl TrainingConfig {
    /// Largest number of gradient buffers that a process needs for an update, if `processes`
    /// processes train together. It grows with the logarithm of the number of micro-batches per
    /// process.
    #[must_use]
    pub fn gradient_buffers(&self, processes: usize) -> u64 {
        self.most_in_a_process(processes, GradientTree::buffers)
    }

    /// Largest number of sums of gradients that a process sends to the others in an update. A
    /// process sends one sum for each complete subtree of its micro-batches. The result is 1 if the
    /// numbers of processes and of micro-batches are powers of two.
    #[must_use]
    pub fn gradient_sums(&self, processes: usize) -> u64 {
        self.most_in_a_process(processes, <[_]>::len)
    }

    /// Calls `count` with the subtrees that a process sums in an update, for each process and each
    /// possible number of micro-batches of an update. Returns the largest result.
    fn most_in_a_process(&self, processes: usize, count: fn(&[Range<usize>]) -> usize) -> u64 {
        // The last update of the last epoch can have fewer micro-batches than the others. Their
        // division into subtrees differs, so it can have larger counts.
        let fewest = if self.max_epochs > 0 { 1 } else { self.accumulation };
        let most_of = |leaves: usize| {
            // With as many processes as leaves, or more, a process has one leaf or none.
            let size = processes.clamp(1, leaves.max(1));
            let subtrees = |rank| nodes_of(0..leaves, &leaves_of(leaves, rank, size));
            (0..size).map(|rank| count(&subtrees(rank))).max().unwrap_or(1)
        };
        (fewest..=self.accumulation).map(most_of).max().unwrap_or(1) as u64
    }
}

impl GradientTree {
    /// Number of buffers that are needed to sum the gradients of each of `subtrees`, one after the
    /// other, if all sums are kept.
    fn buffers(subtrees: &[Range<usize>]) -> usize {
        // The sum of a left half is kept while the right half is summed. The right half never has
        // more leaves than the left half.
        let of_one = |leaves: usize| 1 + leaves.max(1).ilog2() as usize;
        let kept = subtrees.iter().enumerate();
        kept.map(|(before, subtree)| before + of_one(subtree.len())).max().unwrap_or(0)
    }

    /// Returns the sum of gradients over `leaves`. `gradient` is called with the index of a leaf
    /// and a buffer, which it must fill with the gradient of this leaf.
    pub(crate) fn sum(
        &mut self,
        store: &ParameterStore,
        leaves: Range<usize>,
        gradient: &mut impl FnMut(usize, &mut Gradients) -> Result<(), BoxError>,
    ) -> Result<Gradients, BoxError> {
        if leaves.len() <= 1 {
            let mut buffer = self.buffer(store)?;
            gradient(leaves.start, &mut buffer)?;
            return Ok(buffer);
        }
        let [left, right] = halves(&leaves);
        let mut left = self.sum(store, left, gradient)?;
        let mut right = self.sum(store, right, gradient)?;
        left.add(&mut right)?;
        self.free.push(right);
        Ok(left)
    }

    /// Computes the same sum as [`GradientTree::sum`], on the CPU, but reports parts of it during
    /// the backward pass of the last leaf. The parts are reported from the end of the flat layout
    /// (all parameters, one after the other) to its beginning.
    ///
    /// `tell` is called for each part, with the position at which the part begins and with its
    /// values. The part ends at the position of the previous call. After the last call, the whole
    /// sum has been reported.
    ///
    /// The result is identical bit for bit to that of [`GradientTree::sum`], because the same
    /// values are added in the same order.
    pub(crate) fn sum_told(
        &mut self,
        store: &ParameterStore,
        leaves: Range<usize>,
        gradient: &mut impl FnMut(usize, &mut Gradients, Option<WhenFinal<'_>>) -> Result<(), BoxError>,
        tell: &mut dyn FnMut(usize, &[f32]) -> CandleResult<()>,
    ) -> Result<Gradients, BoxError> {
        // Sums of the left halves of the subtrees on the path from the root to the last leaf, the
        // largest half first.
        let (mut lefts, mut rest) = (Vec::new(), leaves);
        while rest.len() > 1 {
            let [left, right] = halves(&rest);
            lefts.push(self.sum(store, left, &mut |number, sum| gradient(number, sum, None))?);
            rest = right;
        }
        let mut leaf = self.buffer(store)?;
        let mut sent_from = store.len();
        let mut when_final = |from: usize, values: &[f32]| {
            add_up(&mut lefts, from..sent_from, &values[from..sent_from], tell)?;
            sent_from = from;
            Ok(())
        };
        gradient(rest.start, &mut leaf, Some(&mut when_final))?;
        let of_all = 0..sent_from;
        if !of_all.is_empty() {
            leaf.with_part(of_all, |values| add_up(&mut lefts, 0..sent_from, values, tell))?;
        }
        let mut all = lefts.into_iter();
        match all.next() {
            Some(sum) => {
                self.free.extend(all.chain([leaf]));
                Ok(sum)
            }
            None => Ok(leaf),
        }
    }

    /// Takes back buffers that the caller does not need any more.
    pub(crate) fn free(&mut self, buffers: impl IntoIterator<Item = Gradients>) {
        self.free.extend(buffers);
    }

    fn buffer(&mut self, store: &ParameterStore) -> CandleResult<Gradients> {
        self.free.pop().map_or_else(|| Gradients::new(store), Ok)
    }
}

/// Adds up the gradient of the last leaf, which is `values`, and the sums of the left halves, which
/// are `lefts`, in the range `range` of the parameters. `values` are first added to the last of
/// `lefts`, the smallest half; the result is added to the half before it, and so on. Passes the
/// total to `tell`.
fn add_up(
    lefts: &mut [Gradients],
    range: Range<usize>,
    values: &[f32],
    tell: &mut dyn FnMut(usize, &[f32]) -> CandleResult<()>,
) -> CandleResult<()> {
    match lefts.split_last_mut() {
        None => tell(range.start, values),
        Some((last, before)) => {
            last.add_part(range.start, values)?;
            last.with_part(range.clone(), |sum| add_up(before, range, sum, tell))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::{Device, backprop::GradStore};

    fn store() -> ParameterStore {
        let mut store = ParameterStore::new(&Device::Cpu);
        store.add("weight", &[3], vec![0.0; 3]).unwrap();
        store
    }

    /// Gradient of leaf `number`, chosen so that sums depend on the order of the leaves.
    fn gradient(store: &ParameterStore, number: usize) -> GradStore {
        let factor = (number as f64 + 0.3).exp().sin();
        let weight = store.parameters()[0].var();
        (weight.affine(factor, 0.0).unwrap()).sum_all().unwrap().backward().unwrap()
    }

    fn sum(store: &ParameterStore, tree: &mut GradientTree, leaves: Range<usize>) -> f32 {
        let fill = &mut |number, buffer: &mut Gradients| {
            buffer.zero()?;
            Ok(buffer.accumulate(store, &gradient(store, number))?)
        };
        let mut sum = tree.sum(store, leaves, fill).unwrap();
        let value = sum.flat().unwrap().to_vec1::<f32>().unwrap()[0];
        tree.free([sum]);
        value
    }

    #[test]
    fn what_is_told_on_the_way_is_the_sum() {
        let mut store = ParameterStore::new(&Device::Cpu);
        let count = 50_000;
        store.add("weight", &[count], vec![0.0; count]).unwrap();
        let value = |leaf: usize, at: usize| ((leaf * count + at) as f32 * 0.37).sin() * 1e3;
        for leaves in [1, 2, 3, 5, 8] {
            let fill = |leaf: usize, buffer: &mut Gradients| {
                let values: Vec<f32> = (0..count).map(|at| value(leaf, at)).collect();
                buffer.zero()?;
                buffer.flat()?;
                Ok::<_, BoxError>(buffer.add_part(0, &values)?)
            };
            let mut tree = GradientTree::default();
            let mut summed = tree.sum(&store, 1..1 + leaves, &mut |n, b| fill(n, b)).unwrap();
            let expected = summed.flat().unwrap().to_vec1::<f32>().unwrap();
            let (mut sent, mut from, mut calls) = (vec![0.0; count], count, 0);
            let mut tell = |start: usize, values: &[f32]| {
                assert_eq!(start + values.len(), from, "without a gap");
                sent[start..from].copy_from_slice(values);
                (from, calls) = (start, calls + 1);
                Ok(())
            };
            let mut gradient = |n, b: &mut Gradients, when_final: Option<WhenFinal<'_>>| {
                fill(n, b)?;
                if let Some(when_final) = when_final {
                    let values = b.flat()?.to_vec1::<f32>()?;
                    when_final(30_000, &values)?;
                    when_final(100, &values)?;
                }
                Ok(())
            };
            let sum = tree.sum_told(&store, 1..1 + leaves, &mut gradient, &mut tell);
            let sum = sum.unwrap().flat().unwrap().to_vec1::<f32>().unwrap();
            assert!(sent == expected && sum == expected, "{leaves}");
            assert_eq!((from, calls), (0, 3), "twice on the way, and then the rest");
        }
    }

    #[test]
    fn a_tree_is_the_sum_of_its_halves_whoever_computes_them() {
        let (store, mut tree) = (store(), GradientTree::default());
        let one = |number: usize| (number as f64 + 0.3).exp().sin() as f32;
        assert_eq!(sum(&store, &mut tree, 0..1), one(0));
        assert_eq!(sum(&store, &mut tree, 0..4), (one(0) + one(1)) + (one(2) + one(3)));
        assert_eq!(sum(&store, &mut tree, 0..3), (one(0) + one(1)) + one(2));
        for (leaves, middle) in [(2, 1), (5, 3), (6, 3), (8, 4), (11, 6)] {
            let mut tree = GradientTree::default();
            let halves = sum(&store, &mut tree, 0..middle) + sum(&store, &mut tree, middle..leaves);
            assert_eq!(sum(&store, &mut tree, 0..leaves), halves, "{leaves}");
            let whole = 0..leaves;
            assert_eq!(tree.free.len(), GradientTree::buffers(&[whole]), "{leaves}");
        }
        let buffers = |leaves| GradientTree::buffers(std::slice::from_ref(&(0..leaves)));
        assert_eq!([1, 2, 3, 4, 8].map(buffers), [1, 2, 2, 3, 4]);
    }

    /// Sums the gradients that the process `rank` of `size` processes sums in an update of `leaves`
    /// micro-batches. Returns the number of buffers that were made, and of sums that are sent.
    fn kept_by_a_process(leaves: usize, rank: usize, size: usize) -> (u64, u64) {
        let (store, mut tree) = (store(), GradientTree::default());
        let mut nodes = nodes_of(0..leaves, &leaves_of(leaves, rank, size));
        let mut fill = |_: usize, buffer: &mut Gradients, _: Option<WhenFinal<'_>>| {
            buffer.zero()?;
            buffer.flat()?;
            Ok::<_, BoxError>(())
        };
        let last = nodes.pop();
        let mut sums: Vec<Gradients> = Vec::new();
        for node in nodes {
            let sum = tree.sum(&store, node, &mut |number, buffer| fill(number, buffer, None));
            sums.push(sum.unwrap());
        }
        if let Some(last) = last {
            sums.push(tree.sum_told(&store, last, &mut fill, &mut |_, _| Ok(())).unwrap());
        }
        let sent = sums.len() as u64;
        tree.free(sums);
        (tree.free.len() as u64, sent)
    }

    #[test]
    fn buffers_are_counted_as_the_processes_keep_them() {
        for size in [1, 2, 3, 4, 5, 7, 8] {
            let mut most = (0, 0);
            for leaves in 1..=40 {
                let kept = (0..size).map(|rank| kept_by_a_process(leaves, rank, size));
                let update =
                    kept.fold((0, 0), |most, kept| (most.0.max(kept.0), most.1.max(kept.1)));
                most = (most.0.max(update.0), most.1.max(update.1));
                let counted = |max_epochs| {
                    let config =
                        TrainingConfig { accumulation: leaves, max_epochs, ..Default::default() };
                    (config.gradient_buffers(size), config.gradient_sums(size))
                };
                // With a limit of epochs, the last update can have fewer micro-batches.
                assert_eq!((counted(0), counted(3)), (update, most), "{leaves} on {size}");
            }
        }
        for (leaves, buffers) in [(12, 4), (32, 6), (100, 8), (128, 9)] {
            let config = TrainingConfig { accumulation: leaves, ..Default::default() };
            assert_eq!(config.gradient_buffers(3), buffers, "{leaves}");
        }
    }
}
