//! Steps that the journeys of all models have in common: pieces (tokens), vectors, inputs of
//! attention heads, and choices. A journey has the values that a model computes on its way from an
//! input to its answer.

use anyhow::Result;
use candle_core::{DType, Device, Tensor};
use serde::Serialize;
use taper_model::{ProjectionRecord, StatePoint, StateRecord};

use super::StackNorms;
use crate::attention::AttentionLayer;
use crate::attention::map::AttentionPart;
use crate::finite::require_finite;

/// Number of the likeliest tokens or labels that are listed for each choice.
const ALTERNATIVES: usize = 5;
/// Number of temperatures (0.1, 0.2 and so on up to 2) for which [`Choice::partition`] has sums.
const TEMPERATURES: usize = 20;
/// Largest difference allowed between a recorded attention weight and the weight computed as
/// softmax of the products of queries and keys.
const TOLERANCE: f64 = 2e-3;

/// Piece of a text: a token.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Piece {
    /// Text of the token in readable form.
    pub token: String,
    /// Id in the vocabulary.
    pub id: u32,
}

/// Vectors of all tokens of a stack (encoder or decoder) at one point of the computation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct VectorStep {
    /// Number of layers that the vectors have passed through.
    pub layers: usize,
    /// Name of the point. `token` and `position` are the vectors whose sum enters the first layer.
    /// `self-attention` and `cross-attention` are points within a layer, and `layer` is the point
    /// after it.
    pub point: &'static str,
    /// Vector of each token.
    pub rows: Vec<Vec<f32>>,
}

/// Vectors of all tokens of a stack (encoder or decoder), from its input to the end of its last
/// layer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StackVectors {
    /// Name of the stack: `encoder` or `decoder`.
    pub stack: String,
    /// Tokens of the stack.
    pub tokens: Vec<String>,
    /// Steps of the computation, in order.
    pub steps: Vec<VectorStep>,
}

impl StackVectors {
    /// Groups recorded vectors by stack. `stacks` has the name (`encoder` or `decoder`) and the
    /// tokens of each stack.
    ///
    /// # Errors
    /// When a recorded number is not finite, or a tensor cannot be read.
    pub(super) fn from_records(
        states: &[StateRecord],
        stacks: &[(&str, &[String])],
    ) -> Result<Vec<Self>> {
        let mut vectors: Vec<Self> = stacks
            .iter()
            .map(|(stack, tokens)| Self {
                stack: (*stack).to_owned(),
                tokens: tokens.to_vec(),
                steps: Vec::new(),
            })
            .collect();
        for StateRecord { stack, layers, point, rows } in states {
            let rows = on_host(rows)?;
            require_finite("the states", rows.iter().flatten().copied())?;
            let point = match point {
                StatePoint::Token => "token",
                StatePoint::Position => "position",
                StatePoint::Layer => "layer",
                StatePoint::SelfAttention => "self-attention",
                StatePoint::CrossAttention => "cross-attention",
            };
            if let Some(entry) = vectors.iter_mut().find(|entry| entry.stack == *stack) {
                entry.steps.push(VectorStep { layers: *layers, point, rows });
            }
        }
        // Architectures older than the Transformer, such as recurrent networks, record no states of
        // layers.
        vectors.retain(|stack| stack.steps.iter().any(|step| step.point == "layer"));
        Ok(vectors)
    }

    /// Norms of the vectors before the first layer and after each layer.
    pub(super) fn norms(&self) -> StackNorms {
        let whole = self.steps.iter().filter(|step| step.point == "layer");
        let norm = |row: &Vec<f32>| row.iter().map(|x| x * x).sum::<f32>().sqrt();
        StackNorms {
            stack: self.stack.clone(),
            tokens: self.tokens.clone(),
            norms: whole.map(|step| step.rows.iter().map(norm).collect()).collect(),
        }
    }
}

/// Queries, keys and values of all heads in an attention layer. The attention weights of the layer
/// are `softmax(Q·Kᵀ·scale)`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HeadInputs {
    /// Kind of attention.
    pub part: AttentionPart,
    /// Layer in its stack, counted from 1.
    pub layer: usize,
    /// Factor that the products of queries and keys are multiplied by, usually `1/√head_width`.
    pub scale: f64,
    /// Width of a head.
    pub width: usize,
    /// Queries: one row for each token, with the vectors of all heads side by side.
    pub queries: Vec<Vec<f32>>,
    /// Keys: one row for each token. A key that several heads share appears only once in a row.
    pub keys: Vec<Vec<f32>>,
    /// Values: one row for each token, as in `keys`. Heads that share keys also share values.
    pub values: Vec<Vec<f32>>,
}

impl HeadInputs {
    /// Inputs of the layers whose recorded weights are the softmax of the scaled products of
    /// queries and keys.
    ///
    /// # Errors
    /// When a tensor cannot be read.
    pub(super) fn from_records(
        records: &[ProjectionRecord],
        layers: &[AttentionLayer],
    ) -> Result<Vec<Self>> {
        let mut head_inputs = Vec::new();
        for record in records {
            let layer =
                layers.iter().find(|layer| layer.part.layer_name(layer.layer - 1) == record.layer);
            let Some(layer) = layer else { continue };
            let inputs = Self {
                part: layer.part,
                layer: layer.layer,
                scale: record.shape.scale,
                width: record.shape.head_width,
                queries: on_host(&record.queries)?,
                keys: on_host(&record.keys)?,
                values: on_host(&record.values)?,
            };
            if inputs.explain(layer) {
                head_inputs.push(inputs);
            }
        }
        Ok(head_inputs)
    }

    /// Whether the recorded weights of `layer` are the softmax of the scaled products of these
    /// queries and keys. The weights are something else for other kinds of attention, and if the
    /// scores have biases or an upper limit.
    fn explain(&self, layer: &AttentionLayer) -> bool {
        let (heads, width) = (layer.heads.len(), self.width);
        let shared = self.keys.first().map_or(0, Vec::len) / width;
        if shared == 0 || self.keys.len() != layer.keys.len() || heads % shared != 0 {
            return false;
        }
        layer.heads.iter().enumerate().all(|(head, weights)| {
            let (from, at) = (head * width, head / (heads / shared) * width);
            weights.iter().zip(&self.queries).all(|(weights, query)| {
                let Some(query) = query.get(from..from + width) else { return false };
                let score = |key: &Vec<f32>| {
                    let products = query.iter().zip(&key[at..at + width]).map(|(q, k)| q * k);
                    f64::from(products.sum::<f32>()) * self.scale
                };
                // Only keys that the query is allowed to see have a positive weight.
                let visible = self.keys.iter().zip(weights).filter(|(_, weight)| **weight > 0.0);
                let visible: Vec<(f64, f32)> =
                    visible.map(|(key, weight)| (score(key), *weight)).collect();
                let largest =
                    visible.iter().fold(f64::NEG_INFINITY, |most, (score, _)| most.max(*score));
                let sum: f64 = visible.iter().map(|(score, _)| (score - largest).exp()).sum();
                visible.iter().all(|(score, weight)| {
                    ((score - largest).exp() / sum - f64::from(*weight)).abs() < TOLERANCE
                })
            })
        })
    }
}

/// Choice of one token, or of a label.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Choice {
    /// Index of a token among the tokens of the last stack (encoder or decoder). The choice is made
    /// from the final vector of this token.
    pub place: usize,
    /// Word for which a tag is chosen; `None` if the choice is not a tag.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub word: Option<String>,
    /// Token or label that was chosen.
    pub token: String,
    /// Probability of the choice.
    pub probability: f64,
    /// Likeliest tokens or labels at this place, with their probabilities.
    pub alternatives: Vec<(String, f64)>,
    /// Sums `Σ exp((x - x_max) / t)` over all logits x, where `x_max` is the largest logit: one sum
    /// for each of the temperatures t = 0.1, 0.2, … 2.
    pub partition: Vec<f64>,
}

impl Choice {
    /// Choices by the softmax of each row of `logits`, of shape (N, V). `answers` has the id chosen
    /// in each row; `None` stands for the likeliest id. `name` returns the name of an id. The
    /// `place` of a choice is the index of its row.
    ///
    /// # Errors
    /// When a logit is not finite, or the tensor cannot be read.
    pub(super) fn from_logits(
        logits: &Tensor,
        answers: impl IntoIterator<Item = Option<u32>>,
        name: impl Fn(u32) -> String,
    ) -> Result<Vec<Self>> {
        let rows = on_host(logits)?;
        require_finite("the logits", rows.iter().flatten().copied())?;
        let choice = |(place, (row, answer)): (usize, (&Vec<f32>, Option<u32>))| {
            let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let sum_at = |temperature: f64| -> f64 {
                row.iter().map(|logit| (f64::from(logit - largest) / temperature).exp()).sum()
            };
            let sum = sum_at(1.0);
            let probability = |id: u32| f64::from(row[id as usize] - largest).exp() / sum;
            let mut order: Vec<u32> = (0..row.len() as u32).collect();
            order.sort_by(|a, b| row[*b as usize].total_cmp(&row[*a as usize]));
            let answer = answer.unwrap_or(order[0]);
            let likeliest = order.iter().take(ALTERNATIVES);
            Self {
                place,
                word: None,
                token: name(answer),
                probability: probability(answer),
                alternatives: likeliest.map(|id| (name(*id), probability(*id))).collect(),
                partition: (1..=TEMPERATURES).map(|tenths| sum_at(tenths as f64 / 10.0)).collect(),
            }
        };
        Ok(rows.iter().zip(answers).enumerate().map(choice).collect())
    }
}

/// Rows of a tensor of shape (N, D), copied to the CPU as f32.
fn on_host(rows: &Tensor) -> Result<Vec<Vec<f32>>> {
    Ok(rows.to_device(&Device::Cpu)?.to_dtype(DType::F32)?.to_vec2()?)
}
