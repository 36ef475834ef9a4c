//! Arithmetic in two precisions, mixed as in NumPy.
//!
//! Scores of a corpus are computed in double precision. Scores of a bootstrap resample are computed
//! from single-precision sums. In the formulas for these sums, the reference implementation,
//! sacreBLEU, combines NumPy's numbers with Python's numbers. The result then has the precision of
//! the NumPy number. Here, formulas are generic over [`Real`], so that one formula serves both
//! precisions.

use std::ops::{Add, AddAssign, Div, Mul, Sub};

/// A floating-point number in formulas.
pub(crate) trait Real:
    Copy
    + PartialOrd
    + Add<Output = Self>
    + AddAssign
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
{
    /// Makes a constant of a formula.
    fn from_f64(value: f64) -> Self;

    /// Converts the number to double precision.
    fn wide(self) -> f64;
}

impl Real for f64 {
    fn from_f64(value: f64) -> Self {
        value
    }

    fn wide(self) -> f64 {
        self
    }
}

impl Real for f32 {
    fn from_f64(value: f64) -> Self {
        value as f32
    }

    fn wide(self) -> f64 {
        f64::from(self)
    }
}

/// A number in the type that it has in the reference implementation.
#[derive(Debug, Clone, Copy)]
pub enum ResampledScore {
    /// NumPy's single precision.
    Single(f32),
    /// Python's double precision, which becomes single precision when combined with a
    /// single-precision number.
    Double(f64),
}

impl ResampledScore {
    /// Combines two numbers: in double precision if both are doubles, otherwise in single
    /// precision.
    fn combine(
        self,
        other: Self,
        double: impl Fn(f64, f64) -> f64,
        single: impl Fn(f32, f32) -> f32,
    ) -> Self {
        match (self, other) {
            (Self::Double(left), Self::Double(right)) => Self::Double(double(left, right)),
            (left, right) => Self::Single(single(left.narrow(), right.narrow())),
        }
    }

    fn narrow(self) -> f32 {
        match self {
            Self::Single(value) => value,
            Self::Double(value) => value as f32,
        }
    }
}

impl Real for ResampledScore {
    fn from_f64(value: f64) -> Self {
        Self::Double(value)
    }

    fn wide(self) -> f64 {
        match self {
            Self::Single(value) => f64::from(value),
            Self::Double(value) => value,
        }
    }
}

impl PartialEq for ResampledScore {
    fn eq(&self, other: &Self) -> bool {
        self.partial_cmp(other) == Some(std::cmp::Ordering::Equal)
    }
}

impl PartialOrd for ResampledScore {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        match (self, other) {
            (Self::Double(left), Self::Double(right)) => left.partial_cmp(right),
            (left, right) => left.narrow().partial_cmp(&right.narrow()),
        }
    }
}

impl Add for ResampledScore {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        self.combine(other, |left, right| left + right, |left, right| left + right)
    }
}

impl AddAssign for ResampledScore {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for ResampledScore {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        self.combine(other, |left, right| left - right, |left, right| left - right)
    }
}

impl Mul for ResampledScore {
    type Output = Self;

    fn mul(self, other: Self) -> Self {
        self.combine(other, |left, right| left * right, |left, right| left * right)
    }
}

impl Div for ResampledScore {
    type Output = Self;

    fn div(self, other: Self) -> Self {
        self.combine(other, |left, right| left / right, |left, right| left / right)
    }
}
