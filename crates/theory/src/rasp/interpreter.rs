//! Direct interpretation of RASP programs, without a model: values are sequences and selection
//! matrices.

use super::parser::{Comparison, Expression, ExpressionKind, Program};
use crate::{Place, TheoryError};

/// Longest input.
const LONGEST: usize = 4096;

/// A value at one position of a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Item {
    Number(i64),
    Character(char),
    Truth(bool),
}

impl Item {
    fn shown(self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Character(character) => character.to_string(),
            Self::Truth(truth) => truth.to_string(),
        }
    }
}

/// A value of an expression.
#[derive(Debug, Clone)]
enum Value {
    Sequence(Vec<Item>),
    /// For each query, a row with true for each selected key.
    Selector(Vec<Vec<bool>>),
}

impl Program {
    /// Interprets the program on an input; returns a result for each character.
    ///
    /// # Errors
    /// If an expression has arguments of the wrong kinds, or aggregates different values at one
    /// position; the error has the line and column of the expression. If the input has characters
    /// outside of the alphabet, or is too long.
    pub fn interpret(&self, input: &str) -> Result<Vec<String>, TheoryError> {
        self.check(input)?;
        let tokens: Vec<char> = input.chars().collect();
        if tokens.len() > LONGEST {
            let message = format!("an input has at most {LONGEST} characters");
            return Err(TheoryError::Input(message));
        }
        let mut interpreter = Interpreter { tokens, defined: Vec::new() };
        for definition in &self.definitions {
            let value = interpreter.value(definition)?;
            interpreter.defined.push(value);
        }
        match (interpreter.defined.pop(), self.definitions.last()) {
            (Some(Value::Sequence(items)), _) => Ok(items.into_iter().map(Item::shown).collect()),
            (_, Some(last)) => {
                Err(TheoryError::program(last.place, "the result is a selector, and not a value"))
            }
            _ => Ok(Vec::new()),
        }
    }
}

struct Interpreter {
    tokens: Vec<char>,
    /// Values of the definitions so far.
    defined: Vec<Value>,
}

/// Makes the error of an expression whose arguments have the wrong kinds. `place` is its line and
/// column in the program.
fn unsuitable(place: Place, expected: &str) -> TheoryError {
    TheoryError::program(place, format!("expected {expected}"))
}

/// Returns whether a comparison of two items holds; `None` if the items have different kinds.
fn holds(comparison: Comparison, left: &Item, right: &Item) -> Option<bool> {
    match (left, right) {
        (Item::Number(left), Item::Number(right)) => Some(comparison.holds(left, right)),
        (Item::Character(left), Item::Character(right)) => Some(comparison.holds(left, right)),
        (Item::Truth(left), Item::Truth(right)) => Some(comparison.holds(left, right)),
        _ => None,
    }
}

impl Interpreter {
    fn value(&self, expression: &Expression) -> Result<Value, TheoryError> {
        let place = expression.place;
        let everywhere = |item| Value::Sequence(vec![item; self.tokens.len()]);
        let count = self.tokens.len() as i64;
        Ok(match &expression.kind {
            ExpressionKind::Tokens => {
                Value::Sequence(self.tokens.iter().map(|one| Item::Character(*one)).collect())
            }
            ExpressionKind::Indices => Value::Sequence((0..count).map(Item::Number).collect()),
            ExpressionKind::Length => everywhere(Item::Number(count)),
            ExpressionKind::Number(number) => everywhere(Item::Number(*number)),
            ExpressionKind::Character(character) => everywhere(Item::Character(*character)),
            ExpressionKind::Truth(truth) => everywhere(Item::Truth(*truth)),
            ExpressionKind::Defined(number) => self.defined[*number].clone(),
            ExpressionKind::Add(parts) => self.numbers(parts, place, i64::checked_add)?,
            ExpressionKind::Subtract(parts) => self.numbers(parts, place, i64::checked_sub)?,
            ExpressionKind::Compare(comparison, parts) => {
                let pairs = self.pairs(parts)?;
                let compared = pairs.iter().map(|(left, right)| {
                    let holds = holds(*comparison, left, right).map(Item::Truth);
                    holds.ok_or_else(|| unsuitable(place, "values of one kind to compare"))
                });
                Value::Sequence(compared.collect::<Result<_, _>>()?)
            }
            ExpressionKind::And(parts) => {
                self.combined(parts, place, |left, right| left && right)?
            }
            ExpressionKind::Or(parts) => {
                self.combined(parts, place, |left, right| left || right)?
            }
            ExpressionKind::Not(inner) => match self.value(inner)? {
                Value::Sequence(items) => {
                    let opposite = |item| match item {
                        Item::Truth(truth) => Ok(Item::Truth(!truth)),
                        _ => Err(unsuitable(place, "true or false after not")),
                    };
                    Value::Sequence(items.into_iter().map(opposite).collect::<Result<_, _>>()?)
                }
                Value::Selector(mut rows) => {
                    rows.iter_mut().flatten().for_each(|selected| *selected = !*selected);
                    Value::Selector(rows)
                }
            },
            ExpressionKind::Choose(parts) => self.choose(parts, place)?,
            ExpressionKind::Select(comparison, parts) => self.select(*comparison, parts, place)?,
            ExpressionKind::Width(selector) => {
                let rows = self.selector(selector)?;
                let width = |row: Vec<bool>| row.into_iter().filter(|selected| *selected).count();
                let items = rows.into_iter().map(|row| Item::Number(width(row) as i64));
                Value::Sequence(items.collect())
            }
            ExpressionKind::Aggregate(parts, default) => {
                self.aggregate(parts, default.as_deref(), place)?
            }
        })
    }

    fn choose(&self, parts: &[Expression; 3], place: Place) -> Result<Value, TheoryError> {
        let [condition, yes, no] = parts;
        let condition = self.sequence(condition)?;
        let values = self.sequence(yes)?.into_iter().zip(self.sequence(no)?);
        let chosen = condition.into_iter().zip(values).map(|(truth, (yes, no))| {
            let alike = std::mem::discriminant(&yes) == std::mem::discriminant(&no);
            match truth {
                Item::Truth(truth) if alike => Ok(if truth { yes } else { no }),
                _ => Err(unsuitable(place, "a condition, and two values of one kind")),
            }
        });
        Ok(Value::Sequence(chosen.collect::<Result<_, _>>()?))
    }

    fn select(
        &self,
        comparison: Comparison,
        parts: &[Expression; 2],
        place: Place,
    ) -> Result<Value, TheoryError> {
        let [keys, queries] = parts;
        let (keys, queries) = (self.sequence(keys)?, self.sequence(queries)?);
        let row = |query: &Item| {
            let selected = keys.iter().map(|key| {
                holds(comparison, key, query)
                    .ok_or_else(|| unsuitable(place, "keys and queries of one kind"))
            });
            selected.collect()
        };
        Ok(Value::Selector(queries.iter().map(row).collect::<Result<_, _>>()?))
    }

    fn aggregate(
        &self,
        parts: &[Expression; 2],
        default: Option<&Expression>,
        place: Place,
    ) -> Result<Value, TheoryError> {
        let [selector, values] = parts;
        let (rows, values) = (self.selector(selector)?, self.sequence(values)?);
        let default = default.map(|default| self.sequence(default)).transpose()?;
        let aggregated = rows.iter().enumerate().map(|(at, row)| {
            let selected = row.iter().zip(&values).filter(|(selected, _)| **selected);
            let default = default.as_ref().map(|default| &default[at]);
            one_of(selected.map(|(_, value)| value), default, place, at)
        });
        Ok(Value::Sequence(aggregated.collect::<Result<_, _>>()?))
    }

    fn sequence(&self, expression: &Expression) -> Result<Vec<Item>, TheoryError> {
        match self.value(expression)? {
            Value::Sequence(items) => Ok(items),
            Value::Selector(_) => Err(unsuitable(expression.place, "a value, and no selector")),
        }
    }

    fn selector(&self, expression: &Expression) -> Result<Vec<Vec<bool>>, TheoryError> {
        match self.value(expression)? {
            Value::Selector(rows) => Ok(rows),
            Value::Sequence(_) => Err(unsuitable(expression.place, "a selector, and no value")),
        }
    }

    fn pairs(&self, parts: &[Expression; 2]) -> Result<Vec<(Item, Item)>, TheoryError> {
        let [left, right] = parts;
        Ok(self.sequence(left)?.into_iter().zip(self.sequence(right)?).collect())
    }

    fn numbers(
        &self,
        parts: &[Expression; 2],
        place: Place,
        compute: fn(i64, i64) -> Option<i64>,
    ) -> Result<Value, TheoryError> {
        let computed = self.pairs(parts)?.into_iter().map(|pair| match pair {
            (Item::Number(left), Item::Number(right)) => compute(left, right)
                .map(Item::Number)
                .ok_or_else(|| unsuitable(place, "smaller numbers: these overflow")),
            _ => Err(unsuitable(place, "numbers")),
        });
        Ok(Value::Sequence(computed.collect::<Result<_, _>>()?))
    }

    fn combined(
        &self,
        parts: &[Expression; 2],
        place: Place,
        combine: fn(bool, bool) -> bool,
    ) -> Result<Value, TheoryError> {
        let [left, right] = parts;
        match (self.value(left)?, self.value(right)?) {
            (Value::Sequence(left), Value::Sequence(right)) => {
                let combined = left.into_iter().zip(right).map(|pair| match pair {
                    (Item::Truth(left), Item::Truth(right)) => {
                        Ok(Item::Truth(combine(left, right)))
                    }
                    _ => Err(unsuitable(place, "true or false on both sides")),
                });
                Ok(Value::Sequence(combined.collect::<Result<_, _>>()?))
            }
            (Value::Selector(mut left), Value::Selector(right)) => {
                let cells = left.iter_mut().flatten().zip(right.into_iter().flatten());
                cells.for_each(|(left, right)| *left = combine(*left, right));
                Ok(Value::Selector(left))
            }
            _ => Err(unsuitable(place, "two values or two selectors")),
        }
    }
}

/// Returns the value that all selected positions have, or the default if no position is selected.
/// `place` is the line and column of the expression in the program, and `at` the position in the
/// sequence for which the value is computed.
fn one_of<'a>(
    mut selected: impl Iterator<Item = &'a Item>,
    default: Option<&Item>,
    place: Place,
    at: usize,
) -> Result<Item, TheoryError> {
    let Some(first) = selected.next() else {
        return default.copied().ok_or_else(|| {
            let message = format!(
                "nothing is selected at place {at}: give aggregate a third argument, the value \
                 for this case"
            );
            TheoryError::program(place, message)
        });
    };
    match selected.find(|other| *other != first) {
        Some(other) => {
            let (first, other) = (first.shown(), other.shown());
            let message = format!("both {first} and {other} are selected at place {at}");
            Err(TheoryError::program(place, message))
        }
        None => Ok(*first),
    }
}
