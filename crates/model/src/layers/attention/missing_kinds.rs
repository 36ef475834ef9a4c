//! Replacement for the mechanisms of the cargo feature `kinds` in a build without it.
//! Configurations that need a missing mechanism are refused before a model is built.

use super::mixer::{Mixer, Unprojected};
use super::{Mechanism, Site};
use crate::Builder;
use crate::config::{AttentionKind, ModelConfig};
use candle_core::{Result, bail};
use std::sync::Arc;

/// Returns an error: this build has no mechanism of this kind.
pub(super) fn mechanism(
    _: &mut Builder,
    _: &Site<'_>,
    kind: AttentionKind,
) -> Result<Arc<dyn Mechanism>> {
    bail!("this build has no {}", kind.name())
}

/// Returns an error: this build has no state-space layers.
pub(crate) fn state_space(
    _: &mut Builder,
    name: &str,
    _: &ModelConfig,
    _: (bool, usize),
) -> Result<Arc<dyn Mixer>> {
    bail!("this build has no state-space layer for {name}")
}

/// Returns an error: this build has no state-space layers.
pub(super) fn unprojected_state_space(
    _: &mut Builder,
    name: &str,
    _: &ModelConfig,
    _: (bool, usize),
) -> Result<Arc<dyn Unprojected>> {
    bail!("this build has no state-space layer for {name}")
}
