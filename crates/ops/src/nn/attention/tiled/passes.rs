//! Passes over a tile of scores between products.

use crate::float::{Float, vectorised};
use crate::products::PANEL;
use crate::spec::Dropout;

/// Terms of the scores of one head of one sequence, in addition to the products.
#[derive(Clone, Copy)]
pub(super) struct Terms<'a, T> {
    pub(super) scale: T,
    /// ALiBi's slope.
    pub(super) slope: T,
    /// Bias of this head, and its number of elements from one query to the next.
    pub(super) bias: Option<(&'a [T], usize)>,
    pub(super) causal: bool,
    /// Position of the first query among the keys.
    pub(super) start: usize,
    pub(super) dropout: Dropout,
    /// Index of the first weight in the mask, and the distance between the weights of two queries.
    pub(super) mask: (usize, usize),
}

impl<T> Terms<'_, T> {
    /// Number of keys that a query sees, of `keys` keys.
    pub(super) fn visible(&self, query: usize, keys: usize) -> usize {
        if self.causal { keys.min(self.start + query + 1) } else { keys }
    }

    /// Number of a weight in the dropout mask.
    #[inline(always)]
    fn mask_index(&self, query: usize, key: usize) -> u32 {
        self.mask.0.wrapping_add(query.wrapping_mul(self.mask.1)).wrapping_add(key) as u32
    }
}

/// Queries and keys of a tile: the first of each, and their number.
#[derive(Clone, Copy)]
pub(super) struct Region {
    pub(super) query: usize,
    pub(super) queries: usize,
    pub(super) key: usize,
    pub(super) keys: usize,
}

/// Softmax of a panel of queries over the keys so far (Milakov and Gimelshein 2018, algorithm 3).
#[derive(Clone, Copy)]
pub(super) struct Online<T> {
    /// Largest score of each query.
    pub(super) largest: [T; PANEL],
    /// `Σ exp(score - largest)`.
    pub(super) total: [T; PANEL],
}

impl<T: Float> Online<T> {
    pub(super) fn new() -> Self {
        // Below every score, but finite, so that the difference between it and a hidden score of -∞
        // is a number.
        Self { largest: [T::cast(-1e30); PANEL], total: [T::default(); PANEL] }
    }
}

vectorised! {
    /// Turns the products of a tile, which has a row for each key and a lane for each query, into
    /// weights after dropout: `exp(score - largest)`, with the largest score so far.
    ///
    /// Returns the factors for the sums so far; `None` if they do not change.
    fn weigh<T>(
        tile: &mut [[T; PANEL]],
        at: Region,
        terms: &Terms<'_, T>,
        online: &mut Online<T>,
    ) -> Option<[T; PANEL]> {
        // The rows are one slice: over rows of arrays, this loop would compile to gathers and
        // scatters.
        for score in tile.as_flattened_mut() {
            *score *= terms.scale;
        }
        let first = terms.start + at.query;
        if terms.slope != T::default() {
            for (row, key) in tile.iter_mut().zip(at.key..) {
                for (lane, score) in row.iter_mut().enumerate() {
                    *score -= terms.slope * T::cast((first + lane).abs_diff(key) as f64);
                }
            }
        }
        if let Some((bias, stride)) = terms.bias {
            for lane in 0..at.queries {
                let bias = &bias[(at.query + lane) * stride + at.key..][..tile.len()];
                for (row, bias) in tile.iter_mut().zip(bias) {
                    row[lane] += *bias;
                }
            }
        }
        if terms.causal {
            // The first query sees the keys up to its own, and each further query sees one more.
            for (row, key) in tile.iter_mut().zip(at.key..).skip((first + 1).saturating_sub(at.key)) {
                row[..(key - first).min(PANEL)].fill(T::NEGATIVE_INFINITY);
            }
        }
        let mut largest = online.largest;
        for row in tile.iter() {
            for (largest, score) in largest.iter_mut().zip(row) {
                *largest = if *score > *largest { *score } else { *largest };
            }
        }
        let mut total = [T::default(); PANEL];
        for row in tile.iter_mut() {
            for lane in 0..PANEL {
                let weight = (row[lane] - largest[lane]).exp();
                total[lane] += weight;
                row[lane] = weight;
            }
        }
        let mut factors = [T::default(); PANEL];
        for lane in 0..PANEL {
            factors[lane] = (online.largest[lane] - largest[lane]).exp();
            online.total[lane] = online.total[lane] * factors[lane] + total[lane];
        }
        if terms.dropout.is_active() {
            let factor = terms.dropout.kernel::<T>();
            let indices: [u32; PANEL] =
                std::array::from_fn(|lane| terms.mask_index(at.query + lane, at.key));
            for (row, key) in tile.iter_mut().zip(0_u32..) {
                for lane in 0..PANEL {
                    row[lane] *= factor(indices[lane].wrapping_add(key));
                }
            }
        }
        let grew = largest != online.largest;
        online.largest = largest;
        grew.then_some(factors)
    }
}

vectorised! {
    /// Multiplies each row of sums by its factor.
    fn rescale<T>(sums: &mut [T], stride: usize, factors: &[T; PANEL]) {
        for (sums, factor) in sums.chunks_exact_mut(stride).zip(factors) {
            for sum in sums.iter_mut() {
                *sum *= *factor;
            }
        }
    }
}

/// Numbers of the queries of a tile for the backward pass.
#[derive(Clone, Copy)]
pub(super) struct Known<'a, T> {
    /// Logarithm of each query's softmax denominator.
    pub(super) log_sums: &'a [T],
    /// Product of each query's result and its adjoint.
    pub(super) products: &'a [T],
}

vectorised! {
    /// Updates two tiles, each with a row for each query and a lane for each key: the first from
    /// products to weights after dropout, the second from the adjoints of weights to the adjoints
    /// of scores. In both, hidden pairs become zero.
    fn go_back<T>(
        tile: &mut [[T; PANEL]],
        adjoint: &mut [[T; PANEL]],
        at: Region,
        terms: &Terms<'_, T>,
        known: Known<'_, T>,
    ) {
        for (i, (scores, adjoint)) in tile.iter_mut().zip(adjoint).enumerate() {
            let query = at.query + i;
            let seen = terms.visible(query, at.key + at.keys).saturating_sub(at.key);
            if i >= at.queries || seen == 0 {
                (*scores, *adjoint) = ([T::default(); PANEL], [T::default(); PANEL]);
                continue;
            }
            for score in scores.iter_mut() {
                *score *= terms.scale;
            }
            if terms.slope != T::default() {
                for (lane, score) in scores.iter_mut().enumerate() {
                    let distance = (terms.start + query).abs_diff(at.key + lane);
                    *score -= terms.slope * T::cast(distance as f64);
                }
            }
            if let Some((bias, stride)) = terms.bias {
                let bias = &bias[query * stride + at.key..][..at.keys];
                for (score, bias) in scores.iter_mut().zip(bias) {
                    *score += *bias;
                }
            }
            let mut factors = [T::cast(1.0); PANEL];
            if terms.dropout.is_active() {
                let (factor, first) = (terms.dropout.kernel::<T>(), terms.mask_index(query, at.key));
                for (lane, value) in factors.iter_mut().enumerate() {
                    *value = factor(first.wrapping_add(lane as u32));
                }
            }
            let (log_sum, product) = (known.log_sums[i], known.products[i]);
            for lane in 0..PANEL {
                let weight = (scores[lane] - log_sum).exp();
                scores[lane] = weight * factors[lane];
                adjoint[lane] = weight * (adjoint[lane] * factors[lane] - product);
            }
            scores[seen..].fill(T::default());
            adjoint[seen..].fill(T::default());
        }
    }
}

vectorised! {
    /// Multiplies a tile by a number.
    fn scale_tile<T>(tile: &mut [[T; PANEL]], factor: T) {
        for value in tile.as_flattened_mut() {
            *value *= factor;
        }
    }
}
