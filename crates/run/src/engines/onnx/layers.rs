//! Layers as nodes of an ONNX graph. The nodes depend on which parameters the exported model has: a
//! bias is added if there is a parameter for it, and queries are normalised if there are weights
//! for this norm.

use anyhow::{Context, Result};
use taper_model::{
    ActivationKind, FeedForwardKind, ModelConfig, NormKind, NormPlacement, ParallelFeedForward,
};
use taper_ops::{Parameter, ParameterStore};

use super::graph::{Attribute, Graph};

/// Writer of a graph, with the configuration and the parameters of the model.
pub(super) struct Writer<'a> {
    pub(super) graph: Graph<'a>,
    pub(super) model: &'a ModelConfig,
    pub(super) parameters: &'a ParameterStore,
}

impl<'a> Writer<'a> {
    pub(super) fn new(model: &'a ModelConfig, parameters: &'a ParameterStore) -> Self {
        Self { graph: Graph::default(), model, parameters }
    }

    pub(super) fn get(&self, name: &str) -> Result<&'a Parameter> {
        self.parameters.get(name).with_context(|| format!("the model has no parameter {name}"))
    }

    /// Adds a node for the sum of `value` and the parameter `name`, if the model has this
    /// parameter. Returns the name of the sum, or `value`.
    fn with_bias(&mut self, value: String, name: &str) -> String {
        let Some(bias) = self.parameters.get(name) else { return value };
        let bias = self.graph.parameter(bias, 0);
        self.graph.node("Add", &[&value, &bias])
    }

    /// Adds a linear layer with the parameters of the module `name`: `(…, In)` → `(…, Out)`.
    pub(super) fn linear(&mut self, x: &str, name: &str) -> Result<String> {
        let weight = self.graph.transposed(self.get(&format!("{name}.weight"))?);
        let product = self.graph.node("MatMul", &[x, &weight]);
        Ok(self.with_bias(product, &format!("{name}.bias")))
    }

    /// Adds a norm over the last dimension, with the parameters of the module `name`.
    pub(super) fn norm(&mut self, x: &str, name: &str) -> Result<String> {
        let (weight, bias) = (format!("{name}.weight"), format!("{name}.bias"));
        let gamma = self.graph.parameter(self.get(&weight)?, 0);
        let epsilon = self.model.norm_epsilon as f32;
        match self.model.norm_kind {
            NormKind::Layer | NormKind::LayerWithoutBias => {
                let beta = self.parameters.get(&bias).map(|beta| self.graph.parameter(beta, 0));
                let inputs: Vec<&str> = [x, &gamma].into_iter().chain(beta.as_deref()).collect();
                let attributes =
                    [("axis", Attribute::Integer(-1)), ("epsilon", Attribute::Float(epsilon))];
                Ok(self.graph.node_with("LayerNormalization", &inputs, &attributes))
            }
            NormKind::Rms | NormKind::RmsWithBias => {
                let graph = &mut self.graph;
                let square = graph.node("Mul", &[x, x]);
                let axes = [("axes", Attribute::Integers(vec![-1]))];
                let mean = graph.node_with("ReduceMean", &[&square], &axes);
                let epsilon = graph.number(epsilon);
                let mean = graph.node("Add", &[&mean, &epsilon]);
                let root = graph.node("Sqrt", &[&mean]);
                let normed = graph.node("Div", &[x, &root]);
                let scaled = graph.node("Mul", &[&normed, &gamma]);
                Ok(self.with_bias(scaled, &bias))
            }
        }
    }

    /// Adds a norm over the last dimension if the model has weights called `name` for it. Otherwise
    /// returns `x`.
    pub(super) fn norm_if_any(&mut self, x: String, name: &str) -> Result<String> {
        match self.parameters.get(&format!("{name}.weight")) {
            Some(_) => self.norm(&x, name),
            None => Ok(x),
        }
    }

    /// Adds a node for the product of `x` and a number. Returns `x` if the number is 1.
    pub(super) fn scaled(&mut self, x: String, factor: f64) -> String {
        if factor == 1.0 {
            return x;
        }
        let factor = self.graph.number(factor as f32);
        self.graph.node("Mul", &[&x, &factor])
    }

    /// Adds a sublayer: the nodes that `run` adds, the norm before or after them, and the residual
    /// connection.
    pub(super) fn sublayer(
        &mut self,
        x: String,
        name: &str,
        run: impl FnOnce(&mut Self, &str) -> Result<String>,
    ) -> Result<String> {
        let norm = format!("{name}_norm");
        match self.model.norm {
            NormPlacement::Pre => {
                let normed = self.norm(&x, &norm)?;
                let result = run(self, &normed)?;
                Ok(self.graph.node("Add", &[&x, &result]))
            }
            NormPlacement::Post => {
                let result = run(self, &x)?;
                let sum = self.graph.node("Add", &[&x, &result]);
                self.norm(&sum, &norm)
            }
        }
    }

    /// Adds the self-attention sublayer of `layer`; `run` adds the attention itself. If the model
    /// computes the feed-forward layer in parallel with self-attention, the sublayer includes it.
    pub(super) fn attention_sublayer(
        &mut self,
        x: String,
        layer: &str,
        run: impl FnOnce(&mut Self, &str, &str) -> Result<String>,
    ) -> Result<String> {
        let (name, beside) = (format!("{layer}.self_attention"), format!("{layer}.feed_forward"));
        let parallel = self.model.parallel_feed_forward;
        if parallel == ParallelFeedForward::None {
            return self.sublayer(x, &name, |writer, x| run(writer, x, &name));
        }
        let normed = self.norm(&x, &format!("{name}_norm"))?;
        let attended = run(self, &normed, &name)?;
        let read = match parallel {
            ParallelFeedForward::OwnNorm => self.norm(&x, &format!("{beside}_norm"))?,
            _ => normed,
        };
        let fed = self.feed_forward(&read, &beside)?;
        let sum = self.graph.node("Add", &[&x, &attended]);
        Ok(self.graph.node("Add", &[&sum, &fed]))
    }

    /// Adds the feed-forward sublayer of `layer`. Returns `x` if the model computes it in parallel
    /// with self-attention, because the attention sublayer then includes it.
    pub(super) fn feed_forward_sublayer(&mut self, x: String, layer: &str) -> Result<String> {
        if self.model.parallel_feed_forward != ParallelFeedForward::None {
            return Ok(x);
        }
        let name = format!("{layer}.feed_forward");
        self.sublayer(x, &name, |writer, x| writer.feed_forward(x, &name))
    }

    /// Adds a feed-forward layer, plain or gated: `(…, D)` → `(…, D)`.
    pub(super) fn feed_forward(&mut self, x: &str, name: &str) -> Result<String> {
        let up = self.linear(x, &format!("{name}.up"))?;
        let inner = match self.model.feed_forward {
            FeedForwardKind::Plain => self.activated(&up),
            FeedForwardKind::Gated => {
                // The first half of the columns gets no activation.
                let parts = self.graph.split(&up, &[self.model.d_ff; 2]);
                let gate = self.activated(&parts[1]);
                self.graph.node("Mul", &[&parts[0], &gate])
            }
        };
        self.linear(&inner, &format!("{name}.down"))
    }

    fn activated(&mut self, x: &str) -> String {
        let graph = &mut self.graph;
        let times = |graph: &mut Graph<'a>, x: &str, factor: f64| {
            let factor = graph.number(factor as f32);
            graph.node("Mul", &[x, &factor])
        };
        // Adds nodes for `x / 2 · (1 + y)`.
        let half = |graph: &mut Graph<'a>, y: &str| {
            let one = graph.number(1.0);
            let share = graph.node("Add", &[y, &one]);
            let product = graph.node("Mul", &[x, &share]);
            times(graph, &product, 0.5)
        };
        match self.model.activation {
            ActivationKind::Relu => graph.node("Relu", &[x]),
            ActivationKind::Gelu => {
                let argument = times(graph, x, std::f64::consts::FRAC_1_SQRT_2);
                let erf = graph.node("Erf", &[&argument]);
                half(graph, &erf)
            }
            ActivationKind::GeluTanh => {
                let square = graph.node("Mul", &[x, x]);
                let cube = graph.node("Mul", &[&square, x]);
                let cube = times(graph, &cube, 0.044_715);
                let sum = graph.node("Add", &[x, &cube]);
                let argument = times(graph, &sum, (2.0 / std::f64::consts::PI).sqrt());
                let tanh = graph.node("Tanh", &[&argument]);
                half(graph, &tanh)
            }
            ActivationKind::Swish | ActivationKind::QuickGelu => {
                let steep = match self.model.activation {
                    ActivationKind::QuickGelu => times(graph, x, 1.702),
                    _ => x.to_owned(),
                };
                let share = graph.node("Sigmoid", &[&steep]);
                graph.node("Mul", &[x, &share])
            }
        }
    }

    /// Adds nodes that embed tokens, `(B, T)` → `(B, T, D)`, and add vectors of positions if the
    /// model has them. B is the batch size, T the number of tokens, D the width of the model.
    /// `table` is the name of the embedding matrix, and `stack` is `encoder` or `decoder`.
    pub(super) fn embedded(
        &mut self,
        (ids, positions): (&str, &str),
        table: &str,
        stack: &str,
    ) -> Result<String> {
        let table = self.graph.parameter(self.get(table)?, 0);
        let tokens = self.graph.node("Gather", &[&table, ids]);
        let scale = if self.model.scale_embeddings { self.model.d_model as f64 } else { 1.0 };
        let mut x = self.scaled(tokens, scale.sqrt());
        if let Some(table) = self.position_table(stack)? {
            let added = self.graph.node("Gather", &[&table, positions]);
            x = self.graph.node("Add", &[&x, &added]);
        }
        self.norm_if_any(x, &format!("{stack}.embedding_norm"))
    }

    /// Adds nodes that compute logits, `(B, T, D)` → `(B, T, V)`; V is the size of the vocabulary.
    /// `embedding` is the name of the embedding matrix, which is used if the output layer has no
    /// matrix of its own.
    pub(super) fn logits(&mut self, x: String, embedding: &str) -> Result<String> {
        let x = self.scaled(x, self.model.output_scale.unwrap_or(1.0));
        let weight = match self.parameters.get("output.weight") {
            Some(weight) => self.graph.transposed(weight),
            None => {
                // A node transposes the embedding matrix, so that the file contains it only once.
                let table = self.graph.parameter(self.get(embedding)?, 0);
                let exchanged = [("perm", Attribute::Integers(vec![1, 0]))];
                self.graph.node_with("Transpose", &[&table], &exchanged)
            }
        };
        let logits = self.graph.node("MatMul", &[&x, &weight]);
        Ok(self.with_bias(logits, "output.bias"))
    }
}
