//! Linear layers: the matrix product, and the epilogue (bias, activation, dropout and residual).

mod epilogue;
mod weight_gradient;

pub(super) use epilogue::Epilogue;
pub(super) use weight_gradient::weight_gradient;

use super::launch::computes;
use super::row_sums::sum_columns_for;
use crate::composed::CountedProduct;
use crate::spec::{Activation, LinearSpec};
use crate::tape::{Adjoints, SavedTensor, Slot, Tape};
use candle_core::{DType, Result, Tensor, bail};

/// Computes a linear layer; see [`crate::linear()`]. The weight can have another type than `x`.
/// `None` if there is no kernel for the types or the activation.
///
/// # Shapes
/// The shapes of [`crate::linear()`].
///
/// # Errors
/// If the shapes disagree.
pub(super) fn linear(
    tape: Option<&Tape>,
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    residual: Option<&Tensor>,
    spec: &LinearSpec,
) -> Option<Result<Tensor>> {
    let is_here = computes(x.dtype()) && computes(weight.dtype());
    let computed = || forward(tape, x, weight, bias, residual, spec);
    (is_here && spec.activation != Activation::Sigmoid).then(computed)
}

fn forward(
    tape: Option<&Tape>,
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    residual: Option<&Tensor>,
    spec: &LinearSpec,
) -> Result<Tensor> {
    let ((_, inputs), (_, width)) = (x.dims2()?, weight.dims2()?);
    if width != inputs {
        bail!("rows of {inputs} do not fit weights of width {width}");
    }
    let multiplied = weight.detach().to_dtype(x.dtype())?.contiguous()?;
    let product = x.detach().contiguous()?.times(&multiplied.t()?)?;
    let epilogue = Epilogue { activation: spec.activation, dropout: spec.dropout };
    let wide = bias.map(|bias| bias.detach().to_dtype(DType::F32)?.contiguous()).transpose()?;
    let out = match (&wide, residual) {
        (None, None) if epilogue.is_identity() => product.clone(),
        _ => epilogue.forward(&product, wide.as_ref(), residual)?,
    };
    if let Some(tape) = tape {
        let inputs: Vec<&Tensor> = [x, weight].into_iter().chain(bias).chain(residual).collect();
        let back = Back {
            // The input is needed only for the gradient with respect to the weight, which is not
            // computed if the weight is constant.
            kept: tape.needs(weight).then(|| tape.keep(x)),
            x: x.into(),
            weight: weight.into(),
            multiplied,
            bias: bias.map(Slot::from).zip(wide),
            residual: residual.map(Slot::from),
            // The product is needed only for the derivative of the activation.
            before: (spec.activation != Activation::Identity).then_some(product),
            epilogue,
        };
        tape.record_tensors("linear", &inputs, &out, move |gradient, adjoints| {
            back.run(&gradient, adjoints)
        })?;
    }
    Ok(out)
}

/// Data of a layer that the tape keeps for the backward pass.
struct Back {
    x: Slot,
    kept: Option<SavedTensor>,
    weight: Slot,
    /// The weight in the type of the activations.
    multiplied: Tensor,
    bias: Option<(Slot, Tensor)>,
    residual: Option<Slot>,
    before: Option<Tensor>,
    epilogue: Epilogue,
}

impl Back {
    fn run(&self, gradient: &Tensor, adjoints: &mut Adjoints<'_>) -> Result<()> {
        let of_product = {
            let bias = self.bias.as_ref().map(|(_, bias)| bias);
            // Without an activation, any tensor of the product's shape will do.
            let before = self.before.as_ref().unwrap_or(gradient);
            let (of_product, sums) = self.epilogue.back(before, bias, gradient)?;
            if let (Some((slot, _)), Some(sums)) = (&self.bias, sums) {
                sum_columns_for(*slot, self.multiplied.dim(0)?, &sums, 0, adjoints)?;
            }
            of_product
        };
        if let Some(kept) = &self.kept {
            let x = kept.value()?.detach().contiguous()?;
            match adjoints.part_of(self.weight)? {
                Some((part, _)) => drop(weight_gradient(&of_product, &x, Some(&part))?),
                None => {
                    adjoints.give_tensor(self.weight, weight_gradient(&of_product, &x, None)?)?;
                }
            }
        }
        if adjoints.wants(self.x) {
            adjoints.give_tensor(self.x, of_product.times(&self.multiplied)?)?;
        }
        match self.residual {
            Some(residual) => adjoints.give_tensor(residual, gradient.clone()),
            None => Ok(()),
        }
    }
}
