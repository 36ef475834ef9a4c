//! Settings of a recurrent layer, and the order in which it processes the rows of packed sequences
//! (one after the other, without padding).

use crate::products::Products;
use candle_core::Tensor;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// Kind of recurrence: how a layer's state at one row follows from the state at the row before. The
/// gates and their order are those of PyTorch.
///
/// In the equations, `h` and `c` form the state before a row, and `h'` and `c'` the state at the
/// row. `x` is the contribution of the row's input to the gates, and `U` and `b` are the recurrent
/// weights and bias. An index names a gate: `U_r` is the part of `U` for the gate `r`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cell {
    /// Gates reset, update and new (Cho et al. 2014, "Learning Phrase Representations"; the reset
    /// gate is applied after the product, as in PyTorch and cuDNN):
    ///
    /// `r = σ(x_r + U_r h + b_r)`, `z = σ(x_z + U_z h + b_z)`, `n = tanh(x_n + r (U_n h + b_n))`,
    /// `h' = (1 - z) n + z h`.
    Gru,
    /// Gates input, forget, cell and output (Hochreiter and Schmidhuber 1997; Gers et al. 2000):
    ///
    /// `i = σ(x_i + U_i h + b_i)`, and likewise `f` and `o`, `g = tanh(x_g + U_g h + b_g)`,
    /// `c' = f c + i g`, `h' = o tanh(c')`.
    Lstm,
}

impl Cell {
    /// Returns the number of gates.
    #[must_use]
    pub const fn gates(self) -> usize {
        match self {
            Self::Gru => 3,
            Self::Lstm => 4,
        }
    }

    /// Returns the number of vectors in a state: 1 for `h`, or 2 for `h` and `c`.
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
    /// Kind of recurrence.
    pub cell: Cell,
    /// Number of rows of each sequence.
    pub lengths: Arc<[usize]>,
    /// True if sequences are read from their last row to their first.
    pub backwards: bool,
    /// With attention, the range of rows of keys and values that each sequence attends to. For a
    /// backward pass, these ranges must not overlap.
    pub attended: Arc<[Range<usize>]>,
    /// Whether to return the attention weights.
    pub wants_weights: bool,
    /// Where the backward pass records the norm of the gradient with respect to each state; `None`
    /// to record nothing.
    pub state_gradients: Option<StateGradients>,
    /// Type to which the operands of matrix products are rounded, forward and backward.
    pub products: Products,
}

/// Inputs of a recurrent layer of width `H` with `G` gates, for `B` sequences with `N` rows in
/// total.
#[derive(Debug, Clone, Copy)]
pub struct Recurrence<'a> {
    /// Contribution of the layer's input to the gates, including biases: `(N, G·H)`.
    pub inputs: &'a Tensor,
    /// Recurrent weight matrix `U`: `(G·H, H)`.
    pub weight: &'a Tensor,
    /// Recurrent bias `b`, added to `U h`: `(G·H,)`.
    pub bias: Option<&'a Tensor>,
    /// States before the first row of each sequence, `(B, H)` for GRUs and `(B, 2·H)` for LSTMs;
    /// `None` for zeros.
    pub initial: Option<&'a Tensor>,
    /// Attention that is computed at each row, before the row's state.
    pub attention: Option<AdditiveAttention<'a>>,
}

/// Attention with additive scores (Bahdanau et al. 2015, section 3.1 and appendix A.1.2):
/// `e_j = vᵀ tanh(W s + k_j)`, `α = softmax(e)`, `c = Σ α_j value_j`. Here `s` is the state before
/// the row, and `k_j` is the key at row `j`. The context `c` adds `C c` to the gates. There are `M`
/// keys of width `A`, and `M` values of width `V`.
#[derive(Debug, Clone, Copy)]
pub struct AdditiveAttention<'a> {
    /// The matrix `W`, which makes queries from states: `(A, H)`.
    pub query: &'a Tensor,
    /// The vector `v`, which makes scores: `(A,)`.
    pub energy: &'a Tensor,
    /// Keys `k`: `(M, A)`.
    pub keys: &'a Tensor,
    /// Values: `(M, V)`.
    pub values: &'a Tensor,
    /// The matrix `C`, from contexts to gates: `(G·H, V)`.
    pub context: &'a Tensor,
}

/// Results of a recurrent layer.
#[derive(Debug, Clone)]
pub struct Recurred {
    /// State `h` at each row, followed by the context `c` of its attention, if there is any:
    /// `(N, H)` or `(N, H + V)`.
    pub rows: Tensor,
    /// State of each sequence after the row that was read last, with the shape of
    /// [`Recurrence::initial`]. No gradient passes through it.
    pub last: Tensor,
    /// Attention weights, if requested: `(B, T, S)`. `T` is the largest number of rows of a
    /// sequence, and `S` the largest number of rows that a sequence attends to. The weights are
    /// zero beyond the end of a sequence, and beyond the rows that it attends to.
    pub weights: Option<Tensor>,
}

/// Norm of the gradient of the loss with respect to the state at each row, including the gradient
/// through all later states. This is the quantity that vanishes or explodes (Bengio et al. 1994;
/// Pascanu et al. 2013).
#[derive(Debug, Clone, Default)]
pub struct StateGradients(Arc<Mutex<Vec<f64>>>);

impl StateGradients {
    /// Returns the norms, one for each packed row in order; empty before a backward pass.
    #[must_use]
    pub fn norms(&self) -> Vec<f64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set(&self, norms: Vec<f64>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = norms;
    }
}

/// Order in which the rows of packed sequences are processed: step by step. Step `t` has the row
/// that each sequence reads at time `t`.
///
/// Each sequence has a place, which is its rank by length. The longest sequence has place 0, the
/// next longest place 1, and so on. So the sequences that still have a row at a step are at the
/// first places. "The order of steps" below means that rows are sorted by step, and within a step
/// by place.
#[derive(Debug)]
pub(crate) struct TimeSteps {
    /// Index of the sequence at each place.
    pub(crate) order: Vec<usize>,
    /// First packed row, and number of rows, of the sequence at each place.
    places: Vec<(usize, usize)>,
    /// Index of the first row of each step in the order of steps, followed by the total number of
    /// rows.
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

    /// Returns the number of steps.
    pub(crate) fn count(&self) -> usize {
        self.first.len() - 1
    }

    /// Returns the number of rows of all sequences.
    pub(crate) fn rows(&self) -> usize {
        self.first[self.count()]
    }

    /// Returns the range of a step's rows in the order of steps: one row for each of the first
    /// places.
    pub(crate) fn of_step(&self, step: usize) -> Range<usize> {
        self.first[step]..self.first[step + 1]
    }

    /// Returns the index of the packed row that the sequence at `place` reads at `step`.
    pub(crate) fn packed_row(&self, place: usize, step: usize) -> usize {
        let (start, length) = self.places[place];
        if self.backwards { start + length - 1 - step } else { start + step }
    }

    /// Returns, for each row in the order of steps, the index of its packed row.
    pub(crate) fn packed_rows(&self) -> Vec<usize> {
        (0..self.count())
            .flat_map(|step| {
                (0..self.of_step(step).len()).map(move |place| self.packed_row(place, step))
            })
            .collect()
    }

    /// Returns the index, in a list of states, of the first state from which `step` starts. The
    /// list has the initial states by place, followed by one state for each row in the order of
    /// steps.
    pub(crate) fn before(&self, step: usize) -> usize {
        match step {
            0 => 0,
            _ => self.places.len() + self.first[step - 1],
        }
    }

    /// Returns the index of the last state of the sequence at `place`, in the list that
    /// [`before`](Self::before) describes.
    pub(crate) fn last(&self, place: usize) -> usize {
        self.before(self.places[place].1) + place
    }
}
