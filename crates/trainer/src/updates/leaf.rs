//! The loss of a batch and its gradient: spelled here, and nowhere else in the trainer.

use std::ops::Range;

use candle_core::Result as CandleResult;
use taper_model::{Batch, LossOutput, Model, Pass};
use taper_ops::{Gradients, ParameterStore};

use crate::exchange::halves;
use crate::{BoxError, TrainingConfig};

/// One micro-batch of an update.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Leaf<'a> {
    pub(crate) batch: &'a Batch,
    /// The update, from 1, and the number of the micro-batch in it: what dropout depends on.
    pub(crate) step: u64,
    pub(crate) number: usize,
    /// The answers of all micro-batches of the update, over which the loss is a mean.
    pub(crate) total: usize,
    /// Whether to compute with plain Candle operations, which leave a graph.
    pub(crate) composed: bool,
}

impl Leaf<'_> {
    /// Its share of the update's loss, with the pass that leads back from it.
    pub(crate) fn loss(
        &self,
        model: &impl Model,
        config: &TrainingConfig,
    ) -> Result<(LossOutput, Pass), BoxError> {
        let pass = Pass::train(config.seed, self.step, self.number as u64)
            .checkpointed(config.checkpoint_activations);
        let pass = if self.composed { pass.composed() } else { pass };
        let scale = 1.0 / self.total.max(1) as f64;
        let output = model.loss(self.batch, &config.objective(), scale, &pass)?;
        Ok((output, pass))
    }

    /// Its loss; and its gradient in `gradients`, from zero, unless the loss is not finite.
    pub(crate) fn gradient(
        &self,
        model: &impl Model,
        config: &TrainingConfig,
        gradients: &mut Gradients,
    ) -> Result<LossOutput, BoxError> {
        let (output, pass) = self.loss(model, config)?;
        if output.objective_sum.is_finite() {
            gradients.zero()?;
            pass.backward(&output, model.parameters(), gradients)?;
        }
        Ok(output)
    }
}

/// Sums the gradients of leaves in a fixed binary tree over their numbers: the left half of a range
/// and the right half, each by itself, and then the two. The same leaves give the same bits however
/// many processes share the work, since each has whole subtrees.
#[derive(Debug, Default)]
pub(crate) struct GradientTree {
    /// Buffers that are free: together with those in use, no more than the tree is deep.
    free: Vec<Gradients>,
}

impl GradientTree {
    /// The buffers that a tree of so many leaves takes.
    pub(crate) fn buffers(leaves: usize) -> u32 {
        1 + leaves.next_power_of_two().ilog2()
    }

    /// The sum over `leaves`; `gradient` fills a buffer with the gradient of the leaf of a number.
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

    /// Takes buffers back.
    pub(crate) fn free(&mut self, buffers: impl IntoIterator<Item = Gradients>) {
        self.free.extend(buffers);
    }

    fn buffer(&mut self, store: &ParameterStore) -> CandleResult<Gradients> {
        self.free.pop().map_or_else(|| Gradients::new(store), Ok)
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

    /// The gradient of leaf `number`, whose sums depend on their order.
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
            assert!(tree.free.len() as u32 <= GradientTree::buffers(leaves), "{leaves}");
        }
        assert_eq!([1, 2, 3, 4, 8].map(GradientTree::buffers), [1, 2, 3, 3, 4]);
    }
}
