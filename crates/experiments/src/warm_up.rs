//! Why a learning rate is warmed up. Three explanations are tested by measurements with and without
//! a warm-up.
//!
//! 1. Adam's second moment is at first estimated from few gradients, which makes the sizes of its
//!    steps vary too much (Liu et al. 2020, "On the Variance of the Adaptive Learning Rate and
//!    Beyond", section 3). For comparison, the learning rate is rectified as they propose.
//! 2. Gradients are at first mostly noise, so steps lead nowhere. This is measured by the gradient
//!    noise scale tr Σ / |G|², where G is the mean gradient and Σ is the covariance of the
//!    gradients of single examples (McCandlish et al. 2018, "An Empirical Model of Large-Batch
//!    Training", section 2.2).
//! 3. The loss is curved too much for the learning rate. This is measured by the sharpness, which
//!    is the largest eigenvalue of the Hessian of the loss (Gilmer et al. 2022, "A Loss Curvature
//!    Perspective on Training Instability in Deep Learning").

use candle_core::{DType, Device, Tensor};
use taper_model::{
    Batch, Builder, LanguageModel, Model, ModelConfig, NormPlacement, Objective, Pass, Positions,
};
use taper_ops::Gradients;
use taper_ops::rng::mix;
use taper_plots::{Axis, Chart, Figure, Series};
use taper_theory::TheoryError;
use taper_theory::studies::{Findings, Mixture, Study, heads};
use taper_trainer::{OptimizerConfig, Part, Step};

use crate::concepts::batch_of;
use crate::lanczos::largest_eigenvalue;

pub(crate) const STUDY: Study = Study {
    name: "warm-up",
    claim: "Post-LN needs a warm-up that Pre-LN does not: variance of Adam's steps, gradient noise \
            and sharpness with and without it",
    run,
};

/// Number of tokens in a document.
const LENGTH: usize = 48;
/// Number of documents in a batch.
const DOCUMENTS: u64 = 16;
/// The gradients from which the noise is measured: the number of documents for each gradient, and
/// the number of gradients.
const NOISE: (u64, u64) = (4, 12);
/// Number of updates of the warm-up.
const WARM_UP: f64 = 100.0;
/// Number of products with the Hessian from which a sharpness is computed.
const PRODUCTS: usize = 10;

/// Way in which the learning rate begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beginning {
    /// The full rate from the first update on.
    Abrupt,
    /// A rate that grows in proportion to the number of updates, up to the full rate.
    WarmUp,
    /// The rectified rate, which depends on the number of gradients that Adam's second moment has
    /// seen (Liu et al. 2020, algorithm 2). As long as the rectification is not defined, the rate
    /// is 0.
    Rectified,
}

impl Beginning {
    /// Returns the factor of the learning rate for the update `number`. Numbers begin at 1.
    #[must_use]
    pub fn factor(self, number: u64, beta2: f64) -> f64 {
        match self {
            Self::Abrupt => 1.0,
            Self::WarmUp => (number as f64 / WARM_UP).min(1.0),
            Self::Rectified => {
                let most = 2.0 / (1.0 - beta2) - 1.0;
                let power = beta2.powf(number as f64);
                let now = most - 2.0 * number as f64 * power / (1.0 - power);
                if now <= 4.0 {
                    return 0.0;
                }
                let share = |length: f64| (length - 4.0) * (length - 2.0) / length;
                (share(now) / share(most)).sqrt()
            }
        }
    }
}

/// Measurements of a training after some updates.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct UpdateMetrics {
    /// Number of updates before the measurement.
    pub updates: u64,
    /// Gradient noise scale, in documents.
    pub noise_scale: f64,
    /// Largest eigenvalue of the Hessian of the loss on a batch.
    pub sharpness: f64,
    /// Root mean square of Adam's next step, divided by the learning rate.
    pub step: f64,
}

/// A training in which measurements are made between updates.
#[derive(Debug)]
pub struct Warming {
    model: LanguageModel,
    mixture: Mixture,
    gradients: Gradients,
}

impl Warming {
    /// Makes a decoder with `layers` layers of width 32.
    ///
    /// # Errors
    /// If the device has no memory left.
    pub fn new(norm: NormPlacement, layers: usize, seed: u64) -> Result<Self, TheoryError> {
        let mixture = Mixture::draw(3, (3, 4), 8, 1);
        let config = ModelConfig {
            d_model: 32,
            d_ff: 128,
            heads: 2,
            norm,
            decoder_layers: layers,
            positions: Positions::Rotary,
            max_positions: LENGTH,
            ..ModelConfig::default().with_dropout(0.0)
        };
        let builder = Builder::seeded(seed, &Device::Cpu, DType::F32);
        let model = LanguageModel::new(&config, mixture.vocabulary, builder)?;
        let gradients = Gradients::new(model.parameters())?;
        Ok(Self { model, mixture, gradients })
    }

    fn batch(&self, key: u64, documents: u64) -> Batch {
        let document = |number| self.mixture.document(mix(key, &[number]), LENGTH);
        batch_of(&(0..documents).map(document).collect::<Vec<_>>())
    }

    /// Computes the loss per token, and its gradient.
    fn slope(&mut self, batch: &Batch) -> Result<(f64, Tensor), TheoryError> {
        self.gradients.zero()?;
        let (store, pass) = (self.model.parameters(), Pass::train(1, 1, 0));
        let scale = 1.0 / batch.tokens() as f64;
        let loss = self.model.loss(batch, &Objective::smoothed(0.0), scale, &pass)?;
        pass.backward(&loss, store, &mut self.gradients)?;
        Ok((loss.nll_sum * scale, self.gradients.flat()?.copy()?))
    }

    fn slope_in_f64(&mut self, batch: &Batch) -> Result<Vec<f64>, TheoryError> {
        Ok(self.slope(batch)?.1.to_dtype(DType::F64)?.to_vec1()?)
    }

    /// Number of parameters.
    #[must_use]
    pub fn size(&self) -> usize {
        self.model.parameters().len()
    }

    /// Computes the product of `direction`, a vector of length 1, with the Hessian of the loss. The
    /// loss is that of a batch that is the same in all calls. To compute the product, the weights
    /// are moved a little along `direction`, and a little against it. The difference of the
    /// gradients at these two points is divided by the distance between the points.
    ///
    /// # Errors
    /// If the device has no memory left.
    pub fn curvature(&mut self, direction: &[f64]) -> Result<Vec<f64>, TheoryError> {
        const REACH: f64 = 1e-2;
        let batch = self.batch(1 << 40, DOCUMENTS);
        let weights = self.model.parameters().flat()?;
        let direction = Tensor::from_iter(direction.iter().map(|part| *part as f32), &Device::Cpu)?;
        let mut sides = Vec::new();
        for reach in [REACH, -REACH] {
            let moved = (&weights + (&direction * reach)?)?;
            self.model.parameters().set_flat(&moved)?;
            sides.push(self.slope_in_f64(&batch)?);
        }
        self.model.parameters().set_flat(&weights)?;
        let pairs = sides[0].iter().zip(&sides[1]);
        Ok(pairs.map(|(after, before)| (after - before) / (2.0 * REACH)).collect())
    }

    /// Computes the largest eigenvalue of the Hessian that [`Self::curvature`] uses.
    ///
    /// # Errors
    /// If the device has no memory left.
    pub fn sharpness(&mut self) -> Result<f64, TheoryError> {
        largest_eigenvalue(self.size(), PRODUCTS, |direction| self.curvature(direction))
    }

    /// Computes the gradient noise scale tr Σ / |G|², in documents, from the gradients of small
    /// batches. Here, tr Σ is the variance of these gradients times the number of documents in a
    /// batch.
    /// |G|² is the square of the mean of these gradients, minus the part of this square that is due
    /// to noise.
    ///
    /// # Errors
    /// If the device has no memory left.
    pub fn noise_scale(&mut self) -> Result<f64, TheoryError> {
        let (size, count) = NOISE;
        let mut slopes = Vec::new();
        for number in 0..count {
            let batch = self.batch(mix(1 << 41, &[number]), size);
            slopes.push(self.slope_in_f64(&batch)?);
        }
        Ok(noise_scale(&slopes, size as f64))
    }

    /// Trains for `updates` updates with the learning rate `rate`. Measurements are made after each
    /// number of updates in `at`, where 0 means before the training, and each number must be below
    /// `updates`. Returns the measurements, and the loss on other documents after the training.
    ///
    /// # Errors
    /// If the device has no memory left.
    pub fn train(
        &mut self,
        beginning: Beginning,
        (updates, rate): (u64, f64),
        at: &[u64],
    ) -> Result<(Vec<UpdateMetrics>, f64), TheoryError> {
        let config = OptimizerConfig::default();
        let (optimizer, size) = (config.build(), self.size());
        let zeros = |_| Tensor::zeros(size, DType::F32, &Device::Cpu);
        let mut state = optimizer.buffers().iter().map(zeros).collect::<Result<Vec<_>, _>>()?;
        let mut measured = Vec::new();
        for number in 1..=updates {
            let is_measured = at.contains(&(number - 1));
            let scales = match is_measured {
                true => (self.noise_scale()?, self.sharpness()?),
                false => (0.0, 0.0),
            };
            let batch = self.batch(mix(1, &[number]), DOCUMENTS);
            let (_, gradient) = self.slope(&batch)?;
            let store = self.model.parameters();
            let before = if is_measured { Some(store.flat()?) } else { None };
            let factor = beginning.factor(number, config.beta2);
            let step = Step { number, learning_rate: rate * factor, gradient_scale: 1.0 };
            let part = Part { store, range: 0..size, gradient: &gradient, state: &mut state };
            optimizer.step(part, &step)?;
            if let Some(before) = before {
                let moved = (store.flat()? - before)?.to_dtype(DType::F64)?.sqr()?.mean_all()?;
                let moved = moved.to_scalar::<f64>()?.sqrt();
                let (noise_scale, sharpness) = scales;
                let step = moved / rate;
                measured.push(UpdateMetrics { updates: number - 1, noise_scale, sharpness, step });
            }
        }
        let held_out = self.batch(1 << 42, 4 * DOCUMENTS);
        let (loss, _) = self.slope(&held_out)?;
        Ok((measured, loss))
    }
}

/// Computes the gradient noise scale, in examples, from the gradients of several batches of `size`
/// examples (McCandlish et al. 2018, equation 2.9).
#[must_use]
pub fn noise_scale(slopes: &[Vec<f64>], size: f64) -> f64 {
    let count = slopes.len() as f64;
    let (mut of_mean, mut variance) = (0.0, 0.0);
    for at in 0..slopes[0].len() {
        let mean = slopes.iter().map(|slope| slope[at]).sum::<f64>() / count;
        of_mean += mean * mean;
        let squares = slopes.iter().map(|slope| (slope[at] - mean).powi(2)).sum::<f64>();
        variance += squares / (count - 1.0);
    }
    size * variance / (of_mean - variance / count)
}

fn run() -> Result<Findings, TheoryError> {
    const AT: [u64; 4] = [0, 10, 50, 199];
    const LAYERS: usize = 8;
    let (mut rows, mut series) = (Vec::new(), Vec::new());
    let norms = [("Pre-LN", NormPlacement::Pre), ("Post-LN", NormPlacement::Post)];
    let beginnings = [
        ("at once", Beginning::Abrupt),
        ("warm-up", Beginning::WarmUp),
        ("rectified", Beginning::Rectified),
    ];
    for (norm_name, norm) in norms {
        for (name, beginning) in beginnings {
            let mut training = Warming::new(norm, LAYERS, 1)?;
            let (measured, loss) = training.train(beginning, (200, 3e-3), &AT)?;
            let all = |value: fn(&UpdateMetrics) -> f64| {
                let shown = measured.iter().map(|one| format!("{:.3}", value(one)));
                shown.collect::<Vec<_>>().join(" / ")
            };
            let name = format!("{norm_name}, {name}");
            rows.push(vec![
                name.clone(),
                format!("{loss:.3}"),
                all(|one| one.step),
                all(|one| one.noise_scale),
                all(|one| one.sharpness),
            ]);
            let points = measured.iter().map(|one| (one.updates as f64, one.sharpness));
            series.push(Series::line(name, points.collect()));
        }
    }
    let chart = Chart::new(Axis::linear("updates"), Axis::log("sharpness"), series);
    let title = "Sharpness of the loss, with and without a warm-up";
    let description = "The largest eigenvalue of the Hessian over 200 updates of six trainings.";
    let figure = Figure::new(title, description, chart);
    Ok(Findings {
        columns: heads(&[
            "norm, learning rate",
            "loss",
            "Adam's step after 0 / 10 / 50 / 199 updates",
            "noise scale, documents",
            "sharpness",
        ]),
        rows,
        figures: vec![("warm-up".to_owned(), figure)],
    })
}
