//! Convolutional layers with gated linear units, and attention in each layer of the decoder
//! (Gehring et al. 2017, "Convolutional Sequence to Sequence Learning", section 3).
//!
//! There are three differences from the paper. Embeddings are as wide as the layers, so they are
//! not projected. Weights are not normalised. The gradients of the encoder are not divided by the
//! number of attention layers.

use super::encoder_decoder::EncoderDecoder;
use super::{DecodeState, EncoderOutput};
use crate::builder::tally::Stream;
use crate::cost::{LayerCost, PartCost};
use crate::layers::attention::{DecodedRows, LayerPast};
use crate::layers::gated_convolution::GatedConvolution;
use crate::layers::guidance::Guide;
use crate::layers::linear::Linear;
use crate::{Builder, ModelConfig, Pass, Sequences};
use candle_core::{Result, Tensor};
use std::sync::Arc;
use taper_ops::rng::name_key;
use taper_ops::{AttentionShape, AttentionSpec, Dropout, Products, VisibleKeys, composed};

/// An encoder and a decoder of gated convolutions.
#[derive(Debug)]
pub(super) struct ConvolutionalLayers {
    encoder: Vec<GatedConvolution>,
    decoder: Vec<DecoderLayer>,
    readout: Linear,
    dropout: f64,
    attention_dropout: f64,
    products: Products,
}

#[derive(Debug)]
struct DecoderLayer {
    convolution: GatedConvolution,
    query: Linear,
    out: Linear,
}

fn attention_name(layer: usize) -> String {
    format!("decoder.layers.{layer}.attention")
}

impl DecoderLayer {
    /// Makes the layer with the index `layer`, from 0.
    fn new(build: &mut Builder, config: &ModelConfig, layer: usize) -> Result<Self> {
        let width = config.d_model;
        let named = |part: &str| format!("decoder.layers.{layer}.{part}");
        let scores = PartCost::scores(width).with_heads(1);
        build.count(scores.keeping(width.saturating_mul(12)));
        Ok(Self {
            convolution: GatedConvolution::new(build, &named("convolution"), config, true)?,
            query: Linear::new(build, &named("attention.query"), width, width, 1)?,
            out: Linear::new(build, &named("attention.out"), width, width, 1)?,
        })
    }
}

impl ConvolutionalLayers {
    pub(super) fn new(build: &mut Builder, config: &ModelConfig) -> Result<Self> {
        let width = config.d_model;
        let encoder = build.in_stream(Stream::First, |build| {
            build.count(PartCost::kept(width.saturating_mul(5)));
            build.layers(&[(0, config.encoder_layers)], |build, layer| {
                // The backward pass needs three tensors of this width: the layer's input, and the
                // sum with the residual before and after scaling.
                build.count(PartCost::kept(width.saturating_mul(3)));
                let name = format!("encoder.layers.{layer}.convolution");
                GatedConvolution::new(build, &name, config, false)
            })
        })?;
        let groups = config.groups(true, config.decoder_layers);
        let decoder =
            build.layers(&groups, |build, layer| DecoderLayer::new(build, config, layer))?;
        Ok(Self {
            encoder,
            decoder,
            readout: Linear::new(build, "decoder.readout", width, width, 1)?,
            dropout: config.residual_dropout,
            attention_dropout: config.attention_dropout,
            products: build.products,
        })
    }

    pub(super) fn layer_cost(config: &ModelConfig) -> LayerCost {
        Builder::part_cost(config.biases, |build| DecoderLayer::new(build, config, 0))
    }

    fn dropped(&self, x: &Tensor, name: &str, pass: &Pass) -> Result<Tensor> {
        let dropout = pass.dropout(self.dropout, name_key(name));
        match dropout.is_active() {
            true => taper_ops::columns(pass.tape(), &[x], dropout),
            false => Ok(x.clone()),
        }
    }

    /// Runs the part of a decoder layer that follows its convolution. `state (N, D)` is the result
    /// of the convolution for N target tokens, D is the width of the model, `x` is the layer's
    /// input, and `target` has the embedded targets. `attend` computes the results of attention
    /// from queries.
    fn behind(
        layer: &DecoderLayer,
        state: &Tensor,
        (x, target): (&Tensor, &Tensor),
        attend: impl FnOnce(&Tensor) -> Result<Tensor>,
        pass: &Pass,
    ) -> Result<Tensor> {
        let query = layer.query.forward(state, pass)?;
        // The query is d = W h + b + g (in the paper's notation), times √½. It is also multiplied
        // by √D, because the attention operation divides scores by √D, unlike the paper.
        let factor = (query.dim(1)? as f64).sqrt();
        let query = half(&query, target, factor * ROOT, pass)?;
        let context = layer.out.forward(&attend(&query)?, pass)?;
        half(&half(state, &context, ROOT, pass)?, x, ROOT, pass)
    }

    fn spec(
        &self,
        width: usize,
        [queries, keys]: [&Arc<[usize]>; 2],
        dropout: Dropout,
    ) -> AttentionSpec {
        AttentionSpec {
            key_lengths: keys.clone(),
            dropout,
            products: self.products,
            ..AttentionSpec::new(AttentionShape::with_heads(1, width), queries.clone())
        }
    }
}

/// Factor √½, which gives the sum of two independent terms the variance of one of them.
const ROOT: f64 = std::f64::consts::FRAC_1_SQRT_2;

/// Computes `factor · (a + b)`.
fn half(a: &Tensor, b: &Tensor, factor: f64, pass: &Pass) -> Result<Tensor> {
    composed::on_tape(pass.tape(), "scaled sum", &[a, b], |inputs| {
        (&inputs[0] + &inputs[1])? * factor
    })
}

/// Multiplies each of the `contexts (N, D)`, the results of attention for N target tokens, by the
/// square root of the number of source tokens in the sentence. Without this, contexts would shrink
/// in long sentences: the variance of a mean of m values is m times smaller than that of one value
/// (Gehring et al. 2017, section 3.5). `rows` has, for each sentence, its number of contexts and
/// its number of source tokens.
fn scaled_contexts(
    contexts: &Tensor,
    rows: impl Iterator<Item = (usize, usize)>,
    pass: &Pass,
) -> Result<Tensor> {
    let roots: Vec<f64> = rows.flat_map(|(rows, keys)| vec![(keys as f64).sqrt(); rows]).collect();
    let count = roots.len();
    let roots = Tensor::from_vec(roots, (count, 1), &candle_core::Device::Cpu)?
        .to_device(contexts.device())?
        .to_dtype(contexts.dtype())?;
    composed::on_tape(pass.tape(), "scaled contexts", &[contexts], |inputs| {
        inputs[0].broadcast_mul(&roots)
    })
}

impl EncoderDecoder for ConvolutionalLayers {
    /// Computes keys `z` and values `(z + e) √½`, and puts them side by side; `z` is the result of
    /// the last layer, and `e` are the embedded sources. For M source tokens: `(M, D)` →
    /// `(M, 2·D)`.
    fn encode(&self, embedded: Tensor, source: &Sequences, pass: &Pass) -> Result<Tensor> {
        let lengths: Arc<[usize]> = source.lengths.as_slice().into();
        let mut x = embedded.clone();
        for (number, layer) in self.encoder.iter().enumerate() {
            let dropped = self.dropped(&x, &format!("encoder.layers.{number}.dropout"), pass)?;
            x = half(&layer.forward(&dropped, &lengths, pass)?, &x, ROOT, pass)?;
        }
        let values = half(&x, &embedded, ROOT, pass)?;
        taper_ops::columns(pass.tape(), &[&x, &values], Dropout::none())
    }

    fn decode(
        &self,
        target: Tensor,
        sequences: &Sequences,
        encoded: &EncoderOutput,
        _guide: Option<&Guide>,
        pass: &Pass,
    ) -> Result<Tensor> {
        let lengths: Arc<[usize]> = sequences.lengths.as_slice().into();
        let mut x = target.clone();
        for (number, layer) in self.decoder.iter().enumerate() {
            let dropped = self.dropped(&x, &format!("decoder.layers.{number}.dropout"), pass)?;
            let state = layer.convolution.forward(&dropped, &lengths, pass)?;
            let attend = |query: &Tensor| {
                let (name, key_value) = (attention_name(number), &encoded.hidden);
                let dropout = pass.dropout(self.attention_dropout, name_key(&name));
                let spec = self.spec(query.dim(1)?, [&lengths, &encoded.lengths], dropout);
                if pass.records_attention(&name) {
                    let keys = key_value.narrow(1, 0, query.dim(1)?)?;
                    let weights = composed::attention_weights(query, &keys, None, &spec)?;
                    pass.record(&name, weights);
                }
                let contexts =
                    taper_ops::cross_attention(pass.tape(), query, key_value, None, &spec)?;
                let rows = lengths.iter().copied().zip(encoded.lengths.iter().copied());
                scaled_contexts(&contexts, rows, pass)
            };
            x = Self::behind(layer, &state, (&x, &target), attend, pass)?;
        }
        self.readout.forward(&x, pass)
    }

    fn start(
        &self,
        encoded: &EncoderOutput,
        _pass: &Pass,
    ) -> Result<(Vec<Tensor>, Vec<LayerPast>)> {
        let rows = encoded.lengths.len();
        let past = |layer: &DecoderLayer| {
            let running = Some(layer.convolution.no_past(&encoded.hidden, rows)?);
            Ok(LayerPast { running, ..LayerPast::default() })
        };
        let layers = self.decoder.iter().map(past).collect::<Result<_>>()?;
        Ok((vec![encoded.hidden.clone()], layers))
    }

    fn step(
        &self,
        target: Tensor,
        state: &mut DecodeState,
        _at: &Arc<[u32]>,
        pass: &Pass,
    ) -> Result<Tensor> {
        let DecodeState { of_sources, rows: DecodedRows { layers, ranges, .. }, .. } = state;
        let mut x = target.clone();
        for (layer, past) in self.decoder.iter().zip(layers) {
            let (Some(running), [key_value]) = (&past.running, of_sources.as_slice()) else {
                candle_core::bail!("a decoding state of another architecture");
            };
            let (state, next) = layer.convolution.step(&x, running, pass)?;
            past.running = Some(next);
            let attend = |query: &Tensor| {
                let visible = VisibleKeys::Source { key_value, rows: ranges };
                let shape = AttentionShape::with_heads(1, query.dim(1)?);
                let contexts = taper_ops::decoding_attention(query, visible, shape)?;
                scaled_contexts(&contexts, ranges.iter().map(|range| (1, range.len())), pass)
            };
            x = Self::behind(layer, &state, (&x, &target), attend, pass)?;
        }
        self.readout.forward(&x, pass)
    }

    fn aligning_layer(&self) -> Option<String> {
        Some(attention_name(self.decoder.len().saturating_sub(2)))
    }
}
