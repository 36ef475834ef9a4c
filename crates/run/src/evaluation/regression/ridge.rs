//! Ridge regression and least squares in f64, for small systems. They estimate a linear function
//! from the few examples that the model gets, too.

/// Computes the vector w that minimises `Σ (w·xᵢ − yᵢ)² + λ |w|²` for the inputs xᵢ, the answers yᵢ
/// and the penalty λ; for λ = 0, the shortest such w. If w is drawn from a standard normal
/// distribution and λ is the variance of the noise, the result is the mean of w given the examples:
/// no predictor has a smaller expected squared error (Bishop 2006, "Pattern Recognition and Machine
/// Learning", section 3.3.1).
///
/// The result is `(Xᵀ X + λ)⁻¹ Xᵀ y`, or equivalently, if there are fewer examples than dimensions,
/// `Xᵀ (X Xᵀ + λ)⁻¹ y`.
pub(super) fn ridge(inputs: &[Vec<f64>], answers: &[f64], penalty: f64) -> Vec<f64> {
    let dimensions = inputs.first().map_or(0, Vec::len);
    let column = |at: usize| inputs.iter().map(move |input| input[at]);
    if inputs.len() < dimensions {
        let gram = |i: usize, j: usize| dot(inputs[i].iter().copied(), inputs[j].iter().copied());
        let duals = solve(inputs.len(), gram, penalty, answers.to_vec());
        return (0..dimensions).map(|at| dot(column(at), duals.iter().copied())).collect();
    }
    let right = (0..dimensions).map(|at| dot(column(at), answers.iter().copied())).collect();
    solve(dimensions, |i, j| dot(column(i), column(j)), penalty, right)
}

fn dot(a: impl Iterator<Item = f64>, b: impl Iterator<Item = f64>) -> f64 {
    a.zip(b).map(|(a, b)| a * b).sum()
}

/// Computes `(G + λ)⁻¹ right` by the Cholesky factor L, for which `L Lᵀ = G + λ`. G is a symmetric
/// matrix of `size` rows; `gram` returns its elements, and λ is `penalty`. If a row of `G + λ` is,
/// up to rounding, a linear combination of earlier rows, the element of the result for this row is
/// 0.
fn solve(
    size: usize,
    gram: impl Fn(usize, usize) -> f64,
    penalty: f64,
    mut right: Vec<f64>,
) -> Vec<f64> {
    let mut factor = vec![vec![0.0; size]; size];
    for i in 0..size {
        for j in 0..=i {
            let known: f64 = (0..j).map(|k| factor[i][k] * factor[j][k]).sum();
            let whole = gram(i, j) + if i == j { penalty } else { 0.0 };
            let rest = whole - known;
            factor[i][j] = match i == j {
                true if rest > 4.0 * size as f64 * f64::EPSILON * whole => rest.sqrt(),
                // This row is a linear combination of earlier rows, so its pivot would be 0. With
                // an infinite pivot instead, every division by it gives 0.
                true => f64::INFINITY,
                false => rest / factor[j][j],
            };
        }
    }
    for i in 0..size {
        let known: f64 = (0..i).map(|k| factor[i][k] * right[k]).sum();
        right[i] = (right[i] - known) / factor[i][i];
    }
    for i in (0..size).rev() {
        let known: f64 = (i + 1..size).map(|k| factor[k][i] * right[k]).sum();
        right[i] = (right[i] - known) / factor[i][i];
    }
    right
}

#[cfg(test)]
mod tests {
    use super::*;
    use taper_data::Draws;

    fn example(count: usize, dimensions: usize) -> (Vec<Vec<f64>>, Vec<f64>) {
        let draws = Draws::new(3, count as u64, dimensions as u64);
        let number = |at: usize| draws.normal(at as u64);
        let row = |i: usize| (0..dimensions).map(|at| number(i * dimensions + at)).collect();
        let answers = (0..count).map(|i| number(count * dimensions + i)).collect();
        ((0..count).map(row).collect(), answers)
    }

    /// Checks `Xᵀ (y − X w) = λ w`. For λ > 0, w is the only solution. For λ = 0, it must be the
    /// shortest one, which is the limit as λ goes to 0.
    #[test]
    fn the_slope_of_what_is_minimised_is_zero() {
        for (count, dimensions) in [(1, 1), (1, 5), (3, 5), (5, 5), (6, 5), (40, 5), (7, 20)] {
            let (inputs, answers) = example(count, dimensions);
            for penalty in [0.0, 0.25, 3.0] {
                let weights = ridge(&inputs, &answers, penalty);
                let left: Vec<f64> = inputs
                    .iter()
                    .zip(&answers)
                    .map(|(x, y)| y - dot(x.iter().copied(), weights.iter().copied()))
                    .collect();
                for (at, weight) in weights.iter().enumerate() {
                    let slope = dot(inputs.iter().map(|x| x[at]), left.iter().copied());
                    assert!((slope - penalty * weight).abs() < 1e-9, "{count} of {dimensions}");
                }
            }
            let (shortest, near) = (ridge(&inputs, &answers, 0.0), ridge(&inputs, &answers, 1e-9));
            for (shortest, near) in shortest.iter().zip(&near) {
                let apart = (shortest - near).abs();
                assert!(apart < 1e-4, "{count} of {dimensions}: {apart}");
            }
        }
    }

    #[test]
    fn nothing_is_known_of_nothing_and_a_point_twice_is_one() {
        assert_eq!(ridge(&[], &[], 0.25), Vec::<f64>::new());
        let twice = vec![vec![1.0, 2.0], vec![1.0, 2.0]];
        let weights = ridge(&twice, &[3.0, 3.0], 0.0);
        assert!((weights[0] + 2.0 * weights[1] - 3.0).abs() < 1e-12, "{weights:?}");
    }
}
