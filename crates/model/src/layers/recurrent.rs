//! A recurrent layer that reads in one direction, with or without additive attention.

use super::linear::Linear;
use super::weight::Weight;
use crate::builder::tally::Stream;
use crate::cost::PartCost;
use crate::{Builder, Pass};
use candle_core::{Result, Tensor};
use std::ops::Range;
use std::sync::Arc;
use taper_ops::{AdditiveAttention, Cell, Products, Recurred, Recurrence, RecurrenceSpec};

/// Sizes of a layer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) cell: Cell,
    /// Width of the layer's inputs.
    pub(crate) inputs: usize,
    pub(crate) width: usize,
    /// Width of the values to which the layer attends; 0 if it has no attention.
    pub(crate) attended: usize,
}

/// Computes `h_t = cell(W x_t + b, U h_{t-1} + b')`, where x_t is the input and h_t the state of
/// token t. With additive attention, the context of token t, a weighted sum of the values, is
/// another input.
#[derive(Debug, Clone)]
pub(crate) struct RecurrentLayer {
    name: String,
    cell: Cell,
    input: Linear,
    recurrent: Weight,
    bias: Option<Weight>,
    attention: Option<Attention>,
    products: Products,
}

/// Parameters of additive attention, which [`AdditiveAttention`] describes. `key` computes the keys
/// from the values.
#[derive(Debug, Clone)]
struct Attention {
    query: Weight,
    key: Linear,
    energy: Weight,
    context: Weight,
}

/// Keys and values to which a layer attends.
#[derive(Clone, Copy)]
pub(crate) struct Attended<'a> {
    /// Keys `(M, A)` of M values, made by [`RecurrentLayer::keys`]; A is the width of the layer.
    pub(crate) keys: &'a Tensor,
    /// Values `(M, V)` of the width V.
    pub(crate) values: &'a Tensor,
    /// For each sequence, the range of keys and values to which it attends.
    pub(crate) ranges: &'a Arc<[Range<usize>]>,
}

/// Inputs of a layer in addition to its input rows: the sequences that the rows form, their initial
/// states, and the keys and values to which the layer attends.
#[derive(Clone, Copy)]
pub(crate) struct Run<'a> {
    pub(crate) lengths: &'a Arc<[usize]>,
    pub(crate) backwards: bool,
    /// States before the first token of each sequence; `None` for zeros.
    pub(crate) initial: Option<&'a Tensor>,
    pub(crate) attended: Option<Attended<'a>>,
}

impl Attention {
    fn new(build: &mut Builder, name: &str, shape: Shape, attended: usize) -> Result<Self> {
        let (gates, width) = (shape.cell.gates(), shape.width);
        let columns = gates.saturating_mul(width);
        let named = |part: &str| format!("{name}.{part}");
        // Each pair of query and key takes a multiplication and an addition for each column of the
        // score and of the value. The backward pass keeps the context twice: alone, and side by
        // side with the state.
        let pair_flops = 2.0 * (width as f64 + attended as f64);
        build.count(PartCost { pair_flops, ..PartCost::product(width, width) }.with_heads(1));
        build.count(PartCost::product(attended, columns).unkept());
        build.count(PartCost::kept(attended.saturating_mul(2)));
        Ok(Self {
            query: build.matrix(&named("query.weight"), width, width, 1)?,
            key: build.in_stream(Stream::First, |build| {
                Linear::new(build, &named("key"), attended, width, 1)
            })?,
            energy: build.vector(&named("energy"), width)?,
            context: build.matrix(&named("context.weight"), columns, attended, gates)?,
        })
    }
}

impl RecurrentLayer {
    /// Makes the layer called `name`. Its parameters correspond to those of PyTorch's `GRU` and
    /// `LSTM`: `{name}.input.weight` to `weight_ih`, and `{name}.recurrent.weight` to `weight_hh`.
    pub(crate) fn new(build: &mut Builder, name: &str, shape: Shape) -> Result<Self> {
        let (gates, width) = (shape.cell.gates(), shape.width);
        let columns = gates.saturating_mul(width);
        // The backward pass keeps the state and one more vector of its width: for an LSTM the state
        // of the cell, for a GRU a product.
        build.count(PartCost::kept(width.saturating_mul(2)));
        build.count(PartCost::product(width, columns).unkept());
        let named = |part: &str| format!("{name}.{part}");
        let input = Linear::new(build, &named("input"), shape.inputs, columns, gates)?;
        let recurrent = build.matrix(&named("recurrent.weight"), columns, width, gates)?;
        let bias = match build.biases {
            true => Some(build.constant(&named("recurrent.bias"), &[columns], 0.0)?),
            false => None,
        };
        let attention = match shape.attended {
            0 => None,
            attended => Some(Attention::new(build, &named("attention"), shape, attended)?),
        };
        let (cell, products, name) = (shape.cell, build.products, name.to_owned());
        Ok(Self { name, cell, input, recurrent, bias, attention, products })
    }

    /// Name under which the layer's attention is recorded; `None` if it has no attention.
    pub(crate) fn attention_name(&self) -> Option<String> {
        self.attention.as_ref().map(|_| format!("{}.attention", self.name))
    }

    /// Computes the keys that belong to `values`: `(M, V)` → `(M, A)`; `None` if the layer has no
    /// attention.
    pub(crate) fn keys(&self, values: &Tensor, pass: &Pass) -> Result<Option<Tensor>> {
        self.attention.as_ref().map(|attention| attention.key.forward(values, pass)).transpose()
    }

    /// Runs on whole sequences.
    ///
    /// # Shapes
    /// `x (N, I)` for N tokens in B sequences → rows `(N, H)`, or with attention `(N, H + V)`, and
    /// the last states `(B, S)`. I is the width of the inputs, H the width of the layer, V the
    /// width of the values, and S the size of a sequence's state.
    pub(crate) fn forward(&self, x: &Tensor, run: Run<'_>, pass: &Pass) -> Result<Recurred> {
        let inputs = self.input.forward(x, pass)?; // (N, G·H), G gates
        let attention = match (&self.attention, run.attended) {
            (Some(own), Some(to)) => Some(AdditiveAttention {
                query: own.query.get(pass),
                energy: own.energy.get(pass),
                keys: to.keys,
                values: to.values,
                context: own.context.get(pass),
            }),
            _ => None,
        };
        let recorded = self.attention_name().filter(|name| pass.records_attention(name));
        let given = Recurrence {
            inputs: &inputs,
            weight: self.recurrent.get(pass),
            bias: self.bias.as_ref().map(|bias| bias.get(pass)),
            initial: run.initial,
            attention,
        };
        let spec = RecurrenceSpec {
            cell: self.cell,
            lengths: run.lengths.clone(),
            backwards: run.backwards,
            attended: run.attended.map_or_else(|| [].into(), |to| to.ranges.clone()),
            wants_weights: recorded.is_some(),
            state_gradients: pass.notes_states(&self.name),
            products: self.products,
        };
        let out = taper_ops::recurrence(pass.tape(), pass.packs(), &given, &spec)?;
        if let (Some(name), Some(weights)) = (recorded, &out.weights) {
            pass.record(&name, weights.unsqueeze(1)?); // (B, 1, Tq, Tk): one head
        }
        Ok(out)
    }
}
