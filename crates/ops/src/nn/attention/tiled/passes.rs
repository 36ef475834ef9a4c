//! Operations on a tile (a small block of scores) between the two matrix products of attention.

use crate::float::{Float, vectorised};
use crate::products::PANEL;
use crate::spec::Dropout;

/// Settings for computing scores and weights from the products Q Kᵀ, for one head of one sequence.
#[derive(Clone, Copy)]
pub(super) struct Terms<'a, T> {
    pub(super) scale: T,
    /// ALiBi's slope; 0 without ALiBi.
    pub(super) slope: T,
    /// Bias of this head, with the distance from the first element of one query to that of the
    /// next.
    pub(super) bias: Option<(&'a [T], usize)>,
    pub(super) causal: bool,
    /// Position of the sequence's first query among the keys.
    pub(super) start: usize,
    pub(super) dropout: Dropout,
    /// Position in the dropout mask: the index of the head's first weight, and the distance from
    /// the first weight of one query to that of the next.
    pub(super) mask: (usize, usize),
}

impl<T> Terms<'_, T> {
    /// Returns how many of the first `keys` keys the query sees: all of them if there is no causal
    /// mask.
    pub(super) fn visible(&self, query: usize, keys: usize) -> usize {
        if self.causal { keys.min(self.start + query + 1) } else { keys }
    }

    /// Returns the index of a weight in the dropout mask.
    #[inline(always)]
    fn mask_index(&self, query: usize, key: usize) -> u32 {
        self.mask.0.wrapping_add(query.wrapping_mul(self.mask.1)).wrapping_add(key) as u32
    }
}

/// Position of a tile among the scores of a sequence: the first query and the number of queries,
/// the first key and the number of keys.
#[derive(Clone, Copy)]
pub(super) struct Region {
    pub(super) query: usize,
    pub(super) queries: usize,
    pub(super) key: usize,
    pub(super) keys: usize,
}

/// Softmax statistics of a panel of queries (those that a kernel processes together), over the keys
/// so far (Milakov and Gimelshein 2018, algorithm 3).
#[derive(Clone, Copy)]
pub(super) struct Online<T> {
    /// Largest score of each query so far.
    pub(super) largest: [T; PANEL],
    /// `Σ exp(score - largest)` of each query over the keys so far.
    pub(super) total: [T; PANEL],
}

impl<T: Float> Online<T> {
    pub(super) fn new() -> Self {
        // The initial value is below every score, but finite, so that its difference from a hidden
        // score of -∞ is not NaN.
        Self { largest: [T::cast(-1e30); PANEL], total: [T::default(); PANEL] }
    }
}

vectorised! {
    /// Turns the products in a tile, which has a row for each key and a column for each query, into
    /// weights after dropout: `exp(score - largest)`, where `largest` is the query's largest score
    /// so far.
    ///
    /// Returns, for each query, the number by which its sums so far must be multiplied, or `None`
    /// if no `largest` has changed.
    fn weigh<T>(
        tile: &mut [[T; PANEL]],
        at: Region,
        terms: &Terms<'_, T>,
        online: &mut Online<T>,
    ) -> Option<[T; PANEL]> {
        // Processes the rows as one slice, because a loop over rows of arrays would be compiled to
        // gather and scatter instructions.
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
            // The first query of the tile sees the keys up to its own position, and each further
            // query sees one more key.
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
    /// Multiplies each row of `sums` by the row's factor.
    fn rescale<T>(sums: &mut [T], stride: usize, factors: &[T; PANEL]) {
        for (sums, factor) in sums.chunks_exact_mut(stride).zip(factors) {
            for sum in sums.iter_mut() {
                *sum *= *factor;
            }
        }
    }
}

/// Numbers that the backward pass needs for the queries of a tile.
#[derive(Clone, Copy)]
pub(super) struct Known<'a, T> {
    /// Logarithm of each query's softmax denominator.
    pub(super) log_sums: &'a [T],
    /// Inner product of each query's result and its adjoint (the gradient of the loss with respect
    /// to it).
    pub(super) products: &'a [T],
}

vectorised! {
    /// Updates two tiles, which have a row for each query and a column for each key. On entry,
    /// `tile` has the products, and `adjoint` has the adjoints of the weights after dropout
    /// (gradients of the loss with respect to them). On return, `tile` has the weights after
    /// dropout, and `adjoint` has the adjoints of the scores. In both, hidden pairs become zero.
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
