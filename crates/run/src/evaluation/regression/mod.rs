//! Errors of a model that continues functions, beside predictors that know the functions are
//! linear.

mod ridge;

use anyhow::Result;
use serde::Serialize;
use taper_data::{LinearFunction, RegressionConfig, RegressionDataset, batch_of_functions};
use taper_model::InContextRegressor;

use crate::config::RunConfig;
use crate::training::packed;
use ridge::ridge;

/// Functions that a model has continued.
#[derive(Debug, Clone, Serialize)]
pub struct RegressedTestSet {
    /// The split's name.
    pub split: String,
    /// Number of functions.
    pub functions: usize,
    /// Dimension of x.
    pub dimensions: usize,
    /// Standard deviation of the noise on each y.
    pub noise: f64,
    /// Means over the functions, by the number of examples: 0, 1 and so on.
    pub after: Vec<AfterExamples>,
}

/// Errors at the point that follows a number of examples.
#[derive(Debug, Clone, Default, Serialize)]
pub struct AfterExamples {
    /// Number of known points.
    pub examples: usize,
    /// Mean squared errors of y, with its unpredictable noise.
    pub of_answers: MeanErrors,
    /// Mean squared errors of `w·x`, without noise.
    pub of_values: MeanErrors,
    /// Mean squared distance between the predictions of the model and of ridge regression.
    pub model_from_ridge: f64,
}

/// Mean squared errors of each predictor.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct MeanErrors {
    /// Error of the model.
    pub model: f64,
    /// Error of ridge regression with the variance of the noise as penalty, the best possible
    /// predictor.
    pub ridge: f64,
    /// Error of least squares; with fewer examples than dimensions, with the shortest w that fits
    /// them.
    pub least_squares: f64,
    /// Error of the mean of the examples' y; 0 without examples.
    pub mean: f64,
}

impl MeanErrors {
    /// Adds the squared errors of one set of predictions.
    fn add(&mut self, predicted: Self, right: f64) {
        let error = |of: f64| (of - right) * (of - right);
        self.model += error(predicted.model);
        self.ridge += error(predicted.ridge);
        self.least_squares += error(predicted.least_squares);
        self.mean += error(predicted.mean);
    }

    fn divided(self, count: f64) -> Self {
        let Self { model, ridge, least_squares, mean } = self;
        Self {
            model: model / count,
            ridge: ridge / count,
            least_squares: least_squares / count,
            mean: mean / count,
        }
    }
}

impl RegressedTestSet {
    /// Continues the functions of a split with `model`.
    ///
    /// # Errors
    /// When functions have more points than the model has positions, or the device fails.
    pub(crate) fn of(split: &str, config: &RunConfig, model: &InContextRegressor) -> Result<Self> {
        let data = RegressionDataset::of_split(&config.data, split);
        let settings = &config.data.regression;
        let together = (config.data.batching.planned_tokens() / settings.tokens()).max(1);
        let mut after = vec![AfterExamples::default(); settings.points];
        for first in (0..data.len()).step_by(together) {
            let numbers = first..data.len().min(first + together);
            let functions: Vec<LinearFunction> = numbers.map(|at| data.function(at)).collect();
            let batch = packed(batch_of_functions(&functions));
            let predicted = batch.streams.iter().map(|stream| model.predict(stream));
            let predicted = predicted.collect::<Result<Vec<_>, _>>()?.concat();
            for (function, predicted) in functions.iter().zip(predicted.chunks(settings.points)) {
                add(function, predicted, settings, &mut after);
            }
        }
        let count = data.len() as f64;
        for (examples, at) in after.iter_mut().enumerate() {
            *at = AfterExamples {
                examples,
                of_answers: at.of_answers.divided(count),
                of_values: at.of_values.divided(count),
                model_from_ridge: at.model_from_ridge / count,
            };
        }
        Ok(Self {
            split: split.to_owned(),
            functions: data.len(),
            dimensions: settings.dimensions,
            noise: settings.noise,
            after,
        })
    }

    /// Errors after twice as many examples as dimensions, or after the largest number of examples.
    fn well_known(&self) -> Option<&AfterExamples> {
        self.after.get(2 * self.dimensions).or(self.after.last())
    }

    /// Lines of a report: a table, and the distance of the model from the best predictor.
    pub(super) fn lines(&self) -> Vec<String> {
        let Self { split, functions, dimensions, noise, after } = self;
        let mut lines = vec![
            format!(
                "{split} ({functions} linear functions of {dimensions} dimensions, noise of \
                 deviation {noise})"
            ),
            "  mean squared error of y                                | of w·x alone".to_owned(),
            "  examples     model     ridge  least squares       mean |    model     ridge"
                .to_owned(),
        ];
        lines.extend(after.iter().map(|at| {
            let (y, value) = (&at.of_answers, &at.of_values);
            format!(
                "  {:>8} {:>9.4} {:>9.4} {:>14.4} {:>10.4} |{:>9.4} {:>9.4}",
                at.examples, y.model, y.ridge, y.least_squares, y.mean, value.model, value.ridge
            )
        }));
        lines.extend(self.well_known().map(|at| {
            let (y, value) = (&at.of_answers, &at.of_values);
            format!(
                "  after {} examples: {:.4}, {} ridge regression's {:.4}; of w·x alone {:.4}, {} \
                 its {:.4}",
                at.examples,
                y.model,
                above(y),
                y.ridge,
                value.model,
                above(value),
                value.ridge
            )
        }));
        lines
    }
}

/// Describes how far the model's error is above that of ridge regression.
fn above(errors: &MeanErrors) -> String {
    match errors.model / errors.ridge - 1.0 {
        // Without noise, ridge regression has no error once there are enough examples.
        share if !share.is_finite() || share > 10.0 => "beside".to_owned(),
        share if share < 0.0 => format!("{:.1} % below", -100.0 * share),
        share => format!("{:.1} % above", 100.0 * share),
    }
}

/// Adds the errors at each point of a function.
fn add(
    function: &LinearFunction,
    predicted: &[f32],
    settings: &RegressionConfig,
    after: &mut [AfterExamples],
) {
    let wide = |input: &Vec<f32>| input.iter().map(|&x| f64::from(x)).collect::<Vec<f64>>();
    let inputs: Vec<Vec<f64>> = function.inputs.iter().map(wide).collect();
    let answers: Vec<f64> = function.answers.iter().map(|&y| f64::from(y)).collect();
    let penalty = settings.noise * settings.noise;
    for (known, at) in after.iter_mut().enumerate() {
        let fit = |penalty: f64| -> f64 {
            let weights = ridge(&inputs[..known], &answers[..known], penalty);
            weights.iter().zip(&inputs[known]).map(|(weight, x)| weight * x).sum()
        };
        let of_all = MeanErrors {
            model: f64::from(predicted[known]),
            ridge: fit(penalty),
            least_squares: fit(0.0),
            mean: answers[..known].iter().sum::<f64>() / known.max(1) as f64,
        };
        at.of_answers.add(of_all, answers[known]);
        at.of_values.add(of_all, function.value(&function.inputs[known]));
        at.model_from_ridge += (of_all.model - of_all.ridge).powi(2);
    }
}
