//! Sums of gradients that this process sends to the others in an update, bucket by bucket from the
//! end of the flat layout (all parameters, one after the other). Each bucket is sent as soon as it
//! is complete.

use std::ops::Range;

use candle_core::{DType, Result as CandleResult, Tensor};
use taper_ops::ParameterStore;

use crate::exchange::{ExchangeError, Piece};
use crate::{BoxError, Exchange};

/// Buckets that are not sent yet. Each consists of one piece per process; this process keeps its
/// own piece, and sends the others.
pub(super) struct Outbox<'a> {
    exchange: &'a mut dyn Exchange,
    store: &'a ParameterStore,
    /// Divisions of the buckets whose exchange has not begun yet; the last bucket is the next one.
    pieces: &'a [Piece],
    /// Sums over this process's subtrees, without the last subtree, whose sum arrives later, in
    /// parts.
    before: Vec<Tensor>,
    /// Values of the last sum in the next bucket, divided into the pieces of all processes. They
    /// arrive from the end of the bucket on.
    parts: Vec<Vec<f32>>,
    /// Error that prevented an exchange; after it no exchange is begun.
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

    /// Takes values of the last subtree's sum, from the place `start` of the flat layout to the
    /// place of the previous call, and begins to exchange each bucket that is complete.
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

    /// Begins to exchange all remaining buckets; `last` is the whole sum over the last subtree.
    pub(super) fn take_whole(&mut self, last: &Tensor) -> CandleResult<()> {
        while !self.pieces.is_empty() {
            self.begin(|_, range| last.narrow(0, range.start, range.len()))?;
        }
        Ok(())
    }

    /// Begins to exchange all remaining buckets without content: this process has no gradient, or
    /// no micro-batch.
    ///
    /// # Errors
    /// The error of the exchange of any bucket.
    pub(super) fn close(mut self) -> Result<(), BoxError> {
        let none = Tensor::zeros(0, DType::F32, self.store.device())?;
        self.before.clear();
        while !self.pieces.is_empty() {
            self.begin(|_, _| Ok(none.clone()))?;
        }
        self.failed.map_or(Ok(()), |error| Err(error.into()))
    }

    /// Begins to exchange the next bucket. `part` returns the values of the last subtree's sum for
    /// a process with this rank and the range of its piece.
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
            // If there is only one tensor, this does not copy it.
            Tensor::cat(&sums, 0)
        };
        let parts = piece.all().enumerate().map(of_all).collect::<CandleResult<_>>()?;
        if self.failed.is_none() {
            self.failed = self.exchange.begin(parts).err();
        }
        Ok(())
    }
}
