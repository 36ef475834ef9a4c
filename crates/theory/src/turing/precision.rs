//! Precision that the decoder of a Turing machine needs in each step.

use super::decoder::distance_weight;
use super::machine::Machine;
use super::simulation::Configuration;
use taper_plots::{Axis, Chart, Figure, Series};

/// Bits that a step needs in the scores of the decoder's heads.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PrecisionStep {
    /// Index of the step, from 1.
    pub step: usize,
    /// Bits of the lookup of a cell among the positions.
    pub lookup: f64,
    /// Bits of the lookup of the last token that wrote to a cell.
    pub recall: f64,
}

impl PrecisionStep {
    /// Bits that the step needs: the larger of `lookup` and `recall`.
    #[must_use]
    pub fn bits(&self) -> f64 {
        self.lookup.max(self.recall)
    }
}

/// Computes the bits of the scores that each step of a machine needs.
///
/// A score is a sum. The gap g is the difference between the largest and the second largest score
/// of the keys, and s is the largest summand of the largest score. A step needs log₂(s/g) bits.
///
/// The lookup of a cell c among the positions k compares (2ck − k²)/(i+1), with gaps of 1/(i+1). It
/// needs log₂(2c²) bits for the farthest cell c so far. The lookup of the last token that wrote to
/// a cell compares R (2cc' − c'²) + j, with gaps of 1. Here c' is the cell that the token at
/// position j wrote to, and R is larger than the number of positions. This lookup needs log₂(2Rc²)
/// bits.
#[must_use]
pub fn precision(machine: &Machine, input: &[usize], steps: usize) -> Vec<PrecisionStep> {
    let actions = machine.simulate(input, steps).actions();
    let weight = distance_weight(input.len() + 1 + steps);
    let mut now = Configuration::first(machine, input);
    let mut farthest = input.len().saturating_sub(1) as f64;
    let bits = |ratio: f64| ratio.max(2.0).log2();
    let step = |(number, action): (usize, super::Action)| {
        now.act(action);
        farthest = farthest.max(now.head.abs() as f64);
        PrecisionStep {
            step: number + 1,
            lookup: bits(2.0 * farthest * farthest),
            recall: bits(2.0 * weight * farthest * farthest),
        }
    };
    actions.into_iter().enumerate().map(step).collect()
}

/// Figure of the bits that the steps need, with the bits of number formats for comparison.
#[must_use]
pub fn precision_figure(steps: &[PrecisionStep]) -> Figure {
    let line = |name: &str, bits: fn(&PrecisionStep) -> f64| {
        Series::line(name, steps.iter().map(|step| (step.step as f64, bits(step))).collect())
    };
    let last = steps.last().map_or(1.0, |step| step.step as f64);
    let format = |name: &str, bits| Series::dashes(name, vec![(1.0, bits), (last, bits)]);
    let series = vec![
        line("lookup of a cell", |step| step.lookup),
        line("lookup of the last token in a cell", |step| step.recall),
        format("bf16", 8.0),
        format("f32", 24.0),
    ];
    let most = steps.iter().map(PrecisionStep::bits).fold(0.0, f64::max);
    let description =
        format!("{} steps need at most {most:.1} bits; they grow as logarithms.", steps.len());
    let chart = Chart::new(Axis::linear("step"), Axis::linear("bits"), series);
    Figure::new("Bits that the steps of the machine need", description, chart)
}
