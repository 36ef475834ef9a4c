//! Forward pass of the scan (see [`selective_scan`](super::selective_scan)).

use super::lanes::{LANES, Lanes, load, map, sigmoid, softplus};
use crate::float::{Float, vectorised};
use crate::host::Host;
use crate::profile::{longest_of, region};
use crate::shared::{Shared, filled};
use crate::spec::attention::kinds::{ScanShape, ScanSpec};
use candle_core::Result;
use rayon::prelude::*;
use std::ops::Range;
use std::sync::Arc;

/// Number of tokens from one kept state to the next. The backward pass holds the states of this
/// many tokens in the cache.
pub(super) const TIME: usize = 32;

/// Smallest number of tokens that a task scans.
const TOKENS: usize = 64;

/// Inputs of a scan.
pub(super) struct Operands<'a, T> {
    pub(super) x: &'a [T],
    pub(super) delta: &'a [T],
    pub(super) in_out: &'a [T],
    pub(super) skip: &'a [T],
    pub(super) gated: &'a [T],
    /// A, in blocks of channels: `(blocks, S, LANES)`.
    pub(super) decay: Vec<T>,
    /// B and C if the scan is not selective, `(blocks, 2·S, LANES)`; empty otherwise.
    pub(super) fixed: Vec<T>,
    pub(super) shape: ScanShape,
    pub(super) selective: bool,
    pub(super) reverse: bool,
    pub(super) sequences: Sequences,
}

/// For each sequence: its length, the index of its first token, and the index of its first kept
/// state.
pub(super) struct Sequences {
    lengths: Arc<[usize]>,
    tokens: Vec<usize>,
    kept: Vec<usize>,
}

impl Sequences {
    fn new(lengths: &Arc<[usize]>) -> Self {
        let starts = |size: &dyn Fn(usize) -> usize| {
            let mut next = 0;
            let start = |&length: &usize| {
                next += size(length);
                next - size(length)
            };
            lengths.iter().map(start).chain([0]).collect::<Vec<usize>>()
        };
        let (tokens, kept) = (starts(&|length| length), starts(&|length| length.div_ceil(TIME)));
        Self { lengths: lengths.clone(), tokens, kept }
    }

    pub(super) fn length(&self, sequence: usize) -> usize {
        self.lengths[sequence]
    }

    /// Returns the index of the first token of a sequence.
    pub(super) fn first(&self, sequence: usize) -> usize {
        self.tokens[sequence]
    }

    /// Returns the index of the first kept state of a sequence.
    pub(super) fn first_kept(&self, sequence: usize) -> usize {
        self.kept[sequence]
    }

    fn all_kept(&self) -> usize {
        self.lengths.iter().map(|length| length.div_ceil(TIME)).sum()
    }

    /// Divides the sequences into pieces of consecutive sequences, each with at least `tokens`
    /// tokens (except perhaps the last piece).
    pub(super) fn pieces(&self, tokens: usize) -> Vec<Range<usize>> {
        let (mut pieces, mut first, mut sum) = (Vec::new(), 0, 0);
        for (sequence, length) in self.lengths.iter().enumerate() {
            sum += length;
            if sum >= tokens || sequence + 1 == self.lengths.len() {
                pieces.push(first..sequence + 1);
                (first, sum) = (sequence + 1, 0);
            }
        }
        pieces
    }

    /// Returns the number of tokens in a piece.
    pub(super) fn tokens_of(&self, piece: &Range<usize>) -> usize {
        self.lengths[piece.clone()].iter().sum()
    }
}

impl<'a, T: Float> Operands<'a, T> {
    /// Prepares the inputs; `hosts` has the tensors in the order of
    /// [`ScanInputs::all`](crate::spec::ScanInputs::all).
    pub(super) fn new(hosts: &'a [Host<'a>; 6], shape: ScanShape, spec: &ScanSpec) -> Result<Self> {
        let [x, delta, in_out, log_decay, skip, gated] = hosts;
        let (in_out, log_decay) = (in_out.elements::<T>()?, log_decay.elements::<T>()?);
        let fixed = match spec.selective {
            true => Vec::new(),
            false => in_blocks(in_out, shape.channels, |x| x),
        };
        Ok(Self {
            x: x.elements()?,
            delta: delta.elements()?,
            in_out,
            skip: skip.elements()?,
            gated: gated.elements()?,
            decay: in_blocks(log_decay, shape.channels, |x| -x.exp()),
            fixed,
            shape,
            selective: spec.selective,
            reverse: spec.reverse,
            sequences: Sequences::new(&spec.lengths),
        })
    }

    /// Returns the number of blocks of channels.
    pub(super) fn blocks(&self) -> usize {
        self.shape.channels.div_ceil(LANES)
    }

    /// Returns the range of channels in a block.
    pub(super) fn channels(&self, block: usize) -> Range<usize> {
        block * LANES..self.shape.channels.min((block + 1) * LANES)
    }

    /// Returns the token that is read at step `step` of a sequence.
    #[inline(always)]
    pub(super) fn token(&self, sequence: usize, step: usize) -> usize {
        let (first, length) = (self.sequences.first(sequence), self.sequences.length(sequence));
        if self.reverse { first + length - 1 - step } else { first + step }
    }

    /// Returns A of the state with this index, for the channels of a block.
    #[inline(always)]
    pub(super) fn decay(&self, block: usize, state: usize) -> Lanes<T> {
        load(&self.decay[(block * self.shape.states + state) * LANES..], LANES)
    }

    /// Returns Δ before softplus, for a range of channels.
    #[inline(always)]
    pub(super) fn raw_step(&self, channels: &Range<usize>, token: usize) -> Lanes<T> {
        let start = if self.selective { token * self.shape.channels } else { 0 };
        load(&self.delta[start + channels.start..], channels.len())
    }

    /// Returns B of the state with this index, for the channels of a block. Returns C of state i if
    /// the index is i plus the number of states.
    #[inline(always)]
    pub(super) fn side(&self, block: usize, token: usize, state: usize) -> Lanes<T> {
        let width = 2 * self.shape.states;
        if self.selective {
            [self.in_out[token * width + state]; LANES]
        } else {
            load(&self.fixed[(block * width + state) * LANES..], LANES)
        }
    }

    #[inline(always)]
    pub(super) fn input(&self, channels: &Range<usize>, token: usize) -> Lanes<T> {
        load(&self.x[token * self.shape.channels + channels.start..], channels.len())
    }

    /// Returns the gate z, for a range of channels.
    #[inline(always)]
    pub(super) fn gate(&self, channels: &Range<usize>, token: usize) -> Lanes<T> {
        let width = self.shape.channels;
        load(&self.gated[token * 2 * width + width + channels.start..], channels.len())
    }
}

/// Reorders `(E, W)` to `(blocks, W, LANES)`, and applies `map` to each value. Missing channels are
/// zero.
fn in_blocks<T: Float>(values: &[T], channels: usize, map: impl Fn(T) -> T) -> Vec<T> {
    let width = values.len() / channels;
    let mut out = vec![T::default(); channels.div_ceil(LANES) * width * LANES];
    for (channel, row) in values.chunks_exact(width).enumerate() {
        for (column, &value) in row.iter().enumerate() {
            out[(channel / LANES * width + column) * LANES + channel % LANES] = map(value);
        }
    }
    out
}

/// Reorders `(blocks, W, LANES)` to `(E, W)`.
pub(super) fn from_blocks<T: Float>(values: &[T], channels: usize, width: usize) -> Vec<T> {
    let at = |i: usize| {
        let (channel, column) = (i / width, i % width);
        values[(channel / LANES * width + column) * LANES + channel % LANES]
    };
    (0..channels * width).map(at).collect()
}

/// Results of a scan.
pub(super) struct Ran<T> {
    pub(super) out: Vec<T>,
    /// States after the last token of each sequence, `(B, E, S)`.
    pub(super) last: Vec<T>,
    /// States before the steps 0, [`TIME`], 2 · [`TIME`], … of each sequence:
    /// `(…, blocks, S, LANES)`. Empty if none are kept.
    pub(super) kept: Vec<T>,
}

/// Scans all sequences, beginning with the states `before`, `(B, E, S)`, or with zeros if this is
/// `None`. If `keeps` is true, keeps states for the backward pass.
pub(super) fn run<T: Float>(
    operands: &Operands<'_, T>,
    before: Option<&[T]>,
    keeps: bool,
) -> Ran<T> {
    let ScanShape { tokens, channels, states } = operands.shape;
    let (blocks, sequences) = (operands.blocks(), &operands.sequences);
    crate::profile::count(tokens * channels * (7 * states + 8));
    let pieces = sequences.pieces(TOKENS);
    let count = if keeps { sequences.all_kept() * blocks * states * LANES } else { 0 };
    let scan = |out: Shared<T>, last: Shared<T>, kept: Shared<T>| {
        let sizes = || (0..pieces.len() * blocks).map(|i| sequences.tokens_of(&pieces[i / blocks]));
        region(longest_of(sizes), || {
            (0..pieces.len() * blocks).into_par_iter().with_max_len(1).for_each(|task| {
                let (piece, block) = (pieces[task / blocks].clone(), task % blocks);
                for sequence in piece {
                    let mut state = vec![T::default(); states * LANES];
                    let of_block = operands.channels(block);
                    let place = (sequence * channels + of_block.start) * states;
                    if let Some(before) = before {
                        let before = &before[place..place + of_block.len() * states];
                        state = in_blocks(before, of_block.len(), |x| x);
                    }
                    let kept = keeps.then_some(kept);
                    scan_block(operands, sequence, block, &mut state, out, kept);
                    // SAFETY: each task has its own channels of its own sequences.
                    unsafe { last.write(place, &from_blocks(&state, of_block.len(), states)) };
                }
            });
        });
    };
    let lasts = sequences.lengths.len() * channels * states;
    // SAFETY: the tasks together write all channels of all sequences and of all tokens, and all
    // states that are kept.
    let (out, (last, kept)) = unsafe {
        filled(tokens * channels, |out| {
            let (last, (kept, ())) =
                filled(lasts, |last| filled(count, |kept| scan(out, last, kept)));
            (last, kept)
        })
    };
    Ran { out, last, kept }
}

vectorised! {
    /// Scans one sequence for a block of channels. `state (S, LANES)` is the initial state, and
    /// becomes the state after the last token.
    fn scan_block<T>(
        operands: &Operands<'_, T>,
        sequence: usize,
        block: usize,
        state: &mut [T],
        out: Shared<T>,
        kept: Option<Shared<T>>,
    ) {
        let ScanShape { channels: width, states, .. } = operands.shape;
        let channels = operands.channels(block);
        let skip = load(&operands.skip[channels.start..], channels.len());
        for step in 0..operands.sequences.length(sequence) {
            let token = operands.token(sequence, step);
            if let Some(kept) = kept && step.is_multiple_of(TIME) {
                let number = operands.sequences.first_kept(sequence) + step / TIME;
                let start = (number * operands.blocks() + block) * states * LANES;
                // SAFETY: no other task has this block of this sequence.
                unsafe { kept.write(start, state) };
            }
            let input = operands.input(&channels, token);
            let delta = map([&operands.raw_step(&channels, token)], |[x]| softplus(x));
            let scaled = map([&delta, &input], |[delta, input]| delta * input);
            let mut sum = map([&skip, &input], |[skip, input]| skip * input);
            for (index, state) in state.chunks_exact_mut(LANES).enumerate() {
                let decay = operands.decay(block, index);
                let into = operands.side(block, token, index);
                let from = operands.side(block, token, states + index);
                for lane in 0..LANES {
                    let power = (delta[lane] * decay[lane]).exp();
                    state[lane] = power * state[lane] + scaled[lane] * into[lane];
                    sum[lane] += state[lane] * from[lane];
                }
            }
            let gate = operands.gate(&channels, token);
            let out_lanes = map([&sum, &gate], |[sum, gate]| sum * gate * sigmoid(gate));
            // SAFETY: as above.
            unsafe { out.write(token * width + channels.start, &out_lanes[..channels.len()]) };
        }
    }
}
