//! Statistics of the tokens that a pass sends to experts.

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

/// Statistics of the tokens that were sent to experts, summed over layers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Routing {
    /// Number of pairs of a token and an expert to which it was sent.
    pub routed: u64,
    /// Number of these pairs in which the token was dropped, because it exceeded the capacity of
    /// the expert.
    pub dropped: u64,
    /// Sum over the layers. A layer adds the number of tokens that were sent to its busiest expert,
    /// multiplied by the number of experts. It equals `routed` if every expert of a layer gets
    /// equally many tokens.
    pub busiest: u64,
}

impl Routing {
    /// True if no tokens were routed.
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
