//! The feature map φ for queries and keys: `elu(x) + 1`, or random features. It is applied to some
//! rows at a time.

use crate::float::{Float, vectorised};
use crate::nn::attention::tiled::products::{Rows, TileProducts, stride};
use crate::products::Matrix;
use crate::shared::Write;
use crate::sums::{blocked_max, blocked_sum};

/// The feature map φ for rows of one head.
pub(super) struct Features<'a, P: TileProducts> {
    /// Number of features for each row, M.
    pub(super) count: usize,
    /// Random features, or `None` if the map is `elu(x) + 1`.
    random: Option<Random<'a, P>>,
}

/// Random features, which are determined by vectors. These have already been divided by the fourth
/// root of a head's width.
struct Random<'a, P: TileProducts> {
    /// The vectors as columns of a matrix, `(Dh, M)`.
    across: P::Operand<'a>,
    /// The vectors as rows of a matrix, `(M, Dh)`.
    along: P::Operand<'a>,
    /// 1 divided by the square root of a head's width.
    scale: P::Value,
}

impl<'a, P: TileProducts> Features<'a, P> {
    /// Makes the map for `count` features of heads of width `head`. `vectors (M, Dh)` determine
    /// random features; `None` means `elu(x) + 1`.
    pub(super) fn new(
        products: &P,
        vectors: Option<&'a [P::Value]>,
        (count, head): (usize, usize),
    ) -> Self {
        let random = vectors.map(|values| {
            let rows = Rows { values, at: Matrix::rows(head), count, width: head };
            let columns =
                Rows { at: Matrix::rows(head).transposed(), count: head, width: count, ..rows };
            Random {
                across: products.summed(columns),
                along: products.summed(rows),
                scale: P::Value::cast((head as f64).powf(-0.5)),
            }
        });
        Self { count, random }
    }

    /// Computes φ of some queries. The random features of a query are divided by the largest of
    /// them. This changes no result: a factor that all features of a query share is in the
    /// numerator and in the denominator of attention.
    pub(super) fn queries(
        &self,
        products: &P,
        worker: &mut P::Worker,
        rows: Rows<'_, P::Value>,
        out: &mut [P::Value],
    ) {
        match &self.random {
            None => elu(rows, out, stride(self.count)),
            Some(random) => {
                random.project(products, worker, rows, out);
                exponentials_of_rows(out, (rows.count, self.count), stride(self.count));
            }
        }
    }

    /// Computes φ of some keys. Random features are divided by `exp(c)`, where c is the largest
    /// exponent of these keys' features, or `at_least` if this is larger. Returns c.
    pub(super) fn keys(
        &self,
        products: &P,
        worker: &mut P::Worker,
        rows: Rows<'_, P::Value>,
        at_least: P::Value,
        out: &mut [P::Value],
    ) -> P::Value {
        let Some(random) = &self.random else {
            elu(rows, out, stride(self.count));
            return at_least;
        };
        random.project(products, worker, rows, out);
        let half = random.scale * P::Value::cast(0.5);
        let largest = subtract_squares(rows, half, out, self.count);
        let left_out = if largest > at_least { largest } else { at_least };
        exponentials(out, (rows.count, self.count), stride(self.count), left_out);
        left_out
    }

    /// Computes the adjoint of some rows (the gradient of the loss with respect to them), and
    /// writes it to `out`. `features` are the features of the rows, and `adjoint` is their adjoint,
    /// which is overwritten.
    ///
    /// # Shapes
    /// `features` and `adjoint (N, M)`, `out (N, Dh)`. Each row is padded to whole panels (groups
    /// of elements that a kernel processes together).
    pub(super) fn back(
        &self,
        products: &P,
        worker: &mut P::Worker,
        rows: Rows<'_, P::Value>,
        features: &[P::Value],
        adjoint: &mut [P::Value],
        out: &mut [P::Value],
    ) {
        let width = stride(self.count);
        let Some(random) = &self.random else {
            return elu_back(rows, features, adjoint, (width, stride(rows.width)), out);
        };
        multiply_rows(adjoint, features, rows.count * width);
        let shape = (rows.count, self.count);
        let weights = (&*adjoint, Matrix::rows(width));
        products.add_weighted(worker, weights, shape, (&random.along, 0), out, Write::Replace);
        subtract_rows(rows, random.scale, adjoint, self.count, out);
    }
}

impl<P: TileProducts> Random<'_, P> {
    fn project(
        &self,
        products: &P,
        worker: &mut P::Worker,
        rows: Rows<'_, P::Value>,
        out: &mut [P::Value],
    ) {
        let shape = (rows.count, rows.width);
        let weights = (rows.values, rows.at);
        products.add_weighted(worker, weights, shape, (&self.across, 0), out, Write::Replace);
    }
}

vectorised! {
    /// Computes `elu(x) + 1` of each element.
    fn elu<T>(rows: Rows<'_, T>, out: &mut [T], stride: usize) {
        let (zero, one) = (T::default(), T::cast(1.0));
        for (row, out) in out.chunks_exact_mut(stride).take(rows.count).enumerate() {
            for (out, &x) in out.iter_mut().zip(rows.row(row)) {
                *out = if x > zero { x + one } else { x.exp() };
            }
        }
    }
}

vectorised! {
    fn elu_back<T>(
        rows: Rows<'_, T>,
        features: &[T],
        adjoint: &[T],
        widths: (usize, usize),
        out: &mut [T],
    ) {
        let (width, stride) = widths;
        let (zero, one) = (T::default(), T::cast(1.0));
        for (row, out) in out.chunks_exact_mut(stride).take(rows.count).enumerate() {
            let (features, adjoint) = (&features[row * width..], &adjoint[row * width..]);
            for (((out, &x), &feature), &adjoint) in
                out.iter_mut().zip(rows.row(row)).zip(features).zip(adjoint)
            {
                *out = adjoint * if x > zero { one } else { feature };
            }
        }
    }
}

vectorised! {
    /// Computes `exp(e − max e)` for each row of exponents e.
    fn exponentials_of_rows<T>(out: &mut [T], size: (usize, usize), stride: usize) {
        let (rows, count) = size;
        for row in out.chunks_exact_mut(stride).take(rows) {
            let row = &mut row[..count];
            let largest = blocked_max(row);
            for value in row {
                *value = (*value - largest).exp();
            }
        }
    }
}

vectorised! {
    /// Computes `exp(e − left_out)` for each exponent e.
    fn exponentials<T>(
        out: &mut [T],
        size: (usize, usize),
        stride: usize,
        left_out: T,
    ) {
        let (rows, count) = size;
        for row in out.chunks_exact_mut(stride).take(rows) {
            for value in &mut row[..count] {
                *value = (*value - left_out).exp();
            }
        }
    }
}

vectorised! {
    /// Computes `out[i] -= half · ‖x_i‖²` for each row i, and returns the largest element.
    fn subtract_squares<T>(rows: Rows<'_, T>, half: T, out: &mut [T], count: usize) -> T {
        let mut largest = T::NEGATIVE_INFINITY;
        let stride = stride(count);
        for (row, out) in out.chunks_exact_mut(stride).take(rows.count).enumerate() {
            let out = &mut out[..count];
            let square = blocked_sum([rows.row(row)], |[x]| x * x) * half;
            for value in &mut *out {
                *value -= square;
            }
            let of_row = blocked_max(out);
            if of_row > largest {
                largest = of_row;
            }
        }
        largest
    }
}

vectorised! {
    fn multiply_rows<T>(out: &mut [T], factors: &[T], count: usize) {
        for (out, &factor) in out[..count].iter_mut().zip(factors) {
            *out *= factor;
        }
    }
}

vectorised! {
    /// Computes `out[i] -= scale · x_i Σ adjoint[i]` for each row i.
    fn subtract_rows<T>(
        rows: Rows<'_, T>,
        scale: T,
        adjoint: &[T],
        count: usize,
        out: &mut [T],
    ) {
        let (width, stride) = (stride(count), stride(rows.width));
        for (row, out) in out.chunks_exact_mut(stride).take(rows.count).enumerate() {
            let sum = blocked_sum([&adjoint[row * width..][..count]], |[x]| x) * scale;
            for (out, &x) in out.iter_mut().zip(rows.row(row)) {
                *out -= x * sum;
            }
        }
    }
}
