//! RASP programs as graphs. Each node is a value that is computed at every position, and has a
//! finite domain. The kinds of the values (characters, numbers and truth values) are checked.

use super::domains::{Domain, ValueKind, are_distinct, digits, reach};
use super::parser::{Comparison, Expression, ExpressionKind, Program};
use super::selectors::{MOST_TERMS, Relation, Selector, Term};
use crate::{Place, TheoryError};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Largest number of values of a domain.
const MOST_VALUES: usize = 1024;
/// Largest number of combinations of values of the arguments of an operation.
const MOST_COMBINATIONS: usize = 1 << 16;

/// A value that is computed at every position of the input.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) domain: Domain,
    pub(super) source: Source,
}

/// Computation of a value.
#[derive(Debug)]
pub(super) enum Source {
    Tokens,
    Indices,
    Constant,
    /// Number of keys that the terms select.
    Width(Vec<Term>),
    /// The value of the selected keys, read from the node `values`; all selected keys must have the
    /// same value. It is `default` if no key is selected.
    Aggregate {
        terms: Vec<Term>,
        values: usize,
        default: Option<i64>,
    },
    /// A function of a sum of arguments, each a node and a factor. `table` has pairs of a sum and
    /// the function's value, by ascending sum.
    Map {
        arguments: Vec<(usize, i64)>,
        table: Vec<(i64, i64)>,
    },
}

/// A program as nodes. A node reads only nodes before it.
#[derive(Debug)]
pub(super) struct Graph {
    pub(super) nodes: Vec<Node>,
    /// Index of the node of the result.
    pub(super) output: usize,
}

/// Value of an expression: the index of a node, or a selector.
#[derive(Debug, Clone)]
enum Lowered {
    Value(usize),
    Selector(Selector),
}

impl Graph {
    /// Makes the graph of a program for inputs of at most `longest` characters.
    ///
    /// # Errors
    /// If an expression has arguments of the wrong kinds, too many possible values, or numbers that
    /// the encoder could not tell apart; the error has the line and column of the expression.
    pub(super) fn new(program: &Program, longest: usize) -> Result<Self, TheoryError> {
        let characters = Domain::new(ValueKind::Character, 0..program.alphabet().len() as i64);
        let places = Domain::new(ValueKind::Number, 0..longest as i64);
        let mut lowering = Lowering {
            program,
            longest,
            nodes: vec![
                Node { domain: characters, source: Source::Tokens },
                Node { domain: places, source: Source::Indices },
            ],
            length: None,
            defined: Vec::new(),
        };
        for definition in &program.definitions {
            let lowered = lowering.lower(definition)?;
            lowering.defined.push(lowered);
        }
        match (lowering.defined.pop(), program.definitions.last()) {
            (Some(Lowered::Value(output)), _) => Ok(Self { nodes: lowering.nodes, output }),
            (_, last) => {
                let place = last.map_or(Place { line: 1, column: 1 }, |last| last.place);
                let message = "the result is a selector, and not a value";
                Err(TheoryError::program(place, message))
            }
        }
    }
}

struct Lowering<'a> {
    program: &'a Program,
    longest: usize,
    nodes: Vec<Node>,
    /// Index of the node of the input's length; `None` until the length is used.
    length: Option<usize>,
    defined: Vec<Lowered>,
}

fn refuse<T>(place: Place, message: impl Into<String>) -> Result<T, TheoryError> {
    Err(TheoryError::program(place, message))
}

impl Lowering<'_> {
    fn add(&mut self, place: Place, domain: Domain, source: Source) -> Result<usize, TheoryError> {
        if domain.values.len() > MOST_VALUES {
            let count = domain.values.len();
            return refuse(
                place,
                format!(
                    "this has {count} possible values, and at most {MOST_VALUES} are compiled: \
                     choose a smaller length"
                ),
            );
        }
        self.nodes.push(Node { domain, source });
        Ok(self.nodes.len() - 1)
    }

    fn constant(
        &mut self,
        place: Place,
        kind: ValueKind,
        value: i64,
    ) -> Result<usize, TheoryError> {
        self.add(place, Domain::new(kind, [value]), Source::Constant)
    }

    fn kind(&self, node: usize) -> ValueKind {
        self.nodes[node].domain.kind
    }

    fn lower(&mut self, expression: &Expression) -> Result<Lowered, TheoryError> {
        let place = expression.place;
        let node = match &expression.kind {
            ExpressionKind::Tokens => 0,
            ExpressionKind::Indices => 1,
            ExpressionKind::Length => self.length(place)?,
            ExpressionKind::Number(number) => self.constant(place, ValueKind::Number, *number)?,
            ExpressionKind::Truth(truth) => {
                self.constant(place, ValueKind::Truth, (*truth).into())?
            }
            ExpressionKind::Character(character) => {
                match self.program.alphabet().binary_search(character) {
                    Ok(number) => self.constant(place, ValueKind::Character, number as i64)?,
                    Err(_) => return refuse(place, "the alphabet does not have this character"),
                }
            }
            ExpressionKind::Defined(number) => return Ok(self.defined[*number].clone()),
            ExpressionKind::Add(parts) => self.sum(parts, place, 1)?,
            ExpressionKind::Subtract(parts) => self.sum(parts, place, -1)?,
            ExpressionKind::Compare(comparison, parts) => {
                let arguments = self.alike(parts, place)?;
                let compare =
                    |values: &[i64]| Some(comparison.holds(&values[0], &values[1]).into());
                self.map(place, &arguments, Some(&[1, -1]), ValueKind::Truth, compare)?
            }
            ExpressionKind::And(parts) => {
                let combine = |values: &[i64]| Some(values[0] & values[1]);
                return self.combined(parts, place, Selector::and, combine);
            }
            ExpressionKind::Or(parts) => {
                let combine = |values: &[i64]| Some(values[0] | values[1]);
                return self.combined(parts, place, Selector::or, combine);
            }
            ExpressionKind::Not(inner) => match self.lower(inner)? {
                Lowered::Selector(selector) => return Ok(Lowered::Selector(selector.not())),
                Lowered::Value(node) if self.kind(node) == ValueKind::Truth => {
                    let opposite = |values: &[i64]| Some(1 - values[0]);
                    self.map(place, &[node], Some(&[1]), ValueKind::Truth, opposite)?
                }
                Lowered::Value(_) => return refuse(place, "expected true or false after not"),
            },
            ExpressionKind::Choose(parts) => {
                let [condition, yes, no] = &**parts;
                let condition = self.value(condition)?;
                let (yes, no) = (self.value(yes)?, self.value(no)?);
                let kind = self.kind(yes);
                if self.kind(condition) != ValueKind::Truth || self.kind(no) != kind {
                    return refuse(place, "expected a condition, and two values of one kind");
                }
                let choose =
                    |values: &[i64]| Some(if values[0] != 0 { values[1] } else { values[2] });
                self.map(place, &[condition, yes, no], None, kind, choose)?
            }
            ExpressionKind::Select(comparison, parts) => {
                let relation = self.relation(*comparison, parts, place)?;
                return Ok(Lowered::Selector(Selector::Relation(relation)));
            }
            ExpressionKind::Width(selector) => {
                let terms = self.terms(selector)?;
                let widths = Domain::new(ValueKind::Number, 0..=self.longest as i64);
                self.add(place, widths, Source::Width(terms))?
            }
            ExpressionKind::Aggregate(parts, default) => {
                self.aggregate(parts, default.as_deref(), place)?
            }
        };
        Ok(Lowered::Value(node))
    }

    fn value(&mut self, expression: &Expression) -> Result<usize, TheoryError> {
        match self.lower(expression)? {
            Lowered::Value(node) => Ok(node),
            Lowered::Selector(_) => refuse(expression.place, "expected a value, and no selector"),
        }
    }

    fn terms(&mut self, expression: &Expression) -> Result<Vec<Term>, TheoryError> {
        match self.lower(expression)? {
            Lowered::Selector(selector) => selector.terms().map_or_else(
                || {
                    let message = format!("the selector needs more than {MOST_TERMS} heads");
                    refuse(expression.place, message)
                },
                Ok,
            ),
            Lowered::Value(_) => refuse(expression.place, "expected a selector, and no value"),
        }
    }

    /// Returns the node of the input's length: the number of keys that a selector of all keys
    /// selects.
    fn length(&mut self, place: Place) -> Result<usize, TheoryError> {
        if let Some(length) = self.length {
            return Ok(length);
        }
        let suits =
            vec![vec![true; self.nodes[0].domain.values.len()]; self.nodes[0].domain.values.len()];
        let all = vec![vec![Relation { between: (0, 0), suits: Rc::new(suits) }]];
        let widths = Domain::new(ValueKind::Number, 0..=self.longest as i64);
        let length = self.add(place, widths, Source::Width(all))?;
        self.length = Some(length);
        Ok(length)
    }

    fn sum(
        &mut self,
        parts: &[Expression; 2],
        place: Place,
        sign: i64,
    ) -> Result<usize, TheoryError> {
        let arguments = self.alike(parts, place)?;
        if self.kind(arguments[0]) != ValueKind::Number {
            return refuse(place, "expected numbers");
        }
        let add = |values: &[i64]| values[0].checked_add(values[1].checked_mul(sign)?);
        self.map(place, &arguments, Some(&[1, sign]), ValueKind::Number, add)
    }

    /// Translates two expressions to nodes; they must be values of one kind.
    fn alike(&mut self, parts: &[Expression; 2], place: Place) -> Result<[usize; 2], TheoryError> {
        let [left, right] = parts;
        let arguments = [self.value(left)?, self.value(right)?];
        if self.kind(arguments[0]) != self.kind(arguments[1]) {
            return refuse(place, "expected values of one kind");
        }
        Ok(arguments)
    }

    fn combined(
        &mut self,
        parts: &[Expression; 2],
        place: Place,
        selectors: fn(Selector, Selector) -> Selector,
        values: impl Fn(&[i64]) -> Option<i64>,
    ) -> Result<Lowered, TheoryError> {
        let [left, right] = parts;
        match (self.lower(left)?, self.lower(right)?) {
            (Lowered::Selector(left), Lowered::Selector(right)) => {
                Ok(Lowered::Selector(selectors(left, right)))
            }
            (Lowered::Value(left), Lowered::Value(right))
                if self.kind(left) == ValueKind::Truth && self.kind(right) == ValueKind::Truth =>
            {
                let arguments = [left, right];
                let node = self.map(place, &arguments, Some(&[1, 1]), ValueKind::Truth, values)?;
                Ok(Lowered::Value(node))
            }
            _ => refuse(place, "expected true or false on both sides, or two selectors"),
        }
    }

    fn relation(
        &mut self,
        comparison: Comparison,
        parts: &[Expression; 2],
        place: Place,
    ) -> Result<Relation, TheoryError> {
        let [keys, queries] = self.alike(parts, place)?;
        let (of_keys, of_queries) = (&self.nodes[keys].domain, &self.nodes[queries].domain);
        let row = |key: &i64| {
            of_queries.values.iter().map(|query| comparison.holds(key, query)).collect()
        };
        let suits = Rc::new(of_keys.values.iter().map(row).collect());
        Ok(Relation { between: (keys, queries), suits })
    }

    fn aggregate(
        &mut self,
        parts: &[Expression; 2],
        default: Option<&Expression>,
        place: Place,
    ) -> Result<usize, TheoryError> {
        let [selector, values] = parts;
        let (terms, values) = (self.terms(selector)?, self.value(values)?);
        let kind = self.kind(values);
        let default = match default {
            None => None,
            Some(expression) => {
                let node = self.value(expression)?;
                match self.nodes[node].domain.values.as_slice() {
                    [value] if self.kind(node) == kind => Some(*value),
                    _ => return refuse(expression.place, "expected a constant of the same kind"),
                }
            }
        };
        let all = self.nodes[values].domain.values.iter().copied().chain(default);
        let domain = Domain::new(kind, all);
        self.add(place, domain, Source::Aggregate { terms, values, default })
    }

    /// Adds a node that is the function `compute` of the values of `arguments`. The node reads only
    /// the sum of the arguments, each multiplied by its factor, so `compute` must depend on nothing
    /// else. If `factors` is `None`, the factors are chosen so that the sum determines all
    /// arguments. `compute` returns `None` if a number overflows.
    fn map(
        &mut self,
        place: Place,
        arguments: &[usize],
        factors: Option<&[i64]>,
        kind: ValueKind,
        compute: impl Fn(&[i64]) -> Option<i64>,
    ) -> Result<usize, TheoryError> {
        let compute = |values: &[i64]| match compute(values) {
            Some(value) => Ok(value),
            None => refuse(place, "expected smaller numbers: these overflow"),
        };
        let domains: Vec<&Domain> =
            arguments.iter().map(|node| &self.nodes[*node].domain).collect();
        let count = domains
            .iter()
            .fold(1, |count: usize, domain| count.saturating_mul(domain.values.len()));
        if count > MOST_COMBINATIONS {
            return refuse(
                place,
                format!(
                    "the arguments have {count} combinations, and at most {MOST_COMBINATIONS} are \
                     compiled: choose a smaller length"
                ),
            );
        }
        if count == 1 {
            let values: Vec<i64> = domains.iter().map(|domain| domain.values[0]).collect();
            return self.constant(place, kind, compute(&values)?);
        }
        let factors = match factors {
            Some(factors) => Some(factors.to_vec()),
            None => digits(&domains),
        };
        let inexact = "expected smaller numbers: the encoder computes in f32, which cannot tell \
                       these apart";
        let reached = factors.and_then(|factors| Some((reach(&domains, &factors)?, factors)));
        let Some((reach, factors)) = reached else { return refuse(place, inexact) };
        let mut table = BTreeMap::new();
        let mut values = vec![0; domains.len()];
        for number in 0..count {
            let mut rest = number;
            for (value, domain) in values.iter_mut().zip(&domains) {
                *value = domain.values[rest % domain.values.len()];
                rest /= domain.values.len();
            }
            let sum: i64 = values.iter().zip(&factors).map(|(value, factor)| value * factor).sum();
            table.insert(sum, compute(&values)?);
        }
        if !are_distinct(table.keys().copied(), reach) {
            return refuse(place, inexact);
        }
        let domain = Domain::new(kind, table.values().copied());
        let arguments = arguments.iter().copied().zip(factors).collect();
        self.add(place, domain, Source::Map { arguments, table: table.into_iter().collect() })
    }
}
