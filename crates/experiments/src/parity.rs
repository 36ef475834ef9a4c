//! Functions of n bits. One layer of attention learns some of them, but it does not learn PARITY
//! (Hahn 2020, "Theoretical Limitations of Self-Attention in Neural Sequence Models", section 6;
//! Hahn and Rofin 2024, "Why are Sensitive Functions Hard for Transformers?", section 4).
//!
//! A text has the form `b₁ … b_n =`, and the value of the function follows it. The value of
//! MAJORITY is almost determined by the average of the bits. XOR of the last two bits depends on
//! only two positions. PARITY, however, changes whenever one of the n bits changes. A model can
//! also write PARITY step by step: the parity of b₁, then of b₁ and b₂, and so on. Then each token
//! that it writes is again a function of only two tokens: the parity so far, and the next bit.

use candle_core::{DType, Device, Tensor};
use taper_model::{Batch, Builder, LanguageModel, Model, ModelConfig, Pass, Positions, Sequences};
use taper_ops::rng::{Counter, mix};
use taper_plots::{Axis, Chart, Figure, Series};
use taper_theory::TheoryError;
use taper_theory::studies::{END_OF_BITS, Findings, Study, heads, parity_decoder};

use crate::lesson::Lesson;

pub(crate) const STUDY: Study = Study {
    name: "parity",
    claim: "One layer learns averages and functions of few bits; PARITY, which it can compute, it \
            learns only step by step",
    run,
};

/// Number of texts in a batch.
const ROWS: u64 = 64;
/// Number of texts on which answers are counted.
const ASKED: u64 = 512;
/// Number of updates of a training.
const UPDATES: u64 = 500;
/// Seed of the texts on which answers are counted.
const HELD_OUT: u64 = 1 << 32;

/// A function of bits that a layer is to learn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BitFunction {
    /// 1 if more than half of the bits are 1.
    Majority,
    /// 1 if the last two bits differ.
    XorOfLast,
    /// 1 if the number of ones is odd.
    Parity,
    /// Parities of the first bit, of the first two bits, and so on, each in a token of its own.
    ParityByStep,
}

impl BitFunction {
    /// All functions, with their names.
    pub const ALL: [(&'static str, Self); 4] = [
        ("MAJORITY", Self::Majority),
        ("XOR of the last two bits", Self::XorOfLast),
        ("PARITY", Self::Parity),
        ("PARITY, step by step", Self::ParityByStep),
    ];

    /// Returns the tokens of the answer. The last of them is the function's value.
    fn answers(self, bits: &[u32]) -> Vec<u32> {
        let ones: u32 = bits.iter().sum();
        match self {
            Self::Majority => vec![u32::from(2 * ones as usize > bits.len())],
            Self::XorOfLast => vec![bits[bits.len() - 2] ^ bits[bits.len() - 1]],
            Self::Parity => vec![ones % 2],
            Self::ParityByStep => bits
                .iter()
                .scan(0, |parity, bit| {
                    *parity ^= bit;
                    Some(*parity)
                })
                .collect(),
        }
    }

    /// Draws `rows` texts of `length` bits, and their answers.
    fn batch(self, length: usize, rows: u64, key: u64) -> Batch {
        let (mut texts, mut answers, mut asked, mut end) = (Vec::new(), Vec::new(), Vec::new(), 0);
        for row in 0..rows {
            let counter = Counter::new(mix(key, &[row]));
            let mut text: Vec<u32> =
                (0..length as u64).map(|at| (counter.u64_at(at) & 1) as u32).collect();
            let answer = self.answers(&text);
            text.push(END_OF_BITS as u32);
            text.extend(&answer[..answer.len() - 1]);
            end += text.len() as u32;
            asked.extend(end - answer.len() as u32..end);
            texts.push(text);
            answers.extend(answer);
        }
        Batch { asked: Some(asked), ..Batch::new(vec![Sequences::pack(&texts)], answers) }
    }
}

/// Trains a decoder of one layer on a function of `length` bits. Returns the share of
/// [`right_answers`] of the trained decoder.
///
/// # Errors
/// If the training fails.
pub fn learned(
    function: BitFunction,
    length: usize,
    updates: u64,
    seed: u64,
) -> Result<f64, TheoryError> {
    let config = ModelConfig {
        d_model: 64,
        d_ff: 128,
        heads: 2,
        decoder_layers: 1,
        positions: Positions::Rotary,
        max_positions: 2 * length + 1,
        scale_embeddings: false,
        ..ModelConfig::default().with_dropout(0.0)
    };
    let builder = Builder::seeded(seed, &Device::Cpu, DType::F32);
    let model = LanguageModel::new(&config, 3, builder)?;
    let lesson = Lesson { updates, learning_rate: 5e-3 };
    let model = lesson.teach(model, seed, |key| function.batch(length, ROWS, key))?;
    right_answers(&model, function, length)
}

/// Computes the share of texts of `length` bits for which a decoder finds the right value. The
/// decoder writes the answer token by token, and only the last token, the value, is compared.
///
/// # Errors
/// If a text with its answer is longer than the decoder allows.
pub fn right_answers(
    model: &LanguageModel,
    function: BitFunction,
    length: usize,
) -> Result<f64, TheoryError> {
    let asked = function.batch(length, ASKED, HELD_OUT);
    let steps = asked.answers.len() / ASKED as usize;
    let texts = asked.streams[0].ids.chunks(length + steps);
    let mut texts: Vec<Vec<u32>> = texts.map(|text| text[..=length].to_vec()).collect();
    for _ in 0..steps {
        let written = next(model, &texts)?;
        texts.iter_mut().zip(written).for_each(|(text, token)| text.push(token));
    }
    let values = asked.answers.chunks(steps).map(|answers| answers.last());
    let right = texts.iter().zip(values).filter(|(text, value)| text.last() == *value).count();
    Ok(right as f64 / ASKED as f64)
}

/// Returns the likeliest token after each text.
fn next(model: &LanguageModel, texts: &[Vec<u32>]) -> Result<Vec<u32>, TheoryError> {
    let packed = Sequences::pack(texts);
    let pass = Pass::evaluate();
    let hidden = model.hidden(&packed, &pass)?; // (N, D): N tokens, width D
    let length = texts.first().map_or(0, Vec::len) as u32;
    let last = (1..=texts.len() as u32).map(|text| text * length - 1);
    let last = hidden.index_select(&Tensor::from_iter(last, model.device())?, 0)?; // (texts, D)
    Ok(model.logits(&last, &pass)?.argmax(1)?.to_vec1()?)
}

fn run() -> Result<Findings, TheoryError> {
    let lengths = [4, 8, 16, 24];
    let (mut rows, mut series) = (Vec::new(), Vec::new());
    let trained = BitFunction::ALL.map(|(name, function)| (name, Some(function)));
    for (name, function) in trained.into_iter().chain([("PARITY, weights by hand", None)]) {
        let mut points = Vec::new();
        for length in lengths {
            let share = match function {
                Some(function) => learned(function, length, UPDATES, 1)?,
                None => right_answers(&parity_decoder(length)?.0, BitFunction::Parity, length)?,
            };
            points.push((length as f64, share));
        }
        let shown = points.iter().map(|(_, share)| format!("{:.1} %", 100.0 * share));
        rows.push([name.to_owned()].into_iter().chain(shown).collect());
        series.push(Series::line(name, points));
    }
    let chart = Chart::new(Axis::linear("bits, n"), Axis::linear("right answers"), series);
    let title = "Functions of n bits, learned by one layer";
    let description = "All but PARITY are learned at any length; PARITY is at the flip of a coin.";
    let figure = Figure::new(title, description, chart);
    let names = lengths.map(|length| format!("n = {length}"));
    let columns = [heads(&["function"]), names.to_vec()].concat();
    Ok(Findings { columns, rows, figures: vec![("parity".to_owned(), figure)] })
}
