//! Settings of the operations of a state-space layer: a convolution and a scan over time.

use candle_core::{Result, Tensor, bail};
use std::sync::Arc;

/// Settings of a short convolution over time, with one filter for each channel.
#[derive(Debug, Clone)]
pub struct ConvolutionSpec {
    /// Number of tokens of each sequence.
    pub lengths: Arc<[usize]>,
    /// If `true`, a token sees itself and the tokens after it; if `false`, itself and the tokens
    /// before it.
    pub reverse: bool,
}

/// Settings of a scan, which is a linear recurrence over time: `h ← exp(Δ A) h + Δ B u`. The result
/// of each token is `y = (C h + D u) · silu(z)`.
#[derive(Debug, Clone)]
pub struct ScanSpec {
    /// Number of tokens of each sequence.
    pub lengths: Arc<[usize]>,
    /// Whether each token has its own step size Δ, and its own B and C. Otherwise they belong to
    /// the channels, and are the same for all tokens.
    pub selective: bool,
    /// True if sequences are read from their last token to their first.
    pub reverse: bool,
}

/// Tensors of a scan: N tokens of E channels, where each channel has S states.
#[derive(Debug, Clone, Copy)]
pub struct ScanInputs<'a> {
    /// The input u, `(N, E)`.
    pub x: &'a Tensor,
    /// Step size Δ before softplus: `(N, E)` for a selective scan, otherwise `(E,)`.
    pub delta: &'a Tensor,
    /// B and C side by side: `(N, 2·S)` for a selective scan, otherwise the elements of a matrix
    /// `(E, 2·S)`, in a tensor of any shape.
    pub in_out: &'a Tensor,
    /// Logarithm of the decay, ln(−A): the elements of a matrix `(E, S)`, in a tensor of any shape.
    pub log_decay: &'a Tensor,
    /// Factor D of the input, `(E,)`: D u is added to the result, past the state.
    pub skip: &'a Tensor,
    /// Tensor whose second half of columns is the gate z of the result, `(N, 2·E)`.
    pub gated: &'a Tensor,
}

/// Sizes of the inputs of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ScanShape {
    pub(crate) tokens: usize,
    pub(crate) channels: usize,
    pub(crate) states: usize,
}

impl<'a> ScanInputs<'a> {
    /// Returns all tensors, in the order of the fields.
    pub(crate) fn all(&self) -> [&'a Tensor; 6] {
        [self.x, self.delta, self.in_out, self.log_decay, self.skip, self.gated]
    }

    /// Checks that the shapes of the tensors match, and returns the sizes.
    pub(crate) fn shape(&self, spec: &ScanSpec) -> Result<ScanShape> {
        let (tokens, channels) = self.x.dims2()?;
        let states = self.log_decay.elem_count() / channels.max(1);
        let (steps, sides) = match spec.selective {
            true => (tokens * channels, tokens * 2 * states),
            false => (channels, channels * 2 * states),
        };
        if channels == 0
            || states == 0
            || self.log_decay.elem_count() != channels * states
            || self.delta.elem_count() != steps
            || self.in_out.elem_count() != sides
            || self.skip.elem_count() != channels
            || self.gated.dims() != [tokens, 2 * channels]
            || spec.lengths.iter().sum::<usize>() != tokens
        {
            bail!(
                "scan: shapes do not fit together: input {:?}, steps {:?}, B and C {:?}, decays \
                 {:?}, skip {:?}, gate {:?}, {} tokens in sequences",
                self.x.shape(),
                self.delta.shape(),
                self.in_out.shape(),
                self.log_decay.shape(),
                self.skip.shape(),
                self.gated.shape(),
                spec.lengths.iter().sum::<usize>()
            );
        }
        Ok(ScanShape { tokens, channels, states })
    }
}
