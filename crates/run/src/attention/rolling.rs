//! Attention rolled out over layers (Abnar and Zuidema 2020, "Quantifying Attention Flow in
//! Transformers", section 3). For each layer, the attention weights are averaged over the heads,
//! and then averaged with the identity matrix, which stands for the residual connection. The
//! matrices of all layers are multiplied, with later layers on the left.

/// Share of each token (column) in the state of each token (row) after all layers. `layers` has the
/// attention weights of each layer, averaged over its heads: a square matrix whose rows sum to 1.
/// Returns `None` if there are no layers.
#[must_use]
pub fn rollout(layers: impl IntoIterator<Item = Vec<Vec<f64>>>) -> Option<Vec<Vec<f64>>> {
    let mut flow: Option<Vec<Vec<f64>>> = None;
    for mut mixed in layers {
        for (token, row) in mixed.iter_mut().enumerate() {
            row.iter_mut().for_each(|weight| *weight *= 0.5);
            row[token] += 0.5;
        }
        flow = Some(match flow {
            None => mixed,
            Some(before) => product(&mixed, &before),
        });
    }
    flow
}

/// Product of two square matrices.
fn product(left: &[Vec<f64>], right: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let of_row = |row: &Vec<f64>| {
        let mut out = vec![0.0; row.len()];
        for (weight, other) in row.iter().zip(right) {
            out.iter_mut().zip(other).for_each(|(sum, value)| *sum += weight * value);
        }
        out
    };
    left.iter().map(of_row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_layers_roll_out_as_by_hand() {
        // In the first layer, both tokens attend to the first token; in the second layer, both
        // attend equally to both.
        let layers = [vec![vec![1.0, 0.0], vec![1.0, 0.0]], vec![vec![0.5, 0.5], vec![0.5, 0.5]]];
        let flow = rollout(layers).unwrap();
        assert_eq!(flow, [[0.875, 0.125], [0.625, 0.375]]);
        assert_eq!(rollout([]), None);
    }
}
