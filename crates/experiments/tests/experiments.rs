//! Tests of claims about training, with models so small that they take seconds.

use taper_experiments::{
    Beginning, BitFunction, ConceptLesson, Warming, explained, largest_eigenvalue, learned,
    noise_scale, probe, regressor, right_answers, student,
};
use taper_model::NormPlacement;
use taper_ops::rng::Counter;
use taper_theory::studies::{Mixture, PromptKind, fitted_exponent, parity_decoder};

type TestResult = Result<(), Box<dyn std::error::Error>>;

/// Checks that a trained decoder comes close to the exact posterior, which no model can beat, in
/// its loss and in the accuracy of its answers (Xie et al. 2022, section 4).
#[test]
fn a_decoder_learns_the_posterior_of_a_mixture() -> TestResult {
    let mixture = Mixture::draw(3, (3, 4), 8, 1);
    let lesson = ConceptLesson {
        width: 32,
        layers: 2,
        length: 48,
        documents: 16,
        updates: 20,
        learning_rate: 5e-3,
    };
    let (early, exact) = lesson.train(&mixture, 1)?.surprise(&mixture, 48)?;
    let decoder = ConceptLesson { updates: 300, ..lesson }.train(&mixture, 1)?;
    let (late, _) = decoder.surprise(&mixture, 48)?;
    assert!(late > exact - 0.02, "{late} nats, and {exact} by the posterior");
    assert!(late - exact < 0.3 * (early - exact), "{early} to {late} nats, and {exact}");
    let kind = PromptKind::new(4, 5);
    let (found, best) = (decoder.accuracy(&mixture, &kind, 200)?, mixture.accuracy(&kind, 200));
    assert!(found > best - 0.2, "{found} of the answers, and {best} by the posterior");
    Ok(())
}

/// Checks that one layer can compute PARITY of a given length, but does not learn it from the
/// answers alone. It learns PARITY if it writes the parity after each bit (Hahn 2020, section 6).
#[test]
fn one_layer_learns_parity_only_step_by_step() -> TestResult {
    let length = 8;
    for length in [1, 2, 7, 8, 24] {
        let by_hand = parity_decoder(length)?;
        assert_eq!(right_answers(&by_hand.0, BitFunction::Parity, length)?, 1.0, "{length}");
    }
    for (name, function) in BitFunction::ALL {
        let share = learned(function, length, 300, 1)?;
        match function {
            BitFunction::Parity => assert!((share - 0.5).abs() < 0.1, "{name}: {share}"),
            _ => assert!(share > 0.95, "{name}: {share}"),
        }
    }
    Ok(())
}

/// Checks that a probe explains a quantity that is a linear map of the states, and does not explain
/// a quantity that is independent of the states.
#[test]
fn probes_explain_linear_maps_alone() {
    let counter = Counter::new(3);
    let normal = |at: usize| counter.normal_at(at as u64);
    let states: Vec<Vec<f64>> =
        (0..600).map(|row| (0..5).map(|at| normal(5 * row + at)).collect()).collect();
    let map = |state: &Vec<f64>| vec![2.0 * state[0] - state[3] + 1.0, state[4]];
    let mapped: Vec<Vec<f64>> = states.iter().map(map).collect();
    let apart: Vec<Vec<f64>> = (0..600).map(|row| vec![normal(9000 + row)]).collect();
    assert!(explained(&states, &mapped, 400) > 0.999);
    assert!(explained(&states, &apart, 400) < 0.1);
}

/// Checks that probes of a trained decoder explain the moments Xᵀy/n and the weights of ridge
/// regression much better than probes of an untrained decoder (Akyürek et al. 2023, section 5).
#[test]
fn layers_hold_the_moments_of_linear_functions() -> TestResult {
    let (trained, drawn) = (probe(&regressor(3, 400, 1)?)?, probe(&regressor(3, 0, 1)?)?);
    let [error, ridge] = trained.errors;
    assert!(error > 0.95 * ridge && error < 2.0 * ridge, "{error} and {ridge}");
    let deepest = |shares: &[[f64; 2]], which: usize| {
        shares.iter().map(|shares| shares[which]).fold(f64::NEG_INFINITY, f64::max)
    };
    for which in 0..2 {
        let (one, other) = (deepest(&trained.explained, which), deepest(&drawn.explained, which));
        assert!(one > other + 0.2, "{which}: {one} and {other}");
    }
    // Before any attention, the state of the last x depends only on this x.
    assert!(trained.explained[0].iter().all(|share| *share < 0.05), "{:?}", trained.explained[0]);
    Ok(())
}

/// Checks that errors of students fall with their size, and that they fall more slowly in more
/// dimensions (Sharma and Kaplan 2022, section 2).
#[test]
fn students_fall_by_the_dimension() -> TestResult {
    let mut exponents = Vec::new();
    for dimensions in [2, 8] {
        let (small, error) = student(dimensions, 4, 500, 1)?;
        let (large, least) = student(dimensions, 16, 500, 1)?;
        exponents.push(fitted_exponent(&[small, large], &[error, least]));
    }
    assert!(exponents[0] < exponents[1] && exponents[1] < 0.0, "{exponents:?}");
    Ok(())
}

/// Checks the largest eigenvalue of a matrix with known eigenvalues. The matrix is H D H, where D
/// has the eigenvalues on its diagonal, and H = 1 − 2 u uᵀ / uᵀu is a reflection.
#[test]
fn the_largest_eigenvalue_comes_of_products() -> TestResult {
    let size = 60;
    let counter = Counter::new(5);
    let axis: Vec<f64> = (0..size).map(|at| counter.normal_at(at)).collect();
    let dot = |left: &[f64], right: &[f64]| -> f64 {
        left.iter().zip(right).map(|(left, right)| left * right).sum()
    };
    let reflected = |vector: &[f64]| -> Vec<f64> {
        let share = 2.0 * dot(&axis, vector) / dot(&axis, &axis);
        vector.iter().zip(&axis).map(|(part, axis)| part - share * axis).collect()
    };
    // The eigenvalues are −9 to 2.6 in steps of 0.2, and 3.7. The largest eigenvalue is therefore
    // not the one with the largest absolute value.
    let product = |vector: &[f64]| -> Result<Vec<f64>, std::convert::Infallible> {
        let mut inner = reflected(vector);
        for (at, part) in inner.iter_mut().enumerate() {
            *part *= if at == 59 { 3.7 } else { -9.0 + 0.2 * at as f64 };
        }
        Ok(reflected(&inner))
    };
    assert!((largest_eigenvalue(60, 60, product)? - 3.7).abs() < 1e-9);
    assert!((largest_eigenvalue(60, 25, product)? - 3.7).abs() < 1e-2);
    // The largest eigenvalue of this 2 × 2 matrix, computed by hand, is (5 + √5) / 2.
    let small = |v: &[f64]| -> Result<_, std::convert::Infallible> {
        Ok(vec![2.0 * v[0] + v[1], v[0] + 3.0 * v[1]])
    };
    assert!((largest_eigenvalue(2, 5, small)? - (5.0 + 5.0_f64.sqrt()) / 2.0).abs() < 1e-9);
    Ok(())
}

/// Checks that the noise scale is tr Σ / |G|² for gradients whose mean and variance are known
/// (McCandlish et al. 2018, equation 2.9).
#[test]
fn the_noise_scale_is_that_of_known_gradients() {
    let counter = Counter::new(11);
    // With so few gradients, noise makes the square of their mean about 1.5 times as large as |G|².
    // This excess must be subtracted.
    let (count, width, batch, deviation) = (12, 3000, 4.0_f64, 0.5);
    let gradient = |row: usize| -> Vec<f64> {
        let noise =
            |at: usize| deviation / batch.sqrt() * counter.normal_at((row * width + at) as u64);
        (0..width).map(|at| 0.1 + noise(at)).collect()
    };
    let gradients: Vec<Vec<f64>> = (0..count).map(gradient).collect();
    let expected = deviation.powi(2) / 0.1_f64.powi(2);
    assert!((noise_scale(&gradients, batch) / expected - 1.0).abs() < 0.1);
}

/// Checks that the Hessian is symmetric, and that no direction has more curvature than the
/// sharpness. Checks also that rectification begins with a small learning rate and ends at the full
/// one.
#[test]
fn curvature_is_that_of_the_loss() -> TestResult {
    for norm in [NormPlacement::Pre, NormPlacement::Post] {
        let mut training = Warming::new(norm, 2, 1)?;
        let (measured, loss) = training.train(Beginning::WarmUp, (60, 3e-3), &[0, 50])?;
        assert!(measured.len() == 2 && loss.is_finite() && loss < 1.6, "{loss}");
        assert!(measured.iter().all(|one| one.sharpness > 0.0), "{measured:?}");
        let size = training.size();
        let direction = |key: u64| -> Vec<f64> {
            let parts: Vec<f64> =
                (0..size as u64).map(|at| Counter::new(key).normal_at(at)).collect();
            let length = parts.iter().map(|part| part * part).sum::<f64>().sqrt();
            parts.into_iter().map(|part| part / length).collect()
        };
        let dot = |left: &[f64], right: &[f64]| -> f64 {
            left.iter().zip(right).map(|(left, right)| left * right).sum()
        };
        let (one, other) = (direction(1), direction(2));
        let of_one = training.curvature(&one)?;
        let of_other = training.curvature(&other)?;
        let size_of_product = dot(&of_one, &of_one).sqrt();
        let difference = (dot(&other, &of_one) - dot(&one, &of_other)).abs();
        assert!(difference < 1e-2 * size_of_product, "{difference} of {size_of_product}");
        assert!(dot(&one, &of_one) <= training.sharpness()? * 1.01);
    }
    let factor = |number| Beginning::Rectified.factor(number, 0.98);
    assert_eq!(factor(4), 0.0);
    assert!(factor(5) < 0.1 && factor(50) < factor(100) && factor(2000) > 0.999);
    Ok(())
}

/// Checks that Post-LN needs a warm-up and Pre-LN does not. With the full rate from the first
/// update on, Post-LN ends with a higher loss than with a warm-up, while Pre-LN ends with the same
/// loss. At first, the loss of Post-LN is sharper than that of Pre-LN. For both, the noise scale is
/// less than 8 documents, and a batch has 16.
#[test]
fn only_post_ln_needs_a_warm_up() -> TestResult {
    let mut of_norm = Vec::new();
    for norm in [NormPlacement::Pre, NormPlacement::Post] {
        let train =
            |beginning, at: &[u64]| Warming::new(norm, 8, 1)?.train(beginning, (200, 3e-3), at);
        let (_, abrupt) = train(Beginning::Abrupt, &[])?;
        let (first, warm) = train(Beginning::WarmUp, &[0])?;
        of_norm.push((abrupt - warm, first[0]));
    }
    let [(pre, before), (post, after)] = of_norm[..] else { return Err("two norms".into()) };
    assert!(pre.abs() < 0.03 && post > 0.03, "{pre} and {post} nats more without a warm-up");
    assert!(after.sharpness > 1.5 * before.sharpness, "{before:?} {after:?}");
    assert!(before.noise_scale < 8.0 && after.noise_scale < 8.0, "{before:?} {after:?}");
    Ok(())
}
