//! Gradients that are final while a backward pass still runs. The backward pass processes the first
//! operation on a parameter last; afterwards, nothing is added to the parameter's gradient. If
//! there are several processes, it can be sent from then on (Li et al. 2020, "PyTorch Distributed",
//! section 3.2.3).

use super::adjoints::FlatValues;
use super::{Adjoints, Parameter, ParameterStore};
use candle_core::{Result, TensorId};
use std::collections::HashMap;

/// Callback of a backward pass. It receives the index of the flat layout from which on gradients
/// are final, and all gradients. It must not read gradients before this index.
pub type WhenFinal<'a> = &'a mut dyn FnMut(usize, &[f32]) -> Result<()>;

/// Reports which part of the flat gradient is final.
pub(super) struct Watch<'a> {
    /// For each parameter whose gradient is not final yet, in order, the index of the first
    /// operation on it; `None` if there is no such operation.
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
