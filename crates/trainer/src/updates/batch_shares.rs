//! Distribution of an update's micro-batches among processes, and the total number of answers
//! (tokens or classes to predict) in these micro-batches.

use std::ops::Range;

use taper_model::Batch;

use crate::exchange::{ExchangeError, everyone, nodes_of};
use crate::{BoxError, Exchange};

/// Distribution of the micro-batches of an update. They are the leaves of the binary tree along
/// which gradients are summed, and are numbered from 0. Each process has a range of these numbers,
/// and the ranges follow each other in the order of ranks.
#[derive(Debug)]
pub(crate) struct BatchShares {
    /// Rank of this process.
    pub(crate) rank: usize,
    /// Number of micro-batches of the update, in all processes.
    pub(crate) leaves: usize,
    /// Number of answers in all micro-batches.
    pub(crate) total: usize,
    /// Range of micro-batches of each process, by rank.
    shares: Vec<Range<usize>>,
}

impl BatchShares {
    /// Sends two numbers to all other processes: how many micro-batches this process has, and how
    /// many answers are in them. Receives the same numbers from the other processes. `batches` are
    /// the micro-batches of this process.
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

    /// True if there are several processes.
    pub(crate) fn is_shared(&self) -> bool {
        self.shares.len() > 1
    }

    /// Range of the micro-batches of this process.
    pub(crate) fn own_leaves(&self) -> Range<usize> {
        self.shares[self.rank].clone()
    }

    /// Divides the leaves of process `rank` into as few complete subtrees as possible, and returns
    /// the range of leaves of each. Process `rank` sums the gradients of each subtree.
    pub(crate) fn nodes(&self, rank: usize) -> Vec<Range<usize>> {
        self.shares.get(rank).map_or_else(Vec::new, |leaves| nodes_of(0..self.leaves, leaves))
    }
}
