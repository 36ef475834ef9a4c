//! Any function of a few chosen positions, in one layer.
//!
//! The function depends on the bits at k of n positions. For each of the k positions, a head copies
//! the bit at this position to every token: the head's query is a constant, and its key is 1 at the
//! position and 0 elsewhere.
//!
//! The k bits have 2^k combinations. For each combination on which the function is 1, the layer has
//! a hidden unit, which is 1 if the bits are this combination, and 0 otherwise. The unit is max(s −
//! c + 1, 0). Here c is the number of ones in the combination, and s is a signed sum of the k bits:
//! a bit is added if it is 1 in the combination, and subtracted if it is 0. So s equals c for this
//! combination, and is smaller for every other one. The sum of the units is the value of the
//! function. So k heads of width 1 and at most 2^k units are enough for every n.

use super::{Findings, Study, heads};
use crate::TheoryError;
use crate::blueprint::{Blueprint, Column, Encoder, Form, Head, Layer, Unit};
use taper_model::{Model, Sequences};
use taper_ops::rng::{Counter, mix};

/// Factor of scores. The chosen token has e^64 times the weight of any other token, so the other
/// weights are lost in f32.
const HARD: f64 = 64.0;

pub(super) const STUDY: Study = Study {
    name: "sparse-connections",
    claim: "One layer computes any Boolean function of k of n positions, by k heads and 2^k units",
    run,
};

/// An encoder of bits. Each of its tokens computes the same function of a few positions.
#[derive(Debug, Clone)]
pub struct SparseFunction {
    encoder: Encoder,
    length: usize,
}

impl SparseFunction {
    /// Assembles the encoder for texts of `length` bits and a function of the bits at `positions`.
    /// Bit i of `table` is the function's value if the chosen bits are the binary number i; the bit
    /// at the first of `positions` is the lowest.
    ///
    /// # Errors
    /// If there are no bits or more than 6 positions, or a position is not in the text.
    pub fn new(length: usize, positions: &[usize], table: u64) -> Result<Self, TheoryError> {
        if length == 0 {
            let message = "a text of 0 bits has no token that computes a function: take at least 1";
            return Err(TheoryError::Input(message.to_owned()));
        }
        if positions.len() > 6 || positions.iter().any(|at| *at >= length) {
            let message = format!("at most 6 positions of {length} are chosen");
            return Err(TheoryError::Input(message));
        }
        let mut blueprint = Blueprint::new(2, length);
        let (bit, result) = (blueprint.column(), blueprint.column());
        let chosen = blueprint.columns(positions.len());
        let brought = blueprint.columns(positions.len());
        blueprint.token(1, bit, 1.0);
        let mut layer = Layer::default();
        for ((at, is_chosen), to) in positions.iter().zip(&chosen).zip(&brought) {
            blueprint.position(*at, *is_chosen, 1.0);
            layer.heads.push(Head::default().score(HARD, *is_chosen).value(bit, *to));
        }
        let combinations = (0..1_u64 << positions.len()).filter(|number| table >> number & 1 == 1);
        layer.units.extend(combinations.map(|number| combination(&brought, number, result)));
        blueprint.layer(layer);
        blueprint.logit(0, 0.5);
        blueprint.logit(1, result);
        Ok(Self { encoder: blueprint.encoder()?, length })
    }

    /// Returns, for each text, the value of the function that each of the text's tokens computes.
    ///
    /// # Errors
    /// If a text does not have the length that the encoder was made for.
    pub fn values(&self, texts: &[Vec<bool>]) -> Result<Vec<Vec<bool>>, TheoryError> {
        if texts.iter().any(|text| text.len() != self.length) {
            return Err(TheoryError::Input(format!("a text has {} bits", self.length)));
        }
        let rows = texts.iter().map(|text| text.iter().map(|bit| u32::from(*bit)).collect());
        let answers = self.encoder.answers(&Sequences::pack(&rows.collect::<Vec<Vec<u32>>>()))?;
        let values = |row: &[u32]| row.iter().map(|id| *id == 1).collect();
        Ok(answers.chunks(self.length).map(values).collect())
    }
}

/// Makes the unit that adds 1 to `to` if the bits are the binary number `number`, and 0 otherwise.
fn combination(bits: &[Column], number: u64, to: Column) -> Unit {
    let ones = f64::from(number.count_ones());
    let signed = bits
        .iter()
        .enumerate()
        .map(|(at, bit)| (*bit, if number >> at & 1 == 1 { 1.0 } else { -1.0 }));
    Unit::relu(Form::sum(signed) + (1.0 - ones)).adds(to, 1.0)
}

/// If there are at most this many functions of k bits, all of them are tried, otherwise only every
/// [`STEP`]th.
const ALL: u64 = 256;
/// Distance between the numbers of functions that are tried. The number of a function has the
/// function's values as its bits. The distance is odd, so that each value is 0 for some of the
/// functions and 1 for others.
const STEP: usize = 251;

fn run() -> Result<Findings, TheoryError> {
    let (length, mut rows) = (32, Vec::new());
    for count in 1..=4_usize {
        let functions = 1_u64 << (1_u64 << count);
        let step = if functions > ALL { STEP } else { 1 };
        let (mut tried, mut right, mut asked) = (0, 0, 0);
        let mut shape = (0, 0);
        for table in (0..functions).step_by(step) {
            let positions: Vec<usize> = (0..count).map(|at| (7 * at + 3) % length).collect();
            let function = SparseFunction::new(length, &positions, table)?;
            let texts: Vec<Vec<bool>> = (0..16).map(|text| bits(length, text)).collect();
            for (text, values) in texts.iter().zip(function.values(&texts)?) {
                let number = positions.iter().enumerate();
                let number = number.map(|(at, position)| usize::from(text[*position]) << at);
                let value = table >> number.sum::<usize>() & 1 == 1;
                asked += values.len();
                right += values.iter().filter(|one| **one == value).count();
            }
            let config = function.encoder.0.config();
            shape = (config.heads, shape.1.max(config.d_ff));
            tried += 1;
        }
        rows.push(vec![
            count.to_string(),
            format!("{tried} of {functions}"),
            shape.0.to_string(),
            shape.1.to_string(),
            format!("{right} of {asked}"),
        ]);
    }
    let columns = heads(&["k", "functions tried", "heads", "units, at most", "right answers"]);
    Ok(Findings { columns, rows, figures: Vec::new() })
}

/// Draws random bits.
fn bits(length: usize, seed: u64) -> Vec<bool> {
    let counter = Counter::new(mix(1, &[seed]));
    (0..length as u64).map(|at| counter.u64_at(at) & 1 == 1).collect()
}
