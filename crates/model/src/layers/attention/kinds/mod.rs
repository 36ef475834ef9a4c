//! Mechanisms of self-attention other than the softmax over keys, and the state-space layer that
//! replaces attention.

mod hierarchical;
mod linear;
mod linformer;
mod performer;
mod reformer;
mod rows;
mod state_space;
#[cfg(test)]
mod tests;
mod transformer_xl;

use super::mixer::{Mixer, Unprojected};
use super::{Mechanism, Site};
use crate::Builder;
use crate::config::{AttentionKind, ModelConfig};
use candle_core::Result;
use hierarchical::Hierarchical;
use linear::LinearAttention;
use linformer::Linformer;
use performer::RandomFeatures;
use reformer::Reformer;
use state_space::{StateSpace, StateSpaceMechanism};
use std::sync::Arc;
use transformer_xl::TransformerXl;

/// Makes the mechanism of a layer (the computation between its projections) for this kind of
/// attention.
pub(super) fn mechanism(
    build: &mut Builder,
    site: &Site<'_>,
    kind: AttentionKind,
) -> Result<Arc<dyn Mechanism>> {
    Ok(match kind {
        AttentionKind::Linear => Arc::new(linear(site)),
        AttentionKind::Performer => Arc::new(performer(site)),
        AttentionKind::Linformer => Arc::new(Linformer::new(build, site)?),
        AttentionKind::Reformer => Arc::new(Reformer::new(site)),
        AttentionKind::Hierarchical => Arc::new(Hierarchical::new(site)),
        AttentionKind::TransformerXl => Arc::new(TransformerXl::new(build, site)?),
        AttentionKind::Full | AttentionKind::Sparse | AttentionKind::Mamba | AttentionKind::S4d => {
            candle_core::bail!("{} has no mechanism among these", kind.name())
        }
    })
}

fn linear(site: &Site<'_>) -> LinearAttention {
    LinearAttention::new(site.config.heads, site.causal, site.products)
}

fn performer(site: &Site<'_>) -> LinearAttention {
    let features = RandomFeatures::new(site);
    LinearAttention::performer(site.config.heads, site.causal, site.products, features)
}

/// Makes a state-space layer. `at` says whether the stack is causal, and has the index of the layer
/// in the stack, from 0.
pub(crate) fn state_space(
    build: &mut Builder,
    name: &str,
    config: &ModelConfig,
    at: (bool, usize),
) -> Result<Arc<dyn Mixer>> {
    Ok(Arc::new(StateSpace::new(build, name, config, at)?))
}

/// Makes the computation between the projections of a state-space layer. `at` says whether the
/// stack is causal, and has the index of the layer in the stack, from 0.
pub(super) fn unprojected_state_space(
    build: &mut Builder,
    name: &str,
    config: &ModelConfig,
    at: (bool, usize),
) -> Result<Arc<dyn Unprojected>> {
    Ok(Arc::new(StateSpaceMechanism::new(build, name, config, at)?))
}
