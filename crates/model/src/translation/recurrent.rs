//! Recurrent layers: an encoder that reads in one direction or both, and a decoder whose first
//! states come from the encoder's last states (Sutskever et al. 2014). The decoder can attend to
//! the annotations, which are the outputs of the encoder, one for each source token (Bahdanau et
//! al. 2015; Luong et al. 2015).
//!
//! There are two differences from the papers. First, the decoder begins with `tanh(W [h_1; h_M])`,
//! where h_1 and h_M are the annotations of the first and the last source token; an encoder with
//! one direction supplies only h_M. Bahdanau et al. take only the backward state of the first
//! token. Second, with either kind of attention, `tanh(W [s; c])` of a state s and a context c is
//! projected to the vocabulary, as in Luong et al.

use super::encoder_decoder::EncoderDecoder;
use super::{DecodeState, EncoderOutput};
use crate::builder::tally::Stream;
use crate::config::{RecurrentAttention, RecurrentConfig};
use crate::cost::{LayerCost, PartCost};
use crate::layers::attention::LayerPast;
use crate::layers::guidance::Guide;
use crate::layers::head::picked;
use crate::layers::linear::Linear;
use crate::layers::recurrent::{Attended, RecurrentLayer, Run, Shape};
use crate::{Builder, ModelConfig, Pass, Sequences};
use candle_core::{Result, Tensor};
use std::ops::Range;
use std::sync::Arc;
use taper_ops::rng::name_key;
use taper_ops::{Activation, AttentionShape, AttentionSpec, Dropout, Products, VisibleKeys};

/// An encoder and a decoder of recurrent layers.
///
/// In the shapes, M is the number of source tokens, N the number of target tokens, D the width of
/// the model, E and V the width of an annotation, and A and H the width of a recurrent layer.
#[derive(Debug)]
pub(super) struct RecurrentLayers {
    encoder: Vec<EncoderLayer>,
    /// For each layer of the decoder, the projection to its initial state.
    bridges: Vec<Linear>,
    decoder: Vec<RecurrentLayer>,
    /// Projection to the keys and values of the attention after the last layer; `None` without this
    /// attention.
    behind: Option<Linear>,
    readout: Linear,
    dropout: f64,
    products: Products,
}

/// A layer of the encoder: the forward direction and, if it is bidirectional, the backward one.
type EncoderLayer = (RecurrentLayer, Option<RecurrentLayer>);

/// Name of the attention that follows the last layer.
const BEHIND: &str = "decoder.attention";

/// Sizes of the layers.
struct Plan<'a> {
    config: &'a ModelConfig,
    directions: usize,
    /// Width of an annotation: the encoder's output for a token.
    annotation: usize,
    /// Width of the vector from which the decoder's first states are computed: the annotations of
    /// the last token and, with two directions, of the first token.
    ends: usize,
    /// Width of the input of the readout, the layer before the output projection.
    read: usize,
}

impl<'a> Plan<'a> {
    fn new(config: &'a ModelConfig) -> Self {
        let RecurrentConfig { width, attention, bidirectional, .. } = config.recurrent;
        let directions = if bidirectional { 2 } else { 1 };
        let annotation = width.saturating_mul(directions);
        let of_context = match attention {
            RecurrentAttention::None => 0,
            RecurrentAttention::Additive => annotation,
            RecurrentAttention::Dot => width,
        };
        let read = width.saturating_add(of_context);
        Self { config, directions, annotation, ends: annotation.saturating_mul(directions), read }
    }

    fn shape(&self, inputs: usize, attended: usize) -> Shape {
        let recurrent = &self.config.recurrent;
        Shape { cell: recurrent.cell.into(), inputs, width: recurrent.width, attended }
    }

    /// Sizes of an encoder layer in each direction.
    fn encoder(&self, layer: usize) -> Shape {
        self.shape(if layer == 0 { self.config.d_model } else { self.annotation }, 0)
    }

    /// Sizes of a decoder layer; with additive attention, the last layer attends.
    fn decoder(&self, layer: usize) -> Shape {
        let attended = match self.config.recurrent.attention {
            RecurrentAttention::Additive if self.is_last(layer) => self.annotation,
            _ => 0,
        };
        let inputs = if layer == 0 { self.config.d_model } else { self.config.recurrent.width };
        self.shape(inputs, attended)
    }

    fn is_last(&self, layer: usize) -> bool {
        layer + 1 == self.config.decoder_layers
    }

    /// Makes the layers of the encoder.
    fn encoder_layers(&self, build: &mut Builder) -> Result<Vec<EncoderLayer>> {
        let above = self.config.encoder_layers.saturating_sub(1);
        let attends = self.config.recurrent.attention != RecurrentAttention::None;
        // The next layer and attention each keep the states of both directions, side by side, for
        // the backward pass.
        let times = above + usize::from(attends);
        build.count(PartCost::kept(self.annotation.saturating_mul(times)));
        build.layers(&[(0, 1), (1, above)], |build, layer| {
            let shape = self.encoder(layer);
            let mut direction = |name: &str| {
                RecurrentLayer::new(build, &format!("encoder.layers.{layer}.{name}"), shape)
            };
            let forwards = direction("forward")?;
            let backwards = if self.directions == 2 { Some(direction("backward")?) } else { None };
            Ok((forwards, backwards))
        })
    }

    /// Makes a layer of the decoder, and its bridge: the projection to its initial state, which
    /// runs once for each sentence.
    fn decoder_layer(&self, build: &mut Builder, layer: usize) -> Result<(Linear, RecurrentLayer)> {
        let (shape, name) = (self.decoder(layer), format!("decoder.layers.{layer}"));
        let (bridge, vectors) = (format!("{name}.bridge"), shape.cell.vectors());
        let state = vectors.saturating_mul(shape.width);
        let bridge = build.counted_as(PartCost::once, |build| {
            Linear::new(build, &bridge, self.ends, state, vectors)
        })?;
        // The states in the order of the tokens are kept for the backward pass. The next layer, the
        // attention or the readout (the layer before the output projection) reads them.
        build.count(PartCost::kept(shape.width));
        if self.config.recurrent.attention == RecurrentAttention::Dot && self.is_last(layer) {
            build.count(PartCost::scores(shape.width).with_heads(1));
        }
        Ok((bridge, RecurrentLayer::new(build, &name, shape)?))
    }
}

/// Inputs of the decoder in addition to its tokens: the state of each layer before the first token
/// that is read, and the keys and values to which the decoder attends. `ranges` has the range of
/// keys of each sentence.
struct From<'a> {
    initial: &'a [Tensor],
    of_sources: &'a [Tensor],
    ranges: &'a Arc<[Range<usize>]>,
}

impl RecurrentLayers {
    pub(super) fn new(build: &mut Builder, config: &ModelConfig) -> Result<Self> {
        let plan = Plan::new(config);
        let encoder = build.in_stream(Stream::First, |build| plan.encoder_layers(build))?;
        let groups = config.groups(true, config.decoder_layers);
        let decoder = build.layers(&groups, |build, layer| plan.decoder_layer(build, layer))?;
        let (bridges, decoder) = decoder.into_iter().unzip();
        let behind = match config.recurrent.attention {
            RecurrentAttention::Dot => {
                let (name, both) =
                    (format!("{BEHIND}.kv"), config.recurrent.width.saturating_mul(2));
                // The backward pass of attention needs the state, whose memory was already counted
                // for the last layer. The backward pass of the readout needs the state and the
                // result of attention side by side.
                build.count(PartCost::kept(both));
                Some(build.in_stream(Stream::First, |build| {
                    Linear::new(build, &name, plan.annotation, both, 2)
                })?)
            }
            RecurrentAttention::None | RecurrentAttention::Additive => None,
        };
        build.count(PartCost::default().forgetting(config.d_model));
        Ok(Self {
            encoder,
            bridges,
            decoder,
            behind,
            readout: Linear::new(build, "decoder.readout", plan.read, config.d_model, 1)?,
            dropout: config.residual_dropout,
            products: build.products,
        })
    }

    /// Cost of a decoder layer and its bridge.
    pub(super) fn layer_cost(config: &ModelConfig, layer: usize) -> LayerCost {
        Builder::part_cost(config.biases, |build| Plan::new(config).decoder_layer(build, layer))
    }

    /// Puts the parts of a layer's output side by side, and applies dropout if there is any.
    fn handed_on(&self, parts: &[&Tensor], name: &str, pass: &Pass) -> Result<Tensor> {
        let dropout = pass.dropout(self.dropout, name_key(name));
        match parts {
            [only] if !dropout.is_active() => Ok((*only).clone()),
            _ => taper_ops::columns(pass.tape(), parts, dropout),
        }
    }

    /// Computes the initial state of each layer of the decoder, `(B, S)`: B is the number of
    /// sentences, and S is the size of the state.
    fn initial(&self, encoded: &EncoderOutput, pass: &Pass) -> Result<Vec<Tensor>> {
        let mut first = 0;
        let (mut firsts, mut lasts) = (Vec::new(), Vec::new());
        for &length in encoded.lengths.iter() {
            firsts.push(first as u32);
            first += length;
            lasts.push(first as u32 - 1);
        }
        let at = |rows: Vec<u32>| picked(&encoded.hidden, rows.into(), Dropout::none(), pass);
        let last = at(lasts)?;
        let ends = match self.encoder.iter().any(|(_, backwards)| backwards.is_some()) {
            true => taper_ops::columns(pass.tape(), &[&at(firsts)?, &last], Dropout::none())?,
            false => last,
        };
        let of_layer =
            |bridge: &Linear| bridge.activated(&ends, Activation::Tanh, Dropout::none(), pass);
        self.bridges.iter().map(of_layer).collect()
    }

    /// Computes, from the annotations, the tensors to which every step attends. Without attention
    /// there are none. With dot attention there is one tensor, which has keys and values side by
    /// side. With additive attention there are two: the keys and the values.
    fn keys_and_values(&self, annotations: &Tensor, pass: &Pass) -> Result<Vec<Tensor>> {
        if let Some(behind) = &self.behind {
            return Ok(vec![behind.forward(annotations, pass)?]); // (M, 2·H)
        }
        let mut tensors = Vec::new();
        for layer in &self.decoder {
            if let Some(keys) = layer.keys(annotations, pass)? {
                tensors.extend([keys, annotations.clone()]); // (M, A), (M, V)
            }
        }
        Ok(tensors)
    }

    /// Runs all layers of the decoder on the rows `x (N, D)`. Returns the inputs of the output
    /// projection, `(N, D)`, and the last states of each layer. If attention follows the last
    /// layer, `attend` computes its results, from queries and from keys and values.
    fn run(
        &self,
        x: Tensor,
        lengths: &Arc<[usize]>,
        from: &From<'_>,
        attend: impl FnOnce(&Tensor, &Tensor) -> Result<Tensor>,
        pass: &Pass,
    ) -> Result<(Tensor, Vec<Tensor>)> {
        let attended = match from.of_sources {
            [keys, values] => Some(Attended { keys, values, ranges: from.ranges }),
            _ => None,
        };
        let (mut x, mut states) = (x, Vec::with_capacity(self.decoder.len()));
        for (number, layer) in self.decoder.iter().enumerate() {
            let is_last = number + 1 == self.decoder.len();
            let run = Run {
                lengths,
                backwards: false,
                initial: from.initial.get(number),
                attended: attended.filter(|_| is_last),
            };
            let out = layer.forward(&x, run, pass)?;
            states.push(out.last);
            x = match is_last {
                true => out.rows,
                false => {
                    let name = format!("decoder.layers.{number}.dropout");
                    self.handed_on(&[&out.rows], &name, pass)?
                }
            };
        }
        if let (Some(_), [key_value]) = (&self.behind, from.of_sources) {
            let contexts = attend(&x, key_value)?;
            x = taper_ops::columns(pass.tape(), &[&x, &contexts], Dropout::none())?;
        }
        let dropout = pass.dropout(self.dropout, name_key("decoder.readout"));
        Ok((self.readout.activated(&x, Activation::Tanh, dropout, pass)?, states))
    }
}

impl EncoderDecoder for RecurrentLayers {
    fn encode(&self, x: Tensor, source: &Sequences, pass: &Pass) -> Result<Tensor> {
        if source.lengths.contains(&0) {
            candle_core::bail!("a recurrent encoder got a sentence without tokens");
        }
        let lengths: Arc<[usize]> = source.lengths.as_slice().into();
        let mut x = x;
        for (number, (forwards, backwards)) in self.encoder.iter().enumerate() {
            let read = |layer: &RecurrentLayer, backwards| {
                let run = Run { lengths: &lengths, backwards, initial: None, attended: None };
                Ok::<_, candle_core::Error>(layer.forward(&x, run, pass)?.rows)
            };
            let there = read(forwards, false)?; // (M, H)
            let back = backwards.as_ref().map(|layer| read(layer, true)).transpose()?;
            let both: Vec<&Tensor> = [&there].into_iter().chain(&back).collect();
            let name = format!("encoder.layers.{number}.dropout");
            x = self.handed_on(&both, &name, pass)?; // (M, E)
        }
        Ok(x)
    }

    fn decode(
        &self,
        x: Tensor,
        target: &Sequences,
        encoded: &EncoderOutput,
        _guide: Option<&Guide>,
        pass: &Pass,
    ) -> Result<Tensor> {
        let lengths: Arc<[usize]> = target.lengths.as_slice().into();
        let initial = self.initial(encoded, pass)?;
        let of_sources = self.keys_and_values(&encoded.hidden, pass)?;
        let ranges = encoded.ranges().into();
        let from = From { initial: &initial, of_sources: &of_sources, ranges: &ranges };
        let attend = |query: &Tensor, key_value: &Tensor| {
            let spec = AttentionSpec {
                key_lengths: encoded.lengths.clone(),
                products: self.products,
                ..AttentionSpec::new(AttentionShape::with_heads(1, query.dim(1)?), lengths.clone())
            };
            if pass.records_attention(BEHIND) {
                let keys = key_value.narrow(1, 0, query.dim(1)?)?;
                let weights = taper_ops::composed::attention_weights(query, &keys, None, &spec)?;
                pass.record(BEHIND, weights);
            }
            taper_ops::cross_attention(pass.tape(), query, key_value, None, &spec)
        };
        Ok(self.run(x, &lengths, &from, attend, pass)?.0)
    }

    fn start(&self, encoded: &EncoderOutput, pass: &Pass) -> Result<(Vec<Tensor>, Vec<LayerPast>)> {
        let past = |state| LayerPast { running: Some(state), ..LayerPast::default() };
        let layers = self.initial(encoded, pass)?.into_iter().map(past).collect();
        Ok((self.keys_and_values(&encoded.hidden, pass)?, layers))
    }

    fn step(
        &self,
        x: Tensor,
        state: &mut DecodeState,
        _at: &Arc<[u32]>,
        pass: &Pass,
    ) -> Result<Tensor> {
        let lengths: Arc<[usize]> = vec![1; state.rows()].into();
        let initial: Vec<Tensor> =
            state.rows.layers.iter().filter_map(|past| past.running.clone()).collect();
        let ranges = state.rows.ranges.as_slice().into();
        let from = From { initial: &initial, of_sources: &state.of_sources, ranges: &ranges };
        let attend = |query: &Tensor, key_value: &Tensor| {
            let visible = VisibleKeys::Source { key_value, rows: &ranges };
            taper_ops::decoding_attention(
                query,
                visible,
                AttentionShape::with_heads(1, query.dim(1)?),
            )
        };
        let (hidden, states) = self.run(x, &lengths, &from, attend, pass)?;
        for (past, state) in state.rows.layers.iter_mut().zip(states) {
            past.running = Some(state);
        }
        Ok(hidden)
    }

    fn aligning_layer(&self) -> Option<String> {
        match &self.behind {
            Some(_) => Some(BEHIND.to_owned()),
            None => self.decoder.iter().find_map(RecurrentLayer::attention_name),
        }
    }
}
