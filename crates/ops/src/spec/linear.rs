//! Settings of a linear layer.

use super::dropout::Dropout;
use crate::float::Float;
use crate::products::Products;

/// Nonlinearity of a feed-forward layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Activation {
    /// No nonlinearity.
    #[default]
    Identity,
    /// `max(x, 0)`, with derivative 0 at 0 as in PyTorch.
    Relu,
    /// `x · Φ(x)` with the exact normal distribution function (Hendrycks and Gimpel 2016).
    Gelu,
    /// `x / 2 · (1 + tanh(√(2/π) (x + 0.044715 x³)))`: the approximation of [`Gelu`](Self::Gelu)
    /// used by GPT-2 (Hendrycks and Gimpel 2016, section 2).
    GeluTanh,
    /// `x · σ(x)` (Ramachandran et al. 2017), also called SiLU.
    Swish,
    /// `x · σ(1.702 x)`: the approximation of [`Gelu`](Self::Gelu) used by CLIP (Hendrycks and
    /// Gimpel 2016, section 2).
    QuickGelu,
    /// `tanh(x)`.
    Tanh,
    /// `σ(x) = 1 / (1 + e^-x)`.
    Sigmoid,
}

impl Activation {
    #[inline(always)]
    pub(crate) fn value<T: Float>(self, x: T) -> T {
        let (zero, one) = (T::cast(0.0), T::cast(1.0));
        match self {
            Self::Identity => x,
            // If `x` is NaN, it is returned, so that it is noticed.
            Self::Relu => {
                if x <= zero {
                    zero
                } else {
                    x
                }
            }
            Self::Gelu => {
                x * T::cast(0.5) * (one + (x * T::cast(std::f64::consts::FRAC_1_SQRT_2)).erf())
            }
            // (1 + tanh(u)) / 2 = σ(2u)
            Self::GeluTanh => x / (one + (-twice_inner(x)).exp()),
            Self::Swish => x / (one + (-x).exp()),
            Self::QuickGelu => x / (one + (-(T::cast(QUICK) * x)).exp()),
            Self::Tanh => x.tanh(),
            Self::Sigmoid => sigmoid(x),
        }
    }

    #[inline(always)]
    pub(crate) fn derivative<T: Float>(self, x: T) -> T {
        self.value_and_derivative(x).1
    }

    /// Returns value and derivative, which share the expensive part of the computation.
    #[inline(always)]
    pub(crate) fn value_and_derivative<T: Float>(self, x: T) -> (T, T) {
        let (zero, one, half) = (T::cast(0.0), T::cast(1.0), T::cast(0.5));
        match self {
            Self::Identity => (x, one),
            Self::Relu => (self.value(x), if x > zero { one } else { zero }),
            Self::Gelu => {
                let twice = one + (x * T::cast(std::f64::consts::FRAC_1_SQRT_2)).erf();
                let density = (-half * x * x).exp() * T::cast(0.398_942_280_401_432_7);
                (x * half * twice, half * twice + x * density)
            }
            Self::GeluTanh => {
                let below = one + (-twice_inner(x)).exp();
                let sigmoid = one / below;
                let slope = T::cast(TWICE_ROOT) * (one + T::cast(3.0 * CUBE) * x * x);
                (x / below, sigmoid * (one + x * (one - sigmoid) * slope))
            }
            Self::Swish => {
                let below = one + (-x).exp();
                let sigmoid = one / below;
                (x / below, sigmoid * (one + x * (one - sigmoid)))
            }
            Self::QuickGelu => {
                let scaled = T::cast(QUICK) * x;
                let below = one + (-scaled).exp();
                let sigmoid = one / below;
                (x / below, sigmoid * (one + scaled * (one - sigmoid)))
            }
            Self::Tanh => {
                let tanh = x.tanh();
                (tanh, one - tanh * tanh)
            }
            Self::Sigmoid => {
                let sigmoid = sigmoid(x);
                (sigmoid, sigmoid * (one - sigmoid))
            }
        }
    }
}

/// Runs `$body` with the activation as the constant `$constant`, so that loops over elements
/// vectorise. A loop that looks up the activation for each element does not always vectorise.
macro_rules! for_activation {
    ($activation:expr, $constant:ident => $body:expr) => {
        $crate::spec::for_activation!(
            $activation, $constant => $body,
            Identity Relu Gelu GeluTanh Swish QuickGelu Tanh Sigmoid
        )
    };
    ($activation:expr, $constant:ident => $body:expr, $($kind:ident)*) => {
        match $activation {
            $($crate::spec::Activation::$kind => {
                const $constant: $crate::spec::Activation = $crate::spec::Activation::$kind;
                $body
            })*
        }
    };
}
pub(crate) use for_activation;

/// Computes `1 / (1 + e^-x)`.
#[inline(always)]
pub(crate) fn sigmoid<T: Float>(x: T) -> T {
    let one = T::cast(1.0);
    // `-x` is limited to 88, where `e^-x` is still finite in f32; the result is then almost 0.
    let minus = -x;
    one / (one + if minus > T::cast(88.0) { T::cast(88.0) } else { minus }.exp())
}

/// Factor of `x` in the approximation [`QuickGelu`](Activation::QuickGelu).
pub(crate) const QUICK: f64 = 1.702;
/// `2 √(2/π)`: twice the factor in the approximation [`GeluTanh`](Activation::GeluTanh).
pub(crate) const TWICE_ROOT: f64 = 1.595_769_121_605_730_8;
/// Factor of `x³` in the approximation [`GeluTanh`](Activation::GeluTanh).
pub(crate) const CUBE: f64 = 0.044_715;

/// Returns twice the argument of the hyperbolic tangent in [`GeluTanh`](Activation::GeluTanh).
#[inline(always)]
fn twice_inner<T: Float>(x: T) -> T {
    T::cast(TWICE_ROOT) * (x + T::cast(CUBE) * x * x * x)
}

/// Settings of a linear layer, apart from its parameters.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LinearSpec {
    /// Nonlinearity that is applied to the product.
    pub activation: Activation,
    /// Dropout after the nonlinearity. Element `(n, o)` of the result, `(N, O)`, has index
    /// `n·O + o` in the mask.
    pub dropout: Dropout,
    /// Type to which the operands of matrix products are rounded, forward and backward.
    pub products: Products,
}

/// Settings of a gated linear unit.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct GatedSpec {
    /// Nonlinearity of the gate.
    pub activation: Activation,
    /// Dropout on the result, `(N, D)`. Its element `(n, d)` has index `n·D + d` in the mask.
    pub dropout: Dropout,
}
