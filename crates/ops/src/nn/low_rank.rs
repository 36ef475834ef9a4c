//! Low-rank adapters (LoRA) of a linear layer whose matrix `W` is frozen: `W + s · B A` (Hu et al.
//! 2021, "LoRA: Low-Rank Adaptation of Large Language Models", section 4.1).
//!
//! **Decision.** The change is computed by products with the thin matrices A and B, and added to
//! the result of the product with `W`. The alternative would be to form `W + s · B A` at each
//! update. Its gradient would be as large as `W`, and adapters are meant to avoid the product that
//! computes such a gradient. Matrices that a layer fuses into one, such as those for queries, keys
//! and values, have separate adapters. The products with their matrices A are computed as one
//! product.

use crate::composed::{self, on_tape};
use crate::float::Float;
use crate::host::{Host, for_float};
use crate::nn::dropout::drop_in_place;
use crate::parallel::{CHUNK, add};
use crate::products::{Matrix, Right, Threads, product, product_then};
use crate::profile::{even, region};
use crate::shared::Write;
use crate::spec::{Dropout, Factors, LowRankSpec};
use crate::tape::{Adjoints, SavedTensor, Slot, Tape, is_fused};
use candle_core::{Result, Tensor};
use rayon::prelude::*;
use std::borrow::Cow;

/// Computes `base + dropout(s · d(x) Aᵀ Bᵀ)`, where `base` is the layer's result without adapters
/// and `d` is the dropout on the input. If there are several pairs of factors, each changes its own
/// columns of `base`, from left to right.
///
/// # Shapes
/// `x (N, I)`, `base (N, O)`, factors A `(Rᵢ, I)` and B `(Oᵢ, Rᵢ)` with `Σ Oᵢ = O` → `(N, O)`.
///
/// # Errors
/// If the shapes disagree.
pub fn low_rank(
    tape: Option<&Tape>,
    x: &Tensor,
    base: &Tensor,
    factors: &[Factors],
    spec: &LowRankSpec,
) -> Result<Tensor> {
    let ((rows, width), (base_rows, outputs)) = (x.dims2()?, base.dims2()?);
    let mut total = 0;
    for Factors { down, up } in factors {
        let ((rank, inputs), (part, inner)) = (down.dims2()?, up.dims2()?);
        total += part;
        if rank != inner || inputs != width {
            candle_core::bail!(
                "low rank: shapes do not fit together: input {:?}, factors {:?} and {:?}",
                x.shape(),
                down.shape(),
                up.shape()
            );
        }
    }
    if rows != base_rows || total != outputs {
        candle_core::bail!(
            "low rank: {total} outputs of {rows} rows do not fit a result of {:?}",
            base.shape()
        );
    }
    let inputs = inputs(x, base, factors);
    if !is_fused(tape, &inputs)? {
        return on_tape(tape, "low rank", &inputs, |v| {
            let factors: Vec<Factors> = v[2..]
                .chunks_exact(2)
                .map(|pair| Factors { down: pair[0].clone(), up: pair[1].clone() })
                .collect();
            composed::low_rank(&v[0], &v[1], &factors, spec)
        });
    }
    crate::profile::time(
        "low rank",
        || for_float!(x, T => forward::<T>(tape, x, base, factors, *spec)),
    )
}

fn inputs<'a>(x: &'a Tensor, base: &'a Tensor, factors: &'a [Factors]) -> Vec<&'a Tensor> {
    let of_factors = factors.iter().flat_map(|one| [&one.down, &one.up]);
    [x, base].into_iter().chain(of_factors).collect()
}

fn forward<T: Float>(
    tape: Option<&Tape>,
    x: &Tensor,
    base: &Tensor,
    factors: &[Factors],
    spec: LowRankSpec,
) -> Result<Tensor> {
    let ((rows, width), outputs) = (x.dims2()?, base.dim(1)?);
    let (down, rank) = joined::<T>(factors)?;
    let scale = T::cast(spec.scale);
    let scaled = |_: usize, inner: &mut [T]| inner.iter_mut().for_each(|value| *value *= scale);
    let inner = {
        let host = Host::new(x)?;
        let x = dropped(host.elements::<T>()?, spec.input_dropout);
        let right = Right::Plain(&down, Matrix::rows(width).transposed());
        let left = (&*x, Matrix::rows(width));
        product_then((rows, width, rank), left, right, spec.products, Some(&scaled)) // (N, R)
    };
    let base_host = Host::new(base)?;
    let base_values = base_host.elements::<T>()?;
    let mut out = base_values.to_vec();
    let write = if spec.dropout.is_active() { Write::Replace } else { Write::Add };
    let (mut first, mut column) = (0, 0);
    for Factors { up, .. } in factors {
        let (part, own) = up.dims2()?;
        let host = Host::new(up)?;
        product(
            (rows, own, part),
            (&inner, Matrix::rows(rank).at(first)),
            (host.elements::<T>()?, Matrix::rows(own).transposed()),
            (&mut out, Matrix::rows(outputs).at(column)),
            write,
            (spec.products, Threads::All),
        );
        (first, column) = (first + own, column + part);
    }
    if spec.dropout.is_active() {
        region(even(out.len().div_ceil(CHUNK)), || {
            let base = base_values.par_chunks(CHUNK);
            out.par_chunks_mut(CHUNK).zip(base).enumerate().for_each(|(chunk, (out, base))| {
                drop_in_place(out, chunk * CHUNK, spec.dropout);
                add(out, base);
            });
        });
    }
    let out = Tensor::from_vec(out, (rows, outputs), x.device())?;
    if let Some(tape) = tape {
        let (x_kept, base_slot) = (tape.keep(x), base.into());
        let back = Back { x: x_kept, base: base_slot, factors: factors.to_vec(), outputs, spec };
        let inputs = inputs(x, base, factors);
        tape.record::<T>("low rank", &inputs, &out, move |adjoint, adjoints| {
            back.run(&inner, adjoint, adjoints)
        })?;
    }
    Ok(out)
}

/// Returns the matrices A of all factors, one below the other, as one row-major matrix, and the
/// number of its rows.
fn joined<T: Float>(factors: &[Factors]) -> Result<(Vec<T>, usize)> {
    let (mut all, mut rows) = (Vec::new(), 0);
    for Factors { down, .. } in factors {
        all.extend_from_slice(Host::new(down)?.elements::<T>()?);
        rows += down.dim(0)?;
    }
    Ok((all, rows))
}

/// Returns the values after dropout.
fn dropped<T: Float>(values: &[T], dropout: Dropout) -> Cow<'_, [T]> {
    if !dropout.is_active() {
        return Cow::Borrowed(values);
    }
    let mut values = values.to_vec();
    drop_all(&mut values, dropout);
    Cow::Owned(values)
}

fn drop_all<T: Float>(values: &mut [T], dropout: Dropout) {
    region(even(values.len().div_ceil(CHUNK)), || {
        values.par_chunks_mut(CHUNK).enumerate().for_each(|(chunk, part)| {
            drop_in_place(part, chunk * CHUNK, dropout);
        });
    });
}

/// Data of the adapters that the backward pass needs.
struct Back {
    x: SavedTensor,
    base: Slot,
    factors: Vec<Factors>,
    /// Number of columns of the result.
    outputs: usize,
    spec: LowRankSpec,
}

impl Back {
    /// Runs the backward pass; `inner` is `s · d(x) Aᵀ`.
    fn run<T: Float>(
        &self,
        inner: &[T],
        adjoint: Vec<T>,
        adjoints: &mut Adjoints<'_>,
    ) -> Result<()> {
        let LowRankSpec { scale, input_dropout, dropout, products } = self.spec;
        let how = (products, Threads::All);
        let (down, rank) = joined::<T>(&self.factors)?;
        let x = self.x.value()?;
        let ((rows, width), outputs) = (x.dims2()?, self.outputs);
        let mut inner_grad = vec![T::default(); rows * rank];
        let shape = (rows, rank, outputs);
        self.through_up(shape, inner, &dropped(&adjoint, dropout), &mut inner_grad, adjoints)?;
        adjoints.give(self.base, adjoint)?;
        let scale = T::cast(scale);
        inner_grad.iter_mut().for_each(|value| *value *= scale);
        let host = Host::new(&x)?;
        let values = dropped(host.elements::<T>()?, input_dropout);
        let mut first = 0;
        for Factors { down, .. } in &self.factors {
            let own = down.dim(0)?;
            adjoints.add_with(down, |out: &mut [T], write| {
                product(
                    (own, rows, width),
                    (&inner_grad, Matrix::rows(rank).at(first).transposed()),
                    (&values, Matrix::rows(width)),
                    (out, Matrix::rows(width)),
                    write,
                    how,
                );
                Ok(())
            })?;
            first += own;
        }
        if !adjoints.wants(&self.x) {
            return Ok(());
        }
        let right = Right::Plain(&down, Matrix::rows(width));
        let left = (inner_grad.as_slice(), Matrix::rows(rank));
        let mut grad = product_then((rows, rank, width), left, right, products, None);
        if input_dropout.is_active() {
            drop_all(&mut grad, input_dropout);
        }
        adjoints.give(&self.x, grad)
    }

    /// Adds the gradients with respect to the matrices B, and writes the gradient with respect to
    /// `inner` to `inner_grad`.
    fn through_up<T: Float>(
        &self,
        (rows, rank, outputs): (usize, usize, usize),
        inner: &[T],
        grad: &[T],
        inner_grad: &mut [T],
        adjoints: &mut Adjoints<'_>,
    ) -> Result<()> {
        let how = (self.spec.products, Threads::All);
        let (mut first, mut column) = (0, 0);
        for Factors { up, .. } in &self.factors {
            let (part, own) = up.dims2()?;
            let grad_at = Matrix::rows(outputs).at(column);
            adjoints.add_with(up, |out: &mut [T], write| {
                product(
                    (part, rows, own),
                    (grad, grad_at.transposed()),
                    (inner, Matrix::rows(rank).at(first)),
                    (out, Matrix::rows(own)),
                    write,
                    how,
                );
                Ok(())
            })?;
            let host = Host::new(up)?;
            product(
                (rows, part, own),
                (grad, grad_at),
                (host.elements::<T>()?, Matrix::rows(own)),
                (inner_grad, Matrix::rows(rank).at(first)),
                Write::Replace,
                how,
            );
            (first, column) = (first + own, column + part);
        }
        Ok(())
    }
}
