//! Errors of a model that predicts values of linear functions from examples. They are compared with
//! the errors of predictors that are made for linear functions.

mod ridge;

use anyhow::Result;
use taper_data::{LinearFunction, RegressionConfig, RegressionDataset, batch_of_functions};
use taper_model::InContextRegressor;

use super::{ExampleErrors, MeanErrors, RegressedTestSet, Split};
use crate::training::packed;
use ridge::ridge;

impl MeanErrors {
    /// Adds the squared errors of the predictions `predicted`; `right` is the correct value.
    fn add(&mut self, predicted: Self, right: f64) {
        let error = |value: f64| (value - right) * (value - right);
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
    /// Lets `model` predict the values of a split's functions from examples, and measures its
    /// errors.
    ///
    /// # Errors
    /// When functions have more points than the model has positions, or the device fails.
    pub(crate) fn evaluate(split: Split<'_>, model: &InContextRegressor) -> Result<Self> {
        let config = split.config;
        let data = RegressionDataset::of_split(&config.data, split.name);
        let settings = &config.data.regression;
        let together = (config.data.batching.planned_tokens() / settings.tokens()).max(1);
        let mut after = vec![ExampleErrors::default(); settings.points];
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
            *at = ExampleErrors {
                examples,
                of_answers: at.of_answers.divided(count),
                of_values: at.of_values.divided(count),
                model_from_ridge: at.model_from_ridge / count,
            };
        }
        Ok(Self {
            split: split.name.to_owned(),
            functions: data.len(),
            dimensions: settings.dimensions,
            noise: settings.noise,
            after,
        })
    }
}

/// Adds the errors for one function to `after`. The entry of `after` at index `n` is for
/// predictions from `n` examples.
fn add(
    function: &LinearFunction,
    predicted: &[f32],
    settings: &RegressionConfig,
    after: &mut [ExampleErrors],
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
