//! Low-rank adapters added to the matrix that they change, once training is over.

use rayon::prelude::*;

/// A matrix `W (O, I)` with its low-rank adapters.
#[derive(Debug)]
pub struct Adapted<'a> {
    /// Columns, `I`.
    pub width: usize,
    /// Factors A, `(Rᵢ, I)`, and B, `(Oᵢ, Rᵢ)`, of the parts of the matrix, from the first row
    /// down.
    pub factors: Vec<(&'a [f32], &'a [f32])>,
    /// Factor of the change, `s`.
    pub scale: f64,
    /// Length of each row of the sum (Liu et al. 2024, "DoRA", equation 5), `(O,)`; `None`: lengths
    /// are not changed.
    pub magnitude: Option<&'a [f32]>,
}

/// Adds the change to `weight`: `W + s · B A`, and gives each row its magnitude, if there is one.
/// Sums are in f64, and a result is rounded once. Returns `false`, and changes nothing, if the
/// factors do not fit the matrix.
#[must_use]
pub fn merge(weight: &mut [f32], adapted: &Adapted<'_>) -> bool {
    let &Adapted { width, ref factors, scale, magnitude } = adapted;
    // Factor A and row of B for each row of the matrix.
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
            f64::from(all[number]) / length
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
        let mut short = vec![0.0; 4];
        assert!(!merge(&mut short, &adapted), "three rows of changes");
    }
}
