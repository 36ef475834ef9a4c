//! Objective of training, and the loss of a batch.

use candle_core::Tensor;

use crate::pass::routing::Routing;

/// Objective of training.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Objective {
    /// Probability mass of the target distribution that is spread over the whole vocabulary.
    pub label_smoothing: f64,
    /// Factor α of R-Drop (Liang et al. 2021, section 2.2); 0 for no R-Drop. If it is above 0, the
    /// batch passes through the model twice, with different dropout, and the loss of a token is
    /// `(CE₁ + CE₂) / 2 + α (KL(p₁‖p₂) + KL(p₂‖p₁)) / 2`. Here CEᵢ is the cross entropy of pass i,
    /// and pᵢ its predicted distribution.
    ///
    /// The paper adds the divergences to the sum of the cross entropies, not to their mean. So α is
    /// half of the paper's α, and the loss is half of the paper's loss. The mean keeps losses,
    /// gradients and clipping on the scale of one pass.
    pub r_drop: f64,
    /// Training of one attention head of a translation model to follow the word alignments in
    /// [`Batch::links`](crate::Batch::links); `None` for no such training.
    pub guidance: Option<Guidance>,
}

impl Objective {
    /// Makes the objective of label-smoothed cross entropy in one pass.
    #[must_use]
    pub const fn smoothed(label_smoothing: f64) -> Self {
        Self { label_smoothing, r_drop: 0.0, guidance: None }
    }

    /// Number of passes of a batch through the model.
    #[must_use]
    pub fn passes(&self) -> usize {
        if self.r_drop > 0.0 { 2 } else { 1 }
    }
}

/// Training of one head of the decoder's attention to follow word alignments, the links of a batch
/// (Garg et al. 2019, "Jointly Learning to Align and Translate with Transformer Models", section
/// 4.2).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Guidance {
    /// Weight λ of the loss of the guided head, which is added to the cross entropy.
    pub weight: f64,
    /// Index of the decoder layer, from 0; `None` for the layer before the last.
    pub layer: Option<usize>,
    /// Index of the head, from 0.
    pub head: usize,
}

/// Loss of a batch. With the two passes of R-Drop, each sum is the mean of the sums of both passes.
#[derive(Debug, Clone)]
pub struct LossOutput {
    /// Starting point of [`Pass::backward`](crate::Pass::backward): the sum of the objective over
    /// the answers, multiplied by the `scale` given to [`Model::loss`](crate::Model::loss). In f16
    /// it is also multiplied by a factor that keeps gradients from underflowing.
    pub loss: Tensor,
    /// Factor against underflow that `loss` contains; the backward pass divides the gradients by
    /// it.
    pub(crate) loss_scale: f64,
    /// Sum over the answers of the label-smoothed cross entropy in nats, or of the squared error if
    /// answers are numbers.
    pub smoothed_sum: f64,
    /// Sum over the answers of the negative log-likelihood in nats, or of the squared error.
    pub nll_sum: f64,
    /// Sum over the answers of the divergence `(KL(p₁‖p₂) + KL(p₂‖p₁)) / 2`, in nats; 0 with one
    /// pass.
    pub divergence_sum: f64,
    /// Sum over the answers of the minimised objective. It is the smoothed cross entropy. With
    /// R-Drop, α times the divergence is added. The losses of experts or of guidance are added if
    /// there are any.
    pub objective_sum: f64,
    /// Number of tokens that a training pass sent to experts, and number of those that experts
    /// dropped.
    pub routing: Routing,
    /// Number of answers whose true class scored highest; with two passes, half of the sum of both
    /// counts, rounded down.
    pub correct: usize,
    /// Number of answers.
    pub tokens: usize,
}

impl LossOutput {
    /// Makes the loss of a pass that minimises `sum`, a sum over `tokens` answers, of which
    /// `correct` are right. The backward pass begins at `loss`, whose value must be `sum`
    /// multiplied by the `scale` given to [`Model::loss`](crate::Model::loss).
    #[must_use]
    pub fn of_sum(loss: Tensor, sum: f64, correct: usize, tokens: usize) -> Self {
        Self {
            loss,
            loss_scale: 1.0,
            smoothed_sum: sum,
            nll_sum: sum,
            divergence_sum: 0.0,
            objective_sum: sum,
            routing: Routing::default(),
            correct,
            tokens,
        }
    }
}
