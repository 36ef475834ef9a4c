//! Turing machines and their text format.

use crate::{Place, TheoryError};
use std::collections::{BTreeMap, BTreeSet};

/// Largest number of rules of a machine.
const MOST_RULES: usize = 4096;

/// A move of the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Move {
    /// One cell to the left.
    Left,
    /// No cell.
    Stay,
    /// One cell to the right.
    Right,
}

impl Move {
    /// Number of cells by which the head moves, to the right if positive.
    #[must_use]
    pub const fn cells(self) -> i64 {
        match self {
            Self::Left => -1,
            Self::Stay => 0,
            Self::Right => 1,
        }
    }

    /// Letter of the move in the text format.
    #[must_use]
    pub const fn letter(self) -> &'static str {
        match self {
            Self::Left => "L",
            Self::Stay => "S",
            Self::Right => "R",
        }
    }
}

/// Action of a machine in a step: its next state, the symbol that it writes, and a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Action {
    /// Index of the next state.
    pub state: usize,
    /// Index of the symbol written.
    pub symbol: usize,
    /// Move after writing.
    pub shift: Move,
}

/// A deterministic machine with one head on one tape, which is endless in both directions.
///
/// A machine halts when it has no rule for its state and the symbol under the head.
#[derive(Debug, Clone)]
pub struct Machine {
    states: Vec<String>,
    symbols: Vec<String>,
    /// Index of the symbol of cells to which nothing was written.
    pub(super) blank: usize,
    /// Index of the first state.
    pub(super) start: usize,
    rules: BTreeMap<(usize, usize), Action>,
}

/// Returns the index of a name in a list; a missing name is appended to the list first.
fn number(names: &mut Vec<String>, name: &str) -> usize {
    names.iter().position(|one| one == name).unwrap_or_else(|| {
        names.push(name.to_owned());
        names.len() - 1
    })
}

/// A word of a line, with its position in the text.
type Word<'a> = (Place, &'a str);

/// Splits a line into words; `#` begins a comment.
fn words(line: usize, text: &str) -> Vec<Word<'_>> {
    let text = text.split('#').next().unwrap_or_default();
    let place = |start: usize| Place { line, column: text[..start].chars().count() + 1 };
    let start = |word: &str| word.as_ptr() as usize - text.as_ptr() as usize;
    text.split_whitespace().map(|word| (place(start(word)), word)).collect()
}

/// Refuses names that would make the tokens of actions (`state/symbol/move`) ambiguous.
fn check_name((place, name): Word<'_>) -> Result<(), TheoryError> {
    if name.contains('/') || name == "->" || name.starts_with('<') {
        let message = format!(
            "{name:?} is no name: a name is not ->, contains no / and does not begin with <"
        );
        return Err(TheoryError::program(place, message));
    }
    Ok(())
}

/// Refuses a second line `blank` or `start`. `word` begins the line, and `known` is the index that
/// an earlier line of this kind has set, or `usize::MAX` if there was none.
fn check_first((place, word): Word<'_>, known: usize) -> Result<(), TheoryError> {
    if known == usize::MAX {
        return Ok(());
    }
    Err(TheoryError::program(place, format!("a second line `{word}`: a machine has only one")))
}

impl Machine {
    /// Reads a machine.
    ///
    /// A line is `blank SYMBOL`, `start STATE`, `halt STATE…`, or a rule
    /// `STATE SYMBOL -> STATE SYMBOL MOVE` with the move L, R or S (stay). `#` begins a comment.
    ///
    /// # Errors
    /// In the following cases; the error has the line and column of the fault:
    /// - if a line cannot be read
    /// - if a state and symbol have a second rule, or there is a second line `blank` or `start`
    /// - if a state that is entered has no rules and does not halt, or has rules and halts
    /// - if `blank` or `start` is missing
    pub fn parse(text: &str) -> Result<Self, TheoryError> {
        let mut machine = Self {
            states: Vec::new(),
            symbols: Vec::new(),
            blank: usize::MAX,
            start: usize::MAX,
            rules: BTreeMap::new(),
        };
        let (mut halting, mut entered) = (BTreeSet::new(), BTreeMap::new());
        for (number_of_line, line) in (1..).zip(text.lines()) {
            let line = words(number_of_line, line);
            match line.as_slice() {
                [] => {}
                [first @ (_, "blank"), symbol] => {
                    check_first(*first, machine.blank)?;
                    check_name(*symbol)?;
                    machine.blank = number(&mut machine.symbols, symbol.1);
                }
                [first @ (_, "start"), state] => {
                    check_first(*first, machine.start)?;
                    check_name(*state)?;
                    machine.start = number(&mut machine.states, state.1);
                    entered.insert(machine.start, state.0);
                }
                [(_, "halt"), states @ ..] if !states.is_empty() => {
                    for state in states {
                        check_name(*state)?;
                        halting.insert(number(&mut machine.states, state.1));
                    }
                }
                [state, symbol, (_, "->"), next, written, shift] => {
                    for name in [state, symbol, next, written] {
                        check_name(*name)?;
                    }
                    let action = machine.add([state, symbol, next, written, shift])?;
                    entered.entry(action.state).or_insert(next.0);
                }
                [(place, word), ..] => {
                    let message = format!(
                        "no line begins with {word:?}: write blank SYMBOL, start STATE, halt \
                         STATE, or a rule STATE SYMBOL -> STATE SYMBOL MOVE"
                    );
                    return Err(TheoryError::program(*place, message));
                }
            }
        }
        machine.check(&halting, &entered)?;
        Ok(machine)
    }

    /// Adds a rule, given by its words: state, symbol, next state, symbol written, move.
    fn add(&mut self, rule: [&Word<'_>; 5]) -> Result<Action, TheoryError> {
        let [state, symbol, next, written, (place, shift)] = rule;
        let shift = match *shift {
            "L" => Move::Left,
            "R" => Move::Right,
            "S" => Move::Stay,
            other => {
                let message = format!("{other:?} is no move: L, R or S");
                return Err(TheoryError::program(*place, message));
            }
        };
        let at = (number(&mut self.states, state.1), number(&mut self.symbols, symbol.1));
        let action = Action {
            state: number(&mut self.states, next.1),
            symbol: number(&mut self.symbols, written.1),
            shift,
        };
        if self.rules.insert(at, action).is_some() {
            let message = format!("a second rule for state {} and symbol {}", state.1, symbol.1);
            return Err(TheoryError::program(state.0, message));
        }
        if self.rules.len() > MOST_RULES {
            let message = format!("a machine has at most {MOST_RULES} rules");
            return Err(TheoryError::program(state.0, message));
        }
        Ok(action)
    }

    /// Checks conditions on the whole machine: it has a blank and a first state, and each state in
    /// `entered` either has rules or halts.
    fn check(
        &self,
        halting: &BTreeSet<usize>,
        entered: &BTreeMap<usize, Place>,
    ) -> Result<(), TheoryError> {
        let first = Place { line: 1, column: 1 };
        for (number, line) in [(self.blank, "blank SYMBOL"), (self.start, "start STATE")] {
            if number == usize::MAX {
                let message = format!("the machine has no line `{line}`");
                return Err(TheoryError::program(first, message));
            }
        }
        for (&state, &place) in entered {
            let acts = self.rules.keys().any(|(from, _)| *from == state);
            let name = &self.states[state];
            if !acts && !halting.contains(&state) {
                let message = format!("state {name} has no rules: add some, or `halt {name}`");
                return Err(TheoryError::program(place, message));
            }
            if acts && halting.contains(&state) {
                let message = format!("state {name} halts, and has rules");
                return Err(TheoryError::program(place, message));
            }
        }
        Ok(())
    }

    /// Names of the states.
    #[must_use]
    pub fn states(&self) -> &[String] {
        &self.states
    }

    /// Names of the symbols.
    #[must_use]
    pub fn symbols(&self) -> &[String] {
        &self.symbols
    }

    /// Index of the blank symbol.
    #[must_use]
    pub const fn blank(&self) -> usize {
        self.blank
    }

    /// Index of the first state.
    #[must_use]
    pub const fn start(&self) -> usize {
        self.start
    }

    /// Action in a state on a symbol; `None` if the machine halts.
    #[must_use]
    pub fn rule(&self, state: usize, symbol: usize) -> Option<Action> {
        self.rules.get(&(state, symbol)).copied()
    }

    /// All rules, sorted: state and symbol, and the action.
    pub(super) fn rules(&self) -> impl Iterator<Item = ((usize, usize), Action)> {
        self.rules.iter().map(|(at, action)| (*at, *action))
    }

    /// Distinct actions of all rules, sorted.
    #[must_use]
    pub fn actions(&self) -> Vec<Action> {
        self.rules.values().copied().collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Reads the symbols of a tape, as indices. Whitespace separates symbols; it can be left out if
    /// each symbol of the machine is a single character.
    ///
    /// # Errors
    /// If the tape has a symbol that the machine lacks.
    pub fn read(&self, tape: &str) -> Result<Vec<usize>, TheoryError> {
        let find = |name: &str| {
            self.symbols.iter().position(|one| one == name).ok_or_else(|| {
                let known = self.symbols.join(" ");
                TheoryError::Input(format!(
                    "the machine has no symbol {name:?}: its symbols are {known}"
                ))
            })
        };
        if self.symbols.iter().all(|symbol| symbol.chars().count() == 1) {
            let symbols = tape.chars().filter(|character| !character.is_whitespace());
            return symbols.map(|symbol| find(&symbol.to_string())).collect();
        }
        tape.split_whitespace().map(find).collect()
    }
}
