//! Settings of a loss, and the sums that it computes.

use crate::products::Products;

/// Sums over the target tokens of a batch, one for each quantity.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct LossSums {
    /// Label-smoothed cross entropy, in nats.
    pub smoothed: f64,
    /// Negative log-likelihood of the true tokens, in nats.
    pub nll: f64,
    /// Number of tokens whose true class has the highest logit. If several logits are equally high,
    /// the first of them counts as the highest.
    pub correct: usize,
    /// Kullback–Leibler divergence KL(p‖q) in nats, for R-Drop. Here, p is the distribution in this
    /// forward pass, and q is the distribution in the token's other pass; 0 if there is no other
    /// pass.
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

/// Returns the label-smoothed cross entropy of a token. `nll` is the negative log-likelihood of the
/// true class, and `uniform` is the mean of the negative log-likelihoods of all classes. If a class
/// has the logit −∞, `uniform` is infinite. Without smoothing, `uniform` is not used, because its
/// product with 0 would be NaN.
pub(crate) fn smoothed(nll: f64, uniform: f64, smoothing: f64) -> f64 {
    if smoothing == 0.0 { nll } else { (1.0 - smoothing) * nll + smoothing * uniform }
}

/// Settings of a loss, apart from its inputs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CrossEntropySpec {
    /// Label smoothing: share of the probability that is spread evenly over all classes.
    pub smoothing: f64,
    /// Weight of the divergences in R-Drop (Liang et al. 2021); 0 without R-Drop. If it is above 0,
    /// rows `i` and `i + N/2` of the N input rows belong to the same token, in two forward passes.
    pub r_drop: f64,
    /// Multiplier of the sum over the tokens.
    pub scale: f64,
    /// Type to which the operands of matrix products are rounded, forward and backward.
    pub products: Products,
}

impl CrossEntropySpec {
    /// Whether each token has two rows, one for each of two forward passes (R-Drop).
    pub(crate) fn is_paired(&self) -> bool {
        self.r_drop > 0.0
    }

    /// Returns the value of the loss, given its sums.
    pub(crate) fn total(&self, sums: &LossSums) -> f64 {
        if self.is_paired() {
            self.scale * (sums.smoothed + self.r_drop * sums.divergence)
        } else {
            self.scale * sums.smoothed
        }
    }
}
