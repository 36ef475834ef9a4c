//! Gates of one row of a recurrent layer (see [`Cell`](crate::Cell)), forward and backward.

use crate::float::vectorised;
use crate::spec::sigmoid;

vectorised! {
    /// Computes a GRU's gates. On entry, `gates` holds `U h` for r, z and n; on return, it holds r,
    /// z and n. Writes `U_n h + b_n` to `fresh`, and the new state to `state`.
    fn gru_forward<T>(
        gates: &mut [T],
        inputs: &[T],
        bias: &[T],
        before: &[T],
        fresh: &mut [T],
        state: &mut [T],
    ) {
        let width = before.len();
        let (reset, rest) = gates.split_at_mut(width);
        let (update, new) = rest.split_at_mut(width);
        let (fresh, state) = (&mut fresh[..width], &mut state[..width]);
        let (inputs, bias) = (&inputs[..3 * width], &bias[..3 * width]);
        for i in 0..width {
            let r = sigmoid(reset[i] + bias[i] + inputs[i]);
            let z = sigmoid(update[i] + bias[width + i] + inputs[width + i]);
            let product = new[i] + bias[2 * width + i];
            let n = (inputs[2 * width + i] + r * product).tanh();
            (reset[i], update[i], new[i], fresh[i]) = (r, z, n, product);
            state[i] = n + z * (before[i] - n);
        }
    }
}

vectorised! {
    /// Computes two gradients: `by_inputs`, with respect to what the layer's input adds to the
    /// gates, and `by_product`, with respect to `U h + b`. On entry, `carried` holds the gradient
    /// with respect to the new state. On return, it holds the part of the gradient with respect to
    /// the previous state that does not pass through the gates.
    fn gru_backward<T>(
        gates: &[T],
        fresh: &[T],
        before: &[T],
        carried: &mut [T],
        by_inputs: &mut [T],
        by_product: &mut [T],
    ) {
        let (width, one) = (before.len(), T::cast(1.0));
        let (gates, fresh) = (&gates[..3 * width], &fresh[..width]);
        let carried = &mut carried[..width];
        let (by_inputs, by_product) = (&mut by_inputs[..3 * width], &mut by_product[..3 * width]);
        for i in 0..width {
            let (r, z, n) = (gates[i], gates[width + i], gates[2 * width + i]);
            let grad = carried[i];
            let by_new = grad * (one - z) * (one - n * n);
            let by_reset = by_new * fresh[i] * r * (one - r);
            let by_update = grad * (before[i] - n) * z * (one - z);
            (by_inputs[i], by_product[i]) = (by_reset, by_reset);
            (by_inputs[width + i], by_product[width + i]) = (by_update, by_update);
            (by_inputs[2 * width + i], by_product[2 * width + i]) = (by_new, by_new * r);
            carried[i] = grad * z;
        }
    }
}

vectorised! {
    /// Computes an LSTM's gates. On entry, `gates` holds `U h` for i, f, g and o; on return, it
    /// holds i, f, g and o. `before` is the previous cell c; the new c is written to `cell`, and
    /// the new state h to `state`.
    fn lstm_forward<T>(
        gates: &mut [T],
        inputs: &[T],
        bias: &[T],
        before: &[T],
        cell: &mut [T],
        state: &mut [T],
    ) {
        let width = before.len();
        let (input, rest) = gates.split_at_mut(width);
        let (forget, rest) = rest.split_at_mut(width);
        let (new, output) = rest.split_at_mut(width);
        let (inputs, bias) = (&inputs[..4 * width], &bias[..4 * width]);
        let (cell, state, output) =
            (&mut cell[..width], &mut state[..width], &mut output[..width]);
        for j in 0..width {
            let i = sigmoid(input[j] + bias[j] + inputs[j]);
            let f = sigmoid(forget[j] + bias[width + j] + inputs[width + j]);
            let g = (new[j] + bias[2 * width + j] + inputs[2 * width + j]).tanh();
            let o = sigmoid(output[j] + bias[3 * width + j] + inputs[3 * width + j]);
            (input[j], forget[j], new[j], output[j]) = (i, f, g, o);
            cell[j] = f * before[j] + i * g;
            state[j] = o * cell[j].tanh();
        }
    }
}

vectorised! {
    /// Computes the gradients of an LSTM, like [`gru_backward`]. On entry, `carried` holds the
    /// gradient with respect to the new h. On return, it is zero, because all of the gradient with
    /// respect to the previous h passes through the gates. `carried_cell` holds the gradient with
    /// respect to the new c on entry, and with respect to the previous c on return.
    fn lstm_backward<T>(
        gates: &[T],
        cell: &[T],
        before: &[T],
        carried: &mut [T],
        carried_cell: &mut [T],
        by_inputs: &mut [T],
    ) {
        let (width, one) = (before.len(), T::cast(1.0));
        let (gates, cell) = (&gates[..4 * width], &cell[..width]);
        let (carried, carried_cell) = (&mut carried[..width], &mut carried_cell[..width]);
        let by_inputs = &mut by_inputs[..4 * width];
        for j in 0..width {
            let (i, f) = (gates[j], gates[width + j]);
            let (g, o) = (gates[2 * width + j], gates[3 * width + j]);
            let tanh = cell[j].tanh();
            let by_cell = carried_cell[j] + carried[j] * o * (one - tanh * tanh);
            by_inputs[j] = by_cell * g * i * (one - i);
            by_inputs[width + j] = by_cell * before[j] * f * (one - f);
            by_inputs[2 * width + j] = by_cell * i * (one - g * g);
            by_inputs[3 * width + j] = carried[j] * tanh * o * (one - o);
            carried_cell[j] = by_cell * f;
            carried[j] = T::default();
        }
    }
}
