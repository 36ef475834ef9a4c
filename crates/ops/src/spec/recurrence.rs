//! What a recurrent layer computes, and in which order it visits the rows of packed sequences.

use crate::products::Products;
use candle_core::Tensor;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// How the state of a recurrent layer goes on from one row to the next. Gates and their order are
/// PyTorch's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cell {
    /// Gates reset, update and new (Cho et al. 2014, "Learning Phrase Representations", with the
    /// reset behind the product as PyTorch and cuDNN have it):
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
    /// How many gates it has.
    #[must_use]
    pub const fn gates(self) -> usize {
        match self {
            Self::Gru => 3,
            Self::Lstm => 4,
        }
    }

    /// Vectors of the width of the layer in a state: `h`, or `h` and `c`.
    #[must_use]
    pub const fn vectors(self) -> usize {
        match self {
            Self::Gru => 1,
            Self::Lstm => 2,
        }
    }
}

/// What a recurrent layer computes, beside its tensors.
#[derive(Debug, Clone)]
pub struct RecurrenceSpec {
    /// How a state goes on.
    pub cell: Cell,
    /// Rows of each sequence.
    pub lengths: Arc<[usize]>,
    /// Whether sequences are read from their last row to their first.
    pub backwards: bool,
    /// With attention, the rows of keys and values that each sequence attends to. A pass that is
    /// differentiated needs ranges that do not overlap.
    pub attended: Arc<[Range<usize>]>,
    /// Whether the weights of attention are wanted.
    pub wants_weights: bool,
    /// Where the way back notes the gradient by each state; none where nobody asks.
    pub state_gradients: Option<StateGradients>,
    /// How the operands of the products are rounded, forward and backward.
    pub products: Products,
}

/// What goes into a recurrent layer of width `H` with `G` gates, over `N` rows of `B` sequences.
#[derive(Debug, Clone, Copy)]
pub struct Recurrence<'a> {
    /// What the inputs add to the gates, biases included: `(N, G·H)`.
    pub inputs: &'a Tensor,
    /// The recurrent matrix `U`: `(G·H, H)`.
    pub weight: &'a Tensor,
    /// Its bias `b`: `(G·H,)`.
    pub bias: Option<&'a Tensor>,
    /// The states before the first row, `(B, H)` of GRUs and `(B, 2·H)` of LSTMs; zeros where there
    /// are none.
    pub initial: Option<&'a Tensor>,
    /// What each row attends to before it is computed.
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
    /// The keys: `(M, A)`.
    pub keys: &'a Tensor,
    /// The values: `(M, V)`.
    pub values: &'a Tensor,
    /// `C`: `(G·H, V)`.
    pub context: &'a Tensor,
}

/// What a recurrent layer gives.
#[derive(Debug, Clone)]
pub struct Recurred {
    /// The state `h` of each row, with attention followed by its context: `(N, H)` or `(N, H + V)`.
    pub rows: Tensor,
    /// The state behind the last row that was read of each sequence, as
    /// [`Recurrence::initial`] has it. Nothing goes back through it.
    pub last: Tensor,
    /// The weights of attention, where they were asked for: `(B, T, S)`, zero beyond the end of a
    /// sequence and of what it attends to.
    pub weights: Option<Tensor>,
}

/// The length of the gradient by the state of each row, over all ways that lead from there to the
/// result: what vanishes or explodes (Bengio et al. 1994; Pascanu et al. 2013).
#[derive(Debug, Clone, Default)]
pub struct StateGradients(Arc<Mutex<Vec<f64>>>);

impl StateGradients {
    /// The norms, one for each row in the order of the packed rows; empty before a backward pass.
    #[must_use]
    pub fn norms(&self) -> Vec<f64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set(&self, norms: Vec<f64>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = norms;
    }
}

/// The rows of packed sequences by time steps.
///
/// Sequences take places, the longest first, so that those that still have a row at a step are the
/// first ones. Rows in the order of steps lie one step after the other, in each the places in their
/// order.
#[derive(Debug)]
pub(crate) struct TimeSteps {
    /// The sequence of each place.
    pub(crate) order: Vec<usize>,
    /// The first packed row and the length of the sequence of each place.
    places: Vec<(usize, usize)>,
    /// The first row of each step in the order of steps, and the number of rows behind the last.
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

    /// Steps.
    pub(crate) fn count(&self) -> usize {
        self.first.len() - 1
    }

    /// Rows in all.
    pub(crate) fn rows(&self) -> usize {
        self.first[self.count()]
    }

    /// The rows of a step in the order of steps: the first places, one row each.
    pub(crate) fn of_step(&self, step: usize) -> Range<usize> {
        self.first[step]..self.first[step + 1]
    }

    /// The packed row of a place at a step.
    pub(crate) fn packed_row(&self, place: usize, step: usize) -> usize {
        let (start, length) = self.places[place];
        if self.backwards { start + length - 1 - step } else { start + step }
    }

    /// The packed row of each row in the order of steps.
    pub(crate) fn packed_rows(&self) -> Vec<usize> {
        (0..self.count())
            .flat_map(|step| {
                (0..self.of_step(step).len()).map(move |place| self.packed_row(place, step))
            })
            .collect()
    }

    /// Where the states are that the places of a step go on from, in a list that begins with the
    /// initial states by place and goes on with one state for each row in the order of steps.
    pub(crate) fn before(&self, step: usize) -> usize {
        match step {
            0 => 0,
            _ => self.places.len() + self.first[step - 1],
        }
    }

    /// Where the last state of a place is in that list.
    pub(crate) fn last(&self, place: usize) -> usize {
        self.before(self.places[place].1) + place
    }
}
