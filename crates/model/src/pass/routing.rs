//! Statistics of the tokens that a pass sends to experts.

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

/// Statistics of tokens sent to experts, summed over layers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Routing {
    /// Number of tokens times the number of experts that each was sent to.
    pub routed: u64,
    /// Number of these that exceeded the capacity of an expert and were dropped.
    pub dropped: u64,
    /// Number of tokens of the busiest expert times the number of experts, summed over layers:
    /// equal to `routed` if loads are even.
    pub busiest: u64,
}

impl Routing {
    /// Whether nothing was routed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.routed == 0
    }
}

impl AddAssign for Routing {
    fn add_assign(&mut self, other: Self) {
        self.routed += other.routed;
        self.dropped += other.dropped;
        self.busiest += other.busiest;
    }
}
