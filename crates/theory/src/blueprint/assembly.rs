//! Makes models with weights from blueprints, which consist of columns, heads and units.

use super::{Blueprint, Column, Form, Layer, Row, Unit};
use crate::TheoryError;
use candle_core::{DType, Device, Tensor};
use taper_model::{
    ActivationKind, Builder, FeedForwardKind, InContextRegressor, LanguageModel,
    MaskedLanguageModel, Model, ModelConfig, NormKind, Pass, Positions, Sequences, Tied,
};
use taper_ops::ParameterStore;

/// Value of the anchor, which is column 0 of the residual stream. It makes the norms identities, as
/// the documentation of the parent module shows.
const ANCHOR: f64 = (1_u64 << 40) as f64;

/// Largest number of parameters of an assembled model. In f32 they take half a GB.
const MOST_PARAMETERS: usize = 1 << 27;

/// Matrix of a linear layer, with its bias.
struct Linear {
    inputs: usize,
    weight: Vec<f32>,
    bias: Vec<f32>,
}

impl Linear {
    fn new(outputs: usize, inputs: usize) -> Self {
        Self { inputs, weight: vec![0.0; outputs * inputs], bias: vec![0.0; outputs] }
    }

    /// Adds `form` to the output with the index `row`. The factors of the form are added to the
    /// weights, and its constant is added to the bias.
    fn compute(&mut self, row: usize, form: &Form) {
        for (column, factor) in &form.terms {
            self.weight[row * self.inputs + column.number()] += *factor as f32;
        }
        self.bias[row] += form.constant as f32;
    }

    fn save(self, store: &ParameterStore, name: &str) -> Result<(), TheoryError> {
        set(store, &format!("{name}.weight"), self.weight)?;
        set(store, &format!("{name}.bias"), self.bias)
    }
}

fn set(store: &ParameterStore, name: &str, values: Vec<f32>) -> Result<(), TheoryError> {
    let missing = || TheoryError::Input(format!("the model has no parameter {name}"));
    Ok(store.get(name).ok_or_else(missing)?.set(values)?)
}

impl Blueprint {
    /// Width of the residual stream: the smallest power of 4 that holds all columns.
    fn width(&self) -> usize {
        let mut width = 4;
        while width < self.columns {
            width *= 4;
        }
        width
    }

    fn is_gated(&self) -> bool {
        self.layers.iter().flat_map(|layer| &layer.units).any(|unit| unit.factor.is_some())
    }

    /// Returns the configuration of the model, after checking the number of parameters.
    ///
    /// # Errors
    /// If the model would have more than [`MOST_PARAMETERS`] parameters.
    fn checked(&self) -> Result<ModelConfig, TheoryError> {
        let config = self.config();
        let attention = 4 * config.attention_shape().query_width();
        let feed_forward = if self.is_gated() { 3 } else { 2 } * config.d_ff;
        let tables = 2 * self.tokens.len() + self.positions.len();
        let rows = config.decoder_layers * (attention + feed_forward) + tables;
        let parameters = rows.saturating_mul(config.d_model);
        if parameters > MOST_PARAMETERS {
            return Err(TheoryError::Input(format!(
                "the model would have {parameters} parameters, and at most {MOST_PARAMETERS} are \
                 built: choose a smaller length or program"
            )));
        }
        Ok(config)
    }

    /// Configuration of the model.
    #[must_use]
    pub fn config(&self) -> ModelConfig {
        let most = |count: fn(&Layer) -> usize| self.layers.iter().map(count).max().unwrap_or(0);
        let heads = self.layers.iter().flat_map(|layer| &layer.heads);
        let head_width = heads.map(super::Head::width).max().unwrap_or(0).max(1);
        let layers = self.layers.len().max(1);
        ModelConfig {
            d_model: self.width(),
            d_ff: most(|layer| layer.units.len()).max(1),
            heads: most(|layer| layer.heads.len()).max(1),
            head_width: Some(head_width),
            attention_scale: Some(1.0),
            encoder_layers: layers,
            decoder_layers: layers,
            activation: ActivationKind::Relu,
            feed_forward: match self.is_gated() {
                true => FeedForwardKind::Gated,
                false => FeedForwardKind::Plain,
            },
            norm_kind: NormKind::Rms,
            positions: match self.positions.is_empty() {
                true => Positions::None,
                false => Positions::Learned,
            },
            max_positions: self.positions.len().max(1),
            segments: 1,
            tied: Tied::None,
            scale_embeddings: false,
            output_bias: true,
            encoder_attention: self.attention.clone(),
            decoder_attention: self.attention.clone(),
            ..ModelConfig::default().with_dropout(0.0)
        }
    }

    /// Assembles a decoder: a token sees itself and the tokens before it.
    ///
    /// # Errors
    /// If the model would be too large, or the device has no memory left.
    pub fn decoder(&self) -> Result<Decoder, TheoryError> {
        self.decoder_in(DType::F32)
    }

    /// Assembles a decoder that computes its matrix products in `dtype`.
    ///
    /// # Errors
    /// If the model would be too large, or the device has no memory left.
    pub fn decoder_in(&self, dtype: DType) -> Result<Decoder, TheoryError> {
        let builder = Builder::zeroed(&Device::Cpu, dtype);
        let model = LanguageModel::new(&self.checked()?, self.vocabulary(), builder)?;
        self.fill(model.parameters(), "decoder")?;
        self.logits().save(model.parameters(), "output")?;
        Ok(Decoder(model))
    }

    /// Assembles an encoder: a token sees all tokens.
    ///
    /// # Errors
    /// If the model would be too large, or the device has no memory left.
    pub fn encoder(&self) -> Result<Encoder, TheoryError> {
        let builder = Builder::zeroed(&Device::Cpu, DType::F32);
        let model = MaskedLanguageModel::new(&self.checked()?, self.vocabulary(), false, builder)?;
        let (store, width) = (model.parameters(), self.width());
        self.fill(store, "encoder")?;
        set(store, "encoder.embedding_norm.weight", self.identity())?;
        // The output layer transforms states by `norm(relu(W h))`. With W the identity matrix, this
        // is the identity on columns that are not negative.
        let mut transform = Linear::new(width, width);
        (0..width).for_each(|column| transform.weight[column * width + column] = 1.0);
        transform.save(store, "transform")?;
        set(store, "transform_norm.weight", self.identity())?;
        self.logits().save(store, "output")?;
        Ok(Encoder(model))
    }

    /// Assembles a model that predicts a function from points (x, y). The model reads the
    /// coordinates of x into the columns `inputs`, and y into the column `answer`. Its prediction
    /// is the value of the column `output`.
    ///
    /// # Errors
    /// If the model would be too large, or the device has no memory left.
    pub fn regressor(
        &self,
        (answer, inputs): (Column, &[Column]),
        output: Column,
    ) -> Result<Regressor, TheoryError> {
        let builder = Builder::zeroed(&Device::Cpu, DType::F32);
        let model = InContextRegressor::new(&self.checked()?, inputs.len(), builder)?;
        self.fill_layers(model.parameters(), "decoder")?;
        let mut read_in = Linear::new(self.width(), inputs.len() + 1);
        read_in.bias[0] = ANCHOR as f32;
        for (number, column) in [answer].iter().chain(inputs).enumerate() {
            read_in.weight[column.number() * (inputs.len() + 1) + number] = 1.0;
        }
        read_in.save(model.parameters(), "read_in")?;
        let mut read_out = Linear::new(1, self.width());
        read_out.compute(0, &output.into());
        read_out.save(model.parameters(), "read_out")?;
        Ok(Regressor(model))
    }

    /// Weights with which a norm is the identity.
    fn identity(&self) -> Vec<f32> {
        let width = self.width();
        vec![(ANCHOR / (width as f64).sqrt()) as f32; width]
    }

    fn logits(&self) -> Linear {
        let mut output = Linear::new(self.vocabulary(), self.width());
        for (token, form) in self.logits.iter().enumerate() {
            output.compute(token, form);
        }
        output
    }

    /// Values of an embedding table, row by row: the values of `rows`, and `anchor` in column 0 of
    /// each row.
    fn table(&self, rows: &[Row], anchor: f64) -> Vec<f32> {
        let width = self.width();
        let mut values = vec![0.0; rows.len() * width];
        for (row, values) in rows.iter().zip(values.chunks_mut(width)) {
            values[0] = anchor as f32;
            row.iter().for_each(|(column, value)| values[column.number()] += *value as f32);
        }
        values
    }

    /// Sets the token embeddings, positions and layers of a stack.
    fn fill(&self, store: &ParameterStore, stack: &str) -> Result<(), TheoryError> {
        set(store, "embedding.weight", self.table(&self.tokens, ANCHOR))?;
        self.fill_layers(store, stack)
    }

    /// Sets the positions and layers of a stack.
    fn fill_layers(&self, store: &ParameterStore, stack: &str) -> Result<(), TheoryError> {
        if !self.positions.is_empty() {
            let table = self.table(&self.positions, 0.0);
            set(store, &format!("{stack}.positions.weight"), table)?;
        }
        let config = self.config();
        for number in 0..config.decoder_layers {
            let nothing = Layer::default();
            let layer = self.layers.get(number).unwrap_or(&nothing);
            let name = |part: &str| format!("{stack}.layers.{number}.{part}");
            set(store, &name("self_attention_norm.weight"), self.identity())?;
            set(store, &name("feed_forward_norm.weight"), self.identity())?;
            let (projection, out) = attention(layer, &config);
            projection.save(store, &name("self_attention.qkv"))?;
            out.save(store, &name("self_attention.out"))?;
            let (up, down) = feed_forward(&layer.units, &config);
            up.save(store, &name("feed_forward.up"))?;
            down.save(store, &name("feed_forward.down"))?;
        }
        set(store, &format!("{stack}.final_norm.weight"), self.identity())
    }
}

/// Makes the two projections of the attention of a layer: the projection to the queries, keys and
/// values of all heads, and the projection of the heads' results to the residual stream.
fn attention(layer: &Layer, config: &ModelConfig) -> (Linear, Linear) {
    let width = config.attention_shape().query_width();
    let mut projection = Linear::new(3 * width, config.d_model);
    let mut out = Linear::new(config.d_model, width);
    for (head, first) in layer.heads.iter().zip((0..).step_by(width / config.heads)) {
        for ((query, key), at) in head.products.iter().zip(first..) {
            projection.compute(at, query);
            projection.compute(width + at, key);
        }
        for ((value, to), at) in head.values.iter().zip(first..) {
            projection.compute(2 * width + at, value);
            out.weight[to.number() * width + at] = 1.0;
        }
    }
    (projection, out)
}

/// Makes the two linear layers of a feed-forward layer. The first one computes the gates of the
/// units. In a gated layer, it also computes their factors, which come before the gates in its
/// output. The second layer adds the units to the columns of the residual stream.
fn feed_forward(units: &[Unit], config: &ModelConfig) -> (Linear, Linear) {
    let (inner, gated) = (config.d_ff, config.feed_forward == FeedForwardKind::Gated);
    let gates = if gated { inner } else { 0 };
    let mut up = Linear::new(gates + inner, config.d_model);
    let mut down = Linear::new(config.d_model, inner);
    for (number, unit) in units.iter().enumerate() {
        up.compute(gates + number, &unit.gate);
        if gated {
            up.compute(number, unit.factor.as_ref().unwrap_or(&Form::from(1.0)));
        }
        for (to, weight) in &unit.outputs {
            down.weight[to.number() * inner + number] += *weight as f32;
        }
    }
    (up, down)
}

/// Decoder assembled from a blueprint.
#[derive(Debug, Clone)]
pub struct Decoder(pub LanguageModel);

/// Regressor assembled from a blueprint: a decoder that predicts a function.
#[derive(Debug, Clone)]
pub struct Regressor(pub InContextRegressor);

/// Encoder assembled from a blueprint.
#[derive(Debug, Clone)]
pub struct Encoder(pub MaskedLanguageModel);

impl Decoder {
    /// Returns the states of the tokens of a text after all layers: one row for each token, with a
    /// value for each column.
    ///
    /// # Errors
    /// If the text is too long, or has unknown tokens.
    pub fn states(&self, text: &[u32]) -> Result<Vec<Vec<f32>>, TheoryError> {
        let text = Sequences::pack(&[text]);
        Ok(self.0.hidden(&text, &Pass::evaluate())?.to_vec2()?)
    }
}

impl Encoder {
    /// Returns the states of the tokens of texts after all layers, `(N, D)`, for N tokens and D
    /// columns.
    ///
    /// # Errors
    /// If a text is too long, or has unknown tokens.
    pub fn hidden(&self, texts: &Sequences, pass: &Pass) -> Result<Tensor, TheoryError> {
        Ok(self.0.hidden(texts, &vec![0; texts.ids.len()], pass)?)
    }

    /// Returns the likeliest token at each position of the texts, one text after the other.
    ///
    /// # Errors
    /// If a text is too long, or has unknown tokens.
    pub fn answers(&self, texts: &Sequences) -> Result<Vec<u32>, TheoryError> {
        let pass = Pass::evaluate();
        let hidden = self.hidden(texts, &pass)?;
        Ok(self.0.logits(&hidden, &pass)?.argmax(1)?.to_vec1()?)
    }
}
