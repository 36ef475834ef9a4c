//! Direct simulation of a Turing machine, with the tape in memory.

use super::machine::{Action, Machine};
use std::collections::BTreeMap;

/// State, tape and head of a machine between two steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Configuration {
    /// Index of the state.
    pub state: usize,
    /// Index of the cell under the head; the input begins at cell 0.
    pub head: i64,
    /// Symbols of the cells that were in the input or have been written; all other cells are blank.
    pub tape: BTreeMap<i64, usize>,
}

impl Configuration {
    /// Configuration of a machine on an input before its first step.
    #[must_use]
    pub fn first(machine: &Machine, input: &[usize]) -> Self {
        let tape = (0..).zip(input.iter().copied()).collect();
        Self { state: machine.start(), head: 0, tape }
    }

    /// Symbol under the head.
    #[must_use]
    pub fn read(&self, machine: &Machine) -> usize {
        self.tape.get(&self.head).copied().unwrap_or(machine.blank())
    }

    /// Performs an action: writes, moves and changes the state.
    pub fn act(&mut self, action: Action) {
        self.tape.insert(self.head, action.symbol);
        self.head += action.shift.cells();
        self.state = action.state;
    }

    /// Formats the tape, with the cell under the head in brackets.
    #[must_use]
    pub fn shown(&self, machine: &Machine) -> String {
        let ends = self.tape.keys().copied().chain([self.head]);
        let (first, last) = ends
            .fold((self.head, self.head), |(first, last), cell| (first.min(cell), last.max(cell)));
        let wide = machine.symbols().iter().any(|symbol| symbol.chars().count() > 1);
        let cells = (first..=last).map(|cell| {
            let symbol = self.tape.get(&cell).copied().unwrap_or(machine.blank());
            let symbol = &machine.symbols()[symbol];
            if cell == self.head { format!("[{symbol}]") } else { symbol.clone() }
        });
        cells.collect::<Vec<_>>().join(if wide { " " } else { "" })
    }
}

/// Result of running a machine on an input.
#[derive(Debug, Clone)]
pub struct Simulation {
    steps: Vec<Action>,
    /// True if the machine has halted.
    pub halted: bool,
    /// Configuration after the last step.
    pub last: Configuration,
}

impl Simulation {
    /// Actions of the steps, in order.
    #[must_use]
    pub fn actions(&self) -> Vec<Action> {
        self.steps.clone()
    }
}

impl Machine {
    /// Runs the machine for at most `steps` steps.
    #[must_use]
    pub fn simulate(&self, input: &[usize], steps: usize) -> Simulation {
        let mut last = Configuration::first(self, input);
        let mut made = Vec::new();
        while made.len() < steps
            && let Some(action) = self.rule(last.state, last.read(self))
        {
            last.act(action);
            made.push(action);
        }
        let halted = self.rule(last.state, last.read(self)).is_none();
        Simulation { steps: made, halted, last }
    }
}
