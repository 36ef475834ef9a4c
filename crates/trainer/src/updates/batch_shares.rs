//! Distribution of the micro-batches of an update among processes, and the number of their answers.

use std::ops::Range;

use taper_model::Batch;

use crate::exchange::{ExchangeError, everyone, nodes_of};
use crate::{BoxError, Exchange};

/// Micro-batches of an update, over all processes. The range of each process follows that of the
/// previous process.
#[derive(Debug)]
pub(crate) struct BatchShares {
    /// The number of this process.
    pub(crate) rank: usize,
    /// Number of micro-batches of the update.
    pub(crate) leaves: usize,
    /// Number of answers in all micro-batches.
    pub(crate) total: usize,
    /// Micro-batches of each process.
    shares: Vec<Range<usize>>,
}

impl BatchShares {
    /// Sends the facts about `batches`, which this process has, to the others, and receives theirs.
    pub(crate) fn exchange(
        exchange: &mut dyn Exchange,
        batches: &[Batch],
    ) -> Result<Self, BoxError> {
        let tokens: usize = batches.iter().map(Batch::tokens).sum();
        let all: Vec<(usize, usize)> = everyone(exchange, (batches.len(), tokens))?;
        let mut leaves = 0;
        let mut share = |&(count, _): &(usize, usize)| {
            leaves += count;
            leaves - count..leaves
        };
        let shares = all.iter().map(&mut share).collect();
        let rank = exchange.rank();
        if all.len() <= rank {
            return Err(ExchangeError::Garbled { rank }.into());
        }
        Ok(Self { rank, leaves, total: all.iter().map(|&(_, tokens)| tokens).sum(), shares })
    }

    /// Whether there are several processes.
    pub(crate) fn is_shared(&self) -> bool {
        self.shares.len() > 1
    }

    /// The micro-batches of this process.
    pub(crate) fn own_leaves(&self) -> Range<usize> {
        self.shares[self.rank].clone()
    }

    /// Subtrees whose sums process `rank` has.
    pub(crate) fn nodes(&self, rank: usize) -> Vec<Range<usize>> {
        self.shares.get(rank).map_or_else(Vec::new, |leaves| nodes_of(0..self.leaves, leaves))
    }
}
