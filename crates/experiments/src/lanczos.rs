//! The largest eigenvalue of a symmetric matrix that is known only by its products with vectors
//! (Lanczos 1950, "An Iteration Method for the Solution of the Eigenvalue Problem", section III).

use taper_ops::rng::{Counter, mix};

/// Computes the largest eigenvalue of a symmetric matrix with `size` rows. The function `product`
/// multiplies the matrix by a vector, and it is called at most `steps` times.
///
/// With fewer steps than rows, the result is an approximation from below. Each new vector is made
/// orthogonal to all earlier ones. Without this, rounding would let eigenvalues that were already
/// found appear again.
///
/// # Errors
/// Errors of `product`.
pub fn largest_eigenvalue<E>(
    size: usize,
    steps: usize,
    mut product: impl FnMut(&[f64]) -> Result<Vec<f64>, E>,
) -> Result<f64, E> {
    let counter = Counter::new(mix(77, &[size as u64]));
    let mut vector: Vec<f64> = (0..size as u64).map(|at| counter.normal_at(at)).collect();
    let (mut basis, mut diagonal, mut beside) = (Vec::<Vec<f64>>::new(), Vec::new(), Vec::new());
    for _ in 0..steps.min(size) {
        let length = dot(&vector, &vector).sqrt();
        if !basis.is_empty() {
            if !length.is_normal() || length < 1e-12 {
                break;
            }
            beside.push(length);
        }
        vector.iter_mut().for_each(|part| *part /= length);
        let mut next = product(&vector)?;
        diagonal.push(dot(&next, &vector));
        basis.push(vector);
        for other in basis.iter().rev() {
            let share = dot(&next, other);
            next.iter_mut().zip(other).for_each(|(part, other)| *part -= share * other);
        }
        vector = next;
    }
    Ok(largest_of_three_diagonals(&diagonal, &beside))
}

fn dot(left: &[f64], right: &[f64]) -> f64 {
    left.iter().zip(right).map(|(left, right)| left * right).sum()
}

/// Computes the largest eigenvalue of a symmetric tridiagonal matrix by bisection. `diagonal` has
/// the values on the diagonal, and `beside` the values next to it. Elimination of `matrix − x`
/// gives one pivot for each row, and the number of negative pivots is the number of eigenvalues
/// below x.
fn largest_of_three_diagonals(diagonal: &[f64], beside: &[f64]) -> f64 {
    let below = |x: f64| {
        let (mut count, mut pivot) = (0, 1.0);
        for (at, value) in diagonal.iter().enumerate() {
            let coupling = if at == 0 { 0.0 } else { beside[at - 1].powi(2) / pivot };
            pivot = value - x - coupling;
            if pivot == 0.0 {
                pivot = f64::MIN_POSITIVE;
            }
            count += usize::from(pivot < 0.0);
        }
        count
    };
    // A bound on the absolute value of all eigenvalues, by Gershgorin's theorem.
    let bound = diagonal.iter().map(|value| value.abs()).fold(0.0, f64::max)
        + 2.0 * beside.iter().copied().fold(0.0, f64::max);
    let (mut low, mut high) = (-bound, bound);
    for _ in 0..80 {
        let middle = 0.5 * (low + high);
        if below(middle) == diagonal.len() { high = middle } else { low = middle }
    }
    high
}
