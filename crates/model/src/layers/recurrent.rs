//! A recurrent layer in one direction, with or without additive attention.

use super::linear::Linear;
use super::weight::Weight;
use crate::cost::PartCost;
use crate::{Builder, Pass};
use candle_core::{Result, Tensor};
use std::ops::Range;
use std::sync::Arc;
use taper_ops::{AdditiveAttention, Cell, Products, Recurred, Recurrence, RecurrenceSpec};

/// Size of a layer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) cell: Cell,
    /// Width of its inputs.
    pub(crate) inputs: usize,
    pub(crate) width: usize,
    /// Width of the values that it attends to; 0 without attention.
    pub(crate) attended: usize,
    pub(crate) biases: bool,
}

impl Shape {
    fn gates(self) -> usize {
        self.cell.gates().saturating_mul(self.width)
    }

    /// Cost of one row of the layer. It keeps the gates, the state, and the cell of an LSTM or one
    /// product of a GRU; with attention also a query, and the context twice, once beside the state.
    pub(crate) fn cost(self) -> PartCost {
        let (width, gates) = (self.width, self.gates());
        let cell = PartCost::linear(self.inputs, gates, self.biases)
            + PartCost::linear(width, gates, self.biases).unkept();
        let cell = cell.keeping(width.saturating_mul(2));
        match self.attended {
            0 => cell,
            attended => {
                let attention = PartCost::linear(width, width, false)
                    + PartCost::linear(attended, gates, false).unkept()
                    + PartCost::table(1, width);
                // A multiplication and an addition for each column of a score, and of a value.
                let pair_flops = 2.0 * (width as f64 + attended as f64);
                cell + PartCost { pair_flops, ..attention }
                    .with_heads(1)
                    .keeping(attended.saturating_mul(2))
            }
        }
    }

    /// Cost of one row that is attended to: its key.
    pub(crate) fn key_cost(self) -> PartCost {
        match self.attended {
            0 => PartCost::default(),
            attended => PartCost::linear(attended, self.width, self.biases),
        }
    }
}

/// Computes `h_t = cell(W x_t + b, U h_{t-1} + b')`.
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

#[derive(Debug, Clone)]
struct Attention {
    query: Weight,
    key: Linear,
    energy: Weight,
    context: Weight,
}

/// Keys and values that a layer attends to.
#[derive(Clone, Copy)]
pub(crate) struct Attended<'a> {
    /// Keys `(M, A)`, made by [`RecurrentLayer::keys`].
    pub(crate) keys: &'a Tensor,
    /// Values `(M, V)`.
    pub(crate) values: &'a Tensor,
    /// Range of their rows that each sequence attends to.
    pub(crate) ranges: &'a Arc<[Range<usize>]>,
}

/// Sequences that a layer runs over.
#[derive(Clone, Copy)]
pub(crate) struct Run<'a> {
    pub(crate) lengths: &'a Arc<[usize]>,
    pub(crate) backwards: bool,
    /// States before the first rows.
    pub(crate) initial: Option<&'a Tensor>,
    pub(crate) attended: Option<Attended<'a>>,
}

impl RecurrentLayer {
    /// `name` is that of the layer. Its parameters are those of PyTorch's `GRU` and `LSTM`:
    /// `{name}.input.weight` is their `weight_ih`, `{name}.recurrent.weight` their `weight_hh`.
    pub(crate) fn new(build: &mut Builder, name: &str, shape: Shape) -> Result<Self> {
        let (gates, width) = (shape.cell.gates(), shape.width);
        let named = |part: &str| format!("{name}.{part}");
        let input = Linear::new(build, &named("input"), shape.inputs, gates * width, gates)?;
        let recurrent = build.matrix(&named("recurrent.weight"), gates * width, width, gates)?;
        let bias = match build.biases {
            true => Some(build.constant(&named("recurrent.bias"), &[gates * width], 0.0)?),
            false => None,
        };
        let attention = match shape.attended {
            0 => None,
            attended => Some(Attention {
                query: build.matrix(&named("attention.query.weight"), width, width, 1)?,
                key: Linear::new(build, &named("attention.key"), attended, width, 1)?,
                energy: build.vector(&named("attention.energy"), width)?,
                context: build.matrix(
                    &named("attention.context.weight"),
                    gates * width,
                    attended,
                    gates,
                )?,
            }),
        };
        let (cell, products, name) = (shape.cell, build.products, name.to_owned());
        Ok(Self { name, cell, input, recurrent, bias, attention, products })
    }

    /// Name under which its attention is recorded.
    pub(crate) fn attention_name(&self) -> Option<String> {
        self.attention.as_ref().map(|_| format!("{}.attention", self.name))
    }

    /// Computes the keys of the values that it attends to, if it attends: `(M, V)` → `(M, A)`.
    pub(crate) fn keys(&self, values: &Tensor, pass: &Pass) -> Result<Option<Tensor>> {
        self.attention.as_ref().map(|attention| attention.key.forward(values, pass)).transpose()
    }

    /// Runs whole sequences.
    ///
    /// # Shapes
    /// `x (N, I)` → rows `(N, H)`, with attention `(N, H + V)`, and the last states `(B, S)`.
    pub(crate) fn forward(&self, x: &Tensor, run: Run<'_>, pass: &Pass) -> Result<Recurred> {
        let inputs = self.input.forward(x, pass)?; // (N, G·H)
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
            pass.record(&name, weights.unsqueeze(1)?); // (B, 1, T, S)
        }
        Ok(out)
    }
}
