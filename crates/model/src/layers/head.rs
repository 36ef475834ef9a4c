//! The output projection, and the loss of its logits.

use super::linear::Linear;
use super::weight::Weight;
use crate::cost::PartCost;
use crate::{
    Batch, Builder, LossOutput, LossSpec, ModelConfig, ModelError, Objective, Pass, Routing,
};
use candle_core::{DType, Result, Tensor};
use std::sync::Arc;
use taper_ops::rng::name_key;
use taper_ops::{CrossEntropySpec, Dropout, EmbeddingSpec, LossSums, PackedWeights, converted};

/// Projects rows to classes, such as the tokens of a vocabulary: `W (s · h) + b`. The bias is
/// optional, and the factor s is 1 unless it is set.
#[derive(Debug, Clone)]
pub(crate) struct Head {
    linear: Linear,
    scale: Option<f64>,
}

impl Head {
    /// Makes the head called `name`. Its matrix `weight (C, D)`, for C classes and states of the
    /// width D, can be the table of an embedding (Press and Wolf 2017); its bias is called
    /// `{name}.bias`. The cost of the head's product and of the loss is not counted.
    pub(crate) fn new(
        build: &mut Builder,
        name: &str,
        (weight, classes): (Weight, usize),
        has_bias: bool,
    ) -> Result<Self> {
        let bias = match has_bias {
            true => Some(build.constant(&format!("{name}.bias"), &[classes], 0.0)?),
            false => None,
        };
        Ok(Self { linear: Linear::from_parts(weight, bias, build.products), scale: None })
    }

    /// Makes the projection to the tokens of a vocabulary, called `output`. Its factor s is that of
    /// the configuration.
    pub(crate) fn of_vocabulary(
        build: &mut Builder,
        (table, vocabulary): (Weight, usize),
        config: &ModelConfig,
        has_bias: bool,
    ) -> Result<Self> {
        let scale = config.output_scale.filter(|&scale| scale != 1.0);
        // The backward pass keeps the states multiplied by the factor.
        build.count(PartCost::kept(if scale.is_some() { config.d_model } else { 0 }));
        Self::count(build, config.d_model, vocabulary);
        Ok(Self { scale, ..Self::new(build, "output", (table, vocabulary), has_bias)? })
    }

    /// Counts the cost of the product and of the loss for each row. No logits are kept for the
    /// backward pass, because the loss is computed for a few rows at a time. What is kept is the
    /// gradient of the loss with respect to the rows and, on a GPU, Candle's intermediate results.
    fn count(build: &mut Builder, width: usize, classes: usize) {
        let kept = if build.device().is_cpu() { 1.0 } else { 4.0 } * width as f64;
        let (of_matrix, product) =
            (width as f64 * classes as f64, PartCost::product(width, classes));
        build.count(PartCost { kept, classes: classes as f64, classifier: of_matrix, ..product });
    }

    /// Computes `s · h`: `(R, D)` → `(R, D)`.
    fn scaled_rows(&self, rows: &Tensor, pass: &Pass) -> Result<Tensor> {
        match self.scale {
            Some(scale) => scaled(rows, scale, Dropout::none(), pass),
            None => Ok(rows.clone()),
        }
    }

    /// Makes a head that predicts only the given `classes`, in their order. It computes without
    /// gradients. `packs`: cache that products with the head's matrix use.
    pub(crate) fn of_classes(&self, classes: &[u32], packs: &PackedWeights) -> Result<Self> {
        Ok(Self { linear: self.linear.rows(classes, packs)?, scale: self.scale })
    }

    /// Computes the logits, in f32.
    ///
    /// # Shapes
    /// `(R, D)` → `(R, C)`.
    pub(crate) fn logits(&self, rows: &Tensor, pass: &Pass) -> Result<Tensor> {
        let logits = self.linear.forward(&self.scaled_rows(rows, pass)?, pass)?;
        converted(pass.tape(), &logits, DType::F32)
    }

    /// Computes the sum of the objective over the predicted rows of `batch`, multiplied by a scale;
    /// objective and scale are in `spec`.
    ///
    /// # Shapes
    /// `hidden (N, D)`, one row for each token of the last stream of `batch` (its last kind of
    /// input, such as the target sentences) → scalar.
    pub(crate) fn loss(
        &self,
        hidden: &Tensor,
        batch: &Batch,
        spec: LossSpec<'_>,
    ) -> Result<LossOutput> {
        let predicted = asked_rows(hidden, batch, spec.pass)?; // (A, D)
        self.loss_of_rows(&predicted, &batch.answers, spec)
    }

    /// Computes the sum of the objective over all of `rows`, multiplied by `scale`.
    ///
    /// # Shapes
    /// `(R, D)`, R answers → scalar.
    pub(crate) fn loss_of_rows(
        &self,
        rows: &Tensor,
        answers: &[u32],
        LossSpec { objective, scale, pass }: LossSpec<'_>,
    ) -> Result<LossOutput> {
        let Objective { label_smoothing: smoothing, r_drop, .. } = *objective;
        let spec = CrossEntropySpec { smoothing, r_drop, scale, products: self.linear.products() };
        let weight = self.linear.weight().get(pass);
        let rows = &self.scaled_rows(rows, pass)?;
        let bias = self.linear.bias().map(|bias| bias.get(pass));
        loss_of_rows(rows, (weight, bias), answers, &spec, pass)
    }
}

/// Picks from `hidden` the A rows at which `batch` predicts an id: `(N, D)` → `(A, D)`.
pub(crate) fn asked_rows(hidden: &Tensor, batch: &Batch, pass: &Pass) -> Result<Tensor> {
    match batch.asked_rows() {
        Some(rows) => picked(hidden, rows, Dropout::none(), pass),
        None => Ok(hidden.clone()),
    }
}

/// Picks the rows of `x` with the indices `rows`, and applies dropout: `(N, D)` → `(R, D)`.
pub(crate) fn picked(
    x: &Tensor,
    rows: Arc<[u32]>,
    dropout: Dropout,
    pass: &Pass,
) -> Result<Tensor> {
    let spec = EmbeddingSpec { ids: rows, positions: [].into(), scale: 1.0, dropout };
    taper_ops::embedding(pass.tape(), x, None, &spec)
}

/// Computes `dropout(scale · x)`: `(N, D)` → `(N, D)`.
pub(crate) fn scaled(x: &Tensor, scale: f64, dropout: Dropout, pass: &Pass) -> Result<Tensor> {
    let ids = (0..x.dim(0)? as u32).collect();
    let spec = EmbeddingSpec { ids, positions: [].into(), scale, dropout };
    taper_ops::embedding(pass.tape(), x, None, &spec)
}

/// Returns the index of the last row of each sequence, none of which may be empty.
pub(crate) fn last_rows(lengths: &[usize]) -> Arc<[u32]> {
    let mut end = 0;
    let row = |&length: &usize| {
        end += length as u32;
        end.saturating_sub(1)
    };
    lengths.iter().map(row).collect()
}

/// Computes the sum of the objective over A rows, `(A, D)`, multiplied by the scale in `spec`. The
/// logits of V classes come from a matrix `(V, D)` and optional biases `(V,)`.
pub(crate) fn loss_of_rows(
    rows: &Tensor,
    (weight, bias): (&Tensor, Option<&Tensor>),
    answers: &[u32],
    spec: &CrossEntropySpec,
    pass: &Pass,
) -> Result<LossOutput> {
    let (loss, LossSums { smoothed, nll, correct, divergence }) =
        taper_ops::biased_cross_entropy(pass.tape(), rows, weight, bias, answers, spec)?;
    Ok(LossOutput {
        loss,
        loss_scale: 1.0,
        smoothed_sum: smoothed,
        nll_sum: nll,
        divergence_sum: divergence,
        objective_sum: smoothed + spec.r_drop * divergence,
        correct,
        tokens: answers.len(),
        routing: Routing::default(),
    })
}

/// Predicts classes from the states of whole texts or of tokens: applies dropout, and then a
/// [`Head`] with biases and a separate matrix.
#[derive(Debug, Clone)]
pub(crate) struct ClassHead {
    head: Head,
    dropout: f64,
    site: u64,
}

impl ClassHead {
    /// Makes a head with the parameters `{name}.weight` and `{name}.bias`; `name` says what the
    /// classes are, in the plural. The cost of its product and of its loss is not counted.
    ///
    /// # Errors
    /// If there are fewer than two classes, or the device has no memory left.
    pub(crate) fn new(
        build: &mut Builder,
        name: &str,
        classes: usize,
        config: &ModelConfig,
    ) -> std::result::Result<Self, ModelError> {
        if classes < 2 {
            return Err(ModelError::Config(format!(
                "the model needs at least two {name}, not {classes}"
            )));
        }
        let weight = build.matrix(&format!("{name}.weight"), classes, config.d_model, 1)?;
        let head = Head::new(build, name, (weight, classes), true)?;
        Ok(Self { head, dropout: config.residual_dropout, site: name_key(name) })
    }

    /// Makes a head in the same way as [`new`](Self::new), for the class of each token, and counts
    /// its cost.
    ///
    /// # Errors
    /// The errors of [`new`](Self::new).
    pub(crate) fn of_tokens(
        build: &mut Builder,
        name: &str,
        classes: usize,
        config: &ModelConfig,
    ) -> std::result::Result<Self, ModelError> {
        Head::count(build, config.d_model, classes);
        // The backward pass keeps the states after picking and after dropout.
        build.count(PartCost::kept(config.d_model.saturating_mul(2)));
        Self::new(build, name, classes, config)
    }

    /// Picks the rows of `states` with the indices `rows`, and applies dropout: `(N, D)` →
    /// `(R, D)`.
    fn picked(&self, states: &Tensor, rows: Arc<[u32]>, pass: &Pass) -> Result<Tensor> {
        picked(states, rows, pass.dropout(self.dropout, self.site), pass)
    }

    /// Computes the logits of the given rows of `states`, in f32.
    ///
    /// # Shapes
    /// `(N, D)`, R rows → `(R, C)`.
    pub(crate) fn logits(&self, states: &Tensor, rows: Arc<[u32]>, pass: &Pass) -> Result<Tensor> {
        self.head.logits(&self.picked(states, rows, pass)?, pass)
    }

    /// Computes the sum of the objective over the given rows of `states`, multiplied by the scale
    /// in `spec`.
    ///
    /// # Shapes
    /// `(N, D)`, R rows, R answers → scalar.
    pub(crate) fn loss(
        &self,
        (states, rows): (&Tensor, Arc<[u32]>),
        answers: &[u32],
        spec: LossSpec<'_>,
    ) -> Result<LossOutput> {
        let rows = self.picked(states, rows, spec.pass)?;
        self.head.loss_of_rows(&rows, answers, spec)
    }
}
