//! In-context regression (Garg et al. 2022, "What Can Transformers Learn In-Context?", section 2):
//! a causal stack reads the points of a function one after the other, and predicts the y of each x
//! from the points before it.
//!
//! **Decision.** A function is a sequence of ids, like a text or an image; here the ids are the
//! bits of f32 numbers. So the code that makes batches, divides them and exchanges them between
//! processes needs no special case for numbers.

use crate::config::ModelConfig;
use crate::cost::{LayerCost, PartCost};
use crate::layers::head::picked;
use crate::layers::linear::Linear;
use crate::layers::positions::Added;
use crate::layers::stack::Stack;
use crate::layers::stack::StackKind;
use crate::layers::stack::block::Block;
use crate::{Batch, Builder, LossOutput, LossSpec, Model, ModelCore, ModelError, Pass, Sequences};
use candle_core::{DType, Result, Tensor};
use std::sync::Arc;
use taper_ops::rng::name_key;
use taper_ops::{Dropout, EmbeddingSpec, composed, converted};

/// A model that continues functions, with its parameters: a linear layer that reads points, causal
/// layers, and a linear layer that predicts one number.
///
/// Like a language model, it is the decoder of a [`ModelConfig`] without attention to an encoder.
/// An x is the token `(0, x)`, and a y is the token `(y, 0)`, so that the model can distinguish
/// them whatever the position encoding (Akyürek et al. 2023, "What learning algorithm is in-context
/// learning?", section 3.1).
#[derive(Debug, Clone)]
pub struct InContextRegressor {
    dimensions: usize,
    core: ModelCore,
    read_in: Linear,
    positions: Added,
    decoder: Stack,
    read_out: Linear,
}

/// Numbers of a batch, arranged as tokens.
struct Tokens {
    /// Values of N tokens, `(N, d + 1)`, where d is the number of dimensions of x.
    rows: Vec<f32>,
    /// Division of the tokens into functions: only the lengths are set, not the ids.
    divided: Sequences,
    /// Indices of the tokens that stand for an x.
    inputs: Arc<[u32]>,
}

impl InContextRegressor {
    /// Makes a model from `builder`, for functions of `dimensions` variables.
    ///
    /// # Errors
    /// If the configuration is impossible, or the device has no memory left.
    pub fn new(
        config: &ModelConfig,
        dimensions: usize,
        builder: Builder,
    ) -> std::result::Result<Self, ModelError> {
        builder.check(|| {
            config.validate_transformer()?;
            if dimensions == 0 {
                return Err(ModelError::Config("a function has at least one dimension".to_owned()));
            }
            Ok(())
        })?;
        let mut builder = builder.with_biases(config.biases);
        let build = &mut builder;
        let width = config.d_model;
        let read_in = Linear::new(build, "read_in", dimensions + 1, width, 1)?;
        // The backward pass needs the tokens, for the gradient of their projection, and the
        // projected tokens with their positions added.
        build.count(PartCost::kept(dimensions + 1 + width));
        let positions = Added::new(build, "decoder.positions", config)?;
        let layers = config.decoder_layers;
        let decoder = Stack::new(build, "decoder", config, layers, StackKind::DecoderOnly)?;
        build.count(PartCost::kept(width));
        let read_out = Linear::new(build, "read_out", width, 1, 1)?;
        let core = builder.finish(config, &["function"]);
        Ok(Self { dimensions, core, read_in, positions, decoder, read_out })
    }

    /// Number of dimensions of x.
    #[must_use]
    pub fn dimensions(&self) -> usize {
        self.dimensions
    }

    /// Splits each function into tokens. A function is the numbers x₁, y₁, x₂ …, and ends with an
    /// x.
    fn tokens(&self, functions: &Sequences) -> std::result::Result<Tokens, ModelError> {
        functions.check()?;
        let (dimensions, width) = (self.dimensions, self.dimensions + 1);
        if let Some(length) =
            functions.lengths.iter().find(|&length| !(length + 1).is_multiple_of(width))
        {
            return Err(ModelError::Batch(format!(
                "a function of {dimensions} dimensions has {dimensions} numbers for each x and one \
                 for each y but the last, not {length} numbers"
            )));
        }
        let mut rows = Vec::with_capacity(2 * functions.ids.len());
        let (mut lengths, mut inputs) = (Vec::new(), Vec::new());
        let mut first = 0;
        for &length in &functions.lengths {
            let numbers = &functions.ids[first..first + length];
            first += length;
            let before = rows.len() / width;
            for point in numbers.chunks(width) {
                inputs.push((rows.len() / width) as u32);
                let (input, answer) = point.split_at(dimensions);
                rows.push(0.0);
                rows.extend(input.iter().map(|&bits| f32::from_bits(bits)));
                if let [bits] = answer {
                    rows.push(f32::from_bits(*bits));
                    rows.resize(rows.len() + dimensions, 0.0);
                }
            }
            lengths.push(rows.len() / width - before);
        }
        let divided = Sequences { ids: Vec::new(), lengths };
        Ok(Tokens { rows, divided, inputs: inputs.into() })
    }

    /// Predicts the y of each x from the points before it and from x, in f32.
    ///
    /// # Shapes
    /// Tokens of functions that have P points in total → `(P, 1)`.
    fn predicted(&self, tokens: Tokens, pass: &Pass) -> Result<Tensor> {
        let Tokens { rows, divided, inputs } = tokens;
        let count = rows.len() / (self.dimensions + 1);
        let device = self.read_in.device();
        let rows = Tensor::from_vec(rows, (count, self.dimensions + 1), device)?;
        let activations = self.core.activations;
        let rows = self.read_in.forward(&rows.to_dtype(activations)?, pass)?; // (N, D)
        let rows = converted(pass.tape(), &rows, DType::F32)?;
        let (positions, at) =
            self.positions.table(divided.positions(), divided.longest(), pass, device)?;
        let spec = EmbeddingSpec {
            ids: (0..count as u32).collect(),
            positions: at,
            scale: 1.0,
            dropout: pass.dropout(self.config().embedding_dropout, name_key("decoder.embedding")),
        };
        let x = taper_ops::embedding(pass.tape(), &rows, positions.as_ref(), &spec)?;
        let x = converted(pass.tape(), &x, activations)?;
        let hidden = self.decoder.forward(x, &divided, None, pass)?; // (N, D), N tokens
        let predicted_rows = picked(&hidden, inputs, Dropout::none(), pass)?; // (P, D)
        converted(pass.tape(), &self.read_out.forward(&predicted_rows, pass)?, DType::F32)
    }

    /// Predicts y at each x of `functions`, and returns the predictions of one function after the
    /// other. Each sequence has the bits of the numbers x₁, y₁, x₂ … of a function, up to the last
    /// x.
    ///
    /// # Errors
    /// If the length of a sequence does not fit the dimensions, or exceeds the learned positions.
    pub fn predict(&self, functions: &Sequences) -> std::result::Result<Vec<f32>, ModelError> {
        let tokens = self.tokens(functions)?;
        let predicted = || self.predicted(tokens, &Pass::evaluate());
        let predicted = taper_ops::threads::in_pool(self.core.store.device(), predicted)?;
        Ok(predicted.flatten_all()?.to_vec1()?)
    }
}

/// Reads one stream (kind of input of a batch), the numbers of functions. Each y is predicted at
/// the first number of the x to which it belongs.
impl Model for InContextRegressor {
    fn predicts_classes() -> bool {
        false
    }

    fn core(&self) -> &ModelCore {
        &self.core
    }

    fn layer_cost(config: &ModelConfig, layer: usize) -> LayerCost {
        Block::cost(config, StackKind::DecoderOnly, layer)
    }

    /// Computes `Σ (ŷ − y)²` over all points.
    fn loss_of_pass(
        &self,
        batch: &Batch,
        spec: LossSpec<'_>,
    ) -> std::result::Result<LossOutput, ModelError> {
        let LossSpec { objective, scale, pass } = spec;
        let refuse = |message: &str| Err(ModelError::Batch(message.to_owned()));
        if objective.r_drop > 0.0 {
            return refuse(
                "training.r_drop compares probabilities, and a number has none: set it to 0",
            );
        }
        let [functions] = batch.read(["function"])?;
        let tokens = self.tokens(functions)?;
        if batch.asked.as_deref() != Some(&*self.first_numbers(functions)) {
            return refuse("a function is asked for its value at the first number of each x");
        }
        let answers: Vec<f32> = batch.answers.iter().map(|&bits| f32::from_bits(bits)).collect();
        let count = answers.len();
        let predicted = self.predicted(tokens, pass)?; // (P, 1)
        let answers = Tensor::from_vec(answers, (count, 1), predicted.device())?;
        let sum: f64 =
            (predicted.detach() - &answers)?.to_dtype(DType::F64)?.sqr()?.sum_all()?.to_scalar()?;
        let loss = composed::on_tape(pass.tape(), "squared error", &[&predicted], |inputs| {
            (&inputs[0] - &answers)?.sqr()?.sum_all()? * scale
        })?;
        Ok(LossOutput::of_sum(loss, sum, 0, count))
    }
}

impl InContextRegressor {
    /// Indices, in the stream, of the first number of each x.
    fn first_numbers(&self, functions: &Sequences) -> Vec<u32> {
        let (mut first, mut rows) = (0, Vec::new());
        for &length in &functions.lengths {
            rows.extend((first..first + length).step_by(self.dimensions + 1).map(|at| at as u32));
            first += length;
        }
        rows
    }
}
