//! Tests of claims about attention, with models whose weights are set by hand.

use candle_core::{DType, Device};
use taper_model::{Builder, MaskedLanguageModel, Model, ModelConfig, Pass, Positions, Sequences};
use taper_ops::rng::{Counter, mix};
use taper_theory::studies::{
    DELIMITER, Mixture, Point, PromptKind, RidgeSetting, STUDIES, SparseFunction, approximate,
    expected_noise, fitted_exponent, lookup, nearest_losses, ridge_decoder, ridge_predictions,
    spectrum_tail,
};

type TestResult = Result<(), Box<dyn std::error::Error>>;

/// Draws random numbers between 0 and 1.
fn uniform(count: usize, seed: u64) -> Vec<f64> {
    let counter = Counter::new(mix(54, &[seed]));
    (0..count as u64).map(|at| f64::from(counter.f32_at(at))).collect()
}

/// Computes every Boolean function of one, two or three of 32 positions, and some functions of
/// four, on texts whose other bits are random. Every token must have the function's value.
#[test]
fn one_layer_computes_any_function_of_few_positions() -> TestResult {
    let length = 32;
    for (positions, step) in
        [(vec![31], 1), (vec![4, 0], 1), (vec![30, 7, 12], 1), (vec![1, 9, 17, 25], 1021)]
    {
        for table in (0..1_u64 << (1 << positions.len())).step_by(step) {
            let function = SparseFunction::new(length, &positions, table)?;
            let texts: Vec<Vec<bool>> = (0..1 << positions.len())
                .map(|number: usize| {
                    let noise = uniform(length, table << 8 | number as u64);
                    let mut text: Vec<bool> = noise.iter().map(|bit| *bit < 0.5).collect();
                    for (at, position) in positions.iter().enumerate() {
                        text[*position] = number >> at & 1 == 1;
                    }
                    text
                })
                .collect();
            for (number, values) in function.values(&texts)?.into_iter().enumerate() {
                let value = table >> number & 1 == 1;
                assert!(values.iter().all(|one| *one == value), "{positions:?} {table:b} {number}");
            }
        }
    }
    assert!(SparseFunction::new(8, &[8], 1).is_err());
    assert!(SparseFunction::new(0, &[], 1).is_err());
    assert_eq!(SparseFunction::new(1, &[], 1)?.values(&[vec![false]])?, [[true]]);
    Ok(())
}

/// Checks lemma 5 of Hahn 2020: in a layer with bounded scores, a change of one of n tokens changes
/// the state of another token by O(1/n). With heads whose scores choose a single token, such a
/// change can change the answer for every n.
#[test]
fn heads_with_bounded_scores_are_blind_to_single_tokens() -> TestResult {
    let shape = ModelConfig { d_model: 32, d_ff: 64, heads: 2, ..ModelConfig::default() };
    let config = ModelConfig { encoder_layers: 1, positions: Positions::None, ..shape };
    let builder = Builder::seeded(3, &Device::Cpu, DType::F32);
    let drawn = MaskedLanguageModel::new(&config, 2, false, builder)?;
    let lengths = [16, 32, 64, 128, 256, 512];
    let mut changes = Vec::new();
    for length in lengths {
        let text: Vec<u32> = uniform(length, 8).iter().map(|bit| u32::from(*bit < 0.5)).collect();
        let mut flipped = text.clone();
        flipped[0] = 1 - flipped[0];
        let texts = Sequences::pack(&[text.clone(), flipped.clone()]);
        let hidden = drawn.hidden(&texts, &vec![0; 2 * length], &Pass::evaluate())?;
        let rows: Vec<Vec<f32>> = hidden.to_vec2()?;
        let pairs = rows[length - 1].iter().zip(&rows[2 * length - 1]);
        changes.push(pairs.map(|(left, right)| f64::from((left - right).abs())).sum());
        let chosen = SparseFunction::new(length, &[0], 0b10)?;
        let bits = |text: &[u32]| text.iter().map(|bit| *bit == 1).collect::<Vec<bool>>();
        let values = chosen.values(&[bits(&text), bits(&flipped)])?;
        assert_ne!(values[0][length - 1], values[1][length - 1]);
    }
    let exponent = fitted_exponent(&lengths, &changes);
    assert!((exponent + 1.0).abs() < 0.1, "{exponent}: {changes:?}");
    Ok(())
}

/// A function of a token `own` and of all three tokens, whose order does not matter.
fn of_set(own: Point, all: &[Point; 3]) -> Point {
    let largest = all.iter().map(|point| point[0]).fold(0.0, f64::max);
    [own[0] - 0.5 * largest, own[1] * all.iter().map(|point| point[1]).sum::<f64>() / 3.0]
}

/// Checks theorem 2 of Yun et al. 2020: the model's values are the function's values at the centres
/// of the cells. So the error is bounded by the change of the function within half a cell, and
/// permuted tokens have permuted values.
#[test]
fn a_grid_approximates_a_function_of_three_tokens() -> TestResult {
    let numbers = uniform(6 * 150, 11);
    let triples: Vec<[Point; 3]> = numbers
        .chunks(6)
        .map(|six| [[six[0], six[1]], [six[2], six[3]], [six[4], six[5]]])
        .collect();
    let mut errors = Vec::new();
    for grid in 1..=4_usize {
        let centre = |number: f64| ((number * grid as f64).floor() + 0.5) / grid as f64;
        let found = approximate(of_set, grid, &triples)?;
        let mut largest: f64 = 0.0;
        for (triple, values) in triples.iter().zip(&found) {
            let near = |number: &f64| {
                let cells = number * grid as f64;
                (cells - cells.round()).abs() > 1e-3
            };
            if !triple.iter().flatten().all(near) {
                continue;
            }
            let centres = triple.map(|point| point.map(centre));
            for ((own, value), point) in centres.iter().zip(values).zip(triple) {
                let looked_up = of_set(*own, &centres);
                let right = of_set(*point, triple);
                for part in 0..2 {
                    assert!((looked_up[part] - value[part]).abs() < 1e-4, "{grid} {triple:?}");
                    largest = largest.max((right[part] - value[part]).abs());
                }
            }
        }
        // Each part of the function changes by at most 2 if every number changes by 1.
        assert!(largest <= 2.0 * 0.5 / grid as f64 + 1e-4, "{grid}: {largest}");
        errors.push(largest);
        let permuted: Vec<[Point; 3]> = triples.iter().map(|[a, b, c]| [*c, *a, *b]).collect();
        let of_permuted = approximate(of_set, grid, &permuted)?;
        for ([a, b, c], permuted) in found.iter().zip(&of_permuted) {
            for (value, same) in [c, a, b].into_iter().zip(permuted) {
                assert!((0..2).all(|part| (value[part] - same[part]).abs() < 1e-4));
            }
        }
    }
    assert!(errors[3] < 0.4 * errors[0], "{errors:?}");
    assert!(approximate(of_set, 5, &triples).is_err());
    Ok(())
}

/// Solves `matrix · w = right` by elimination.
fn solve(mut matrix: Vec<Vec<f64>>, mut right: Vec<f64>) -> Vec<f64> {
    let size = right.len();
    for pivot in 0..size {
        for row in pivot + 1..size {
            let factor = matrix[row][pivot] / matrix[pivot][pivot];
            let above = matrix[pivot].clone();
            matrix[row].iter_mut().zip(above).for_each(|(cell, above)| *cell -= factor * above);
            right[row] -= factor * right[pivot];
        }
    }
    for row in (0..size).rev() {
        let known: f64 = (row + 1..size).map(|column| matrix[row][column] * right[column]).sum();
        right[row] = (right[row] - known) / matrix[row][row];
    }
    right
}

/// Checks that the prediction at every x equals the one of ridge regression on the points before x,
/// with the weights (XᵀX + λI)⁻¹ Xᵀy, up to an absolute error of 1e-6. With fewer steps, the error
/// must be at most the bound that the study claims.
#[test]
fn layers_by_hand_are_ridge_regression() -> TestResult {
    let (size, count, penalty, bound) = (3, 20, 1.0, 4.0);
    let numbers = uniform(count * (size + 1), 12);
    let points: Vec<(Vec<f64>, f64)> = numbers
        .chunks(size + 1)
        .map(|some| {
            let input: Vec<f64> = some[..size].iter().map(|part| 2.0 * part - 1.0).collect();
            let answer = input[0] - 0.5 * input[1] + 0.25 * input[2] + 0.2 * (some[size] - 0.5);
            (input, answer)
        })
        .collect();
    let right: Vec<f64> = (0..count)
        .map(|at| {
            let mut matrix = vec![vec![0.0; size]; size];
            let mut moments = vec![0.0; size];
            for (row, values) in matrix.iter_mut().enumerate() {
                values[row] = penalty;
                for (input, answer) in &points[..at] {
                    moments[row] += input[row] * answer;
                    values.iter_mut().zip(input).for_each(|(sum, x)| *sum += input[row] * x);
                }
            }
            solve(matrix, moments).iter().zip(&points[at].0).map(|(w, x)| w * x).sum()
        })
        .collect();
    let error = |steps| -> Result<f64, Box<dyn std::error::Error>> {
        let setting = RidgeSetting { dimensions: size, points: count, penalty, bound, steps };
        let found = ridge_predictions(&ridge_decoder(&setting)?, &points)?;
        assert_eq!(found.len(), count);
        let differences = found.iter().zip(&right).map(|(one, other)| (one - other).abs());
        // `total_cmp` orders NaN after infinity, so a NaN is returned as the maximum.
        Ok(differences.max_by(f64::total_cmp).unwrap_or(0.0))
    };
    assert!(error(12)? < 1e-6, "{}", error(12)?);
    // The smallest eigenvalue of (XᵀX + λI)/m, for m points, is at least λ/m, and |w| is at most
    // Σ |x y| / λ.
    let contraction = 1.0 - penalty / (count as f64 - 1.0) / bound;
    let largest: f64 =
        points.iter().map(|(x, y)| x.iter().map(|x| (x * y).abs()).sum::<f64>()).sum();
    let mut before = f64::INFINITY;
    for steps in [0, 2, 4, 6, 8] {
        let found = error(steps)?;
        let claimed = contraction.powi(1 << steps) * largest / penalty * 3.0_f64.sqrt();
        assert!(found <= claimed, "{steps}: {found} and {claimed}");
        assert!(found < before, "{steps}: {found} after {before}");
        before = found;
    }
    Ok(())
}

/// Checks equation 1 of Xie et al. 2022: the filter computes the same probabilities as the sum over
/// all concepts and all paths of hidden states.
#[test]
fn the_posterior_is_the_sum_over_all_paths() {
    let mixture = Mixture::draw(2, (2, 3), 4, 5);
    let states: Vec<(usize, usize)> =
        (0..2).flat_map(|entity| (0..3).map(move |slot| (entity, slot))).collect();
    for prompt in [vec![], vec![1], vec![2, 3], vec![1, DELIMITER, 3]] {
        let length = prompt.len() + 1;
        let mut expected = [0.0; 4];
        for concept in &mixture.concepts {
            for number in 0..states.len().pow(length as u32) {
                let path: Vec<(usize, usize)> = (0..length)
                    .map(|at| states[number / states.len().pow(at as u32) % states.len()])
                    .collect();
                let emits =
                    |(at, token): (usize, &usize)| mixture.memory[path[at].0][path[at].1] == *token;
                if path[0].1 == 0 || !prompt.iter().enumerate().all(emits) {
                    continue;
                }
                let moves = path.windows(2).map(|pair| {
                    let ((entity, slot), (next_entity, next_slot)) = (pair[0], pair[1]);
                    concept.entities[entity][next_entity] * concept.slots[slot][next_slot]
                });
                let (entity, slot) = path[length - 1];
                expected[mixture.memory[entity][slot]] += moves.product::<f64>();
            }
        }
        let total: f64 = expected.iter().sum();
        if total == 0.0 {
            continue;
        }
        for (expected, found) in expected.iter().zip(mixture.predict(&prompt)) {
            assert!((expected / total - found).abs() < 1e-12, "{prompt:?}: {expected} {found}");
        }
    }
}

/// Checks a result of Xie et al. 2022, section 4: accuracy grows with the number of examples if the
/// concept is in the mixture, and is lower for a concept that is not in it.
#[test]
fn examples_tell_the_concept() {
    let mixture = Mixture::draw(5, (10, 10), 50, 1);
    let seen = |count, length| mixture.accuracy(&PromptKind::new(count, length), 60);
    assert!(seen(16, 8) > seen(0, 3) + 0.1, "{} {}", seen(16, 8), seen(0, 3));
    assert!(seen(16, 8) > 0.9, "{}", seen(16, 8));
    let empty = mixture.prompts(&PromptKind::new(2, 0), 1);
    assert_eq!(empty, mixture.prompts(&PromptKind::new(2, 0), 1));
    assert_eq!(empty[0].tokens.len(), 4, "two examples of one token, each with a delimiter");
    let unseen = mixture.accuracy(&PromptKind { unseen: true, ..PromptKind::new(16, 8) }, 60);
    assert!(unseen < seen(16, 8) - 0.2, "{unseen}");
}

/// Checks two laws: fitted exponents are −2/d (Sharma and Kaplan 2022, section 2), and the tail of
/// a spectrum i^(−1−α) after N terms is N^(−α)/α (Bahri et al. 2024).
#[test]
fn losses_fall_as_powers_by_the_dimension() {
    let sizes = [64, 128, 256, 512, 1024, 2048];
    let mut before = f64::NEG_INFINITY;
    for (dimensions, tolerance) in [(2, 0.12), (4, 0.12), (8, 0.12)] {
        let losses: Vec<f64> = (0..3).fold(vec![0.0; sizes.len()], |sums, seed| {
            let losses = nearest_losses(dimensions, &sizes, seed);
            sums.iter().zip(losses).map(|(sum, loss)| sum + loss).collect()
        });
        let exponent = fitted_exponent(&sizes, &losses);
        let predicted = -2.0 / dimensions as f64;
        assert!((exponent - predicted).abs() < tolerance, "{dimensions}: {exponent}");
        assert!(exponent > before);
        before = exponent;
    }
    for alpha in [0.25, 0.5, 1.0] {
        let ratio = spectrum_tail(alpha, 1000) * alpha * 1000_f64.powf(alpha);
        assert!((ratio - 1.0).abs() < 0.01, "{alpha}: {ratio}");
    }
    // Σ 1/i² over i ≥ 2 is π²/6 − 1.
    let basel = std::f64::consts::PI.powi(2) / 6.0 - 1.0;
    assert!((spectrum_tail(1.0, 1) - basel).abs() < 1e-9);
}

/// Checks the error of a lookup by softmax among m keys, with sharpness S. The error of a key is at
/// most 2 (m − 1) e^(−SΔ) times the largest value. Here 1 − Δ is the largest cosine of the key with
/// another key.
#[test]
fn a_soft_lookup_errs_by_the_gap_and_the_sharpness() -> TestResult {
    let (count, width) = (24, 12);
    let keys: Vec<Vec<f64>> = (0..count)
        .map(|key| {
            let parts: Vec<f64> = uniform(width, key).iter().map(|part| part - 0.5).collect();
            let length = parts.iter().map(|part| part * part).sum::<f64>().sqrt();
            parts.into_iter().map(|part| part / length).collect()
        })
        .collect();
    let values = uniform(count as usize, 99);
    let cosine = |left: &[f64], right: &[f64]| -> f64 {
        left.iter().zip(right).map(|(left, right)| left * right).sum()
    };
    let mut before = f64::INFINITY;
    for sharpness in [2.0, 8.0, 32.0, 128.0] {
        let found = lookup(&keys, &values, sharpness)?;
        let mut largest = 0.0;
        for (at, key) in keys.iter().enumerate() {
            let others = keys.iter().enumerate().filter(|(other, _)| *other != at);
            let gap = others.map(|(_, other)| 1.0 - cosine(key, other)).fold(2.0, f64::min);
            let bound = (count - 1) as f64 * (-sharpness * gap).exp();
            assert!(found.noise[at] <= bound * 1.001 + 1e-6, "{} > {bound}", found.noise[at]);
            assert!(found.error[at] <= 2.0 * bound + 1e-6, "{} > {bound}", found.error[at]);
            largest = f64::max(largest, found.error[at]);
        }
        assert!(largest < before, "{largest} at {sharpness}");
        before = largest;
    }
    assert!(before < 1e-3, "{before}");
    Ok(())
}

/// Checks that the mean weight of other keys equals the formula. In three dimensions, the cosines
/// of random directions are uniform, and the formula gives (1 − e^(−2S)) / 2S.
#[test]
fn noise_among_random_keys_is_that_of_the_formula() -> TestResult {
    let sharpness = 6.0_f64;
    let uniform_cosines = (1.0 - (-2.0 * sharpness).exp()) / (2.0 * sharpness);
    assert!((expected_noise(sharpness, 3) - uniform_cosines).abs() < 1e-6);
    let two_directions = (1.0 + (-2.0 * sharpness).exp()) / 2.0;
    assert!((expected_noise(sharpness, 1) - two_directions).abs() < 1e-12);
    let (count, width) = (600, 16);
    let counter = Counter::new(7);
    let keys: Vec<Vec<f64>> = (0..count as u64)
        .map(|key| {
            let parts: Vec<f64> =
                (0..width).map(|at| counter.normal_at(key * width + at)).collect();
            let length = parts.iter().map(|part| part * part).sum::<f64>().sqrt();
            parts.into_iter().map(|part| part / length).collect()
        })
        .collect();
    let found = lookup(&keys, &vec![0.0; count], sharpness)?;
    let mean = found.noise.iter().sum::<f64>() / count as f64 / (count - 1) as f64;
    let expected = expected_noise(sharpness, width as usize);
    assert!((mean / expected - 1.0).abs() < 0.03, "{mean} and {expected}");
    Ok(())
}

/// Checks that each study in the list has a table whose rows are as wide as its headings, and
/// figures that can be drawn.
#[test]
fn studies_have_tables() -> TestResult {
    for study in STUDIES {
        let findings = (study.run)()?;
        assert!(!findings.rows.is_empty(), "{}", study.name);
        for row in &findings.rows {
            assert_eq!(row.len(), findings.columns.len(), "{}", study.name);
        }
        for (_, figure) in findings.figures {
            figure.draw()?;
        }
    }
    Ok(())
}

/// Checks that the norms of an assembled model are exactly the identity, for large and small
/// values.
#[test]
fn norms_beside_the_anchor_are_identities() -> TestResult {
    use taper_theory::blueprint::{Blueprint, Layer, Unit};
    let mut blueprint = Blueprint::new(1, 0);
    let columns = blueprint.columns(40);
    let values = uniform(40, 5);
    for (at, (column, value)) in columns.iter().zip(&values).enumerate() {
        blueprint.token(0, *column, value * 10_f64.powi(at as i32 % 12 - 6));
    }
    let copy = blueprint.column();
    blueprint.layer(Layer::of_units(Unit::linear(columns[3], copy, 1.0)));
    let decoder = blueprint.decoder()?;
    let states = &decoder.states(&[0])?[0];
    for (at, (column, value)) in columns.iter().zip(&values).enumerate() {
        let value = (value * 10_f64.powi(at as i32 % 12 - 6)) as f32;
        assert_eq!(states[column.number()].to_bits(), value.to_bits(), "{at}");
    }
    assert_eq!(states[copy.number()].to_bits(), states[columns[3].number()].to_bits());
    assert_eq!(decoder.0.config().d_model, 64);
    Ok(())
}
