//! Adds low-rank adapters (LoRA) to the matrix that they change, once training is over.

use rayon::prelude::*;

/// The low-rank adapters of a matrix `W (O, I)`.
#[derive(Debug)]
pub struct Adapted<'a> {
    /// Number of columns `I` of `W`.
    pub width: usize,
    /// The adapter of each block of rows of `W`, from the first block to the last. It has a factor
    /// A, `(Rᵢ, I)`, and a factor B, `(Oᵢ, Rᵢ)`. `Rᵢ` is its rank, and `Oᵢ` the number of rows; the
    /// `Oᵢ` add up to `O`.
    pub factors: Vec<(&'a [f32], &'a [f32])>,
    /// Multiplier `s` of the product `B A`.
    pub scale: f64,
    /// Euclidean length that each row of `W + s · B A` is given (Liu et al. 2024, "DoRA", equation
    /// 5), `(O,)`; `None` leaves the lengths as they are. A row of zeros stays zero.
    pub magnitude: Option<&'a [f32]>,
}

/// Replaces the matrix `W` in `weight` by `W + s · B A`, where each block of rows has its own A and
/// B. Then scales each row to its magnitude, if there are magnitudes. Sums are computed in f64, and
/// each element is rounded once. Returns `true` on success; returns `false`, and changes nothing,
/// if the factors or the magnitudes do not fit the matrix.
#[must_use]
pub fn merge(weight: &mut [f32], adapted: &Adapted<'_>) -> bool {
    let &Adapted { width, ref factors, scale, magnitude } = adapted;
    // For each row of the matrix: factor A of the row's block, and the row of factor B that
    // multiplies it.
    let mut rows = Vec::new();
    for &(down, up) in factors {
        let rank = down.len() / width.max(1);
        if rank == 0 || down.len() != rank * width || !up.len().is_multiple_of(rank) {
            return false;
        }
        rows.extend(up.chunks_exact(rank).map(|up| (down, up)));
    }
    let has_magnitudes = magnitude.is_none_or(|all| all.len() == rows.len());
    if width == 0 || weight.len() != rows.len() * width || !has_magnitudes {
        return false;
    }
    let merged = weight.par_chunks_exact_mut(width).zip(&rows).enumerate();
    merged.for_each(|(number, (weight, (down, up)))| {
        let mut row: Vec<f64> = weight.iter().map(|&value| f64::from(value)).collect();
        for (down, &factor) in down.chunks_exact(width).zip(*up) {
            let factor = scale * f64::from(factor);
            row.iter_mut().zip(down).for_each(|(sum, &down)| *sum += factor * f64::from(down));
        }
        let factor = magnitude.map_or(1.0, |all| {
            let length = row.iter().map(|value| value * value).sum::<f64>().sqrt();
            if length == 0.0 { 1.0 } else { f64::from(all[number]) / length }
        });
        weight.iter_mut().zip(row).for_each(|(weight, sum)| *weight = (sum * factor) as f32);
    });
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_added_by_rows() {
        let (first, second): (&[f32], &[f32]) = (&[1.0, 2.0], &[3.0, -1.0]);
        let mut adapted = Adapted {
            width: 2,
            factors: vec![(first, &[1.0, 0.5]), (second, &[2.0])],
            scale: 2.0,
            magnitude: None,
        };
        let mut weight = vec![1.0, 1.0, 0.0, 0.0, -12.0, 0.0];
        assert!(merge(&mut weight, &adapted));
        assert_eq!(weight, [3.0, 5.0, 1.0, 2.0, 0.0, -4.0]);
        let mut weight = vec![1.0, 1.0, 0.0, 0.0, -12.0, 0.0];
        let lengths = [34f32.sqrt(), 5f32.sqrt() * 2.0, 1.0];
        adapted.magnitude = Some(&lengths);
        assert!(merge(&mut weight, &adapted));
        let expected = [3.0, 5.0, 2.0, 4.0, 0.0, -1.0];
        assert!(weight.iter().zip(expected).all(|(one, other)| (one - other).abs() < 1e-6));
        let mut weight = vec![1.0, 1.0, -2.0, -4.0, -12.0, 0.0];
        adapted.factors[0].1 = &[1.0, 1.0];
        assert!(merge(&mut weight, &adapted));
        assert_eq!(weight[2..4], [0.0, 0.0], "a row without a direction");
        assert!(weight.iter().all(|value| value.is_finite()));
        let mut short = vec![0.0; 4];
        assert!(!merge(&mut short, &adapted), "three rows of changes");
    }
}
