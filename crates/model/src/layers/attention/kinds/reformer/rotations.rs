//! Random rotations, which sort tokens into buckets.

use candle_core::{DType, Device, Result, Tensor};
use std::sync::OnceLock;
use taper_ops::rng::{Counter, mix};

/// Number of random tokens from which [`Rotations::shares`] estimates the share of tokens that
/// falls into each bucket.
const DRAWN: usize = 1024;

/// The rotations R of each head and round, `(H, Dh, rounds, buckets / 2)`, for H heads of width Dh;
/// empty if there is a single bucket.
#[derive(Debug, Clone)]
pub(in super::super) struct Rotations {
    /// Values of the rotations, drawn on first use.
    values: OnceLock<Vec<f64>>,
    seed: u64,
    pub(super) heads: usize,
    head: usize,
    pub(super) rounds: usize,
    pub(super) buckets: usize,
}

impl Rotations {
    /// Describes rotations, which are drawn on first use. The rotations of a round do not depend on
    /// the number of rounds.
    pub(in super::super) fn drawn(
        (heads, head): (usize, usize),
        (rounds, buckets): (usize, usize),
        seed: u64,
    ) -> Self {
        Self { values: OnceLock::new(), seed, heads, head, rounds, buckets }
    }

    /// Number of values of all rotations.
    pub(super) fn count(&self) -> usize {
        self.heads * self.head * self.rounds * (self.buckets / 2)
    }

    fn values(&self) -> &[f64] {
        self.values.get_or_init(|| {
            let (half, rounds, head) = (self.buckets / 2, self.rounds, self.head);
            let value = |i: usize| {
                let (column, round) = (i % half, i / half % rounds);
                let (row, of_head) = (i / half / rounds % head, i / half / rounds / head);
                let counter = Counter::new(mix(self.seed, &[of_head as u64, round as u64]));
                counter.normal_at((row * half + column) as u64)
            };
            (0..self.count()).map(value).collect()
        })
    }

    /// Estimates, for each head and round, the share of normally distributed tokens that falls into
    /// each bucket. The shares are unequal because the columns of a rotation, which are the
    /// directions of its buckets, are drawn and differ in length. They differ most in narrow heads.
    pub(super) fn shares(&self) -> Vec<Vec<f64>> {
        let mut shares = vec![vec![0.0; self.buckets]; self.heads * self.rounds];
        let (counter, width) = (Counter::new(0), self.heads * self.head);
        for row in 0..DRAWN {
            let row: Vec<f64> =
                (0..width).map(|i| counter.normal_at((row * width + i) as u64)).collect();
            for (shares_of_round, bucket) in shares.iter_mut().zip(self.buckets_of(&row)) {
                shares_of_round[bucket as usize] += 1.0 / DRAWN as f64;
            }
        }
        shares
    }

    /// Makes rotations with these values, `(H, Dh, rounds, buckets / 2)`.
    #[cfg(test)]
    pub(in super::super) fn given(rotations: &Tensor) -> Self {
        let (heads, head, rounds, half) = rotations.dims4().unwrap();
        let values = rotations.to_dtype(DType::F64).unwrap().flatten_all().unwrap();
        let values = OnceLock::from(values.to_vec1().unwrap());
        Self { values, seed: 0, heads, head, rounds, buckets: 2 * half }
    }

    /// Returns the buckets of one token, one for each head and round: `(H, rounds)`. `row` has the
    /// queries of all heads.
    fn buckets_of(&self, row: &[f64]) -> Vec<u32> {
        let (half, values) = (self.buckets / 2, self.values());
        let mut buckets = Vec::with_capacity(self.heads * self.rounds);
        let mut sums = vec![0.0; self.rounds * half];
        for (head, query) in row.chunks_exact(self.head).enumerate() {
            sums.fill(0.0);
            for (d, &x) in query.iter().enumerate() {
                let start = (head * self.head + d) * sums.len();
                let rotations = &values[start..start + sums.len()];
                sums.iter_mut().zip(rotations).for_each(|(sum, r)| *sum += x * r);
            }
            for round in 0..self.rounds {
                let sums_of_round = &sums[round * half..(round + 1) * half];
                let both =
                    sums_of_round.iter().copied().chain(sums_of_round.iter().map(|sum| -sum));
                let mut best = (0, f64::NEG_INFINITY);
                for (bucket, sum) in both.enumerate() {
                    if sum > best.1 {
                        best = (bucket as u32, sum);
                    }
                }
                buckets.push(best.0);
            }
        }
        buckets
    }

    /// Returns the buckets of `rows (N, …)`, whose first columns are queries: `(N, H, rounds)`.
    /// They are computed in f64, so that rounding does not move a token to another bucket.
    pub(super) fn buckets_of_rows(&self, rows: &Tensor) -> Result<Vec<Vec<u32>>> {
        let queries = rows.detach().narrow(1, 0, self.heads * self.head)?;
        let queries = queries.to_device(&Device::Cpu)?.to_dtype(DType::F64)?.to_vec2::<f64>()?;
        taper_ops::profile::count(2 * queries.len() * self.count());
        Ok(queries.iter().map(|row| self.buckets_of(row)).collect())
    }
}
