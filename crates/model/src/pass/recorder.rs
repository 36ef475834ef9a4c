//! Recorder of intermediate results of a pass: attention weights, queries, keys and values, and
//! states of tokens.

use std::cell::RefCell;

use candle_core::Tensor;
use taper_ops::AttentionShape;

/// Point of a stack at which states of tokens are recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StatePoint {
    /// Scaled vectors of the tokens, before positions are added.
    Token,
    /// Vectors of the positions, before they are added.
    Position,
    /// States before the first layer, or after a complete layer.
    Layer,
    /// States within a layer, after its attention to tokens of its own stack.
    SelfAttention,
    /// States within a layer, after its attention to the encoder.
    CrossAttention,
}

/// States of all tokens at one point of a stack.
#[derive(Debug, Clone)]
pub struct StateRecord {
    /// Name of the stack, such as `encoder`.
    pub stack: String,
    /// Number of complete layers of the stack that the states have passed.
    pub layers: usize,
    /// Point of the stack at which the states were recorded.
    pub point: StatePoint,
    /// The states, `(N, D)`: one row of the width D for each of N tokens.
    pub rows: Tensor,
}

/// Attention weights of one layer.
#[derive(Debug, Clone)]
pub struct AttentionRecord {
    /// Full name of the layer, such as `decoder.layers.0.cross_attention`.
    pub layer: String,
    /// Weights `(B, H, Tq, Tk)` of B sequences and H heads. Tq is the length of the longest
    /// sequence of queries, and Tk that of keys. Weights are zero for keys beyond the end of their
    /// sequence, and have no meaning for queries beyond the end of theirs.
    pub weights: Tensor,
}

/// Queries, keys and values of one attention layer, after norms and rotations.
#[derive(Debug, Clone)]
pub struct ProjectionRecord {
    /// Full name of the layer.
    pub layer: String,
    /// Number of heads, their width, and the factor of the scores.
    pub shape: AttentionShape,
    /// Queries, `(N, Q)`: N query tokens, and the width Q of all query heads together.
    pub queries: Tensor,
    /// Keys, `(M, K)`: M key tokens, and the width K of all key heads together.
    pub keys: Tensor,
    /// Values, `(M, K)`.
    pub values: Tensor,
}

/// Everything that a pass has recorded, in the order in which layers ran.
#[derive(Debug, Default)]
pub struct Records {
    /// Attention weights.
    pub attention: Vec<AttentionRecord>,
    /// Queries, keys and values; empty unless the pass records states.
    pub projections: Vec<ProjectionRecord>,
    /// States of tokens; empty unless the pass records them.
    pub states: Vec<StateRecord>,
}

/// Recorder of a pass.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    /// Full name of the only layer whose attention weights are kept; `None` if those of all layers
    /// are kept.
    pub(crate) only: Option<String>,
    /// True if states of tokens, queries, keys and values are kept as well.
    pub(crate) keeps_states: bool,
    pub(crate) records: RefCell<Records>,
}

impl Recorder {
    /// True if the attention weights of the layer with this name are kept.
    pub(crate) fn wants(&self, layer: &str) -> bool {
        self.only.as_deref().is_none_or(|only| only == layer)
    }

    /// Keeps states at a point within the current layer. The current layer is the one that follows
    /// the last complete layer that was recorded.
    pub(crate) fn keep_within(&self, point: StatePoint, rows: &Tensor) {
        let states = &mut self.records.borrow_mut().states;
        let Some(last) = states.last() else { return };
        let (stack, layers) = (last.stack.clone(), last.layers);
        states.push(StateRecord { stack, layers, point, rows: rows.clone() });
    }
}
