//! Affine forms of columns: sums of columns, each multiplied by a factor, plus a constant.

use std::ops::{Add, Mul, Neg, Sub};

/// A column of the residual stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Column(usize);

impl Column {
    pub(super) const fn new(number: usize) -> Self {
        Self(number)
    }

    /// Index of the column in the residual stream, from 0.
    #[must_use]
    pub const fn number(self) -> usize {
        self.0
    }
}

/// An affine form of columns: `Σ factor · column + constant`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Form {
    pub(super) terms: Vec<(Column, f64)>,
    pub(super) constant: f64,
}

impl Form {
    /// Makes the sum of `terms`, pairs of a column and its factor.
    pub fn sum(terms: impl IntoIterator<Item = (Column, f64)>) -> Self {
        Self { terms: terms.into_iter().collect(), constant: 0.0 }
    }
}

impl From<Column> for Form {
    fn from(column: Column) -> Self {
        Self::sum([(column, 1.0)])
    }
}

impl From<f64> for Form {
    fn from(constant: f64) -> Self {
        Self { terms: Vec::new(), constant }
    }
}

impl<R: Into<Form>> Add<R> for Form {
    type Output = Self;

    fn add(mut self, right: R) -> Self {
        let right = right.into();
        self.terms.extend(right.terms);
        self.constant += right.constant;
        self
    }
}

impl<R: Into<Form>> Sub<R> for Form {
    type Output = Self;

    fn sub(self, right: R) -> Self {
        self + -right.into()
    }
}

impl Mul<f64> for Form {
    type Output = Self;

    fn mul(mut self, factor: f64) -> Self {
        self.terms.iter_mut().for_each(|(_, value)| *value *= factor);
        self.constant *= factor;
        self
    }
}

impl Neg for Form {
    type Output = Self;

    fn neg(self) -> Self {
        self * -1.0
    }
}

impl<R: Into<Form>> Add<R> for Column {
    type Output = Form;

    fn add(self, right: R) -> Form {
        Form::from(self) + right
    }
}

impl<R: Into<Form>> Sub<R> for Column {
    type Output = Form;

    fn sub(self, right: R) -> Form {
        Form::from(self) - right
    }
}

impl Mul<f64> for Column {
    type Output = Form;

    fn mul(self, factor: f64) -> Form {
        Form::from(self) * factor
    }
}

impl Neg for Column {
    type Output = Form;

    fn neg(self) -> Form {
        self * -1.0
    }
}
