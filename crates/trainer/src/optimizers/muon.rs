//! The optimizer Muon.

use candle_core::{Result, Tensor, bail};
use taper_ops::{MuonStep, Parameter, muon_step};

use super::adam::numbers;
use super::{Optimizer, OptimizerConfig, Part, Step};

/// Muon (Jordan et al. 2024) for the projections of linear layers, and AdamW for all other
/// parameters; see [`muon_step`].
///
/// For projections, the first buffer is the momentum, and the second buffer is not used. For other
/// parameters, the two buffers are the first and the second moment. So the state is as large as
/// Adam's.
#[derive(Debug)]
pub(super) struct Muon {
    pub(super) config: OptimizerConfig,
}

impl Optimizer for Muon {
    fn buffers(&self) -> &'static [&'static str] {
        &["muon.momentum", "muon.second"]
    }

    fn needs_whole(&self, parameter: &Parameter) -> bool {
        !parameter.projections().is_empty()
    }

    fn step(&self, part: Part<'_>, step: &Step) -> Result<()> {
        let Part { store, range, gradient, state } = part;
        let Ok(buffers) = <&mut [Tensor; 2]>::try_from(state) else {
            bail!("muon must have two buffers")
        };
        let (adam, momentum) = (numbers(&self.config, step, true), self.config.momentum);
        muon_step(store, range, gradient, buffers, &MuonStep { adam, momentum })
    }
}
