//! Scaling laws: a fit recovers the law from which points were made, and reproduces a published
//! fit.

use anyhow::{Context, Result, ensure};
use taper_ops::rng::Counter;
use taper_run::scaling::{Interval, Law, Observation, Scale, Term, bootstrap, fit};

/// Scaling law of Hoffmann et al. 2022, section 3.3: loss by number of parameters and number of
/// tokens.
const CHINCHILLA: Law<2> = Law {
    irreducible: 1.69,
    terms: [Term { factor: 406.4, exponent: 0.34 }, Term { factor: 410.7, exponent: 0.28 }],
};

/// Models of 44 million to 10 billion parameters, each trained on 1 to 100 billion tokens, with the
/// losses of the law. Random errors with the standard deviation `noise` are added to the logarithms
/// of the losses.
fn points(noise: f64) -> Vec<Observation<2>> {
    let counter = Counter::new(7);
    let mut points = Vec::new();
    for size in 0..9 {
        for data in 0..9 {
            let inputs = [
                4.4e7 * 10_f64.powf(0.3 * f64::from(size)),
                1e9 * 10_f64.powf(0.25 * f64::from(data)),
            ];
            let error = noise * counter.normal_at(points.len() as u64);
            points.push(Observation { inputs, loss: CHINCHILLA.loss(inputs) * error.exp() });
        }
    }
    points
}

fn near(found: f64, expected: f64, relative: f64) {
    assert!((found - expected).abs() <= relative * expected, "{found}, expected {expected}");
}

#[test]
fn the_law_that_made_the_points_is_found() -> Result<()> {
    for scale in [Scale::Fixed, Scale::Fitted] {
        let law = fit(&points(0.0), scale)?.law;
        near(law.irreducible, CHINCHILLA.irreducible, 1e-4);
        for (found, expected) in law.terms.iter().zip(CHINCHILLA.terms) {
            near(found.factor, expected.factor, 1e-2);
            near(found.exponent, expected.exponent, 1e-3);
        }
    }
    Ok(())
}

#[test]
fn intervals_hold_the_truth_and_grow_with_the_noise() -> Result<()> {
    let mut widths = Vec::new();
    for noise in [0.001, 0.01] {
        let points = points(noise);
        let fit = fit(&points, Scale::Fitted)?;
        let intervals = bootstrap(&points, &fit, 60, 0.95, 1)?;
        let holds = |interval: Interval, truth: f64| {
            assert!(interval.low <= truth && truth <= interval.high, "{interval:?}, {truth}");
        };
        holds(intervals.irreducible, CHINCHILLA.irreducible);
        for (k, term) in CHINCHILLA.terms.iter().enumerate() {
            holds(intervals.factors[k], term.factor);
            holds(intervals.exponents[k], term.exponent);
        }
        assert_eq!(bootstrap(&points, &fit, 60, 0.95, 1)?, intervals, "the seed decides");
        widths.push(intervals.exponents[0].high - intervals.exponents[0].low);
    }
    assert!(widths[1] > 3.0 * widths[0], "{widths:?}");
    Ok(())
}

/// Checks that models of the same cost with more or fewer parameters have larger losses.
#[test]
fn the_compute_optimal_model_is_the_best_of_its_cost() {
    let flops = 5.76e23;
    let best = CHINCHILLA.compute_optimal(flops);
    near(6.0 * best.parameters * best.tokens, flops, 1e-9);
    for factor in [0.5, 0.9, 0.99, 1.01, 1.1, 2.0] {
        let other = CHINCHILLA.loss([best.parameters * factor, best.tokens / factor]);
        assert!(other > best.loss, "{factor}");
    }
}

#[test]
fn points_that_cannot_be_fitted_are_refused() {
    let few = &points(0.0)[..5];
    let message = fit(few, Scale::Fitted).expect_err("five points").to_string();
    assert!(message.contains("5 points are too few") && message.contains("6"), "{message}");
    let mut bad = points(0.0);
    bad[3].loss = f64::NAN;
    let message = fit(&bad, Scale::Fitted).expect_err("no loss").to_string();
    assert!(message.contains("point 4"), "{message}");
}

/// Besiroglu et al. 2024, "Chinchilla Scaling: A replication attempt", table 1: A 482.0, B 2085.4,
/// E 1.817, α 0.348 and β 0.366, for the law `E + A / N^α + B / D^β` of `N` parameters and `D`
/// tokens. They fitted the points that they read off a figure of Hoffmann et al. 2022, without the
/// five points with the highest loss. The file is `data/svg_extracted_data.csv` of
/// <https://github.com/epoch-research/analyzing-chinchilla>:
///
/// `TAPER_CHINCHILLA=FILE cargo test --release -p taper-run --test scaling -- --ignored --nocapture`
#[test]
#[ignore = "needs the published points"]
fn the_published_fit_of_the_chinchilla_points() -> Result<()> {
    let path = std::env::var("TAPER_CHINCHILLA").context("TAPER_CHINCHILLA names no file")?;
    let points = published(&path)?;
    let shown = |law: &Law<2>| {
        let [size, data] = law.terms;
        format!(
            "A {:.1} B {:.1} E {:.3} α {:.3} β {:.3}",
            size.factor, data.factor, law.irreducible, size.exponent, data.exponent
        )
    };
    let fitted = fit(&points, Scale::Fitted)?;
    println!("{}\n{:.3?}", shown(&fitted.law), bootstrap(&points, &fitted, 1000, 0.95, 1)?);
    assert_eq!(shown(&fitted.law), "A 482.0 B 2085.4 E 1.817 α 0.348 β 0.366");
    // Result with the scale fixed, which is the method of Hoffmann et al.
    let fixed = fit(&points, Scale::Fixed)?;
    assert_eq!(shown(&fixed.law), "A 477.8 B 2143.4 E 1.817 α 0.347 β 0.367");
    Ok(())
}

/// Points in the file at `path`, without the five with the highest loss. The number of tokens is
/// computed as FLOPs / (6 · parameters).
fn published(path: &str) -> Result<Vec<Observation<2>>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
    let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let header = lines.next().context("the file is empty")?;
    let column = |name: &str| header.iter().position(|column| *column == name).context("no column");
    let [size, flops, loss] = [column("Model Size")?, column("Training FLOP")?, column("loss")?];
    let mut points = Vec::new();
    for line in lines {
        let [size, flops, loss] = [size, flops, loss].map(|column| line[column].parse::<f64>());
        let (size, flops) = (size?, flops?);
        points.push(Observation { inputs: [size, flops / 6.0 / size], loss: loss? });
    }
    ensure!(points.len() == 245, "{} points", points.len());
    points.sort_by(|left, right| left.loss.total_cmp(&right.loss));
    points.truncate(240);
    Ok(points)
}
