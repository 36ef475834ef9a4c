//! Low-rank adapters of linear layers.

use crate::layers::weight::Weight;
use crate::{Builder, Pass};
use candle_core::{D, DType, Result, Tensor};
use taper_ops::rng::name_key;
use taper_ops::{Activation, Dropout, Factors, LinearSpec, LowRankSpec, ParameterStore, composed};

/// Adapters of a linear layer (Hu et al. 2021, "LoRA", section 4.1). Each matrix that the layer
/// fuses has factors `A (R, I)` and `B (Oᵢ, R)`, whose product `B A` changes the matrix. R is the
/// rank, I the number of inputs, and Oᵢ the number of outputs of the matrix. With DoRA (Liu et al.
/// 2024), the lengths of the rows of all matrices are trained too: `(O,)`, where O is the sum of
/// the Oᵢ.
#[derive(Debug, Clone)]
pub(crate) struct Adapter {
    factors: Vec<[Weight; 2]>,
    magnitude: Option<Weight>,
    scale: f64,
    dropout: f64,
    site: u64,
}

/// True if the parameter with this name belongs to adapters.
#[must_use]
pub fn is_adapter(name: &str) -> bool {
    name.contains(".lora_a.") || name.contains(".lora_b.") || name.ends_with(".magnitude")
}

/// Sets the magnitudes of adapters to the lengths of the rows of the frozen weights, so that the
/// adapters change nothing at first. This must be called after the frozen weights are loaded.
///
/// # Errors
/// If the device has no memory left.
pub fn set_magnitudes(store: &ParameterStore) -> Result<()> {
    for magnitude in store.parameters() {
        let layer = magnitude.name().strip_suffix(".magnitude");
        let Some(weight) = layer.and_then(|layer| store.get(&format!("{layer}.weight"))) else {
            continue;
        };
        let weight = weight.var().as_detached_tensor().to_dtype(DType::F32)?;
        magnitude.set(weight.sqr()?.sum(D::Minus1)?.sqrt()?.to_vec1()?)?;
    }
    Ok(())
}

/// The linear layer that an adapter belongs to, and what follows the layer's matrix product.
#[derive(Clone, Copy)]
pub(crate) struct Around<'a> {
    pub(crate) weight: &'a Weight,
    pub(crate) bias: Option<&'a Weight>,
    pub(crate) residual: Option<&'a Tensor>,
    pub(crate) spec: LinearSpec,
}

impl Adapter {
    /// Makes the adapters of the layer called `name`, whose matrices have the numbers of rows in
    /// `outputs`; `None` if the builder's settings adapt no layer of this name.
    ///
    /// A is drawn uniformly between -1/√I and 1/√I, as for linear layers in PyTorch, and B is zero,
    /// so that the adapters change nothing at first.
    pub(crate) fn new(
        build: &mut Builder,
        name: &str,
        inputs: usize,
        outputs: &[usize],
    ) -> Result<Option<Self>> {
        let Some(lora) = build.lora.clone().filter(|lora| lora.adapts(name)) else {
            return Ok(None);
        };
        let bound = (inputs as f32).powf(-0.5);
        let factors = outputs.iter().enumerate().map(|(part, &outputs)| {
            let down = build.trained(
                &format!("{name}.lora_a.{part}"),
                &[lora.rank, inputs],
                |counter, i| (2.0 * counter.f32_at(i) - 1.0) * bound,
            )?;
            let shape = [outputs, lora.rank];
            let up = build.trained(&format!("{name}.lora_b.{part}"), &shape, |_, _| 0.0)?;
            Ok([down, up])
        });
        let factors = factors.collect::<Result<_>>()?;
        let magnitude = match lora.dora {
            true => {
                let all = [outputs.iter().sum()];
                Some(build.trained(&format!("{name}.magnitude"), &all, |_, _| 1.0)?)
            }
            false => None,
        };
        let (scale, dropout) = (lora.scale(), lora.dropout);
        let site = name_key(&format!("{name}.lora"));
        Ok(Some(Self { factors, magnitude, scale, dropout, site }))
    }

    /// Computes `residual + dropout(activation(x Wᵀ + s · d(x) Aᵀ Bᵀ + b))`, where d is the dropout
    /// of the adapters' input. If there are magnitudes m, the sum without `b` is multiplied by
    /// `m / ‖W + s · B A‖` before `b` is added. The denominator has the lengths of the rows, which
    /// count as constants (Liu et al. 2024, section 4.3). A row of zeros has no direction, and its
    /// results stay zero.
    ///
    /// # Shapes
    /// `(N, I)` → `(N, O)`, for N rows.
    pub(crate) fn run(&self, x: &Tensor, around: &Around<'_>, pass: &Pass) -> Result<Tensor> {
        let &Around { weight, bias, residual, spec } = around;
        let LinearSpec { activation, dropout, products } = spec;
        let plain = LinearSpec { products, ..LinearSpec::default() };
        let bias = bias.map(|bias| bias.get(pass));
        let low_rank = |base: &Tensor, dropout: Dropout| {
            let input_dropout = pass.dropout(self.dropout, self.site);
            let spec = LowRankSpec { scale: self.scale, input_dropout, dropout, products };
            let factors: Vec<Factors> = self
                .factors
                .iter()
                .map(|[down, up]| Factors {
                    down: down.get(pass).clone(),
                    up: up.get(pass).clone(),
                })
                .collect();
            taper_ops::low_rank(pass.tape(), x, base, &factors, &spec)
        };
        if let Some(magnitude) = &self.magnitude {
            let product = weight.apply(x, None, None, &plain, pass)?;
            let product = low_rank(&product, Dropout::none())?;
            let lengths = self.lengths(weight)?;
            let scaled = scaled(&product, (magnitude.get(pass), &lengths), bias, pass)?;
            return ended(&scaled, residual, activation, dropout, pass);
        }
        if activation == Activation::Identity {
            // The dropout of a sum is the sum of both parts, each with the same dropout mask.
            let plain = LinearSpec { dropout, ..plain };
            return low_rank(&weight.apply(x, bias, residual, &plain, pass)?, dropout);
        }
        let sum = low_rank(&weight.apply(x, bias, None, &plain, pass)?, Dropout::none())?;
        ended(&sum, residual, activation, dropout, pass)
    }

    /// Returns the lengths of the rows of `W + s · B A`, `(O,)`, without gradients. For a row of
    /// zeros, returns 1, so that the length can be a divisor.
    fn lengths(&self, weight: &Weight) -> Result<Tensor> {
        let change =
            |[down, up]: &[Weight; 2]| composed::CountedProduct::times(up.value(), down.value());
        let changes = self.factors.iter().map(change).collect::<Result<Vec<_>>>()?;
        let change = (Tensor::cat(&changes, 0)? * self.scale)?;
        let changed = (weight.value().to_dtype(change.dtype())? + change)?;
        let lengths = changed.sqr()?.sum(D::Minus1)?.sqrt()?;
        let is_zero = lengths.eq(&lengths.zeros_like()?)?.to_dtype(lengths.dtype())?;
        lengths + is_zero
    }
}

/// Computes `x ⊙ m / lengths + b`.
fn scaled(
    x: &Tensor,
    (magnitude, lengths): (&Tensor, &Tensor),
    bias: Option<&Tensor>,
    pass: &Pass,
) -> Result<Tensor> {
    let inputs: Vec<&Tensor> = [x, magnitude].into_iter().chain(bias).collect();
    composed::on_tape(pass.tape(), "magnitudes", &inputs, |inputs| {
        let (x, magnitude) = (&inputs[0], &inputs[1]);
        let factor = magnitude.div(lengths)?.to_dtype(x.dtype())?;
        let scaled = x.broadcast_mul(&factor)?;
        match inputs.get(2) {
            Some(bias) => scaled.broadcast_add(&bias.to_dtype(x.dtype())?),
            None => Ok(scaled),
        }
    })
}

/// Computes `residual + dropout(activation(x))`.
fn ended(
    x: &Tensor,
    residual: Option<&Tensor>,
    activation: Activation,
    dropout: Dropout,
    pass: &Pass,
) -> Result<Tensor> {
    let x = taper_ops::activation(pass.tape(), x, activation, dropout)?;
    match residual {
        Some(residual) => composed::on_tape(pass.tape(), "residual", &[residual, &x], |inputs| {
            &inputs[0] + &inputs[1]
        }),
        None => Ok(x),
    }
}
