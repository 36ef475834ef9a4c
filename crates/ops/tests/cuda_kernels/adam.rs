//! Tests the kernel of Adam.

use candle_core::{DType, Device, Result};
use taper_ops::{AdamStep, ParameterStore, adam_step};

use super::Check;
use super::host::Argument::{At, Long, Real, Word};
use super::host::Array;

impl Check<'_> {
    /// Updates parameters of odd lengths, one of them frozen, in one launch. The length of the flat
    /// buffers is not a multiple of the number of elements that a thread or a block updates.
    pub(super) fn adam(&self) -> Result<()> {
        let step = AdamStep {
            learning_rate: 0.01,
            beta1: 0.9,
            beta2: 0.98,
            epsilon: 1e-9,
            weight_decay: 0.1,
            step: 3,
            gradient_scale: 0.5,
            decoupled: true,
        };
        let shapes: [&[usize]; 5] = [&[1], &[17, 59], &[3], &[41, 103], &[5]];
        let counts = shapes.map(|shape| shape.iter().product::<usize>());
        let count: usize = counts.iter().sum();
        let weights = counts.map(|count| self.parameters(count, 16 + count as u64));
        let [gradient, first, second] = [17, 18, 19].map(|key| {
            let values = self.parameters(count, key).values();
            let values: Vec<f64> =
                values.iter().map(|x| if key == 19 { x * x } else { *x }).collect();
            Array::new(&values, DType::F32, self.shift)
        });
        let mut store = ParameterStore::new(&Device::Cpu);
        let (mut parts, mut end) = (Vec::new(), 0);
        for (number, (shape, weights)) in shapes.iter().zip(&weights).enumerate() {
            let floats = weights.values().iter().map(|&x| x as f32).collect();
            store.add(&number.to_string(), shape, floats)?;
            let parameter = &store.parameters()[number];
            if number == 2 {
                parameter.freeze();
            }
            parameter.set_rate(1.0 - 0.1 * number as f64);
            let before = (weights.address()).wrapping_sub(4 * end as u64);
            end += counts[number];
            let rate = 0.01 * parameter.rate();
            let decay = if parameter.is_matrix() { 0.1 } else { 0.0 };
            let reals = [rate / (1.0 - 0.9_f64.powi(3)), 0.0, 1.0 - rate * decay];
            for long in [before, end as u64] {
                parts.extend([long as u32, (long >> 32) as u32]);
            }
            parts.extend(reals.map(|real| (real as f32).to_bits()));
            parts.push(u32::from(!parameter.is_frozen()));
        }
        let parts: Vec<f64> = parts.into_iter().map(f64::from).collect();
        let parts = Array::new(&parts, DType::U32, 0);
        let on_host = |x: &Array| x.tensor(&[count]).to_dtype(DType::F32);
        let mut moments = [on_host(&first)?, on_host(&second)?];
        let of_gradient = on_host(&gradient)?;
        adam_step(&store, 0..count, &of_gradient, &mut moments, &step)?;
        let arguments = [
            At(&parts),
            Word(shapes.len()),
            At(&gradient),
            At(&first),
            At(&second),
            Long(count),
            Real(0.5),
            Real(0.9),
            Real(0.98),
            Real(0.1),
            Real(0.02),
            Real(1.0 / (1.0 - 0.98_f64.powi(3)).sqrt()),
            Real(1e-9),
        ];
        self.library.launch("adam", (2, 1), &arguments);
        for (parameter, weights) in store.parameters().iter().zip(&weights) {
            self.same("adam", weights, parameter.var())?;
        }
        // The moments of frozen parameters are not updated and never read.
        let is_read = |at: usize| !(1004..1007).contains(&at);
        for (what, ours, exact) in
            [("first", &first, &moments[0]), ("second", &second, &moments[1])]
        {
            let exact = exact.to_vec1::<f32>()?.into_iter().map(f64::from);
            for (at, (ours, exact)) in ours.values().into_iter().zip(exact).enumerate() {
                let apart = (ours - exact).abs();
                assert!(!is_read(at) || apart <= self.tolerance, "adam, {what} moments: {at}");
            }
        }
        Ok(())
    }
}
