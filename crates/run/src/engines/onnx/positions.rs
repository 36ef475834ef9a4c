//! Positions as nodes of an ONNX graph: tables that are added to embeddings, rotations of queries
//! and keys, and biases of attention scores. In shapes, B is the batch size, T the number of
//! tokens, H the number of heads and Dh their width.

use anyhow::Result;
use taper_model::positions::{alibi_slopes, sinusoids, t5_bucket};
use taper_model::{Positions, RotaryPairs};

use super::graph::{Attribute, Type};
use super::layers::Writer;

/// Smallest number of rows (positions) in a table of sinusoids. The graph cannot process sequences
/// with more tokens than the table has rows.
const LEAST_POSITIONS: usize = 1024;

/// Bias added to the score of a key that a query must not see. The sum of two such biases is still
/// finite.
const HIDDEN: f32 = -1e30;

/// Names of the graph's results with the cosines and sines of rotation angles, each of shape (B or
/// 1, 1, T, R/2); R is the number of elements in a head that are rotated.
pub(super) struct Angles {
    pub(super) cosines: String,
    pub(super) sines: String,
}

impl Writer<'_> {
    /// Adds a node for the integers from `start` up to, but without, `end`. Both are names of
    /// scalars in the graph.
    pub(super) fn range(&mut self, start: &str, end: &str) -> String {
        let one = self.graph.integer(1);
        self.graph.node("Range", &[start, end, &one])
    }

    /// Adds nodes for the length of `value` along a dimension, as a scalar.
    pub(super) fn length(&mut self, value: &str, dimension: i64) -> String {
        let attributes =
            [("start", Attribute::Integer(dimension)), ("end", Attribute::Integer(dimension + 1))];
        let shape = self.graph.node_with("Shape", &[value], &attributes);
        let axis = self.graph.integers(&[0]);
        self.graph.node("Squeeze", &[&shape, &axis])
    }

    /// Adds a node that inserts dimensions of length 1 at the indices `axes`.
    pub(super) fn unsqueezed(&mut self, value: &str, axes: &[i64]) -> String {
        let axes = self.graph.integers(axes);
        self.graph.node("Unsqueeze", &[value, &axes])
    }

    /// Adds nodes for the position of each token: the number of earlier tokens that `mask` does not
    /// hide, `(B, T)` → `(B, T)`.
    pub(super) fn counted(&mut self, mask: &str) -> String {
        let (axis, one, zero) =
            (self.graph.integer(1), self.graph.integer(1), self.graph.integer(0));
        let sum = self.graph.node("CumSum", &[mask, &axis]);
        let from_zero = self.graph.node("Sub", &[&sum, &one]);
        self.graph.node("Max", &[&from_zero, &zero])
    }

    /// Name of the table of position vectors that are added to the embeddings of a stack (encoder
    /// or decoder); `None` if the model adds no position vectors.
    pub(super) fn position_table(&mut self, stack: &str) -> Result<Option<String>> {
        let model = self.model;
        if !model.positions.are_added() {
            return Ok(None);
        }
        if model.positions == Positions::Learned {
            let table = self.get(&format!("{stack}.positions.weight"))?;
            return Ok(Some(self.graph.parameter(table, model.position_offset)));
        }
        let rows = model.max_positions.max(LEAST_POSITIONS);
        let at = model.position_offset..model.position_offset + rows;
        let halves = model.positions == Positions::SinusoidalHalves;
        let values = sinusoids(at, model.d_model, halves, model.sinusoid_frequencies);
        Ok(Some(self.graph.table("sinusoids", vec![rows, model.d_model], values)))
    }

    /// Adds nodes for the angles of rotary positions. `positions` has shape (B or 1, T). Returns
    /// `None` for a model with other position encodings.
    pub(super) fn angles(&mut self, positions: &str) -> Option<Angles> {
        let model = self.model;
        if model.positions != Positions::Rotary {
            return None;
        }
        let head = model.attention_shape().head_width;
        let (speeds, magnitude) = model.rotary.turns(head).speeds(head);
        let speeds = speeds.iter().map(|&speed| speed as f32).collect();
        let speeds = self.graph.table("rotary_speeds", vec![self.rotated_width() / 2], speeds);
        let to_float = [("to", Attribute::Integer(Type::Float as i64))];
        let positions = self.graph.node_with("Cast", &[positions], &to_float);
        let positions = self.unsqueezed(&positions, &[1, -1]); // (B, 1, T, 1)
        let angles = self.graph.node("Mul", &[&positions, &speeds]);
        let [cosines, sines] = ["Cos", "Sin"].map(|operator| {
            let values = self.graph.node(operator, &[&angles]);
            self.scaled(values, magnitude)
        });
        Some(Angles { cosines, sines })
    }

    /// Number of elements in each head that are rotated; they are the first ones.
    fn rotated_width(&self) -> usize {
        self.model.rotary.width.unwrap_or(self.model.attention_shape().head_width)
    }

    /// Adds nodes that rotate queries or keys: `(B, H, T, Dh)` → `(B, H, T, Dh)`. If the model
    /// rotates only the first elements of each head, the other elements stay the same.
    pub(super) fn rotated(&mut self, x: &str, angles: &Angles) -> String {
        let (head, width) = (self.model.attention_shape().head_width, self.rotated_width());
        if width == head {
            return self.turned(x, angles);
        }
        let parts = self.graph.split(x, &[width, head - width]);
        let turned = self.turned(&parts[0], angles);
        self.graph.node_with("Concat", &[&turned, &parts[1]], &[("axis", Attribute::Integer(-1))])
    }

    /// Adds nodes that rotate all elements of `x`: `(B, H, T, R)` → `(B, H, T, R)`.
    fn turned(&mut self, x: &str, angles: &Angles) -> String {
        let half = self.rotated_width() / 2;
        let is_halves = self.model.rotary.pairs == RotaryPairs::Halves;
        let [first, second] = if is_halves {
            let parts = self.graph.split(x, &[half; 2]);
            [parts[0].clone(), parts[1].clone()]
        } else {
            let shape = self.graph.integers(&[0, 0, 0, half as i64, 2]);
            let pairs = self.graph.node("Reshape", &[x, &shape]);
            [0, 1].map(|place| {
                let place = self.graph.integer(place);
                let axis = [("axis", Attribute::Integer(4))];
                self.graph.node_with("Gather", &[&pairs, &place], &axis)
            })
        };
        let Angles { cosines, sines } = angles;
        let graph = &mut self.graph;
        let mut product = |x: &str, y: &str| graph.node("Mul", &[x, y]);
        let parts = [
            product(&first, cosines),
            product(&second, sines),
            product(&second, cosines),
            product(&first, sines),
        ];
        let first = graph.node("Sub", &[&parts[0], &parts[1]]);
        let second = graph.node("Add", &[&parts[2], &parts[3]]);
        let axis = [("axis", Attribute::Integer(-1))];
        if is_halves {
            return graph.node_with("Concat", &[&first, &second], &axis);
        }
        let [first, second] = [first, second].map(|part| self.unsqueezed(&part, &[-1]));
        let pairs = self.graph.node_with("Concat", &[&first, &second], &axis);
        let shape = self.graph.integers(&[0, 0, 0, 2 * half as i64]);
        self.graph.node("Reshape", &[&pairs, &shape])
    }

    /// Adds nodes for biases of attention scores that hide padding, where `mask` is 0: `(B, T)` →
    /// `(B, 1, 1, T)`.
    pub(super) fn padding(&mut self, mask: &str) -> String {
        let truth = [("to", Attribute::Integer(Type::Truth as i64))];
        let is_seen = self.graph.node_with("Cast", &[mask], &truth);
        let (zero, hidden) = (self.graph.number(0.0), self.graph.number(HIDDEN));
        let scores = self.graph.node("Where", &[&is_seen, &zero, &hidden]);
        self.unsqueezed(&scores, &[1, 2])
    }

    /// Adds nodes for the biases of attention scores in each layer of a stack (encoder or decoder);
    /// `None` for a layer without biases. The biases are the sum of `padding` and of biases that
    /// depend on positions, and can be broadcast to the shape (B, H, Tq, Tk) for Tq queries and Tk
    /// keys. `places` has the indices of queries and keys.
    pub(super) fn biases(
        &mut self,
        (stack, layers): (&str, usize),
        places: (&str, &str),
        is_causal: bool,
        padding: Option<&str>,
    ) -> Result<Vec<Option<String>>> {
        let owners = match self.model.relative_by_layer {
            true => (0..layers).map(|layer| format!("{stack}.layers.{layer}")).collect(),
            false => vec![stack.to_owned()],
        };
        let mut all = Vec::with_capacity(layers);
        for owner in owners {
            let by_position = self.biases_by_position(&owner, places, is_causal)?;
            all.push(match (padding, by_position) {
                (Some(padding), Some(biases)) => Some(self.graph.node("Add", &[padding, &biases])),
                (padding, biases) => biases.or(padding.map(str::to_owned)),
            });
        }
        let last = all.last().cloned().flatten();
        all.resize(layers, last);
        Ok(all)
    }

    /// Adds nodes for the sum of the score biases that depend on positions: the biases that hide
    /// later tokens, if `is_causal`, and the biases of T5 or ALiBi. `None` if the model has no such
    /// biases. `owner` is the name of the stack or layer to which T5's table of biases belongs.
    fn biases_by_position(
        &mut self,
        owner: &str,
        (queries, keys): (&str, &str),
        is_causal: bool,
    ) -> Result<Option<String>> {
        let queries = self.unsqueezed(queries, &[1]);
        let keys = self.unsqueezed(keys, &[0]);
        let mut all = Vec::new();
        if is_causal {
            let is_later = self.graph.node("Greater", &[&keys, &queries]);
            let (zero, hidden) = (self.graph.number(0.0), self.graph.number(HIDDEN));
            all.push(self.graph.node("Where", &[&is_later, &hidden, &zero]));
        }
        let heads = self.model.heads;
        match self.model.positions {
            Positions::Alibi => {
                let distances = self.graph.node("Sub", &[&keys, &queries]);
                let distances = self.graph.node("Abs", &[&distances]);
                let to_float = [("to", Attribute::Integer(Type::Float as i64))];
                let distances = self.graph.node_with("Cast", &[&distances], &to_float);
                let slopes = alibi_slopes(heads).iter().map(|&slope| -slope as f32).collect();
                let slopes = self.graph.table("alibi_slopes", vec![heads, 1, 1], slopes);
                all.push(self.graph.node("Mul", &[&slopes, &distances]));
            }
            Positions::T5 => {
                let distances = self.graph.node("Sub", &[&keys, &queries]);
                let table = self.t5_table(owner, is_causal)?;
                let most = self.model.relative_distance as i64;
                let (low, high) = (self.graph.integer(-most), self.graph.integer(most));
                let clipped = self.graph.node("Clip", &[&distances, &low, &high]);
                let rows = self.graph.node("Add", &[&clipped, &high]);
                let biases = self.graph.node("Gather", &[&table, &rows]); // (Tq, Tk, H)
                let order = [("perm", Attribute::Integers(vec![2, 0, 1]))];
                all.push(self.graph.node_with("Transpose", &[&biases], &order));
            }
            _ => {}
        }
        let mut all = all.into_iter();
        let Some(first) = all.next() else { return Ok(None) };
        Ok(Some(all.fold(first, |sum, one| self.graph.node("Add", &[&sum, &one]))))
    }

    /// Adds a table of T5's biases for each distance between query and key and each head, of shape
    /// (2 · distance + 1, H). The first row is for keys that are furthest before the query, the
    /// last row for keys that are furthest after it. For larger distances, the first or the last
    /// row is used.
    fn t5_table(&mut self, owner: &str, is_causal: bool) -> Result<String> {
        let (name, heads) = (format!("{owner}.relative_bias.weight"), self.model.heads);
        let (values, most) = (self.get(&name)?.values()?, self.model.relative_distance);
        let rows = (0..=2 * most).flat_map(|key| {
            let bucket = t5_bucket(most, key, is_causal, self.model.relative());
            &values[bucket * heads..(bucket + 1) * heads]
        });
        let rows = rows.copied().collect();
        Ok(self.graph.table(&format!("{name}.by_distance"), vec![2 * most + 1, heads], rows))
    }
}
