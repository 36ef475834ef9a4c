//! Backward pass of the scan (see [`selective_scan`](super::selective_scan)). The forward pass has
//! kept the state before every thirty-second token. From such a state, the backward pass recomputes
//! the states of the next thirty-two tokens.
//!
//! The adjoint of a number is the gradient of the loss with respect to it. Let g_t be the adjoint
//! of the state h_t, and dy_t the adjoint of the result before it is multiplied by the gate. Then
//! `g_t = C_t dy_t + exp(Δ_(t+1) A) g_(t+1)`. The adjoints of the inputs are sums of products of
//! g_t with h_(t−1), Δ_t and u_t.

use super::forward::{Operands, TIME, from_blocks};
use super::lanes::{LANES, Lanes, load, map, sigmoid, softplus, sum};
use crate::float::{Float, vectorised};
use crate::host::Host;
use crate::parallel::combined;
use crate::profile::{longest_of, region};
use crate::shared::{Shared, Write, filled};
use crate::spec::attention::kinds::{ScanInputs, ScanShape, ScanSpec};
use crate::tape::{Adjoints, SavedTensor, Slot, Tape};
use candle_core::{Result, Tensor};
use rayon::prelude::*;

/// Smallest number of tokens in a task (the last task can have fewer). There should be few tasks,
/// because each needs memory for its own sums of the parameters' gradients.
const TOKENS: usize = 256;

/// Number of blocks of channels (of [`LANES`] channels each) in a task. The blocks of a task add to
/// the same sums over channels.
const BLOCKS: usize = 4;

/// Records the scan that computed `out`, with its backward pass; `states` are the states that the
/// scan kept.
pub(super) fn record<T: Float>(
    tape: &Tape,
    inputs: ScanInputs<'_>,
    (shape, spec): (ScanShape, &ScanSpec),
    states: Vec<T>,
    out: &Tensor,
) -> Result<()> {
    let kept = inputs.all().map(|input| tape.keep(input));
    let spec = spec.clone();
    tape.record::<T>("scan", &inputs.all(), out, move |adjoint, adjoints| {
        go_back(&kept, (shape, &spec), &states, &adjoint, adjoints)
    })
}

fn go_back<T: Float>(
    kept: &[SavedTensor; 6],
    (shape, spec): (ScanShape, &ScanSpec),
    states: &[T],
    adjoint: &[T],
    adjoints: &mut Adjoints<'_>,
) -> Result<()> {
    let mut tensors = Vec::with_capacity(kept.len());
    for kept in kept {
        tensors.push(kept.value()?);
    }
    let [x, delta, in_out, log_decay, skip, gated] = tensors.as_slice() else {
        candle_core::bail!("scan: the backward pass needs six tensors");
    };
    let hosts = [
        Host::new(x)?,
        Host::new(delta)?,
        Host::new(in_out)?,
        Host::new(log_decay)?,
        Host::new(skip)?,
        Host::new(gated)?,
    ];
    let operands = Operands::<T>::new(&hosts, shape, spec)?;
    let gradients = run(&operands, states, adjoint);
    let slots: [Slot; 6] = std::array::from_fn(|index| (&kept[index]).into());
    adjoints.give(slots[0], gradients.x)?;
    adjoints.give(slots[1], gradients.delta)?;
    adjoints.give(slots[2], gradients.in_out)?;
    adjoints.give(slots[3], gradients.log_decay)?;
    adjoints.give(slots[4], gradients.skip)?;
    let width = shape.channels;
    adjoints.add_with(slots[5], |total: &mut [T], write| {
        for (row, own) in total.chunks_exact_mut(2 * width).zip(gradients.gate.chunks_exact(width))
        {
            let (first, second) = row.split_at_mut(width);
            match write {
                Write::Replace => {
                    first.fill(T::default());
                    second.copy_from_slice(own);
                }
                Write::Add => crate::parallel::add(second, own),
            }
        }
        Ok(())
    })
}

/// Adjoints of the inputs of the scan.
struct InputAdjoints<T> {
    x: Vec<T>,
    delta: Vec<T>,
    in_out: Vec<T>,
    log_decay: Vec<T>,
    skip: Vec<T>,
    /// Adjoint of the gate z, `(N, E)`.
    gate: Vec<T>,
}

/// Sums over tokens of the adjoints of parameters, for one block of channels.
pub(super) struct Sums<T> {
    /// Sums of the adjoint of A, `(S, LANES)`.
    decay: Vec<T>,
    skip: Vec<T>,
    /// Sums of the adjoint of Δ; used only if Δ is a parameter.
    delta: Vec<T>,
    /// Sums of the adjoints of B and C, `(2·S, LANES)`; used only if B and C are parameters.
    in_out: Vec<T>,
}

impl<T: Float> Sums<T> {
    fn new(states: usize) -> Self {
        let zeros = |count| vec![T::default(); count];
        Self {
            decay: zeros(states * LANES),
            skip: zeros(LANES),
            delta: zeros(LANES),
            in_out: zeros(2 * states * LANES),
        }
    }

    fn flat(self) -> Vec<T> {
        [self.decay, self.skip, self.delta, self.in_out].concat()
    }
}

/// Destinations of the adjoints that differ from token to token.
#[derive(Clone, Copy)]
pub(super) struct Outputs<T> {
    x: Shared<T>,
    delta: Shared<T>,
    gate: Shared<T>,
    /// Adjoints of B and C, separately for each group of blocks of channels: `(groups, N, 2·S)`.
    in_out: Shared<T>,
}

fn run<T: Float>(operands: &Operands<'_, T>, states: &[T], adjoint: &[T]) -> InputAdjoints<T> {
    let ScanShape { tokens, channels, states: count } = operands.shape;
    let (blocks, sequences) = (operands.blocks(), &operands.sequences);
    let (pieces, groups) = (sequences.pieces(TOKENS), blocks.div_ceil(BLOCKS));
    let sides = if operands.selective { tokens * 2 * count } else { 0 };
    let mut of_groups = vec![T::default(); groups * sides];
    let of_groups_shared = Shared::new(&mut of_groups);
    let steps = if operands.selective { tokens * channels } else { 0 };
    let scan = |x, delta, gate| {
        let outputs = Outputs { x, delta, gate, in_out: of_groups_shared };
        let sizes = || (0..pieces.len() * groups).map(|i| sequences.tokens_of(&pieces[i / groups]));
        let of_task = |task: usize| {
            let (piece, group) = (&pieces[task / groups], task % groups);
            let mut sums = Vec::new();
            for block in group * BLOCKS..blocks.min((group + 1) * BLOCKS) {
                let mut of_block = Sums::new(count);
                for sequence in piece.clone() {
                    back_block(operands, sequence, block, states, adjoint, outputs, &mut of_block);
                }
                sums.extend(of_block.flat());
            }
            sums
        };
        region(longest_of(sizes), || {
            let tasks = 0..pieces.len() * groups;
            tasks.into_par_iter().with_max_len(1).map(of_task).collect::<Vec<Vec<T>>>()
        })
    };
    // SAFETY: the tasks together write all channels of all tokens, including the adjoints of Δ if Δ
    // differs from token to token.
    let (x, (delta, (gate, of_tasks))) = unsafe {
        filled(tokens * channels, |x| {
            filled(steps, |delta| filled(tokens * channels, |gate| scan(x, delta, gate)))
        })
    };
    // The sums of the pieces (groups of sequences) are added in order.
    let of_block = count * LANES + LANES + LANES + 2 * count * LANES;
    let mut total: Vec<T> = Vec::with_capacity(blocks * of_block);
    let mut of_tasks: Vec<Option<Vec<T>>> = of_tasks.into_iter().map(Some).collect();
    for group in 0..groups {
        let parts: Vec<Vec<T>> =
            (0..pieces.len()).filter_map(|piece| of_tasks[piece * groups + group].take()).collect();
        let group_size = blocks.min((group + 1) * BLOCKS) - group * BLOCKS;
        total.extend(combined(parts, group_size * of_block));
    }
    let part = |start: usize, width: usize| {
        let of_part = |block: &[T]| block[start..start + width * LANES].to_vec();
        let part: Vec<T> = total.chunks_exact(of_block).flat_map(of_part).collect();
        from_blocks(&part, channels, width)
    };
    let decay = from_blocks(&operands.decay, channels, count);
    let log_decay = part(0, count).iter().zip(&decay).map(|(&sum, &decay)| sum * decay).collect();
    let skip = part(count * LANES, 1);
    let (delta, in_out) = if operands.selective {
        let parts = of_groups.chunks_exact(sides.max(1)).map(<[T]>::to_vec).collect();
        (delta, combined(parts, sides))
    } else {
        (part(count * LANES + LANES, 1), part(count * LANES + 2 * LANES, 2 * count))
    };
    InputAdjoints { x, delta, in_out, log_decay, skip, gate }
}

/// Values that are recomputed for the steps from one kept state to the next.
struct Again<T> {
    /// State before each step, and the state after the last step: `(TIME + 1, S, LANES)`.
    states: Vec<T>,
    /// Factors exp(Δ A), `(TIME, S, LANES)`.
    powers: Vec<T>,
    /// For each step, the step size Δ, and the step's result, not yet multiplied by the gate.
    steps: Vec<(Lanes<T>, Lanes<T>)>,
}

vectorised! {
    /// Computes the adjoints of one sequence, for a block of channels, from the last step to the
    /// first.
    fn back_block<T>(
        operands: &Operands<'_, T>,
        sequence: usize,
        block: usize,
        kept: &[T],
        adjoint: &[T],
        outputs: Outputs<T>,
        sums: &mut Sums<T>,
    ) {
        let states = operands.shape.states;
        let (length, width) = (operands.sequences.length(sequence), states * LANES);
        let zeros = |count| vec![T::default(); count];
        let mut again = Again {
            states: zeros((TIME + 1) * width),
            powers: zeros(TIME * width),
            steps: vec![([T::default(); LANES], [T::default(); LANES]); TIME],
        };
        let mut carried = zeros(width);
        for part in (0..length.div_ceil(TIME)).rev() {
            let number = operands.sequences.first_kept(sequence) + part;
            let start = (number * operands.blocks() + block) * width;
            again.states[..width].copy_from_slice(&kept[start..start + width]);
            let first = part * TIME;
            let count = TIME.min(length - first);
            forward_again(operands, sequence, block, first, count, &mut again);
            for step in (0..count).rev() {
                let token = operands.token(sequence, first + step);
                back_step(
                    operands, token, block, step, &again, &mut carried, adjoint, outputs, sums,
                );
            }
        }
    }
}

#[inline(always)]
fn forward_again<T: Float>(
    operands: &Operands<'_, T>,
    sequence: usize,
    block: usize,
    first: usize,
    count: usize,
    again: &mut Again<T>,
) {
    let states = operands.shape.states;
    let (channels, width) = (operands.channels(block), states * LANES);
    let skip = load(&operands.skip[channels.start..], channels.len());
    for step in 0..count {
        let token = operands.token(sequence, first + step);
        let input = operands.input(&channels, token);
        let delta = map([&operands.raw_step(&channels, token)], |[x]| softplus(x));
        let scaled = map([&delta, &input], |[delta, input]| delta * input);
        let mut total = map([&skip, &input], |[skip, input]| skip * input);
        let (before, after) = again.states[step * width..(step + 2) * width].split_at_mut(width);
        let powers = &mut again.powers[step * width..(step + 1) * width];
        for index in 0..states {
            let decay = operands.decay(block, index);
            let into = operands.side(block, token, index);
            let from = operands.side(block, token, states + index);
            let range = index * LANES..(index + 1) * LANES;
            let (before, after) = (&before[range.clone()], &mut after[range.clone()]);
            let powers = &mut powers[range];
            for lane in 0..LANES {
                powers[lane] = (delta[lane] * decay[lane]).exp();
                after[lane] = powers[lane] * before[lane] + scaled[lane] * into[lane];
                total[lane] += after[lane] * from[lane];
            }
        }
        again.steps[step] = (delta, total);
    }
}

#[allow(clippy::too_many_arguments, reason = "the inside of a loop, with what is around it")]
#[inline(always)]
fn back_step<T: Float>(
    operands: &Operands<'_, T>,
    token: usize,
    block: usize,
    step: usize,
    again: &Again<T>,
    carried: &mut [T],
    adjoint: &[T],
    outputs: Outputs<T>,
    sums: &mut Sums<T>,
) {
    let one = T::cast(1.0);
    let ScanShape { tokens, channels: all, states } = operands.shape;
    let channels = operands.channels(block);
    let place = token * all + channels.start;
    let count = channels.len();
    let (input, gate) = (operands.input(&channels, token), operands.gate(&channels, token));
    let (delta, total) = again.steps[step];
    let given = load(&adjoint[place..], count);
    let open = map([&gate], |[gate]| sigmoid(gate));
    let of_gate = map([&given, &total, &gate, &open], |[given, total, gate, open]| {
        given * total * open * (one + gate * (one - open))
    });
    let given = map([&given, &gate, &open], |[given, gate, open]| given * gate * open);
    let skip = load(&operands.skip[channels.start..], count);
    let mut of_input = map([&given, &skip], |[given, skip]| given * skip);
    for lane in 0..LANES {
        sums.skip[lane] += given[lane] * input[lane];
    }
    // SAFETY: no other task has both this group of blocks and this token.
    let of_sides = operands.selective.then(|| unsafe {
        let start = (block / BLOCKS * tokens + token) * 2 * states;
        outputs.in_out.range(start..start + 2 * states)
    });
    let (mut of_delta, of_scaled) = back_states(
        operands,
        (token, block, step),
        again,
        (&given, &input),
        carried,
        of_sides,
        sums,
    );
    let raw = operands.raw_step(&channels, token);
    for lane in 0..LANES {
        of_input[lane] += of_scaled[lane] * delta[lane];
        of_delta[lane] = (of_delta[lane] + of_scaled[lane] * input[lane]) * sigmoid(raw[lane]);
    }
    // SAFETY: no other task has both this block and this token.
    unsafe {
        outputs.x.write(place, &of_input[..count]);
        outputs.gate.write(place, &of_gate[..count]);
        if operands.selective {
            outputs.delta.write(place, &of_delta[..count]);
        }
    }
    if !operands.selective {
        crate::parallel::add(&mut sums.delta, &of_delta);
    }
}

/// Carries the adjoints of the states back over one step. `given` is the adjoint of the result
/// before the gate, and `input` is the input u of the step. Returns two adjoints: the part of the
/// adjoint of Δ that comes through the factor exp(Δ A), and the adjoint of the product Δ u. The
/// adjoints of B and C are added to `of_sides`, or to `sums` if `of_sides` is `None`.
#[inline(always)]
fn back_states<T: Float>(
    operands: &Operands<'_, T>,
    (token, block, step): (usize, usize, usize),
    again: &Again<T>,
    (given, input): (&Lanes<T>, &Lanes<T>),
    carried: &mut [T],
    of_sides: Option<&mut [T]>,
    sums: &mut Sums<T>,
) -> (Lanes<T>, Lanes<T>) {
    let (zero, states) = (T::default(), operands.shape.states);
    let width = states * LANES;
    let delta = again.steps[step].0;
    let scaled = map([&delta, input], |[delta, input]| delta * input);
    let (mut of_delta, mut of_scaled) = ([zero; LANES], [zero; LANES]);
    let range = |index: usize| index * LANES..(index + 1) * LANES;
    let before = &again.states[step * width..(step + 1) * width];
    let after = &again.states[(step + 1) * width..(step + 2) * width];
    let powers = &again.powers[step * width..(step + 1) * width];
    let mut of_sides = of_sides.map(|both| both.split_at_mut(states));
    for index in 0..states {
        let decay = operands.decay(block, index);
        let into = operands.side(block, token, index);
        let from = operands.side(block, token, states + index);
        let (before, after) = (&before[range(index)], &after[range(index)]);
        let powers = &powers[range(index)];
        let carried = &mut carried[range(index)];
        let of_decay = &mut sums.decay[range(index)];
        let (mut product_into, mut product_from) = ([zero; LANES], [zero; LANES]);
        for lane in 0..LANES {
            product_from[lane] = given[lane] * after[lane];
            let of_state = carried[lane] + given[lane] * from[lane];
            of_scaled[lane] += of_state * into[lane];
            product_into[lane] = of_state * scaled[lane];
            carried[lane] = of_state * powers[lane];
            let of_exponent = carried[lane] * before[lane];
            of_delta[lane] += of_exponent * decay[lane];
            of_decay[lane] += of_exponent * delta[lane];
        }
        match &mut of_sides {
            Some((of_into, of_from)) => {
                of_into[index] += sum(product_into);
                of_from[index] += sum(product_from);
            }
            None => {
                crate::parallel::add(&mut sums.in_out[range(index)], &product_into);
                crate::parallel::add(&mut sums.in_out[range(states + index)], &product_from);
            }
        }
    }
    (of_delta, of_scaled)
}
