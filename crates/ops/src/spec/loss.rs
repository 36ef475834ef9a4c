//! Settings of a loss, and its sums.

use crate::products::Products;

/// Sums over the target tokens of a batch.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct LossSums {
    /// Label-smoothed cross entropy, in nats.
    pub smoothed: f64,
    /// Negative log-likelihood of the true tokens, in nats.
    pub nll: f64,
    /// Number of tokens whose true class has the highest logit (the first class, if several tie).
    pub correct: usize,
    /// Kullback–Leibler divergence of the partner's distribution from a token's own, in nats; 0 if
    /// tokens are not pairs.
    pub divergence: f64,
}

impl LossSums {
    pub(crate) fn add(&mut self, other: &Self) {
        self.divergence += other.divergence;
        self.smoothed += other.smoothed;
        self.nll += other.nll;
        self.correct += other.correct;
    }
}

/// Settings of a loss, apart from its inputs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CrossEntropySpec {
    /// Label smoothing.
    pub smoothing: f64,
    /// Factor of the divergences in R-Drop (Liang et al. 2021); 0 for none. Above 0, rows `i` and
    /// `i + N/2` are two passes over the same token.
    pub r_drop: f64,
    /// Factor of the sum over the tokens.
    pub scale: f64,
    /// Rounding of the operands of the products, forward and backward.
    pub products: Products,
}

impl CrossEntropySpec {
    /// True if rows are two passes over the same token.
    pub(crate) fn is_paired(&self) -> bool {
        self.r_drop > 0.0
    }

    /// Value of the loss, given its sums.
    pub(crate) fn total(&self, sums: &LossSums) -> f64 {
        if self.is_paired() {
            self.scale * (sums.smoothed + self.r_drop * sums.divergence)
        } else {
            self.scale * sums.smoothed
        }
    }
}
