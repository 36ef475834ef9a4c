//! Errors of a model that predicts values of functions from examples.

use serde::Serialize;

/// Errors of a model on linear functions `y = w·x + noise`. It predicts the y of each x from the
/// examples (x, y) before it.
#[derive(Debug, Clone, Serialize)]
pub struct RegressedTestSet {
    /// Name of the split.
    pub split: String,
    /// Number of functions.
    pub functions: usize,
    /// Number of dimensions of each x.
    pub dimensions: usize,
    /// Standard deviation of the noise on each y.
    pub noise: f64,
    /// Mean errors over the functions; the entry at index `n` is for predictions from `n` examples.
    pub after: Vec<ExampleErrors>,
}

/// Mean errors of predictions from a certain number of examples.
#[derive(Debug, Clone, Default, Serialize)]
pub struct ExampleErrors {
    /// Number of examples.
    pub examples: usize,
    /// Mean squared distance of predictions from y, which includes noise that no predictor can
    /// know.
    pub of_answers: MeanErrors,
    /// Mean squared distance of predictions from `w·x`, the value without noise.
    pub of_values: MeanErrors,
    /// Mean squared distance between the predictions of the model and of ridge regression.
    pub model_from_ridge: f64,
}

/// Mean squared error of each predictor.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct MeanErrors {
    /// Error of the model.
    pub model: f64,
    /// Error of ridge regression with the variance of the noise as penalty, which is the best
    /// possible predictor.
    pub ridge: f64,
    /// Error of least squares. If there are fewer examples than dimensions, several w fit them
    /// exactly, and the shortest w is used.
    pub least_squares: f64,
    /// Error of a predictor that returns the mean y of the examples, or 0 without examples.
    pub mean: f64,
}

impl RegressedTestSet {
    /// Errors of predictions from twice as many examples as there are dimensions or, if no function
    /// has so many, from the largest number of examples.
    fn well_known(&self) -> Option<&ExampleErrors> {
        self.after.get(2 * self.dimensions).or(self.after.last())
    }

    /// Lines of a report for people: a table, and the distance of the model from ridge regression,
    /// the best predictor.
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

/// Words that relate the model's error to the error of ridge regression, such as `3.0 % above`.
fn above(errors: &MeanErrors) -> String {
    match errors.model / errors.ridge - 1.0 {
        // Without noise, ridge regression has no error if there are enough examples. A ratio then
        // says nothing.
        share if !share.is_finite() || share > 10.0 => "beside".to_owned(),
        share if share < 0.0 => format!("{:.1} % below", -100.0 * share),
        share => format!("{:.1} % above", 100.0 * share),
    }
}
