//! Sums of gradients that this process sends to the others in an update, bucket by bucket from the
//! end of the flat layout; each is sent as soon as it is complete.

use std::ops::Range;

use candle_core::{DType, Result as CandleResult, Tensor};
use taper_ops::ParameterStore;

use crate::exchange::{ExchangeError, Piece};
use crate::{BoxError, Exchange};

/// Buckets that are not sent yet. This process keeps its own piece of each.
pub(super) struct Outbox<'a> {
    exchange: &'a mut dyn Exchange,
    store: &'a ParameterStore,
    /// Pieces whose exchange has not begun yet; the last one is next.
    pieces: &'a [Piece],
    /// Sums over the subtrees of this process before the last one, whose sum arrives in parts.
    before: Vec<Tensor>,
    /// Parts of the next bucket for each process, which arrive from the end on.
    parts: Vec<Vec<f32>>,
    /// Error that prevented an exchange; no exchange is begun after it.
    failed: Option<ExchangeError>,
}

impl<'a> Outbox<'a> {
    pub(super) fn new(
        exchange: &'a mut dyn Exchange,
        store: &'a ParameterStore,
        pieces: &'a [Piece],
        before: Vec<Tensor>,
    ) -> Self {
        Self { exchange, store, pieces, before, parts: Vec::new(), failed: None }
    }

    /// Takes the values of the last sum from `start` of the flat layout to the place of the
    /// previous call, and begins to exchange the buckets that are complete.
    pub(super) fn take(&mut self, start: usize, values: &[f32]) -> CandleResult<()> {
        let mut end = start + values.len();
        while end > start {
            let Some((piece, _)) = self.pieces.split_last() else {
                candle_core::bail!("gradients beyond the first parameter");
            };
            if self.parts.is_empty() {
                let own_rank = self.exchange.rank();
                let length = |(rank, range): (usize, Range<usize>)| match rank == own_rank {
                    true => 0,
                    false => range.len(),
                };
                let lengths = piece.all().enumerate().map(length);
                self.parts = lengths.map(|length| vec![0.0; length]).collect();
            }
            let bucket = piece.bucket();
            let from = start.max(bucket.start);
            for (part, range) in self.parts.iter_mut().zip(piece.all()) {
                let common = from.max(range.start)..end.min(range.end);
                if common.start < common.end && !part.is_empty() {
                    part[common.start - range.start..common.end - range.start]
                        .copy_from_slice(&values[common.start - start..common.end - start]);
                }
            }
            if from == bucket.start {
                let parts = std::mem::take(&mut self.parts).into_iter();
                let parts = parts.map(|part| {
                    let length = part.len();
                    Tensor::from_vec(part, length, self.store.device())
                });
                let parts = parts.collect::<CandleResult<Vec<_>>>()?;
                self.begin(|rank, _| Ok(parts[rank].clone()))?;
            }
            end = from;
        }
        Ok(())
    }

    /// Begins to exchange all remaining buckets; `last` is the complete sum over the last subtree.
    pub(super) fn take_whole(&mut self, last: &Tensor) -> CandleResult<()> {
        while !self.pieces.is_empty() {
            self.begin(|_, range| last.narrow(0, range.start, range.len()))?;
        }
        Ok(())
    }

    /// Begins to exchange all remaining buckets without content, because there is no gradient, or
    /// this process has no micro-batch.
    ///
    /// # Errors
    /// The errors of the exchange of any bucket.
    pub(super) fn close(mut self) -> Result<(), BoxError> {
        let none = Tensor::zeros(0, DType::F32, self.store.device())?;
        self.before.clear();
        while !self.pieces.is_empty() {
            self.begin(|_, _| Ok(none.clone()))?;
        }
        self.failed.map_or(Ok(()), |error| Err(error.into()))
    }

    /// Begins to exchange the next bucket. `part` returns the part of the last sum for a process
    /// and its piece.
    fn begin(
        &mut self,
        part: impl Fn(usize, Range<usize>) -> CandleResult<Tensor>,
    ) -> CandleResult<()> {
        let Some((piece, rest)) = self.pieces.split_last() else { return Ok(()) };
        self.pieces = rest;
        let own_rank = self.exchange.rank();
        let of_all = |(rank, range): (usize, Range<usize>)| {
            if rank == own_rank {
                return Tensor::zeros(0, DType::F32, self.store.device());
            }
            let before = self.before.iter().map(|sum| sum.narrow(0, range.start, range.len()));
            let mut sums = before.collect::<CandleResult<Vec<_>>>()?;
            sums.push(part(rank, range)?);
            // For a single tensor this is no copy.
            Tensor::cat(&sums, 0)
        };
        let parts = piece.all().enumerate().map(of_all).collect::<CandleResult<_>>()?;
        if self.failed.is_none() {
            self.failed = self.exchange.begin(parts).err();
        }
        Ok(())
    }
}
