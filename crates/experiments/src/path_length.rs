//! Lengths of the paths that signals take from a token to a later token. In a recurrent layer, the
//! path goes through every step between the two tokens (Bengio et al. 1994, "Learning Long-Term
//! Dependencies with Gradient Descent is Difficult"). With attention, the path goes through one
//! layer (Vaswani et al. 2017, section 4 and table 1).
//!
//! The decoder of a translation model reads a text whose tokens all differ. At the last token of
//! the text, the decoder is asked for the first token. The source is one token, which is the same
//! for all texts. Each token occurs only once in a text, so the gradient with respect to a token's
//! row of the embedding matrix is the gradient with respect to the one position where the token
//! stands.

use candle_core::{DType, Device, Tensor};
use taper_model::{
    Architecture, AttentionConfig, AttentionKind, Batch, Builder, CellKind, ConvolutionalConfig,
    Model, ModelConfig, Objective, Pass, RecurrentAttention, RecurrentConfig, Sequences, Tied,
    TranslationModel,
};
use taper_ops::Gradients;
use taper_ops::rng::{Counter, mix};
use taper_plots::{Axis, Chart, Figure, Series};
use taper_theory::TheoryError;
use taper_theory::studies::{Findings, Study, heads};

use crate::lesson::Lesson;

pub(crate) const STUDY: Study = Study {
    name: "path-length",
    claim: "Between two tokens lie as many steps as tokens in a recurrent layer, fewer layers of \
            convolutions, and one layer of attention: what learns over a distance, and how gradients \
            fade",
    run,
};

/// Number of tokens of the longest text.
const LONGEST: usize = 32;
/// Size of the vocabulary; a text has each token at most once.
const VOCABULARY: usize = 48;
/// Width of the layers.
const WIDTH: usize = 32;
/// Number of tokens that a convolution sees.
const KERNEL: usize = 5;
/// Number of tokens to which a token attends in a window, including itself.
const WINDOW: usize = 8;
/// Number of texts in a batch.
const ROWS: u64 = 64;
/// Seed of the weights and of the training texts.
const SEED: u64 = 1;
/// Number of updates of a training.
const UPDATES: u64 = 500;
/// Number of texts over which gradients are averaged.
const TEXTS: u64 = 32;
/// Number of texts on which answers are counted.
const ASKED: u64 = 256;
/// Seed of the texts for measurements, which are not trained on.
const HELD_OUT: u64 = 1 << 32;

/// Kind of layers that carry information from a token to later tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carrier {
    /// Gated recurrent units (Cho et al. 2014).
    Gru,
    /// Long short-term memory (Hochreiter and Schmidhuber 1997).
    Lstm,
    /// Causal convolutions of five tokens (Gehring et al. 2017).
    Convolution,
    /// Attention to the last eight tokens.
    Window,
    /// Attention to all tokens so far.
    Attention,
}

impl Carrier {
    /// All kinds, each as its name, the kind, and a number of layers: the smallest number with
    /// which the state of the last of [`LONGEST`] tokens depends on the first token.
    pub const ALL: [(&'static str, Self, usize); 5] = [
        ("GRU", Self::Gru, 1),
        ("LSTM", Self::Lstm, 1),
        ("convolutions of 5", Self::Convolution, 8),
        ("attention to 8", Self::Window, 5),
        ("attention", Self::Attention, 1),
    ];

    /// Length of the shortest path between two tokens at a distance of `distance` tokens, by
    /// formula. For recurrent layers it is the number of steps, including the step that reads the
    /// first of the two tokens. For other layers it is the number of layers.
    #[must_use]
    pub fn path(self, distance: usize) -> usize {
        match self {
            Self::Gru | Self::Lstm => distance + 1,
            Self::Convolution => distance.div_ceil(KERNEL - 1).max(1),
            Self::Window => distance.div_ceil(WINDOW - 1).max(1),
            Self::Attention => 1,
        }
    }

    /// Length of the shortest path between two tokens at a distance of `distance` tokens, measured
    /// on untrained models. For recurrent layers it is the number of states through which the
    /// gradient passes. For other layers it is the smallest number of layers with which the
    /// gradient is not 0.
    ///
    /// # Errors
    /// If the memory is exhausted.
    pub fn measured_path(self, distance: usize) -> Result<usize, TheoryError> {
        if matches!(self, Self::Gru | Self::Lstm) {
            let states = FirstToken::train(self, 1, (0, 1))?.states_passed(distance + 1)?;
            return Ok(states);
        }
        let mut layers = 1;
        while FirstToken::train(self, layers, (0, 1))?.gradients(distance + 1, 1)?[distance] == 0.0
        {
            layers += 1;
        }
        Ok(layers)
    }

    fn config(self, layers: usize) -> ModelConfig {
        let architecture = match self {
            Self::Gru | Self::Lstm => Architecture::Recurrent,
            Self::Convolution => Architecture::Convolutional,
            Self::Window | Self::Attention => Architecture::Transformer,
        };
        let cell = if self == Self::Lstm { CellKind::Lstm } else { CellKind::Gru };
        let kind = if self == Self::Window { AttentionKind::Sparse } else { AttentionKind::Full };
        ModelConfig {
            architecture,
            d_model: WIDTH,
            d_ff: 2 * WIDTH,
            heads: 2,
            encoder_layers: 1,
            decoder_layers: layers,
            tied: Tied::None,
            recurrent: RecurrentConfig {
                cell,
                width: WIDTH,
                attention: RecurrentAttention::None,
                bidirectional: false,
            },
            convolutional: ConvolutionalConfig { kernel: KERNEL },
            decoder_attention: AttentionConfig {
                kind,
                block: 1,
                window: WINDOW,
                ..AttentionConfig::default()
            },
            ..ModelConfig::default().with_dropout(0.0)
        }
    }
}

/// Draws a text of `length` tokens that all differ.
fn draw(key: u64, length: usize) -> Vec<u32> {
    let counter = Counter::new(key);
    let mut tokens: Vec<u32> = (0..VOCABULARY as u32).collect();
    tokens.sort_by_key(|token| counter.u64_at(u64::from(*token)));
    tokens.truncate(length);
    tokens
}

/// Makes a batch of texts in which the answer is asked for at the last token of each text.
fn asked(texts: &[Vec<u32>], answers: Vec<u32>) -> Batch {
    let sources = vec![vec![0]; texts.len()];
    let mut end = 0;
    let last = texts.iter().map(|text| {
        end += text.len() as u32;
        end - 1
    });
    let rows = last.collect();
    let streams = vec![Sequences::pack(&sources), Sequences::pack(texts)];
    Batch { asked: Some(rows), ..Batch::new(streams, answers) }
}

/// A decoder that is asked, at the last token of a text, for the first token of the text.
#[derive(Debug)]
pub struct FirstToken(TranslationModel);

impl FirstToken {
    /// Trains a decoder of `layers` layers on texts of `shortest` to 32 tokens. With 0 updates, the
    /// decoder keeps its random weights.
    ///
    /// # Errors
    /// If the training fails.
    pub fn train(
        carrier: Carrier,
        layers: usize,
        (updates, shortest): (u64, usize),
    ) -> Result<Self, TheoryError> {
        let builder = Builder::seeded(SEED, &Device::Cpu, DType::F32);
        let model = TranslationModel::new(&carrier.config(layers), 2, VOCABULARY, builder)?;
        if updates == 0 {
            return Ok(Self(model));
        }
        let lesson = Lesson { updates, learning_rate: 3e-3 };
        let model = lesson.teach(model, SEED, |key| {
            let text = |row| {
                let key = mix(key, &[row]);
                let more = mix(key, &[1]) % (LONGEST + 1 - shortest) as u64;
                draw(key, shortest + more as usize)
            };
            let texts: Vec<_> = (0..ROWS).map(text).collect();
            let answers = texts.iter().map(|text| text[0]).collect();
            asked(&texts, answers)
        })?;
        Ok(Self(model))
    }

    /// Computes the share of texts of `length` tokens whose first token the decoder names.
    ///
    /// # Errors
    /// If the memory is exhausted.
    pub fn right(&self, length: usize) -> Result<f64, TheoryError> {
        let text = |number| draw(mix(HELD_OUT, &[length as u64, number]), length);
        let texts: Vec<_> = (0..ASKED).map(text).collect();
        let answers: Vec<u32> = texts.iter().map(|text| text[0]).collect();
        let batch = asked(&texts, answers);
        let pass = Pass::evaluate();
        let encoded = self.0.encode(&batch.streams[0], &pass)?;
        let hidden = self.0.decode(&batch.streams[1], &encoded, &pass)?;
        let rows = Tensor::new(batch.asked.as_deref().unwrap_or_default(), &Device::Cpu)?;
        let logits = self.0.logits(&hidden.index_select(&rows, 0)?, &pass)?;
        let named: Vec<u32> = logits.argmax(1)?.to_vec1()?;
        let right = named.iter().zip(&batch.answers).filter(|(one, other)| one == other).count();
        Ok(right as f64 / ASKED as f64)
    }

    /// Computes the gradients of the loss at the last token of a text. The answer in this loss is a
    /// wrong one, drawn at random. With the right answer, the loss of a trained model is small, and
    /// its gradients would be small for this reason too, not only because of the distance.
    fn slope(&self, text: &[u32], key: u64, pass: Pass) -> Result<Gradients, TheoryError> {
        let others = text.len().max(2) as u64 - 1;
        let wrong = match text.len() {
            1 => (text[0] + 1) % VOCABULARY as u32,
            _ => text[1 + (mix(key, &[2]) % others) as usize],
        };
        let batch = asked(&[text.to_vec()], vec![wrong]);
        let store = self.0.parameters();
        let mut gradients = Gradients::new(store)?;
        let loss = self.0.loss(&batch, &Objective::smoothed(0.0), 1.0, &pass)?;
        pass.backward(&loss, store, &mut gradients)?;
        Ok(gradients)
    }

    /// Gradient norms by distance from the last token. Each gradient is that of the loss at the
    /// last token. The value at index `distance` is the norm of the gradient with respect to the
    /// embedding of the token that is `distance` tokens before the last. Norms are root mean
    /// squares over `texts` texts of `length` tokens.
    ///
    /// # Errors
    /// If the memory is exhausted.
    ///
    /// # Panics
    /// If the model has no target embedding.
    pub fn gradients(&self, length: usize, texts: u64) -> Result<Vec<f64>, TheoryError> {
        let store = self.0.parameters();
        let table = store.get("target_embedding.weight").expect("an embedding");
        let mut squares = vec![0.0; length];
        for number in 0..texts {
            let key = mix(HELD_OUT, &[number]);
            let text = draw(key, length);
            let mut gradients = self.slope(&text, key, Pass::train(1, 1, 0))?;
            let flat = gradients.flat()?.narrow(0, table.offset(), table.len())?;
            let rows = flat.reshape((VOCABULARY, WIDTH))?.to_dtype(DType::F64)?;
            let norms: Vec<f64> = rows.sqr()?.sum(1)?.to_vec1()?;
            for (distance, token) in text.iter().rev().enumerate() {
                squares[distance] += norms[*token as usize] / texts as f64;
            }
        }
        Ok(squares.into_iter().map(f64::sqrt).collect())
    }

    /// Counts the states of the decoder's recurrent layers through which the gradient passes. These
    /// are the states with respect to which the loss at the last token has a gradient that is not
    /// 0.
    fn states_passed(&self, length: usize) -> Result<usize, TheoryError> {
        let pass = Pass::train(1, 1, 0).noting_states();
        let batch = asked(&[draw(HELD_OUT, length)], vec![0]);
        let store = self.0.parameters();
        let loss = self.0.loss(&batch, &Objective::smoothed(0.0), 1.0, &pass)?;
        let noted = pass.state_gradients();
        pass.backward(&loss, store, &mut Gradients::new(store)?)?;
        let of_decoder = noted.iter().filter(|(layer, _)| layer.starts_with("decoder"));
        let norms = of_decoder.flat_map(|(_, states)| states.norms());
        Ok(norms.filter(|norm| *norm > 0.0).count())
    }
}

/// Points (distance, norm) of a curve. The norm is the gradient norm at this distance, divided by
/// the gradient norm at the last token.
fn relative(model: &FirstToken) -> Result<Vec<(f64, f64)>, TheoryError> {
    let norms = model.gradients(LONGEST, TEXTS)?;
    let point = |(distance, norm): (usize, &f64)| (distance as f64, norm / norms[0]);
    Ok(norms.iter().enumerate().map(point).collect())
}

fn run() -> Result<Findings, TheoryError> {
    let last = LONGEST - 1;
    let (mut rows, mut series) = (Vec::new(), Vec::new());
    for (colour, (name, carrier, layers)) in Carrier::ALL.into_iter().enumerate() {
        let mut row = vec![name.to_owned(), layers.to_string()];
        for distance in [1, last] {
            let paths = (carrier.path(distance), carrier.measured_path(distance)?);
            row.push(format!("{} / {}", paths.0, paths.1));
        }
        let fresh = relative(&FirstToken::train(carrier, layers, (0, 1))?)?;
        let reader = FirstToken::train(carrier, layers, (UPDATES, 1))?;
        let trained = relative(&reader)?;
        row.extend([&fresh, &trained].map(|points| format!("{:.1e}", points[last].1)));
        row.extend([percent(reader.right(8)?), percent(reader.right(LONGEST)?)]);
        let of_long = FirstToken::train(carrier, layers, (UPDATES, LONGEST))?;
        row.push(percent(of_long.right(LONGEST)?));
        rows.push(row);
        series.push(Series::line(name, fresh).coloured(colour));
        series.push(Series::dashes(format!("{name}, trained"), trained).coloured(colour));
    }
    let chart = Chart::new(
        Axis::linear("distance, in tokens"),
        Axis::log("gradient, of the last's"),
        series,
    );
    let title = "Gradients by distance, in five kinds of layers";
    let description = "Norm of the gradient with respect to a token's vector, divided by the norm \
                       for the last token, before training and after it.";
    let figure = Figure::new(title, description, chart);
    Ok(Findings {
        columns: heads(&[
            "layers",
            "number",
            "path over 1, by formula / measured",
            "over 31",
            "gradient at 31",
            "trained",
            "right over 7",
            "over 31",
            "over 31, of long texts alone",
        ]),
        rows,
        figures: vec![("path-length".to_owned(), figure)],
    })
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}
