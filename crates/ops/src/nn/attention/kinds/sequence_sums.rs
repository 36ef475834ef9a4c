//! Weighted sums over the tokens of sequences. A Linformer attends to them as keys and values.

use crate::composed;
use crate::float::Float;
use crate::host::{Host, for_float};
use crate::products::{Matrix, Products, Threads, raw_product};
use crate::shared::{Shared, Write};
use crate::tape::{Adjoints, Tape, is_fused};
use candle_core::{Result, Tensor, bail};
use std::sync::Arc;

/// Number of tokens that a product processes at a time: few enough for the second-level cache.
const TOKENS: usize = 256;

/// Computes the sums of keys, `E K`, and of values, `F V`, over the tokens of each sequence (Wang
/// et al. 2020, "Linformer: Self-Attention with Linear Complexity", equation 7); E and F are
/// `weights`. A sequence that is shorter than E and F uses their first columns.
///
/// # Shapes
/// `qkv (N, 3·D)`: query, key and value side by side; E and F, `(R, L)` each, where L is at least
/// the length of the longest of B sequences → `(B·R, 2·D)`, key and value side by side.
///
/// # Errors
/// If the shapes disagree.
pub fn sequence_sums(
    tape: Option<&Tape>,
    qkv: &Tensor,
    weights: [&Tensor; 2],
    lengths: &Arc<[usize]>,
    products: Products,
) -> Result<Tensor> {
    let sums = Sums::new(qkv, weights, lengths, products)?;
    if !is_fused(tape, &[qkv, weights[0], weights[1]])? {
        return composed::on_tape(tape, "sums", &[qkv, weights[0], weights[1]], |v| {
            composed::sequence_sums(&v[0], [&v[1], &v[2]], lengths)
        });
    }
    for_float!(qkv, T => sums.run::<T>(tape, qkv, weights))
}

/// Sizes of the inputs and of the sums.
struct Sums {
    width: usize,
    /// Number of sums for each sequence, R.
    rank: usize,
    /// Number of columns of E and F, L.
    columns: usize,
    lengths: Arc<[usize]>,
    products: Products,
}

impl Sums {
    fn new(
        qkv: &Tensor,
        weights: [&Tensor; 2],
        lengths: &Arc<[usize]>,
        products: Products,
    ) -> Result<Self> {
        let (tokens, width) = qkv.dims2()?;
        let (rank, columns) = weights[0].dims2()?;
        let longest = lengths.iter().copied().max().unwrap_or(0);
        let all: usize = lengths.iter().sum();
        if !width.is_multiple_of(3)
            || weights[1].dims() != [rank, columns]
            || longest > columns
            || all != tokens
        {
            bail!(
                "sums over sequences: shapes do not fit together: projections {:?}, weights {:?} \
                 and {:?}, {all} tokens in sequences of at most {longest}",
                qkv.shape(),
                weights[0].shape(),
                weights[1].shape()
            );
        }
        Ok(Self { width: width / 3, rank, columns, lengths: lengths.clone(), products })
    }

    /// Returns, for each sequence: the index of its first row among the tokens, its length, and the
    /// index of its first row among the sums.
    fn sequences(&self) -> impl Iterator<Item = (usize, usize, usize)> + '_ {
        let mut next = 0;
        self.lengths.iter().enumerate().map(move |(number, &length)| {
            next += length;
            (next - length, length, number * self.rank)
        })
    }

    /// Describes the keys (`part` 0) or values (1) in the projections, from the token `row` on.
    fn token(&self, part: usize, row: usize) -> Matrix {
        let width = 3 * self.width;
        Matrix::rows(width).at(row * width + (part + 1) * self.width)
    }

    /// Describes the sums of keys (`part` 0) or values (1), from the sum `row` on.
    fn sum(&self, part: usize, row: usize) -> Matrix {
        let width = 2 * self.width;
        Matrix::rows(width).at(row * width + part * self.width)
    }

    /// Divides a sequence into pieces; returns the first token of each piece and the number of its
    /// tokens.
    fn pieces(length: usize) -> impl Iterator<Item = (usize, usize)> {
        (0..length).step_by(TOKENS).map(move |first| (first, TOKENS.min(length - first)))
    }

    const fn how(&self) -> (Products, Threads) {
        (self.products, Threads::All)
    }

    fn run<T: Float>(
        self,
        tape: Option<&Tape>,
        qkv: &Tensor,
        weights: [&Tensor; 2],
    ) -> Result<Tensor> {
        let shape = (self.lengths.len() * self.rank, 2 * self.width);
        let out = crate::profile::time("sums", || self.forward::<T>(qkv, weights))?;
        let out = Tensor::from_vec(out, shape, qkv.device())?;
        if let Some(tape) = tape {
            let kept = tape.keep(qkv);
            let kept_weights = weights.map(Tensor::clone);
            let inputs = [qkv, weights[0], weights[1]];
            tape.record::<T>("sums", &inputs, &out, move |adjoint, adjoints| {
                let qkv = kept.value()?;
                self.backward(&qkv, &kept_weights, &adjoint, adjoints)
            })?;
        }
        Ok(out)
    }

    fn forward<T: Float>(&self, qkv: &Tensor, weights: [&Tensor; 2]) -> Result<Vec<T>> {
        let (host, hosts) = (Host::new(qkv)?, [Host::new(weights[0])?, Host::new(weights[1])?]);
        let (values, weights) =
            (host.elements::<T>()?, [hosts[0].elements()?, hosts[1].elements()?]);
        let mut out = vec![T::default(); self.lengths.len() * self.rank * 2 * self.width];
        let to = Shared::new(&mut out);
        for (first, length, sum) in self.sequences() {
            for (part, weights) in weights.iter().enumerate() {
                for (token, count) in Self::pieces(length) {
                    // SAFETY: one product at a time writes, and memory that it adds to is
                    // initialised.
                    unsafe {
                        raw_product::<T>(
                            (self.rank, count, self.width),
                            (weights, Matrix::rows(self.columns).at(token)),
                            (values, self.token(part, first + token)),
                            (to, self.sum(part, sum)),
                            Write::Add,
                            self.how(),
                            None,
                        )
                    };
                }
            }
        }
        Ok(out)
    }

    fn backward<T: Float>(
        &self,
        qkv: &Tensor,
        weights: &[Tensor; 2],
        adjoint: &[T],
        adjoints: &mut Adjoints<'_>,
    ) -> Result<()> {
        let host = Host::new(qkv)?;
        let values = host.elements::<T>()?;
        for (part, weight) in weights.iter().enumerate() {
            adjoints.add_with(weight, |to: &mut [T], write| {
                if write == Write::Replace {
                    to.fill(T::default());
                }
                self.add_weight_gradient((values, adjoint), part, Shared::new(to));
                Ok(())
            })?;
        }
        let hosts = [Host::new(&weights[0])?, Host::new(&weights[1])?];
        let weights = [hosts[0].elements::<T>()?, hosts[1].elements()?];
        adjoints.add_with(qkv, |to: &mut [T], write| {
            if write == Write::Replace {
                to.fill(T::default());
            }
            self.add_token_gradient((weights, adjoint), Shared::new(to));
            Ok(())
        })
    }

    /// Computes `dE += d(E K) Kᵀ` if `part` is 0, and `dF += d(F V) Vᵀ` if `part` is 1. Here, dX is
    /// the gradient of the loss with respect to X. No other thread uses the destination at the same
    /// time; it must be initialised.
    fn add_weight_gradient<T: Float>(
        &self,
        (values, adjoint): (&[T], &[T]),
        part: usize,
        to: Shared<T>,
    ) {
        for (first, length, sum) in self.sequences() {
            for (token, count) in Self::pieces(length) {
                // SAFETY: one product at a time writes, and memory that it adds to is initialised.
                unsafe {
                    raw_product(
                        (self.rank, self.width, count),
                        (adjoint, self.sum(part, sum)),
                        (values, self.token(part, first + token).transposed()),
                        (to, Matrix::rows(self.columns).at(token)),
                        Write::Add,
                        self.how(),
                        None,
                    )
                };
            }
        }
    }

    /// Computes `dK += Eᵀ d(E K)` and `dV += Fᵀ d(F V)`. Here, dX is the gradient of the loss with
    /// respect to X. No other thread uses the destination at the same time; it must be initialised.
    fn add_token_gradient<T: Float>(&self, (weights, adjoint): ([&[T]; 2], &[T]), to: Shared<T>) {
        for (first, length, sum) in self.sequences() {
            for (part, weights) in weights.iter().enumerate() {
                // SAFETY: one product at a time writes, and memory that it adds to is initialised.
                unsafe {
                    raw_product::<T>(
                        (length, self.rank, self.width),
                        (weights, Matrix::rows(self.columns).transposed()),
                        (adjoint, self.sum(part, sum)),
                        (to, self.token(part, first)),
                        Write::Add,
                        self.how(),
                        None,
                    )
                };
            }
        }
    }
}
