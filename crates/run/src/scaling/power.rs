//! Power law without an irreducible loss (Kaplan et al. 2020, "Scaling Laws for Neural Language
//! Models", equation 1.1).

use super::Observation;

/// Law `L(N) = (N_c / N)^α` for the loss L of a model with N parameters. On logarithmic axes, it is
/// a straight line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PowerLaw {
    /// N_c, the number of parameters at which the loss would be 1.
    pub critical: f64,
    /// Exponent α.
    pub exponent: f64,
}

impl PowerLaw {
    /// Fits the law to the lowest loss for each size, by least squares of the logarithms. The other
    /// losses are ignored, because the law describes models whose loss is limited only by their
    /// size. Of several trainings, the one with the lowest loss comes closest to this limit.
    /// Returns `None` if there are fewer than two sizes, or if no finite N_c describes the losses,
    /// for example because they are equal for all sizes.
    #[must_use]
    pub fn fit(points: &[Observation<1>]) -> Option<Self> {
        let mut best: Vec<(f64, f64)> = Vec::new();
        for point in points {
            let (size, loss) = (point.inputs[0].ln(), point.loss.ln());
            match best.iter_mut().find(|one| one.0 == size) {
                Some(one) => one.1 = one.1.min(loss),
                None => best.push((size, loss)),
            }
        }
        if best.len() < 2 {
            return None;
        }
        let count = best.len() as f64;
        let mean = |value: fn(&(f64, f64)) -> f64| best.iter().map(value).sum::<f64>() / count;
        let (size, loss) = (mean(|one| one.0), mean(|one| one.1));
        let product: f64 = best.iter().map(|one| (one.0 - size) * (one.1 - loss)).sum();
        let square: f64 = best.iter().map(|one| (one.0 - size).powi(2)).sum();
        let exponent = -product / square;
        // If losses hardly change with the size, N_c exceeds the range of f64 or falls below it. If
        // they are all 1, it is undetermined (0 / 0).
        let critical = (loss / exponent + size).exp();
        (critical.is_normal() && exponent.is_finite()).then_some(Self { critical, exponent })
    }

    /// Loss that the law predicts for a model of `parameters` parameters.
    #[must_use]
    pub fn loss(&self, parameters: f64) -> f64 {
        (self.critical / parameters).powf(self.exponent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Points on the published law (Kaplan et al. 2020, equation 1.1: α = 0.076, N_c = 8.8 · 10¹³),
    /// and points with higher losses, as after shorter trainings.
    #[test]
    fn a_power_law_is_fitted_to_the_lowest_losses() {
        let law = PowerLaw { critical: 8.8e13, exponent: 0.076 };
        let sizes: Vec<f64> = (3..10).map(|power| 10_f64.powi(power)).collect();
        let best = sizes.iter().map(|&size| Observation { inputs: [size], loss: law.loss(size) });
        let short = sizes
            .iter()
            .map(|&size| Observation { inputs: [size], loss: law.loss(size) + size.ln() });
        let points: Vec<_> = short.chain(best).collect();
        let fitted = PowerLaw::fit(&points).expect("seven sizes");
        assert!((fitted.exponent - law.exponent).abs() < 1e-9, "{fitted:?}");
        assert!((fitted.critical / law.critical - 1.0).abs() < 1e-6, "{fitted:?}");
        assert_eq!(PowerLaw::fit(&points[..1]), None);
    }

    #[test]
    fn losses_that_do_not_depend_on_the_size_have_no_power_law() {
        for loss in [0.5, 1.0, 3.0] {
            let points = [1e3, 1e4, 1e5].map(|size| Observation { inputs: [size], loss });
            assert_eq!(PowerLaw::fit(&points), None, "{loss}");
        }
    }
}
