//! What is final of the gradient while a pass still goes back: after the first operation on a
//! parameter, which comes last on the way back, nothing is added to its gradient any more. Whoever
//! trains with others can send it then (Li et al. 2020, "PyTorch Distributed", section 3.2.3).

use super::{Adjoints, Parameter, ParameterStore};
use candle_core::{Result, TensorId};
use std::collections::HashMap;

/// Told while a pass goes back: from which place of the flat layout on the gradients are final, and
/// all that there is of them. What lies before that place is not to be read.
pub type WhenFinal<'a> = &'a mut dyn FnMut(usize, &[f32]) -> Result<()>;

/// Tells what is final of the flat gradient.
pub(super) struct Watch<'a> {
    /// The place of the first operation on each parameter that is not final yet, in their order;
    /// none where there is no operation on it.
    first_uses: Vec<Option<usize>>,
    tell: WhenFinal<'a>,
}

impl<'a> Watch<'a> {
    pub(super) fn new(
        store: &ParameterStore,
        uses: &HashMap<TensorId, usize>,
        tell: WhenFinal<'a>,
    ) -> Self {
        let of = |parameter: &Parameter| uses.get(&parameter.var().id()).copied();
        Self { first_uses: store.parameters().iter().map(of).collect(), tell }
    }

    /// The operation at `place` is dealt with, as are all after it.
    pub(super) fn passed(&mut self, place: usize, adjoints: &mut Adjoints<'_>) -> Result<()> {
        let Some(flat) = &mut adjoints.parameters else { return Ok(()) };
        let before = self.first_uses.len();
        while self.first_uses.last().is_some_and(|first| first.is_some_and(|at| at >= place)) {
            self.first_uses.pop();
        }
        if self.first_uses.len() == before {
            return Ok(());
        }
        flat.final_from = flat.store.parameters()[self.first_uses.len()].offset();
        (self.tell)(flat.final_from, flat.values)
    }
}
