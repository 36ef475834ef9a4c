//! Settings of a recurrent layer, and the order in which it visits the rows of packed sequences.

use crate::products::Products;
use candle_core::Tensor;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// Recurrence of a layer's state from one row to the next. Gates and their order are PyTorch's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cell {
    /// Gates reset, update and new (Cho et al. 2014, "Learning Phrase Representations", with the
    /// reset after the product, as in PyTorch and cuDNN):
    ///
    /// `r = σ(x_r + U_r h + b_r)`, `z = σ(x_z + U_z h + b_z)`, `n = tanh(x_n + r (U_n h + b_n))`,
    /// `h' = (1 - z) n + z h`.
    Gru,
    /// Gates input, forget, cell and output (Hochreiter and Schmidhuber 1997; Gers et al. 2000):
    ///
    /// `i, f, o = σ(x + U h + b)`, `g = tanh(x_g + U_g h + b_g)`, `c' = f c + i g`,
    /// `h' = o tanh(c')`.
    Lstm,
}

impl Cell {
    /// Number of gates.
    #[must_use]
    pub const fn gates(self) -> usize {
        match self {
            Self::Gru => 3,
            Self::Lstm => 4,
        }
    }

    /// Number of vectors of the layer's width in a state: `h`, or `h` and `c`.
    #[must_use]
    pub const fn vectors(self) -> usize {
        match self {
            Self::Gru => 1,
            Self::Lstm => 2,
        }
    }
}

/// Settings of a recurrent layer, apart from its tensors.
#[derive(Debug, Clone)]
pub struct RecurrenceSpec {
    /// Recurrence of the state.
    pub cell: Cell,
    /// Number of rows of each sequence.
    pub lengths: Arc<[usize]>,
    /// True if sequences are read from their last row to their first.
    pub backwards: bool,
    /// With attention, the rows of keys and values that each sequence attends to. For a backward
    /// pass these ranges must not overlap.
    pub attended: Arc<[Range<usize>]>,
    /// True to return the weights of attention.
    pub wants_weights: bool,
    /// Record of the gradient by each state in the backward pass; `None` to record nothing.
    pub state_gradients: Option<StateGradients>,
    /// Rounding of the operands of the products, forward and backward.
    pub products: Products,
}

/// Inputs of a recurrent layer of width `H` with `G` gates, over `N` rows of `B` sequences.
#[derive(Debug, Clone, Copy)]
pub struct Recurrence<'a> {
    /// Contribution of the inputs to the gates, including biases: `(N, G·H)`.
    pub inputs: &'a Tensor,
    /// Recurrent matrix `U`: `(G·H, H)`.
    pub weight: &'a Tensor,
    /// Bias `b` of the recurrent matrix: `(G·H,)`.
    pub bias: Option<&'a Tensor>,
    /// States before the first row, `(B, H)` for GRUs and `(B, 2·H)` for LSTMs; `None` for zeros.
    pub initial: Option<&'a Tensor>,
    /// Attention of each row, computed before the row's state.
    pub attention: Option<AdditiveAttention<'a>>,
}

/// Attention with a score for each pair of state and key (Bahdanau et al. 2015, section 3.1 and
/// appendix A.1.2): `e_j = vᵀ tanh(W s + k_j)`, `α = softmax(e)`, `c = Σ α_j value_j`, where `s` is
/// the state before the row; `C c` is added to the inputs of the gates.
#[derive(Debug, Clone, Copy)]
pub struct AdditiveAttention<'a> {
    /// `W`: `(A, H)`.
    pub query: &'a Tensor,
    /// `v`: `(A,)`.
    pub energy: &'a Tensor,
    /// Keys: `(M, A)`.
    pub keys: &'a Tensor,
    /// Values: `(M, V)`.
    pub values: &'a Tensor,
    /// `C`: `(G·H, V)`.
    pub context: &'a Tensor,
}

/// Results of a recurrent layer.
#[derive(Debug, Clone)]
pub struct Recurred {
    /// State `h` of each row, followed by its context if there is attention: `(N, H)` or `(N, H +
    /// V)`.
    pub rows: Tensor,
    /// State of each sequence after the last row that was read, with the shape of
    /// [`Recurrence::initial`]. No gradient passes through it.
    pub last: Tensor,
    /// Weights of attention, if requested: `(B, T, S)`, zero beyond the end of a sequence and of
    /// its attended rows.
    pub weights: Option<Tensor>,
}

/// Norm of the gradient by the state of each row, through all later states: the quantity that
/// vanishes or explodes (Bengio et al. 1994; Pascanu et al. 2013).
#[derive(Debug, Clone, Default)]
pub struct StateGradients(Arc<Mutex<Vec<f64>>>);

impl StateGradients {
    /// Norms, one for each row in the order of the packed rows; empty before a backward pass.
    #[must_use]
    pub fn norms(&self) -> Vec<f64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set(&self, norms: Vec<f64>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = norms;
    }
}

/// Rows of packed sequences by time steps.
///
/// Sequences have places, the longest first, so that the sequences with a row at a step are the
/// first ones. In the order of steps, rows are sorted by step, and within a step by place.
#[derive(Debug)]
pub(crate) struct TimeSteps {
    /// Sequence at each place.
    pub(crate) order: Vec<usize>,
    /// First packed row and length of the sequence at each place.
    places: Vec<(usize, usize)>,
    /// First row of each step in the order of steps, followed by the number of rows.
    first: Vec<usize>,
    backwards: bool,
}

impl TimeSteps {
    pub(crate) fn new(lengths: &[usize], backwards: bool) -> Self {
        let mut order: Vec<usize> = (0..lengths.len()).collect();
        order.sort_by_key(|&sequence| std::cmp::Reverse(lengths[sequence]));
        let mut start = 0;
        let starts: Vec<usize> = lengths
            .iter()
            .map(|length| {
                start += length;
                start - length
            })
            .collect();
        let places: Vec<(usize, usize)> =
            order.iter().map(|&sequence| (starts[sequence], lengths[sequence])).collect();
        let mut first = vec![0];
        let (mut count, mut rows) = (places.len(), 0);
        for step in 0..places.first().map_or(0, |&(_, longest)| longest) {
            while count > 0 && places[count - 1].1 <= step {
                count -= 1;
            }
            rows += count;
            first.push(rows);
        }
        Self { order, places, first, backwards }
    }

    /// Number of steps.
    pub(crate) fn count(&self) -> usize {
        self.first.len() - 1
    }

    /// Number of all rows.
    pub(crate) fn rows(&self) -> usize {
        self.first[self.count()]
    }

    /// Rows of a step in the order of steps: the first places, one row each.
    pub(crate) fn of_step(&self, step: usize) -> Range<usize> {
        self.first[step]..self.first[step + 1]
    }

    /// Packed row of a place at a step.
    pub(crate) fn packed_row(&self, place: usize, step: usize) -> usize {
        let (start, length) = self.places[place];
        if self.backwards { start + length - 1 - step } else { start + step }
    }

    /// Packed row of each row in the order of steps.
    pub(crate) fn packed_rows(&self) -> Vec<usize> {
        (0..self.count())
            .flat_map(|step| {
                (0..self.of_step(step).len()).map(move |place| self.packed_row(place, step))
            })
            .collect()
    }

    /// Index of the states before a step in a list. The list has the initial states by place, then
    /// one state for each row in the order of steps.
    pub(crate) fn before(&self, step: usize) -> usize {
        match step {
            0 => 0,
            _ => self.places.len() + self.first[step - 1],
        }
    }

    /// Index of the last state of a place in this list.
    pub(crate) fn last(&self, place: usize) -> usize {
        self.before(self.places[place].1) + place
    }
}
