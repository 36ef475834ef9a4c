//! Universal approximation of functions of sets (Yun et al. 2020, "Are Transformers universal
//! approximators of sequence-to-sequence functions?", theorem 2), for three tokens of two numbers.
//!
//! 1. Feed-forward units quantise each number to a grid of G cells: a token is in one of G² cells.
//! 2. Each cell has a code number, and a head without scores averages the codes of the tokens'
//!    cells. The codes are chosen so that the sums of any three are all different. So the mean
//!    determines the three cells of the tokens: a contextual mapping. (Yun et al. shift selected
//!    cells by hard attention instead, one layer for each cell.)
//! 3. A lookup table has a unit for each set of three cells and each cell in the set. The unit adds
//!    the function's value for this cell, at the centres of the three cells.

use super::{Findings, Study, heads};
use crate::TheoryError;
use crate::blueprint::{Blueprint, Column, Form, Head, Layer, Unit};
use std::collections::BTreeMap;
use taper_model::{Pass, Sequences};
use taper_ops::rng::{Counter, mix};
use taper_plots::{Axis, Chart, Figure, Series};

pub(super) const STUDY: Study = Study {
    name: "universal-approximation",
    claim: "Quantiser, contextual mapping and lookup: the error falls as the width of the grid",
    run,
};

/// A token of two numbers from 0 to 1.
pub type Point = [f64; 2];

/// A function of three tokens. The first argument is one of the tokens, for which it returns the
/// value; the second argument has all three tokens.
pub type SetFunction = fn(Point, &[Point; 3]) -> Point;

/// Largest number of cells on a side of a grid.
const FINEST: usize = 4;
/// Share of a cell's width in which the quantiser rises from one cell to the next.
const EDGE: f64 = 1.0 / 4096.0;

/// Returns numbers such that the sums of any three of them, with repetitions, are all different.
/// The search is greedy: it goes through the numbers from 0 on, and takes each number that keeps
/// the sums different.
fn distinct_sums(count: usize) -> Vec<u64> {
    let mut chosen: Vec<u64> = Vec::new();
    let mut sums: std::collections::BTreeSet<u64> = std::collections::BTreeSet::new();
    let mut next = 0;
    while chosen.len() < count {
        let with = |list: &[u64]| {
            let mut new = vec![3 * next];
            for (at, left) in list.iter().enumerate() {
                new.push(2 * next + left);
                new.extend(list[at..].iter().map(|right| next + left + right));
            }
            new
        };
        let new = with(&chosen);
        let unique: std::collections::BTreeSet<u64> = new.iter().copied().collect();
        if unique.len() == new.len() && unique.is_disjoint(&sums) {
            sums.extend(unique);
            chosen.push(next);
        }
        next += 1;
    }
    chosen
}

/// Approximates `function` at each token of `triples`, by a model whose grid has `grid` cells on a
/// side.
///
/// # Errors
/// If the grid has no cells, or more than 4 on a side.
pub fn approximate(
    function: SetFunction,
    grid: usize,
    triples: &[[Point; 3]],
) -> Result<Vec<[Point; 3]>, TheoryError> {
    if grid == 0 || grid > FINEST {
        let message = format!("a grid has 1 to {FINEST} cells a side, and not {grid}");
        return Err(TheoryError::Input(message));
    }
    // Tokens are read as embeddings: the vocabulary has a token for each point.
    let mut blueprint = Blueprint::new(3 * triples.len(), 0);
    let (numbers, result) = (blueprint.columns(2), blueprint.columns(2));
    for (id, point) in triples.iter().flatten().enumerate() {
        blueprint.token(id, numbers[0], point[0]);
        blueprint.token(id, numbers[1], point[1]);
    }
    layers(&mut blueprint, function, grid, (&numbers, &result));
    let ids: Vec<u32> = (0..3 * triples.len() as u32).collect();
    let texts = Sequences::pack(&ids.chunks(3).collect::<Vec<_>>());
    let states = blueprint.encoder()?.hidden(&texts, &Pass::evaluate())?.to_vec2::<f32>()?;
    let value = |row: &Vec<f32>| [0, 1].map(|part| f64::from(row[result[part].number()]));
    let values: Vec<Point> = states.iter().map(value).collect();
    Ok(values.chunks(3).map(|three| [three[0], three[1], three[2]]).collect())
}

fn layers(
    blueprint: &mut Blueprint,
    function: SetFunction,
    grid: usize,
    (numbers, result): (&[Column], &[Column]),
) {
    let cells = grid * grid;
    let centre = |cell: usize| [cell / grid, cell % grid].map(|at| (at as f64 + 0.5) / grid as f64);
    // 1. The number of the cell, and a column for each cell.
    let cell = blueprint.column();
    let hot = blueprint.columns(cells);
    let mut units = Vec::new();
    for (number, weight) in numbers.iter().zip([grid as f64, 1.0]) {
        for border in 1..grid {
            let (at, edge) = (border as f64 / grid as f64, EDGE / grid as f64 / 2.0);
            units.extend(Unit::rise(&(*number).into(), (at - edge, at + edge), &[(cell, weight)]));
        }
    }
    blueprint.layer(Layer::of_units(units));
    blueprint.layer(Layer::of_units(indicators(&cell.into(), 0..cells as u64, &hot)));
    // 2. The sum that determines the three cells, and a column for each set of three cells.
    let codes = distinct_sums(cells);
    let mut sets = BTreeMap::new();
    for first in 0..cells {
        for second in first..cells {
            for third in second..cells {
                let sum = codes[first] + codes[second] + codes[third];
                sets.insert(sum, [first, second, third]);
            }
        }
    }
    let mean = blueprint.column();
    let is_set = blueprint.columns(sets.len());
    let code = Form::sum(hot.iter().zip(&codes).map(|(column, code)| (*column, *code as f64)));
    let heads = vec![Head::default().value(code, mean)];
    let units = indicators(&(mean * 3.0), sets.keys().copied(), &is_set);
    blueprint.layer(Layer { heads, units });
    // 3. The lookup.
    let mut units = Vec::new();
    for (set, is_set) in sets.values().zip(&is_set) {
        let points = set.map(centre);
        let mut own = set.to_vec();
        own.dedup();
        for cell in own {
            let value = function(centre(cell), &points);
            // The form is 1 if the columns of the cell and of the set are both 1, and negative
            // otherwise.
            let both: Form = (hot[cell] + *is_set) * 2.0 - 3.0;
            let unit = Unit::relu(both);
            units.push(unit.adds(result[0], value[0]).adds(result[1], value[1]));
        }
    }
    blueprint.layer(Layer::of_units(units));
}

/// Makes the units that set a column to 1 if `form` equals the column's number, and to 0 if it
/// equals the number of another column. `numbers` has the numbers of `columns`, ascending.
fn indicators(
    form: &Form,
    numbers: impl Iterator<Item = u64> + Clone,
    columns: &[Column],
) -> Vec<Unit> {
    let mut units = vec![Unit::relu(1.0).adds(columns[0], 1.0)];
    let pairs = numbers.clone().zip(numbers.skip(1)).zip(columns.iter().zip(&columns[1..]));
    for ((low, high), (before, after)) in pairs {
        let (low, gap) = (low as f64, (high - low) as f64);
        let between = (low + 0.25 * gap, low + 0.75 * gap);
        units.extend(Unit::rise(form, between, &[(*after, 1.0), (*before, -1.0)]));
    }
    units
}

/// Function that the study approximates. It depends on the token `own`, and on all three tokens,
/// whose order does not matter.
fn example(own: Point, all: &[Point; 3]) -> Point {
    let mean = |part: usize| all.iter().map(|point| point[part]).sum::<f64>() / 3.0;
    [own[0] * mean(1), (own[1] + 2.0 * mean(0)).cos()]
}

fn run() -> Result<Findings, TheoryError> {
    let counter = Counter::new(mix(3, &[]));
    let number = |at: usize| f64::from(counter.f32_at(at as u64));
    let point = |at: usize| [number(2 * at), number(2 * at + 1)];
    let triples: Vec<[Point; 3]> =
        (0..400).map(|at| [0, 1, 2].map(|token| point(3 * at + token))).collect();
    let (mut rows, mut points) = (Vec::new(), Vec::new());
    for grid in 1..=FINEST {
        let found = approximate(example, grid, &triples)?;
        let mut squares = 0.0;
        for (triple, values) in triples.iter().zip(&found) {
            for (own, value) in triple.iter().zip(values) {
                let right = example(*own, triple);
                squares += (right[0] - value[0]).powi(2) + (right[1] - value[1]).powi(2);
            }
        }
        let error = (squares / (6 * triples.len()) as f64).sqrt();
        points.push((grid as f64, error));
        let first = points[0].1;
        let sets = (grid * grid) * (grid * grid + 1) * (grid * grid + 2) / 6;
        rows.push(vec![
            grid.to_string(),
            sets.to_string(),
            format!("{error:.4}"),
            format!("{:.2}", first / error),
        ]);
    }
    let expected = points.iter().map(|(grid, _)| (*grid, points[0].1 / grid)).collect();
    let series = vec![Series::dots("measured", points), Series::dashes("1/G", expected)];
    let chart = Chart::new(Axis::log("cells a side, G"), Axis::log("error"), series);
    let title = "Approximation of a function of three tokens";
    let description = "The root mean square error falls as one over the number of cells a side.";
    let figure = Figure::new(title, description, chart);
    Ok(Findings {
        columns: heads(&["G", "sets of cells", "error", "of one cell's"]),
        rows,
        figures: vec![("universal-approximation".to_owned(), figure)],
    })
}
