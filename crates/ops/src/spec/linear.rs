//! What a linear layer computes.

use super::dropout::Dropout;
use crate::float::Float;
use crate::products::Products;

/// The nonlinearity of a feed-forward layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Activation {
    /// None.
    #[default]
    Identity,
    /// `max(x, 0)`, with derivative 0 at 0 as in PyTorch.
    Relu,
    /// `x · Φ(x)` with the exact normal distribution function (Hendrycks and Gimpel 2016).
    Gelu,
    /// `x · σ(x)` (Ramachandran et al. 2017), also called SiLU.
    Swish,
}

impl Activation {
    #[inline(always)]
    pub(crate) fn value<T: Float>(self, x: T) -> T {
        let (zero, one) = (T::of(0.0), T::of(1.0));
        match self {
            Self::Identity => x,
            // NaN stays NaN, so that it is noticed.
            Self::Relu => {
                if x <= zero {
                    zero
                } else {
                    x
                }
            }
            Self::Gelu => {
                x * T::of(0.5) * (one + (x * T::of(std::f64::consts::FRAC_1_SQRT_2)).erf())
            }
            Self::Swish => x / (one + (-x).exp()),
        }
    }

    #[inline(always)]
    pub(crate) fn derivative<T: Float>(self, x: T) -> T {
        let (zero, one, half) = (T::of(0.0), T::of(1.0), T::of(0.5));
        match self {
            Self::Identity => one,
            Self::Relu => {
                if x > zero {
                    one
                } else {
                    zero
                }
            }
            Self::Gelu => {
                let distribution =
                    half * (one + (x * T::of(std::f64::consts::FRAC_1_SQRT_2)).erf());
                let density = (-half * x * x).exp() * T::of(0.398_942_280_401_432_7);
                distribution + x * density
            }
            Self::Swish => {
                let sigmoid = one / (one + (-x).exp());
                sigmoid * (one + x * (one - sigmoid))
            }
        }
    }
}

/// What a linear layer computes, beside its parameters.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LinearSpec {
    /// The nonlinearity on the product.
    pub activation: Activation,
    /// Dropout on what the nonlinearity gives. Element `(n, o)` takes number `n·O + o` of the
    /// mask.
    pub dropout: Dropout,
    /// How the operands of the products are rounded, forward and backward.
    pub products: Products,
}
