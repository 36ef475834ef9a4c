//! Minimisation by L-BFGS (Nocedal and Wright 2006, "Numerical Optimization", algorithms 7.4 and
//! 7.5).
//!
//! **Decision.** The line search finds a step that satisfies the weak Wolfe conditions by bisection
//! (Lewis and Overton 2013, "Nonsmooth optimization via quasi-Newton methods", section 3). The
//! reason is that a Huber loss with a small δ is nearly a sum of absolute values: a search that
//! requires a small derivative along the line at the new point (strong Wolfe conditions) stops at a
//! kink of this sum before it reaches the minimum.

/// Number of previous steps that are kept, each with the change of the gradient along it.
const MEMORY: usize = 20;
/// Largest number of steps of a minimisation.
const STEPS: usize = 3000;
/// Largest number of points at which one line search evaluates the function.
const TRIES: usize = 60;
/// Constant of the first Wolfe condition: a step must reach at least this share of the decrease
/// that the initial derivative along the line predicts.
const DECREASE: f64 = 1e-4;
/// Constant of the second Wolfe condition: the derivative at the new point must be at least this
/// share of the initial derivative, which is negative.
const CURVATURE: f64 = 0.9;
/// The minimisation ends after this many steps in a row that decrease the value by a share of at
/// most [`TOLERANCE`].
const PATIENCE: usize = 6;
const TOLERANCE: f64 = 1e-14;

/// Point of a minimum, and value there.
#[derive(Debug, Clone)]
pub(super) struct Minimum {
    pub(super) at: Vec<f64>,
    pub(super) value: f64,
}

/// Step, change of the gradient along the step, and the reciprocal of the dot product of both.
struct Pair {
    step: Vec<f64>,
    change: Vec<f64>,
    inverse: f64,
}

/// Finds a minimum of `function` near `start`. `function` returns the value at its first argument,
/// and writes the gradient there into the second.
pub(super) fn minimize(function: impl Fn(&[f64], &mut [f64]) -> f64, start: Vec<f64>) -> Minimum {
    let mut at = start;
    let mut gradient = vec![0.0; at.len()];
    let mut value = function(&at, &mut gradient);
    let mut pairs: Vec<Pair> = Vec::new();
    let mut idle = 0;
    for _ in 0..STEPS {
        let direction = direction(&gradient, &pairs);
        let minimum_on_line = search(&function, (&at, value, &gradient), &direction);
        let Some((next, next_value, next_gradient)) = minimum_on_line else {
            // The direction depends on the previous steps, which can be misleading, so they are
            // dropped. If there are none, the direction was the negative gradient, and the
            // minimisation ends.
            if pairs.is_empty() {
                break;
            }
            pairs.clear();
            continue;
        };
        let step = difference(&next, &at);
        let change = difference(&next_gradient, &gradient);
        let product = dot(&step, &change);
        if product > 0.0 {
            pairs.push(Pair { step, change, inverse: 1.0 / product });
            if pairs.len() > MEMORY {
                pairs.remove(0);
            }
        }
        idle = if value - next_value <= TOLERANCE * value.abs() { idle + 1 } else { 0 };
        (at, value, gradient) = (next, next_value, next_gradient);
        if idle >= PATIENCE {
            break;
        }
    }
    Minimum { at, value }
}

/// Quasi-Newton direction of descent (algorithm 7.4), from the gradient and the previous steps.
fn direction(gradient: &[f64], pairs: &[Pair]) -> Vec<f64> {
    let mut direction: Vec<f64> = gradient.iter().map(|slope| -slope).collect();
    let mut shares = Vec::with_capacity(pairs.len());
    for pair in pairs.iter().rev() {
        let share = pair.inverse * dot(&pair.step, &direction);
        add(&mut direction, -share, &pair.change);
        shares.push(share);
    }
    let scale = match pairs.last() {
        Some(last) => 1.0 / (last.inverse * dot(&last.change, &last.change)),
        // Without previous steps, the step has length 0.1.
        None => 0.1 / dot(gradient, gradient).sqrt().max(f64::MIN_POSITIVE),
    };
    for value in &mut direction {
        *value *= scale;
    }
    for (pair, share) in pairs.iter().zip(shares.iter().rev()) {
        let back = pair.inverse * dot(&pair.change, &direction);
        add(&mut direction, share - back, &pair.step);
    }
    direction
}

type Point = (Vec<f64>, f64, Vec<f64>);

/// Point along `direction` that satisfies the weak Wolfe conditions, with value and gradient there;
/// `None` if no such point is found.
fn search(
    function: &impl Fn(&[f64], &mut [f64]) -> f64,
    (at, value, gradient): (&[f64], f64, &[f64]),
    direction: &[f64],
) -> Option<Point> {
    let slope = dot(gradient, direction);
    if slope.is_nan() || slope >= 0.0 {
        return None;
    }
    let (mut low, mut high, mut length) = (0.0, f64::INFINITY, 1.0);
    let (mut next, mut next_gradient) = (at.to_vec(), vec![0.0; at.len()]);
    for _ in 0..TRIES {
        next.copy_from_slice(at);
        add(&mut next, length, direction);
        let next_value = function(&next, &mut next_gradient);
        // The comparison is false for NaN, which is no decrease.
        let decreases = next_value <= value + DECREASE * length * slope;
        if !decreases {
            high = length;
        } else if dot(&next_gradient, direction) < CURVATURE * slope {
            low = length;
        } else {
            return Some((next, next_value, next_gradient));
        }
        length = if high.is_finite() { 0.5 * (low + high) } else { 2.0 * low };
    }
    None
}

fn dot(left: &[f64], right: &[f64]) -> f64 {
    left.iter().zip(right).map(|(l, r)| l * r).sum()
}

fn add(to: &mut [f64], factor: f64, addend: &[f64]) {
    for (to, addend) in to.iter_mut().zip(addend) {
        *to += factor * addend;
    }
}

fn difference(left: &[f64], right: &[f64]) -> Vec<f64> {
    left.iter().zip(right).map(|(l, r)| l - r).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The function of Rosenbrock 1960: a bent valley with the minimum at (1, 1).
    #[test]
    fn a_bent_valley() {
        let valley = |x: &[f64], gradient: &mut [f64]| {
            let (across, along) = (x[1] - x[0] * x[0], 1.0 - x[0]);
            gradient[0] = -400.0 * across * x[0] - 2.0 * along;
            gradient[1] = 200.0 * across;
            100.0 * across * across + along * along
        };
        let minimum = minimize(valley, vec![-1.2, 1.0]);
        assert!(minimum.at.iter().all(|x| (x - 1.0).abs() < 1e-8), "{minimum:?}");
    }

    /// Absolute values have no derivative at their minimum.
    #[test]
    fn a_kink() {
        let kink = |x: &[f64], gradient: &mut [f64]| {
            gradient[0] = (x[0] - 3.0).signum() + 0.5 * (x[0] + x[1]).signum();
            gradient[1] = 0.5 * (x[0] + x[1]).signum();
            (x[0] - 3.0).abs() + 0.5 * (x[0] + x[1]).abs()
        };
        let minimum = minimize(kink, vec![-7.3, 2.9]);
        assert!(minimum.value < 1e-8, "{minimum:?}");
    }
}
