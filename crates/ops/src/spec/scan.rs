//! What the operations of a state-space layer compute.

use candle_core::{Result, Tensor, bail};
use std::sync::Arc;

/// A short convolution over time, a filter for each channel.
#[derive(Debug, Clone)]
pub struct ConvolutionSpec {
    /// Tokens of each sequence.
    pub lengths: Arc<[usize]>,
    /// Whether a token sees those after it in place of those before it.
    pub reverse: bool,
}

/// A scan over time.
#[derive(Debug, Clone)]
pub struct ScanSpec {
    /// Tokens of each sequence.
    pub lengths: Arc<[usize]>,
    /// Whether steps, and what goes into a state and out of it, are each token's own. Where they
    /// are not, they are each channel's, and the layer does the same at all times.
    pub selective: bool,
    /// Whether sequences are read from their last token to their first.
    pub reverse: bool,
}

/// The tensors of a scan: N tokens of E channels, each with S states.
#[derive(Debug, Clone, Copy)]
pub struct ScanInputs<'a> {
    /// u, `(N, E)`.
    pub x: &'a Tensor,
    /// The step Δ before softplus: `(N, E)` of a selective scan, otherwise `(E,)`.
    pub delta: &'a Tensor,
    /// B and C side by side: `(N, 2·S)` of a selective scan, otherwise of `E·2·S` elements.
    pub in_out: &'a Tensor,
    /// ln(−A), of `E·S` elements.
    pub log_decay: &'a Tensor,
    /// D, `(E,)`.
    pub skip: &'a Tensor,
    /// z in the second half of each row, `(N, 2·E)`.
    pub gated: &'a Tensor,
}

/// The sizes of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ScanShape {
    pub(crate) tokens: usize,
    pub(crate) channels: usize,
    pub(crate) states: usize,
}

impl<'a> ScanInputs<'a> {
    /// All of them, in order.
    pub(crate) fn all(&self) -> [&'a Tensor; 6] {
        [self.x, self.delta, self.in_out, self.log_decay, self.skip, self.gated]
    }

    /// Refuses tensors that do not fit together.
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
                "scan: input {:?}, steps {:?}, B and C {:?}, decays {:?}, skip {:?}, gate {:?}, \
                 {} tokens in sequences",
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
