//! Draws linear functions by their indices.

use super::config::RegressionConfig;
use crate::draws::{Draws, Epoch};

/// Purpose number of the random draws of training functions (see [`crate::Draws::new`]).
const TRAINING: u64 = 12;
/// Purpose number of the random draws of functions with which a model is measured.
const MEASURED: u64 = 13;

/// A linear function and some of its points.
#[derive(Debug, Clone, PartialEq)]
pub struct LinearFunction {
    /// Weights, w.
    pub weights: Vec<f64>,
    /// Points x. Each has as many numbers as there are weights.
    pub inputs: Vec<Vec<f32>>,
    /// Value y at each point: `w·x` plus noise.
    pub answers: Vec<f32>,
}

impl LinearFunction {
    /// Computes `w·x`, without noise.
    #[must_use]
    pub fn value(&self, input: &[f32]) -> f64 {
        self.weights.iter().zip(input).map(|(weight, &x)| weight * f64::from(x)).sum()
    }
}

/// Source of the functions of an epoch of training, or of a split for measuring.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Functions {
    draws: Draws,
}

impl Functions {
    /// Functions that an epoch of a run trains on.
    pub(crate) fn of_training(epoch: Epoch) -> Self {
        Self { draws: epoch.draws(TRAINING) }
    }

    /// Functions of the split with the name `name`.
    pub(crate) fn of_split(name: &str) -> Self {
        let begin = Draws::new(name.len() as u64, 0, MEASURED);
        let draws = name.bytes().fold(begin, |draws, byte| draws.within(u64::from(byte), 0));
        Self { draws }
    }

    /// Draws the function with the index `number`. Its first points do not depend on the number of
    /// points.
    pub(crate) fn draw(self, number: usize, settings: &RegressionConfig) -> LinearFunction {
        let draws = self.draws.within(number as u64, 0);
        let dimensions = settings.dimensions;
        let weights: Vec<f64> = (0..dimensions as u64).map(|at| draws.normal(at)).collect();
        let mut function = LinearFunction { weights, inputs: Vec::new(), answers: Vec::new() };
        for point in 0..settings.points {
            let first = (dimensions + point * (dimensions + 1)) as u64;
            let input: Vec<f32> =
                (0..dimensions as u64).map(|at| draws.normal(first + at) as f32).collect();
            let noise = settings.noise * draws.normal(first + dimensions as u64);
            function.answers.push((function.value(&input) + noise) as f32);
            function.inputs.push(input);
        }
        function
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> RegressionConfig {
        RegressionConfig { dimensions: 3, points: 4, noise: 0.5, ..Default::default() }
    }

    #[test]
    fn a_function_is_known_by_seed_epoch_and_number_or_by_split_and_number() {
        let function = |seed, epoch, number| {
            Functions::of_training(Epoch::new(seed, epoch)).draw(number, &settings())
        };
        assert_eq!(function(1, 2, 3), function(1, 2, 3));
        let splits =
            ["val", "test", "test2"].map(|name| Functions::of_split(name).draw(3, &settings()));
        let others = [function(2, 2, 3), function(1, 3, 3), function(1, 2, 4)];
        let all: Vec<&LinearFunction> = splits.iter().chain(&others).collect();
        for (at, one) in all.iter().enumerate() {
            assert_ne!(**one, function(1, 2, 3));
            assert!(all[..at].iter().all(|other| other != one));
        }
    }

    #[test]
    fn more_points_or_less_noise_leave_the_rest_as_it_is() {
        let draw = |settings: &RegressionConfig| Functions::of_split("test").draw(0, settings);
        let (few, more) = (draw(&settings()), draw(&RegressionConfig { points: 9, ..settings() }));
        assert_eq!(few.weights, more.weights);
        assert_eq!(few.inputs, more.inputs[..4]);
        assert_eq!(few.answers, more.answers[..4]);
        let clean = draw(&RegressionConfig { noise: 0.0, ..settings() });
        assert_eq!(clean.inputs, few.inputs);
        for (input, &answer) in clean.inputs.iter().zip(&clean.answers) {
            assert_eq!(clean.value(input) as f32, answer);
        }
        assert!(clean.answers.iter().zip(&few.answers).all(|(one, other)| one != other));
    }

    /// Checks the means and variances of many draws; each must be within five standard errors.
    #[test]
    fn weights_points_and_noise_are_normal() {
        let settings = RegressionConfig { dimensions: 2, points: 5, ..settings() };
        let (mut weights, mut inputs, mut noise) = (Vec::new(), Vec::new(), Vec::new());
        for number in 0..4000 {
            let function = Functions::of_training(Epoch::new(1, 0)).draw(number, &settings);
            weights.extend(&function.weights);
            for (input, &answer) in function.inputs.iter().zip(&function.answers) {
                inputs.extend(input.iter().map(|&x| f64::from(x)));
                noise.push(f64::from(answer) - function.value(input));
            }
        }
        for (values, deviation) in [(weights, 1.0), (inputs, 1.0), (noise, 0.5)] {
            let (count, variance) = (values.len() as f64, deviation * deviation);
            let mean = values.iter().sum::<f64>() / count;
            let measured = values.iter().map(|x| x * x).sum::<f64>() / count;
            assert!(mean.abs() < 5.0 * deviation / count.sqrt(), "{mean}");
            assert!(
                (measured - variance).abs() < 5.0 * variance * (2.0 / count).sqrt(),
                "{measured}"
            );
        }
    }
}
