//! Rotary position embedding (Su et al. 2021, section 3.2). Each pair of elements of a head is
//! rotated by an angle that grows with the position. So a score depends only on the distance
//! between query and key, not on their positions.
//!
//! By default, element `i` of a head of width `Dh` forms a pair with element `i + Dh/2`, and is
//! rotated by the angle `position · 10000^(-2i/Dh)`. [`Turns`] can specify other pairs, other
//! speeds, and a multiplier of rotated elements.

use crate::composed::{self, on_tape};
use crate::float::{Float, vectorised};
use crate::host::{Host, for_float};
use crate::profile::{even, region};
use crate::spec::{Pairs, Turns};
use crate::tape::{Slot, Tape, is_fused};
use candle_core::{Result, Tensor};
use rayon::prelude::*;
use std::sync::Arc;

/// Rotates all heads in the first `turned` columns of `x`, by angles that depend on the position of
/// each row. A head has `head` elements. If `x` has query, key and value side by side, its first
/// columns are queries and keys.
///
/// # Shapes
/// `x (N, W)`, N positions → `(N, W)`.
///
/// # Errors
/// If the rotated width of a head is odd or larger than `head`, the heads do not fit into the
/// columns, or the number of positions is not the number of rows.
pub fn rotary(
    tape: Option<&Tape>,
    x: &Tensor,
    (positions, turns): (&Arc<[u32]>, Turns),
    head: usize,
    turned: usize,
) -> Result<Tensor> {
    let (rows, width) = x.dims2()?;
    let pairs = turns.width(head);
    if head == 0
        || !pairs.is_multiple_of(2)
        || pairs > head
        || !turned.is_multiple_of(head)
        || turned > width
        || positions.len() != rows
    {
        candle_core::bail!(
            "rotary: shapes do not fit together: {turned} columns of heads of {head}, of which \
             {pairs} are rotated, input {:?}, {} positions",
            x.shape(),
            positions.len()
        );
    }
    if !is_fused(tape, &[x])? {
        return on_tape(tape, "rotary", &[x], |v| {
            composed::rotary(&v[0], (positions, turns), head, turned)
        });
    }
    let turn = Rotary { positions: positions.clone(), turns, head, turned, is_transposed: false };
    for_float!(x, T => forward::<T>(tape, x, turn))
}

fn forward<T: Float>(tape: Option<&Tape>, x: &Tensor, turn: Rotary) -> Result<Tensor> {
    let width = x.dim(1)?;
    let out = turn.apply(Host::new(x)?.elements::<T>()?, width);
    let out = Tensor::from_vec(out, x.shape(), x.device())?;
    if let Some(tape) = tape {
        // The gradient is rotated back: the transpose of a rotation is the rotation by the opposite
        // angle.
        let (input, back) = (Slot::from(x), Rotary { is_transposed: true, ..turn });
        tape.record::<T>("rotary", &[x], &out, move |adjoint, adjoints| {
            adjoints.give(input, back.apply(&adjoint, width))
        })?;
    }
    Ok(out)
}

struct Rotary {
    positions: Arc<[u32]>,
    turns: Turns,
    head: usize,
    /// Number of leading columns that are rotated.
    turned: usize,
    is_transposed: bool,
}

/// Smallest number of tokens that a task rotates.
const TOKENS: usize = 32;

impl Rotary {
    fn apply<T: Float>(&self, x: &[T], width: usize) -> Vec<T> {
        // Computes only the angles between the smallest and the largest position. In decoding,
        // there is often only a single position.
        let first = self.positions.iter().min().map_or(0, |&position| position as usize);
        let end = self.positions.iter().max().map_or(0, |&position| position as usize + 1);
        let (cosines, sines) = self.turns.angles(first..end, self.head);
        let sign = if self.is_transposed { -1.0 } else { 1.0 };
        let cosines: Vec<T> = cosines.into_iter().map(T::cast).collect();
        let sines: Vec<T> = sines.into_iter().map(|sine| T::cast(sign * sine)).collect();
        let half = self.turns.width(self.head) / 2;
        let mut out = vec![T::default(); x.len()];
        let one = |((out, x), &position): ((&mut [T], &[T]), &u32)| {
            out[self.turned..].copy_from_slice(&x[self.turned..]);
            let place = position as usize - first;
            let range = place * half..(place + 1) * half;
            let (x, out) = (&x[..self.turned], &mut out[..self.turned]);
            let (cosines, sines) = (&cosines[range.clone()], &sines[range]);
            match self.turns.pairs() {
                Pairs::Halves => turn(x, out, self.head, cosines, sines),
                Pairs::Interleaved => turn_neighbours(x, out, self.head, cosines, sines),
            }
        };
        region(even(self.positions.len().div_ceil(TOKENS)), || {
            // `max(1)`: without columns there are no chunks, but their size must not be 0.
            out.par_chunks_mut(width.max(1))
                .zip(x.par_chunks(width.max(1)))
                .zip(self.positions.par_iter())
                .with_min_len(TOKENS)
                .for_each(one);
        });
        out
    }
}

vectorised! {
    fn turn<T>(x: &[T], out: &mut [T], head: usize, cosines: &[T], sines: &[T]) {
        let half = cosines.len();
        for (x, out) in x.chunks_exact(head).zip(out.chunks_exact_mut(head)) {
            out[2 * half..].copy_from_slice(&x[2 * half..]);
            for i in 0..half {
                out[i] = x[i] * cosines[i] - x[i + half] * sines[i];
                out[i + half] = x[i + half] * cosines[i] + x[i] * sines[i];
            }
        }
    }
}

vectorised! {
    fn turn_neighbours<T>(x: &[T], out: &mut [T], head: usize, cosines: &[T], sines: &[T]) {
        let width = 2 * cosines.len();
        for (x, out) in x.chunks_exact(head).zip(out.chunks_exact_mut(head)) {
            out[width..].copy_from_slice(&x[width..]);
            let pairs = x[..width].chunks_exact(2).zip(out[..width].chunks_exact_mut(2));
            for ((x, out), (cosine, sine)) in pairs.zip(cosines.iter().zip(sines)) {
                out[0] = x[0] * *cosine - x[1] * *sine;
                out[1] = x[1] * *cosine + x[0] * *sine;
            }
        }
    }
}
