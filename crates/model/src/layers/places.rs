//! Choice of one token of a text, such as the first token of an answer, by a softmax over the
//! places of the text. A place is the position of a token.

use crate::{LossOutput, LossSpec, Objective, Routing};
use candle_core::{D, DType, Device, Result, Tensor};
use taper_ops::composed;

/// Logit and log-probability of missing places. The exponential of this number is 0. The number is
/// finite, so that its product with 0 is 0; the product of minus infinity and 0 would be NaN.
const NO_PLACE: f32 = -1e30;

/// Places of each text in a batch, and the rows of logits that belong to them. The logits have one
/// row for each token, one text after the other, without padding.
struct Places {
    texts: usize,
    longest: usize,
    /// For each place of each text, the index of the row of the token at this place. Texts are
    /// padded to the longest one; a missing place has the index after the last row.
    rows: Tensor,
    /// For each place of B texts, 1 if it exists and 0 if it is missing: `(B, 1, L)`, where L is
    /// the number of tokens in the longest text.
    exist: Tensor,
    /// For each text, 1 divided by the number of its places: `(B, 1)`.
    shares: Tensor,
}

impl Places {
    fn new(lengths: &[usize], device: &Device) -> Result<Self> {
        let (texts, longest) = (lengths.len(), lengths.iter().copied().max().unwrap_or(0));
        let behind = lengths.iter().sum::<usize>();
        let (mut rows, mut exist, mut first) = (Vec::new(), Vec::new(), 0);
        for &length in lengths {
            rows.extend(
                (0..longest).map(|at| if at < length { first + at } else { behind } as u32),
            );
            exist.extend((0..longest).map(|at| f32::from(u8::from(at < length))));
            first += length;
        }
        let shares: Vec<f32> = lengths.iter().map(|&length| 1.0 / length as f32).collect();
        Ok(Self {
            texts,
            longest,
            rows: Tensor::from_vec(rows, texts * longest, device)?,
            exist: Tensor::from_vec(exist, (texts, 1, longest), device)?,
            shares: Tensor::from_vec(shares, (texts, 1), device)?,
        })
    }

    /// Computes the log-probabilities of the places of each text, for each of K questions about a
    /// text, such as where an answer begins and where it ends.
    ///
    /// # Shapes
    /// `logits (N, K)` of the N tokens of B texts → `(B·K, L)`, text after text.
    fn log_probabilities(&self, logits: &Tensor) -> Result<Tensor> {
        let questions = logits.dim(1)?;
        let behind = Tensor::full(NO_PLACE, (1, questions), logits.device())?;
        let padded = Tensor::cat(&[logits, &behind], 0)?.index_select(&self.rows, 0)?; // (B·L, K)
        let padded = padded.reshape((self.texts, self.longest, questions))?; // (B, L, K)
        let padded = padded.transpose(1, 2)?.contiguous()?; // (B, K, L)
        let shifted = padded.broadcast_sub(&padded.max_keepdim(D::Minus1)?.detach())?;
        let total = shifted.exp()?.sum_keepdim(D::Minus1)?.log()?; // (B, K, 1)
        let of_all = shifted.broadcast_sub(&total)?; // (B, K, L)
        of_all.reshape((self.texts * questions, self.longest)) // (B·K, L)
    }

    /// Computes three sums of the objective: the smoothed cross entropy, the negative
    /// log-likelihood, and the divergence between the two passes of R-Drop. Without R-Drop, the
    /// divergence is 0.
    ///
    /// # Shapes
    /// `log_probabilities (B·K, L)`, `answers (B·K, 1)` → three scalars.
    fn sums(
        &self,
        log_probabilities: &Tensor,
        answers: &Tensor,
        objective: &Objective,
    ) -> Result<[Tensor; 3]> {
        let (rows, longest) = log_probabilities.dims2()?;
        let questions = rows / self.texts;
        let nll = log_probabilities.gather(answers, 1)?.sum_all()?.neg()?;
        let of_texts = log_probabilities.reshape((self.texts, questions, longest))?;
        let even = of_texts.broadcast_mul(&self.exist)?.sum(D::Minus1)?; // (B, K)
        let even = even.broadcast_mul(&self.shares)?.sum_all()?.neg()?;
        let smoothing = objective.label_smoothing;
        let smoothed = ((&nll * (1.0 - smoothing))? + (even * smoothing)?)?;
        let divergence = if objective.r_drop > 0.0 {
            let half = |second: usize| log_probabilities.narrow(0, second * rows / 2, rows / 2);
            let (p, q) = (half(0)?, half(1)?);
            // KL(p‖q) + KL(q‖p) = Σ (p - q) (ln p - ln q)
            ((p.exp()? - q.exp()?)? * (p - q)?)?.sum_all()?
        } else {
            nll.zeros_like()?
        };
        Ok([smoothed, nll, divergence])
    }
}

/// Computes the sum of the objective over the K questions about each text, multiplied by `scale`.
/// An answer is a place: the index of a token in the text, from 0. Answers are ordered text after
/// text.
///
/// # Shapes
/// `logits (N, K)` in f32 of the N tokens of B texts, none of them empty, `B·K` answers → scalar.
pub(crate) fn loss_of_places(
    logits: &Tensor,
    lengths: &[usize],
    answers: &[u32],
    LossSpec { objective, scale, pass }: LossSpec<'_>,
) -> Result<LossOutput> {
    let device = logits.device();
    let places = Places::new(lengths, device)?;
    let right = Tensor::from_vec(answers.to_vec(), (answers.len(), 1), device)?;
    let loss = composed::on_tape(pass.tape(), "loss of places", &[logits], |inputs| {
        let log_probabilities = places.log_probabilities(&inputs[0])?;
        let [smoothed, _, divergence] = places.sums(&log_probabilities, &right, objective)?;
        (smoothed + (divergence * objective.r_drop)?)? * scale
    })?;
    let log_probabilities = places.log_probabilities(&logits.detach())?;
    let correct = composed::first_largest(&log_probabilities)?.eq(&right)?;
    let correct: f32 = correct.to_dtype(DType::F32)?.sum_all()?.to_scalar()?;
    let sums = places.sums(&log_probabilities, &right, objective)?;
    let [smoothed_sum, nll_sum, divergence_sum] = sums.map(|sum| -> Result<f64> {
        // The conversion is on the CPU, because Metal has no f64.
        sum.to_device(&Device::Cpu)?.to_dtype(DType::F64)?.to_scalar()
    });
    let (smoothed_sum, divergence_sum) = (smoothed_sum?, divergence_sum?);
    Ok(LossOutput {
        loss,
        loss_scale: 1.0,
        smoothed_sum,
        nll_sum: nll_sum?,
        divergence_sum,
        objective_sum: smoothed_sum + objective.r_drop * divergence_sum,
        correct: correct as usize,
        tokens: answers.len(),
        routing: Routing::default(),
    })
}
