//! Claims about training, on models that take seconds.

use taper_experiments::{
    BitFunction, ConceptLesson, explained, learned, probe, regressor, right_answers, student,
};
use taper_theory::studies::{Mixture, PromptKind, fitted_exponent, parity_decoder};

type TestResult = Result<(), Box<dyn std::error::Error>>;

/// Xie et al. 2022, section 4: what a decoder learns of documents comes near the posterior, below
/// which no loss can be, and its answers with it.
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

/// Hahn 2020, section 6: one layer can compute PARITY of a given length, and does not learn it; step
/// by step it does.
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

/// A probe reads what is a linear map of states, and nothing of what is not in them.
#[test]
fn probes_explain_linear_maps_alone() {
    let counter = taper_ops::rng::Counter::new(3);
    let normal = |at: usize| counter.normal_at(at as u64);
    let states: Vec<Vec<f64>> =
        (0..600).map(|row| (0..5).map(|at| normal(5 * row + at)).collect()).collect();
    let map = |state: &Vec<f64>| vec![2.0 * state[0] - state[3] + 1.0, state[4]];
    let mapped: Vec<Vec<f64>> = states.iter().map(map).collect();
    let apart: Vec<Vec<f64>> = (0..600).map(|row| vec![normal(9000 + row)]).collect();
    assert!(explained(&states, &mapped, 400) > 0.999);
    assert!(explained(&states, &apart, 400) < 0.1);
}

/// Akyürek et al. 2023, section 5: the moments are in the layers of a trained decoder, and not in
/// those of one that is not trained.
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
    // Before attention, the state of an x knows x alone.
    assert!(trained.explained[0].iter().all(|share| *share < 0.05), "{:?}", trained.explained[0]);
    Ok(())
}

/// Sharma and Kaplan 2022, section 2: errors of students fall with their size, and the slower the
/// more dimensions there are.
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
