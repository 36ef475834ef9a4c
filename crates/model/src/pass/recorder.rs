//! Recorder of intermediate results of a pass: attention, its projections, and states of tokens.

use std::cell::RefCell;

use candle_core::Tensor;
use taper_ops::AttentionShape;

/// Point of a stack at which states of tokens are recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StatePoint {
    /// Vectors of the tokens alone, scaled, before positions are added.
    Token,
    /// Vectors of the positions alone.
    Position,
    /// States before the first layer, or after a whole layer.
    Layer,
    /// States within the next layer, after its attention to the tokens of its own stack.
    SelfAttention,
    /// States within the next layer, after its attention to the encoder.
    CrossAttention,
}

/// States of all tokens at one point of a stack.
#[derive(Debug, Clone)]
pub struct StateRecord {
    /// Name of the stack, such as `encoder`.
    pub stack: String,
    /// Number of layers of the stack that the states have passed.
    pub layers: usize,
    /// Point of the stack.
    pub point: StatePoint,
    /// The states, `(N, D)`.
    pub rows: Tensor,
}

/// Attention weights of one layer.
#[derive(Debug, Clone)]
pub struct AttentionRecord {
    /// Full name of the layer, such as `decoder.layers.0.cross_attention`.
    pub layer: String,
    /// `(B, H, Tq, Tk)`, zero for keys beyond the end of their sequence; rows of queries beyond the
    /// end are meaningless.
    pub weights: Tensor,
}

/// Queries, keys and values of one attention layer, after norms and rotations.
#[derive(Debug, Clone)]
pub struct ProjectionRecord {
    /// Full name of the layer.
    pub layer: String,
    /// Heads, their width, and the factor of the scores.
    pub shape: AttentionShape,
    /// Queries, `(N, Q)`.
    pub queries: Tensor,
    /// Keys, `(M, K)`.
    pub keys: Tensor,
    /// Values, `(M, K)`.
    pub values: Tensor,
}

/// Everything that a pass has recorded, in the order in which layers ran.
#[derive(Debug, Default)]
pub struct Records {
    /// Attention weights.
    pub attention: Vec<AttentionRecord>,
    /// Queries, keys and values; empty unless states are recorded.
    pub projections: Vec<ProjectionRecord>,
    /// States of tokens; empty unless they are recorded.
    pub states: Vec<StateRecord>,
}

/// Recorder of a pass.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    /// The only layer whose weights are kept; `None` for all.
    pub(crate) only: Option<String>,
    /// Whether projections and states of tokens are kept as well.
    pub(crate) keeps_states: bool,
    pub(crate) records: RefCell<Records>,
}

impl Recorder {
    /// True if the weights of this layer are kept.
    pub(crate) fn wants(&self, layer: &str) -> bool {
        self.only.as_deref().is_none_or(|only| only == layer)
    }

    /// Keeps states at a point within the layer that follows the last recorded one.
    pub(crate) fn keep_within(&self, point: StatePoint, rows: &Tensor) {
        let states = &mut self.records.borrow_mut().states;
        let Some(last) = states.last() else { return };
        let (stack, layers) = (last.stack.clone(), last.layers);
        states.push(StateRecord { stack, layers, point, rows: rows.clone() });
    }
}
