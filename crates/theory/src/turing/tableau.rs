//! A one-layer decoder with sparse attention that runs a Turing machine on a tape of W cells.
//!
//! The text is one configuration after the other. Each configuration is W tokens, one for each
//! cell: the cell's symbol and, at the machine's head, the state. A cell depends on three cells of
//! the configuration before, so each token attends to the tokens at distances of W − 2 to W. A
//! sliding window of W + 1 tokens is therefore enough. A pattern that contains such a window is
//! enough too, for example BigBird's, which also has global and random blocks (Zaheer et al. 2020).
//! Appendix B of that paper has a decoder for tapes without a bound, which reads the past again and
//! again. Before the first configuration there is one more token, the left neighbour of cell 0.

use super::decoder::SPECIAL;
use super::machine::{Machine, Move};
use super::simulation::Configuration;
use crate::TheoryError;
use crate::blueprint::{Blueprint, Column, Decoder, Form, Head, Layer, Unit};
use candle_core::DType;
use taper_model::AttentionConfig;

/// Factor by which scores are multiplied, so that the softmax selects the largest one.
const HARD: f64 = 64.0;
/// Largest number of positions: the integers in scores are then below 2^24, and thus exact in f32.
const MOST_POSITIONS: usize = 2896;

/// A configuration on a bounded tape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tableau {
    /// Index of the state; `usize::MAX` if no cell has the head.
    pub state: usize,
    /// Index of the cell under the head; `usize::MAX` if no cell has the head.
    pub head: usize,
    /// Symbols of all cells.
    pub cells: Vec<usize>,
}

/// Decoder of a machine on a tape with a fixed number of cells.
#[derive(Debug, Clone)]
pub struct TableauDecoder {
    machine: Machine,
    cells: usize,
    /// Largest number of steps of a text.
    steps: usize,
    decoder: Decoder,
}

/// Columns of the hidden vector that describe one cell: its symbol and, if the head of the machine
/// is there, the state.
struct Cell {
    states: Vec<Column>,
    symbols: Vec<Column>,
}

impl Cell {
    fn new(blueprint: &mut Blueprint, machine: &Machine) -> Self {
        Self {
            states: blueprint.columns(machine.states().len()),
            symbols: blueprint.columns(machine.symbols().len()),
        }
    }

    /// Linear form that is 1 if the head is at this cell, in this state and on this symbol, and
    /// otherwise at most 0.
    fn is(&self, state: usize, symbol: usize) -> Form {
        self.states[state] + self.symbols[symbol] - 1.0
    }
}

/// Returns the id of a cell's token. First come the tokens of cells without the head, one for each
/// symbol. Then, for each state, come the tokens of cells under the head in this state, one for
/// each symbol.
fn id(machine: &Machine, state: Option<usize>, symbol: usize) -> usize {
    SPECIAL + state.map_or(0, |state| state + 1) * machine.symbols().len() + symbol
}

impl TableauDecoder {
    /// Assembles the decoder of a machine on `cells` cells, for texts of at most `steps` steps.
    /// `attention` defines the tokens that a token sees.
    ///
    /// # Errors
    /// If there are fewer than 3 cells, or cells and steps take too many positions.
    pub fn new(
        machine: &Machine,
        (cells, steps): (usize, usize),
        attention: AttentionConfig,
    ) -> Result<Self, TheoryError> {
        let positions = cells.saturating_mul(steps.saturating_add(1)).saturating_add(2);
        if cells < 3 || positions > MOST_POSITIONS {
            return Err(TheoryError::Input(format!(
                "{steps} steps on {cells} cells take {positions} positions: use at least 3 cells, \
                 and so few cells and steps that they take at most {MOST_POSITIONS} positions"
            )));
        }
        let (states, symbols) = (machine.states().len(), machine.symbols().len());
        let mut blueprint = Blueprint::new(SPECIAL + (states + 1) * symbols, positions);
        blueprint.attention(attention);
        let own = Cell::new(&mut blueprint, machine);
        let near = [(); 3].map(|()| Cell::new(&mut blueprint, machine));
        let next = Cell::new(&mut blueprint, machine);
        let (place, square) = (blueprint.column(), blueprint.column());
        for at in 0..positions {
            blueprint.position(at, place, at as f64);
            blueprint.position(at, square, (at * at) as f64);
        }
        for symbol in 0..symbols {
            for state in [None].into_iter().chain((0..states).map(Some)) {
                let token = id(machine, state, symbol);
                blueprint.token(token, own.symbols[symbol], 1.0);
                let has_state = match state {
                    Some(state) => {
                        blueprint.token(token, own.states[state], 1.0);
                        Form::from(next.states[state])
                    }
                    None => Form::from(0.5),
                };
                blueprint.logit(token, (has_state + next.symbols[symbol]) * HARD);
            }
        }
        // The next token is at i + 1. In the configuration before, the left neighbour of its cell
        // is at i − W, and the cell itself and its right neighbour follow.
        let heads = near.iter().zip(0..).map(|(cell, after)| {
            let sought = place - (cells as f64 - f64::from(after));
            let head = Head::default().score(sought * (2.0 * HARD), place).score(-HARD, square);
            let columns = own.states.iter().zip(&cell.states);
            let columns = columns.chain(own.symbols.iter().zip(&cell.symbols));
            columns.fold(head, |head, (from, to)| head.value(*from, *to))
        });
        let units = units(machine, &near, &next);
        blueprint.layer(Layer { heads: heads.collect(), units });
        let decoder = blueprint.decoder_in(DType::F32)?;
        Ok(Self { machine: machine.clone(), cells, steps, decoder })
    }

    /// The decoder.
    #[must_use]
    pub const fn decoder(&self) -> &Decoder {
        &self.decoder
    }

    /// Generates `steps` configurations, cell by cell. The input begins at the cell `first`.
    ///
    /// # Errors
    /// If the input does not fit the tape, if the head leaves the tape, or if there are more steps
    /// than the decoder was assembled for.
    pub fn run(
        &self,
        (input, first): (&[usize], usize),
        steps: usize,
    ) -> Result<Vec<Tableau>, TheoryError> {
        if steps > self.steps {
            return Err(TheoryError::Input(format!(
                "the decoder was assembled for {} steps, not for {steps}: take fewer steps, or \
                 assemble it for more",
                self.steps
            )));
        }
        if first >= self.cells || first + input.len() > self.cells {
            let message =
                format!("the input does not fit on the tape, which has {} cells", self.cells);
            return Err(TheoryError::Input(message));
        }
        let mut now = Configuration::first(&self.machine, input);
        for (step, action) in (1..).zip(self.machine.simulate(input, steps).actions()) {
            now.act(action);
            let cell = now.head + first as i64;
            if !(0..self.cells as i64).contains(&cell) {
                let message = format!("step {step} leaves the tape of {} cells", self.cells);
                return Err(TheoryError::Input(message));
            }
        }
        let mut cells = vec![self.machine.blank(); self.cells];
        cells[first..first + input.len()].copy_from_slice(input);
        let token = |(at, symbol): (usize, &usize)| {
            let state = (at == first).then_some(self.machine.start());
            id(&self.machine, state, *symbol) as u32
        };
        let tape: Vec<u32> = cells.iter().enumerate().map(token).collect();
        let blank = id(&self.machine, None, self.machine.blank()) as u32;
        let text: Vec<u32> = [blank].into_iter().chain(tape).collect();
        let (last, before) = (text[text.len() - 1], &text[..text.len() - 1]);
        let inference = self.decoder.0.inference(MOST_POSITIONS);
        let mut state = inference.start(&[before])?;
        let (mut token, mut made) = (last, Vec::new());
        while made.len() < steps * self.cells {
            let tokens = [token];
            let logits = inference.step(&mut state, &tokens)?.next();
            let Some(logits) = logits.transpose()? else { break };
            token = logits.argmax(1)?.to_vec1::<u32>()?[0];
            made.push(token as usize);
        }
        Ok(made.chunks(self.cells).map(|cells| self.read(cells)).collect())
    }

    /// Reads a configuration from the tokens of its cells.
    fn read(&self, tokens: &[usize]) -> Tableau {
        let symbols = self.machine.symbols().len();
        let mut tableau = Tableau { state: usize::MAX, head: usize::MAX, cells: Vec::new() };
        for (at, token) in tokens.iter().enumerate() {
            let number = token.saturating_sub(SPECIAL);
            tableau.cells.push(number % symbols);
            if let Some(state) = (number / symbols).checked_sub(1) {
                (tableau.state, tableau.head) = (state, at);
            }
        }
        tableau
    }
}

/// Makes the units that compute a cell from three cells of the configuration before: its left
/// neighbour, the cell itself, and its right neighbour.
fn units(machine: &Machine, near: &[Cell; 3], next: &Cell) -> Vec<Unit> {
    let [left, same, right] = near;
    let mut units = Vec::new();
    // A cell without the head keeps its symbol.
    for (symbol, is_symbol) in same.symbols.iter().enumerate() {
        let any = Form::sum(same.states.iter().map(|state| (*state, 1.0)));
        units.push(Unit::relu(*is_symbol - any).adds(next.symbols[symbol], 1.0));
    }
    for state in 0..machine.states().len() {
        for symbol in 0..machine.symbols().len() {
            let here = Unit::relu(same.is(state, symbol));
            let Some(action) = machine.rule(state, symbol) else {
                // The machine has halted, and the configuration stays.
                units.push(here.adds(next.symbols[symbol], 1.0).adds(next.states[state], 1.0));
                continue;
            };
            let here = here.adds(next.symbols[action.symbol], 1.0);
            let enters = next.states[action.state];
            let (here, from) = match action.shift {
                Move::Stay => (here.adds(enters, 1.0), None),
                Move::Right => (here, Some(left)),
                Move::Left => (here, Some(right)),
            };
            units.push(here);
            units.extend(from.map(|from| Unit::relu(from.is(state, symbol)).adds(enters, 1.0)));
        }
    }
    units
}
