//! Parser of RASP programs: makes a tree for each definition.

use super::lexer::{Lexeme, lexemes};
use crate::{Place, TheoryError};
use std::collections::BTreeMap;

/// Deepest nesting of expressions.
const DEEPEST: usize = 200;

/// A comparison of a left and a right value, or of a key and a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Comparison {
    fn parse(mark: &str) -> Option<Self> {
        Some(match mark {
            "==" => Self::Equal,
            "!=" => Self::Unequal,
            "<" => Self::Less,
            "<=" => Self::LessOrEqual,
            ">" => Self::Greater,
            ">=" => Self::GreaterOrEqual,
            _ => return None,
        })
    }

    /// True if the comparison of `left` with `right` holds.
    pub(super) fn holds<T: Ord>(self, left: &T, right: &T) -> bool {
        match self {
            Self::Equal => left == right,
            Self::Unequal => left != right,
            Self::Less => left < right,
            Self::LessOrEqual => left <= right,
            Self::Greater => left > right,
            Self::GreaterOrEqual => left >= right,
        }
    }
}

/// An expression with its line and column in the program.
#[derive(Debug, Clone)]
pub(super) struct Expression {
    pub(super) place: Place,
    pub(super) kind: ExpressionKind,
}

/// Kind of an expression. A name is stored as the index of the definition that it stands for.
#[derive(Debug, Clone)]
pub(super) enum ExpressionKind {
    Tokens,
    Indices,
    Length,
    Number(i64),
    Character(char),
    Truth(bool),
    /// The value of the definition with this index.
    Defined(usize),
    Add(Box<[Expression; 2]>),
    Subtract(Box<[Expression; 2]>),
    Compare(Comparison, Box<[Expression; 2]>),
    And(Box<[Expression; 2]>),
    Or(Box<[Expression; 2]>),
    Not(Box<Expression>),
    /// Condition, value if the condition holds, value if it does not.
    Choose(Box<[Expression; 3]>),
    /// Comparison, then keys and queries.
    Select(Comparison, Box<[Expression; 2]>),
    Width(Box<Expression>),
    /// Selector and values, then the value if nothing is selected.
    Aggregate(Box<[Expression; 2]>, Option<Box<Expression>>),
}

/// A parsed program.
#[derive(Debug, Clone)]
pub struct Program {
    pub(super) alphabet: Vec<char>,
    pub(super) definitions: Vec<Expression>,
}

impl Program {
    /// Parses a program.
    ///
    /// # Errors
    /// If the text is not a program; the error has the line and column of the first fault.
    pub fn parse(text: &str) -> Result<Self, TheoryError> {
        let lexemes = lexemes(text)?;
        let mut parser = Parser { lexemes: &lexemes, at: 0, names: BTreeMap::new(), depth: 0 };
        parser.program()
    }

    /// Characters that an input can have, sorted.
    #[must_use]
    pub fn alphabet(&self) -> &[char] {
        &self.alphabet
    }

    /// Refuses an input that has characters outside of the alphabet.
    pub(super) fn check(&self, input: &str) -> Result<(), TheoryError> {
        match input.chars().find(|character| !self.alphabet.contains(character)) {
            Some(character) => {
                let alphabet: String = self.alphabet.iter().collect();
                Err(TheoryError::Input(format!(
                    "the input has {character:?}, and the program's alphabet is \"{alphabet}\""
                )))
            }
            None => Ok(()),
        }
    }
}

/// A parser. `at` is the index of the next word.
struct Parser<'a> {
    lexemes: &'a [(Place, Lexeme)],
    at: usize,
    /// Indices of the definitions, by their names.
    names: BTreeMap<String, usize>,
    depth: usize,
}

type Parsed = Result<Expression, TheoryError>;

impl Parser<'_> {
    fn peek(&self) -> &Lexeme {
        self.lexemes.get(self.at).map_or(&Lexeme::End, |(_, lexeme)| lexeme)
    }

    fn place(&self) -> Place {
        let last = self.lexemes.len() - 1;
        self.lexemes[self.at.min(last)].0
    }

    fn refuse<T>(&self, expected: &str) -> Result<T, TheoryError> {
        let message = format!("expected {expected}, found {}", self.peek().shown());
        Err(TheoryError::program(self.place(), message))
    }

    /// Skips the next word if it is `lexeme`. Returns whether it was skipped.
    fn skip(&mut self, lexeme: &Lexeme) -> bool {
        let is = self.peek() == lexeme;
        self.at += usize::from(is);
        is
    }

    fn mark(&mut self, mark: &'static str) -> Result<(), TheoryError> {
        if self.skip(&Lexeme::Mark(mark)) { Ok(()) } else { self.refuse(mark) }
    }

    fn word(&mut self, word: &str) -> bool {
        let is = matches!(self.peek(), Lexeme::Name(name) if name == word);
        self.at += usize::from(is);
        is
    }

    fn program(&mut self) -> Result<Program, TheoryError> {
        let (mut alphabet, mut definitions) = (Vec::new(), Vec::new());
        while self.at < self.lexemes.len() {
            if self.skip(&Lexeme::End) {
                continue;
            }
            if alphabet.is_empty() {
                alphabet = self.alphabet()?;
                continue;
            }
            let name = match (self.peek(), self.lexemes.get(self.at + 1)) {
                (Lexeme::Name(name), Some((_, Lexeme::Mark("=")))) => Some(name.clone()),
                _ => None,
            };
            self.at += if name.is_some() { 2 } else { 0 };
            definitions.push(self.choice()?);
            if !self.skip(&Lexeme::End) {
                return self.refuse("the end of the line");
            }
            if let Some(name) = name {
                self.names.insert(name, definitions.len() - 1);
            }
        }
        if definitions.is_empty() {
            return self.refuse("`alphabet \"…\"` and then an expression");
        }
        Ok(Program { alphabet, definitions })
    }

    fn alphabet(&mut self) -> Result<Vec<char>, TheoryError> {
        if !self.word("alphabet") {
            return self.refuse("`alphabet \"…\"` first, with the characters of inputs");
        }
        let Lexeme::Text(text) = self.peek() else { return self.refuse("a text in \"…\"") };
        let mut characters: Vec<char> = text.chars().collect();
        characters.sort_unstable();
        characters.dedup();
        if characters.is_empty() || characters.iter().any(|one| one.is_whitespace()) {
            return self.refuse("at least one character, and none that is blank");
        }
        self.at += 1;
        Ok(characters)
    }

    /// Parses `x if condition else y`.
    fn choice(&mut self) -> Parsed {
        self.depth += 1;
        if self.depth > DEEPEST {
            return self.refuse(&format!("at most {DEEPEST} nested expressions"));
        }
        let place = self.place();
        let mut parsed = self.either()?;
        if self.word("if") {
            let condition = self.either()?;
            if !self.word("else") {
                return self.refuse("else");
            }
            let kind = ExpressionKind::Choose(Box::new([condition, parsed, self.choice()?]));
            parsed = Expression { place, kind };
        }
        self.depth -= 1;
        Ok(parsed)
    }

    fn either(&mut self) -> Parsed {
        let mut left = self.both()?;
        while matches!(self.peek(), Lexeme::Name(name) if name == "or") {
            let place = self.place();
            self.at += 1;
            left = Expression { place, kind: ExpressionKind::Or(Box::new([left, self.both()?])) };
        }
        Ok(left)
    }

    fn both(&mut self) -> Parsed {
        let mut left = self.negation()?;
        while matches!(self.peek(), Lexeme::Name(name) if name == "and") {
            let place = self.place();
            self.at += 1;
            left =
                Expression { place, kind: ExpressionKind::And(Box::new([left, self.negation()?])) };
        }
        Ok(left)
    }

    fn negation(&mut self) -> Parsed {
        let place = self.place();
        if !self.word("not") {
            return self.comparison();
        }
        self.depth += 1;
        if self.depth > DEEPEST {
            return self.refuse(&format!("at most {DEEPEST} nested expressions"));
        }
        let inner = self.negation()?;
        self.depth -= 1;
        Ok(Expression { place, kind: ExpressionKind::Not(Box::new(inner)) })
    }

    fn comparison(&mut self) -> Parsed {
        let left = self.sum()?;
        let Lexeme::Mark(mark) = self.peek() else { return Ok(left) };
        let Some(comparison) = Comparison::parse(mark) else { return Ok(left) };
        let place = self.place();
        self.at += 1;
        Ok(Expression {
            place,
            kind: ExpressionKind::Compare(comparison, Box::new([left, self.sum()?])),
        })
    }

    fn sum(&mut self) -> Parsed {
        let mut left = self.atom()?;
        loop {
            let make = match self.peek() {
                Lexeme::Mark("+") => ExpressionKind::Add,
                Lexeme::Mark("-") => ExpressionKind::Subtract,
                _ => return Ok(left),
            };
            let place = self.place();
            self.at += 1;
            left = Expression { place, kind: make(Box::new([left, self.atom()?])) };
        }
    }

    fn atom(&mut self) -> Parsed {
        let place = self.place();
        let lexeme = self.peek().clone();
        self.at += 1;
        let kind = match lexeme {
            Lexeme::Number(number) => ExpressionKind::Number(number),
            Lexeme::Character(character) => ExpressionKind::Character(character),
            Lexeme::Mark("-") => {
                let Lexeme::Number(number) = *self.peek() else { return self.refuse("a number") };
                self.at += 1;
                ExpressionKind::Number(-number)
            }
            Lexeme::Mark("(") => {
                let inner = self.choice()?;
                self.mark(")")?;
                return Ok(inner);
            }
            Lexeme::Name(name) => self.named(&name)?,
            _ => {
                self.at -= 1;
                return self.refuse("a value or a selector");
            }
        };
        Ok(Expression { place, kind })
    }

    /// Parses the rest of an expression that begins with `name`; the name is skipped already.
    fn named(&mut self, name: &str) -> Result<ExpressionKind, TheoryError> {
        if let Some(&number) = self.names.get(name) {
            return Ok(ExpressionKind::Defined(number));
        }
        Ok(match name {
            "tokens" => ExpressionKind::Tokens,
            "indices" => ExpressionKind::Indices,
            "length" => ExpressionKind::Length,
            "true" => ExpressionKind::Truth(true),
            "false" => ExpressionKind::Truth(false),
            "select" => {
                self.mark("(")?;
                let keys = self.choice()?;
                self.mark(",")?;
                let queries = self.choice()?;
                self.mark(",")?;
                let comparison = match self.peek() {
                    Lexeme::Mark(mark) => Comparison::parse(mark),
                    _ => None,
                };
                let Some(comparison) = comparison else {
                    return self.refuse("a comparison: == != < <= > >=");
                };
                self.at += 1;
                self.mark(")")?;
                ExpressionKind::Select(comparison, Box::new([keys, queries]))
            }
            "selector_width" => {
                self.mark("(")?;
                let selector = self.choice()?;
                self.mark(")")?;
                ExpressionKind::Width(Box::new(selector))
            }
            "aggregate" => {
                self.mark("(")?;
                let selector = self.choice()?;
                self.mark(",")?;
                let values = self.choice()?;
                let default = match self.skip(&Lexeme::Mark(",")) {
                    true => Some(Box::new(self.choice()?)),
                    false => None,
                };
                self.mark(")")?;
                ExpressionKind::Aggregate(Box::new([selector, values]), default)
            }
            _ => {
                self.at -= 1;
                return self.refuse("a value or a name that was defined above");
            }
        })
    }
}
