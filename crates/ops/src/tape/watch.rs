//! Reports gradients that are final while a backward pass still runs. The pass processes operations
//! in reverse order. Once it has processed the first operation on a parameter, nothing more is
//! added to the parameter's gradient. In a training by several processes, this gradient can be sent
//! to the others from then on (Li et al. 2020, "PyTorch Distributed", section 3.2.3).

use super::adjoints::FlatValues;
use super::{Adjoints, Parameter, ParameterStore};
use candle_core::{Result, TensorId};
use std::collections::HashMap;

/// Function that a backward pass calls with all gradients, and with the index from which on they
/// are final. The gradients are in the flat layout: all parameters one after the other. The
/// function must not read gradients before the index.
pub type WhenFinal<'a> = &'a mut dyn FnMut(usize, &[f32]) -> Result<()>;

/// Tracks which gradients are final: all those from some index of the flat layout on. Reports this
/// index.
pub(super) struct Watch<'a> {
    /// For each parameter, the index of the first recorded operation that uses it; `None` if no
    /// operation does. When the gradient of the last parameter in the list is final, the parameter
    /// is removed from the list.
    first_uses: Vec<Option<usize>>,
    tell: WhenFinal<'a>,
}

impl<'a> Watch<'a> {
    pub(super) fn new(
        store: &ParameterStore,
        uses: &HashMap<TensorId, usize>,
        tell: WhenFinal<'a>,
    ) -> Self {
        let first_use = |parameter: &Parameter| uses.get(&parameter.var().id()).copied();
        Self { first_uses: store.parameters().iter().map(first_use).collect(), tell }
    }

    /// Notes that the operation with the index `place`, and all operations after it, have been
    /// processed.
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
        match &flat.values {
            FlatValues::Host(values) => (self.tell)(flat.final_from, values),
            FlatValues::Device(..) | FlatValues::Kept => Ok(()),
        }
    }
}
