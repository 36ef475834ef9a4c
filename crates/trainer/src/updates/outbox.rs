//! Sums of gradients that this process sends to the others in an update. The flat layout (all
//! parameters, one after the other) is divided into ranges called buckets. They are sent beginning
//! with the last bucket, and each bucket is sent as soon as its sums are complete.

use std::ops::Range;

use candle_core::{DType, Result as CandleResult, Tensor};
use taper_ops::ParameterStore;

use crate::exchange::{ExchangeError, Piece};
use crate::{BoxError, Exchange};

/// Buckets that have not been sent yet. A bucket consists of one piece for each process. This
/// process keeps its own piece, and sends the others.
pub(super) struct Outbox<'a> {
    exchange: &'a mut dyn Exchange,
    store: &'a ParameterStore,
    /// Buckets whose exchange has not begun yet, with their division into pieces. The last of them
    /// is exchanged next.
    pieces: &'a [Piece],
    /// Sums of gradients over this process's subtrees of micro-batches, except the last subtree.
    /// The sum over the last subtree is added later, in parts.
    before: Vec<Tensor>,
    /// Part of the sum over the last subtree: its values in the bucket that is exchanged next,
    /// divided into the pieces of all processes. They are filled from the end of the bucket to its
    /// beginning. Empty if no value of this bucket has been taken yet.
    parts: Vec<Vec<f32>>,
    /// First error of an exchange; `None` if there was no error. After an error, no exchange is
    /// begun.
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

    /// Takes `values` of the sum over the last subtree: those from the position `start` of the flat
    /// layout to the position of the previous call. Begins the exchange of each bucket that is now
    /// complete.
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

    /// Begins the exchange of all remaining buckets. `last`: whole sum over the last subtree.
    pub(super) fn take_whole(&mut self, last: &Tensor) -> CandleResult<()> {
        while !self.pieces.is_empty() {
            self.begin(|_, range| last.narrow(0, range.start, range.len()))?;
        }
        Ok(())
    }

    /// Begins the exchange of all remaining buckets without content, for a process that has no
    /// micro-batches or was told to stop.
    ///
    /// # Errors
    /// If the exchange of a bucket has failed.
    pub(super) fn close(mut self) -> Result<(), BoxError> {
        let none = Tensor::zeros(0, DType::F32, self.store.device())?;
        self.before.clear();
        while !self.pieces.is_empty() {
            self.begin(|_, _| Ok(none.clone()))?;
        }
        self.failed.map_or(Ok(()), |error| Err(error.into()))
    }

    /// Begins the exchange of the next bucket. `part` receives the rank of a process and the range
    /// of its piece, and returns the values of the sum over the last subtree in this piece.
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
            // `Tensor::cat` of a single tensor does not copy it.
            Tensor::cat(&sums, 0)
        };
        let parts = piece.all().enumerate().map(of_all).collect::<CandleResult<_>>()?;
        if self.failed.is_none() {
            self.failed = self.exchange.begin(parts).err();
        }
        Ok(())
    }
}
