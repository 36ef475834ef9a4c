//! Graphs of models, with the inputs and outputs that Optimum expects. A translation model has a
//! graph of the encoder and two graphs of the decoder: one that begins a text, and one whose inputs
//! include the keys and values of earlier tokens. A language model has one graph of a decoder
//! without an encoder.

use anyhow::{Context, Result};
use taper_model::ModelConfig;
use taper_ops::ParameterStore;

use super::attention::KeyValue;
use super::graph::{Graph, Length, Type};
use super::layers::Writer;
use super::positions::Angles;

const BATCH: Length = Length::Named("batch_size");
const SOURCE: Length = Length::Named("encoder_sequence_length");
const TARGET: Length = Length::Named("decoder_sequence_length");
const PAST: Length = Length::Named("past_sequence_length");
const ALL: Length = Length::Named("past_sequence_length + sequence_length");

/// Makes the graph of the encoder of a translation model.
///
/// # Errors
/// When the model lacks a parameter.
pub(super) fn encoder<'a>(
    model: &'a ModelConfig,
    parameters: &'a ParameterStore,
) -> Result<Graph<'a>> {
    let mut writer = Writer::new(model, parameters);
    let ids = writer.graph.input("input_ids", Type::Integer, &[BATCH, SOURCE]);
    let mask = writer.graph.input("attention_mask", Type::Integer, &[BATCH, SOURCE]);
    let positions = writer.counted(&mask);
    let table = embedding(parameters, "source_embedding.weight");
    let mut x = writer.embedded((&ids, &positions), table, "encoder")?;
    let (zero, length) = (writer.graph.integer(0), writer.length(&ids, 1));
    let places = writer.range(&zero, &length);
    let padding = writer.padding(&mask);
    let stack = ("encoder", model.encoder_layers);
    let biases = writer.biases(stack, (&places, &places), false, Some(&padding))?;
    let angles = writer.angles(&positions);
    for (layer, biases) in biases.iter().enumerate() {
        let layer = format!("encoder.layers.{layer}");
        x = writer.attention_sublayer(x, &layer, |writer, x, name| {
            let position_inputs = (angles.as_ref(), biases.as_deref());
            Ok(writer.self_attention(x, name, position_inputs, None)?.0)
        })?;
        x = writer.feed_forward_sublayer(x, &layer)?;
    }
    let x = writer.norm_if_any(x, "encoder.final_norm")?;
    let shape = [BATCH, SOURCE, Length::Fixed(model.d_model)];
    writer.graph.output("last_hidden_state", &x, &shape);
    Ok(writer.graph)
}

/// Makes the graph of the decoder of a translation model. If `has_past`, the graph continues a text
/// and reads the keys and values of earlier tokens; otherwise it begins a text.
///
/// # Errors
/// When the model lacks a parameter.
pub(super) fn decoder<'a>(
    model: &'a ModelConfig,
    parameters: &'a ParameterStore,
    has_past: bool,
) -> Result<Graph<'a>> {
    let mut writer = Writer::new(model, parameters);
    let mask = writer.graph.input("encoder_attention_mask", Type::Integer, &[BATCH, SOURCE]);
    let ids = writer.graph.input("input_ids", Type::Integer, &[BATCH, TARGET]);
    let encoded = (!has_past).then(|| {
        let shape = [BATCH, SOURCE, Length::Fixed(model.d_model)];
        writer.graph.input("encoder_hidden_states", Type::Float, &shape)
    });
    let past: Vec<Option<[KeyValue; 2]>> = (0..model.decoder_layers)
        .map(|layer| {
            has_past.then(|| {
                [("decoder", PAST), ("encoder", SOURCE)].map(|(part, length)| {
                    writer.past(&format!("past_key_values.{layer}.{part}"), length)
                })
            })
        })
        .collect();
    let of_past = past.first().and_then(Option::as_ref).map(|[own_past, _]| own_past.key.as_str());
    let (queries, keys) = writer.places(&ids, of_past);
    let positions = writer.unsqueezed(&queries, &[0]);
    let table = embedding(parameters, "target_embedding.weight");
    let mut x = writer.embedded((&ids, &positions), table, "decoder")?;
    let stack = ("decoder", model.decoder_layers);
    let biases = writer.biases(stack, (&queries, &keys), true, None)?;
    let padding = writer.padding(&mask);
    let angles = writer.angles(&positions);
    for (layer, (past, biases)) in past.into_iter().zip(&biases).enumerate() {
        let [own_past, of_encoder] =
            past.map_or([None, None], |[own_past, other]| [Some(own_past), Some(other)]);
        let position_inputs = (angles.as_ref(), biases.as_deref());
        x = writer.own_attention((x, layer), position_inputs, own_past.as_ref(), TARGET)?;
        let name = format!("decoder.layers.{layer}.cross_attention");
        let key_value = match (of_encoder, &encoded) {
            (None, Some(encoded)) => {
                let computed = writer.encoder_key_value(encoded, &name)?;
                writer.present(&format!("present.{layer}.encoder"), &computed, SOURCE);
                computed
            }
            (of_encoder, _) => of_encoder.context("neither an encoder nor its past")?,
        };
        x = writer.sublayer(x, &name, |writer, x| {
            writer.cross_attention(x, &name, &key_value, &padding)
        })?;
        x = writer.feed_forward_sublayer(x, &format!("decoder.layers.{layer}"))?;
    }
    writer.written(x, table, TARGET)
}

/// Makes the graph of a language model, a decoder without an encoder. It continues a text and reads
/// the keys and values of earlier tokens. At the beginning of a text, there are no earlier tokens.
///
/// # Errors
/// When the model lacks a parameter.
pub(super) fn language_model<'a>(
    model: &'a ModelConfig,
    parameters: &'a ParameterStore,
) -> Result<Graph<'a>> {
    const LENGTH: Length = Length::Named("sequence_length");
    let mut writer = Writer::new(model, parameters);
    let ids = writer.graph.input("input_ids", Type::Integer, &[BATCH, LENGTH]);
    let mask = writer.graph.input("attention_mask", Type::Integer, &[BATCH, ALL]);
    let positions = writer.graph.input("position_ids", Type::Integer, &[BATCH, LENGTH]);
    let past: Vec<KeyValue> = (0..model.decoder_layers)
        .map(|layer| writer.past(&format!("past_key_values.{layer}"), PAST))
        .collect();
    let of_past = past.first().map(|past| past.key.as_str());
    let (queries, keys) = writer.places(&ids, of_past);
    let table = embedding(parameters, "embedding.weight");
    let mut x = writer.embedded((&ids, &positions), table, "decoder")?;
    let padding = writer.padding(&mask);
    let stack = ("decoder", model.decoder_layers);
    let biases = writer.biases(stack, (&queries, &keys), true, Some(&padding))?;
    let angles = writer.angles(&positions);
    for (layer, (past, biases)) in past.iter().zip(&biases).enumerate() {
        let position_inputs = (angles.as_ref(), biases.as_deref());
        x = writer.own_attention((x, layer), position_inputs, Some(past), ALL)?;
        x = writer.feed_forward_sublayer(x, &format!("decoder.layers.{layer}"))?;
    }
    writer.written(x, table, LENGTH)
}

/// Name of the embedding matrix of an encoder or decoder: `name`, or the name of the shared matrix
/// if the model has no parameter called `name`.
fn embedding(parameters: &ParameterStore, name: &'static str) -> &'static str {
    if parameters.get(name).is_some() { name } else { "embedding.weight" }
}

impl<'a> Writer<'a> {
    /// Shape of the keys, or of the values, for `length` tokens: (batch, heads, length, width).
    fn shape_of_keys(&self, length: Length) -> [Length; 4] {
        let shape = self.model.attention_shape();
        let (heads, width) =
            (Length::Fixed(shape.key_value_heads), Length::Fixed(shape.head_width));
        [BATCH, heads, length, width]
    }

    /// Adds inputs for the keys and values of `length` earlier tokens.
    fn past(&mut self, name: &str, length: Length) -> KeyValue {
        let shape = self.shape_of_keys(length);
        let [key, value] = ["key", "value"]
            .map(|part| self.graph.input(&format!("{name}.{part}"), Type::Float, &shape));
        KeyValue { key, value }
    }

    /// Makes the keys and values of `length` tokens outputs of the model.
    fn present(&mut self, name: &str, key_value: &KeyValue, length: Length) {
        let shape = self.shape_of_keys(length);
        for (part, value) in [("key", &key_value.key), ("value", &key_value.value)] {
            self.graph.output(&format!("{name}.{part}"), value, &shape);
        }
    }

    /// Adds nodes for the indices of tokens. Returns the names of two results: the indices of the
    /// tokens `ids` (the queries), and the indices of all tokens (the keys). All tokens are the
    /// earlier tokens, whose keys are in `past`, and then the tokens `ids`.
    fn places(&mut self, ids: &str, past: Option<&str>) -> (String, String) {
        let (zero, new) = (self.graph.integer(0), self.length(ids, 1));
        let Some(past) = past else {
            let all = self.range(&zero, &new);
            return (all.clone(), all);
        };
        let past = self.length(past, 2);
        let all = self.graph.node("Add", &[&past, &new]);
        (self.range(&past, &all), self.range(&zero, &all))
    }

    /// Adds the self-attention sublayer of a decoder, and makes its keys and values outputs of the
    /// model.
    fn own_attention(
        &mut self,
        (x, layer): (String, usize),
        positions: (Option<&Angles>, Option<&str>),
        past: Option<&KeyValue>,
        length: Length,
    ) -> Result<String> {
        let mut key_value = None;
        let name = format!("decoder.layers.{layer}");
        let x = self.attention_sublayer(x, &name, |writer, x, name| {
            let (x, all) = writer.self_attention(x, name, positions, past)?;
            key_value = Some(all);
            Ok(x)
        })?;
        if let Some(key_value) = key_value {
            let of_encoder = format!("decoder.layers.{layer}.cross_attention.q.weight");
            let part = if self.parameters.get(&of_encoder).is_some() { ".decoder" } else { "" };
            let length = if past.is_some() { ALL } else { length };
            self.present(&format!("present.{layer}{part}"), &key_value, length);
        }
        Ok(x)
    }

    /// Completes the graph of a decoder: adds its final norm and the logits, and makes the logits
    /// an output.
    fn written(mut self, x: String, table: &str, length: Length) -> Result<Graph<'a>> {
        let x = self.norm_if_any(x, "decoder.final_norm")?;
        let logits = self.logits(x, table)?;
        let rows = self.parameters.get("output.weight");
        let rows = rows.map_or_else(|| self.get(table), Ok)?.shape()[0];
        self.graph.output("logits", &logits, &[BATCH, length, Length::Fixed(rows)]);
        Ok(self.graph)
    }
}
