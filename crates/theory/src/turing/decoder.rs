//! A decoder that runs a Turing machine.
//!
//! The text is the input, symbol by symbol, then the first state, then one token for each step. The
//! token of a step is an action: the next state, the symbol written and the move. So to predict the
//! next token is to make the next step. Three layers are enough for every machine. In the
//! following, a head is an attention head, and the machine head is the head of the Turing machine.
//!
//! 1. A head without scores averages the moves so far. At position i, the average is c/(i+1) if the
//!    machine head is at cell c. The feed-forward layer subtracts the token's own move, which gives
//!    the cell that the token wrote to, divided by i + 1.
//! 2. Both the cell c of the machine head and the cell that the token wrote to are now known, but
//!    divided by i + 1. Heads look up each of the two among the positions k. The query (c/(i+1),
//!    1/(i+1)) and the key (2k, −k²) have the score (c² − (c−k)²)/(i+1), which is largest at k = c.
//!    The heads return k and k², which are integers again, and are exact in f32 up to k = 4096.
//! 3. A head looks for the last token that wrote to the cell c. The score of a token at position j
//!    that wrote to cell c' is −R (c − c')² + j. If R is larger than the number of positions, the
//!    score is largest at the token that is sought. The token of the first state stands for a
//!    blank: its score is lower than that of every token that wrote to c, and higher than those of
//!    all other tokens. The feed-forward layer has one unit for each rule, that is, for a state and
//!    a symbol; the unit adds the action of the rule to the logits.

use super::machine::{Action, Machine, Move};
use crate::TheoryError;
use crate::blueprint::{Blueprint, Column, Decoder, Form, Head, Layer, Unit};
use candle_core::DType;
use taper_model::AttentionConfig;

/// Ids of `<pad>`, `<unk>`, `<s>` and `</s>`, which every vocabulary begins with.
pub(crate) const SPECIAL: usize = 4;
/// Largest number of positions.
const MOST_POSITIONS: usize = 1 << 14;
/// Id of `</s>`.
const END: usize = 3;
/// Factor by which scores are multiplied. Scores that must differ are at least 1 apart before the
/// multiplication. The weight of the smaller one is then at most e^−32 times the weight of the
/// larger one, and is lost in f32.
const HARD: f64 = 32.0;

/// Decoder that runs a Turing machine.
#[derive(Debug, Clone)]
pub struct TuringDecoder {
    machine: Machine,
    positions: usize,
    decoder: Decoder,
}

/// Columns of the residual stream.
struct Columns {
    /// State after the token, with a column for each state.
    states: Vec<Column>,
    /// Symbol that the token writes, with a column for each symbol.
    written: Vec<Column>,
    /// 1 if the token is a step that moves the machine head to the left.
    is_left: Column,
    /// 1 if the token is a step that moves the machine head to the right.
    is_right: Column,
    /// 1 if the token is a symbol of the input.
    is_input: Column,
    /// 1 if the token is the first state.
    is_start: Column,
    /// 1 at `</s>`, a mark with which a document can begin.
    is_end: Column,
    /// Share of `</s>` among the tokens so far.
    end_share: Column,
    /// 1/(i+1) at position i.
    inverse: Column,
    /// i at position i.
    place: Column,
    /// i² at position i.
    square: Column,
    /// i/(i+1) at position i.
    ratio: Column,
    /// Cell of the machine head after the token, divided by i + 1 at position i.
    cell_share: Column,
    /// Cell that the token wrote to, divided by i + 1 at position i.
    written_share: Column,
    /// Cell of the machine head after the token, as an integer, and the square of this integer.
    cell: [Column; 2],
    /// Cell that the token wrote to, as an integer, and the square of this integer.
    written_cell: [Column; 2],
    /// Position of a token that writes; −1 for the first state, which stands for blanks, and −2 for
    /// `</s>`.
    time: Column,
    /// Symbol under the head of the machine, with a column for each symbol.
    read: Vec<Column>,
    /// Next token by the rules of the machine, with a column for each token of the vocabulary.
    next: Vec<Column>,
}

impl Columns {
    fn new(blueprint: &mut Blueprint, machine: &Machine) -> Self {
        let vocabulary = blueprint.vocabulary();
        let symbols = machine.symbols().len();
        let mut one = || blueprint.column();
        Self {
            is_left: one(),
            is_right: one(),
            is_input: one(),
            is_start: one(),
            is_end: one(),
            end_share: one(),
            inverse: one(),
            place: one(),
            square: one(),
            ratio: one(),
            cell_share: one(),
            written_share: one(),
            cell: [one(), one()],
            written_cell: [one(), one()],
            time: one(),
            states: blueprint.columns(machine.states().len()),
            written: blueprint.columns(symbols),
            read: blueprint.columns(symbols),
            next: blueprint.columns(vocabulary),
        }
    }
}

/// Ids of the tokens of a machine: first the symbols, then the first state, then the actions.
struct Vocabulary {
    symbols: usize,
    actions: Vec<Action>,
}

impl Vocabulary {
    fn for_machine(machine: &Machine) -> Self {
        Self { symbols: machine.symbols().len(), actions: machine.actions() }
    }

    fn len(&self) -> usize {
        self.first_action() + self.actions.len()
    }

    const fn start(&self) -> usize {
        SPECIAL + self.symbols
    }

    const fn first_action(&self) -> usize {
        self.start() + 1
    }

    /// Returns the id of an action.
    ///
    /// # Panics
    /// If no rule of the machine has this action.
    fn id(&self, action: Action) -> usize {
        let number = self.actions.iter().position(|one| *one == action);
        assert!(number.is_some(), "{action:?} is no action of the machine");
        self.first_action() + number.unwrap_or_default()
    }

    fn action(&self, id: usize) -> Option<Action> {
        self.actions.get(id.checked_sub(self.first_action())?).copied()
    }
}

/// Makes the blueprint of a machine's decoder, for texts of at most `positions` tokens.
fn blueprint(machine: &Machine, positions: usize) -> Blueprint {
    let vocabulary = Vocabulary::for_machine(machine);
    let mut blueprint = Blueprint::new(vocabulary.len(), positions);
    let columns = Columns::new(&mut blueprint, machine);
    for symbol in 0..vocabulary.symbols {
        blueprint.token(SPECIAL + symbol, columns.written[symbol], 1.0);
        blueprint.token(SPECIAL + symbol, columns.is_input, 1.0);
    }
    blueprint.token(vocabulary.start(), columns.states[machine.start()], 1.0);
    blueprint.token(vocabulary.start(), columns.written[machine.blank()], 1.0);
    blueprint.token(vocabulary.start(), columns.is_start, 1.0);
    blueprint.token(END, columns.is_end, 1.0);
    for &Action { state, symbol, shift } in &vocabulary.actions {
        let id = vocabulary.id(Action { state, symbol, shift });
        blueprint.token(id, columns.states[state], 1.0);
        blueprint.token(id, columns.written[symbol], 1.0);
        match shift {
            Move::Left => blueprint.token(id, columns.is_left, 1.0),
            Move::Right => blueprint.token(id, columns.is_right, 1.0),
            Move::Stay => {}
        }
    }
    for at in 0..positions {
        let place = at as f64;
        blueprint.position(at, columns.inverse, 1.0 / (place + 1.0));
        blueprint.position(at, columns.place, place);
        blueprint.position(at, columns.square, place * place);
        blueprint.position(at, columns.ratio, place / (place + 1.0));
    }
    blueprint.layer(shares(&columns));
    blueprint.layer(cells(&columns, positions));
    blueprint.layer(rules(machine, &vocabulary, &columns, positions));
    for id in 0..vocabulary.len() {
        blueprint.logit(id, columns.next[id] * HARD);
    }
    // If no rule applies, `</s>` has the largest logit, and the text ends.
    blueprint.logit(END, 0.5 * HARD);
    blueprint
}

/// Layer 1: cells, divided by i + 1.
fn shares(columns: &Columns) -> Layer {
    let Columns { is_left, is_right, is_input, inverse, ratio, cell_share, .. } = *columns;
    let end_share = columns.end_share;
    let to = columns.written_share;
    // Makes a unit that is `value` if `flag` is 1, and 0 if `flag` is 0. Values are between 0 and
    // 1.
    let where_set = |value: Form, flag: Column| Unit::relu(value + flag - 1.0);
    let mut units = vec![
        where_set(inverse.into(), is_left).adds(to, 1.0),
        where_set(inverse.into(), is_right).adds(to, -1.0),
        where_set(ratio - end_share, is_input).adds(to, 1.0),
    ];
    units.extend(Unit::linear(cell_share, to, 1.0));
    let head = Head::default().value(is_right - is_left, cell_share);
    Layer { heads: vec![head.value(columns.is_end, end_share)], units }
}

/// Layer 2: cells as integers, looked up among the positions. Two cells are looked up: the cell of
/// the machine head, and the cell to which the token wrote. Each lookup has two heads, one for
/// cells with positive numbers and one for cells with negative numbers. The head for the wrong sign
/// finds position 0, and returns 0.
fn cells(columns: &Columns, positions: usize) -> Layer {
    // The scores of two positions differ by at least 1/(i+1).
    let hard = HARD * 2.0 * positions.next_power_of_two() as f64;
    let lookup = |(share, [cell, square]): (Column, [Column; 2]), sign: f64| {
        Head::default()
            .score(share * (2.0 * sign * hard), columns.place)
            .score(columns.inverse * -hard, columns.square)
            .value(columns.place * sign, cell)
            .value(columns.square, square)
    };
    let sought =
        [(columns.cell_share, columns.cell), (columns.written_share, columns.written_cell)];
    let heads = sought.into_iter().flat_map(|of| [lookup(of, 1.0), lookup(of, -1.0)]);
    // For a token that writes nothing, the first unit is 0: no position exceeds `positions`.
    let no_write = columns.is_start + columns.is_end;
    let units = [
        Unit::relu(columns.place - no_write * positions as f64).adds(columns.time, 1.0),
        Unit::relu(columns.is_start).adds(columns.time, -1.0),
        Unit::relu(columns.is_end).adds(columns.time, -2.0),
    ];
    Layer { heads: heads.collect(), units: units.into() }
}

/// Layer 3: the symbol under the head of the machine, and the rule for the state and this symbol.
fn rules(machine: &Machine, words: &Vocabulary, columns: &Columns, positions: usize) -> Layer {
    let weight = HARD * distance_weight(positions);
    let ([cell, cell_square], [at, at_square]) = (columns.cell, columns.written_cell);
    let mut recall = Head::default()
        .score(cell * (2.0 * weight), at)
        .score(-weight, at_square)
        .score(cell_square * weight, columns.is_start)
        .score(HARD, columns.time);
    for (written, read) in columns.written.iter().zip(&columns.read) {
        recall = recall.value(*written, *read);
    }
    let units = machine.rules().map(|((state, symbol), action)| {
        let gate: Form = columns.states[state] + columns.read[symbol] - 1.0;
        Unit::relu(gate).adds(columns.next[words.id(action)], 1.0)
    });
    let units = units.collect();
    Layer { heads: vec![recall], units }
}

/// Factor R of squared distances between cells in the scores of layer 3. It is so large that a
/// distance of one cell counts more than any difference between the times of tokens.
pub(super) fn distance_weight(positions: usize) -> f64 {
    positions as f64 + 2.0
}

impl TuringDecoder {
    /// Assembles the decoder of a machine, for texts of at most `positions` tokens, which are the
    /// input, the first state and the steps.
    ///
    /// # Errors
    /// If there are fewer than 2 positions or more than 16384, or the machine is too large.
    pub fn new(machine: &Machine, positions: usize) -> Result<Self, TheoryError> {
        Self::with(machine, positions, DType::F32, AttentionConfig::default())
    }

    /// Assembles the decoder with matrix products in `dtype`, and with an attention pattern, which
    /// defines the tokens that a token sees.
    ///
    /// # Errors
    /// See [`TuringDecoder::new`].
    pub fn with(
        machine: &Machine,
        positions: usize,
        dtype: DType,
        attention: AttentionConfig,
    ) -> Result<Self, TheoryError> {
        if !(2..=MOST_POSITIONS).contains(&positions) {
            return Err(TheoryError::Input(format!(
                "input and steps take {positions} positions, and a decoder has 2 to \
                 {MOST_POSITIONS}: take fewer steps"
            )));
        }
        let mut blueprint = blueprint(machine, positions);
        blueprint.attention(attention);
        Ok(Self { machine: machine.clone(), positions, decoder: blueprint.decoder_in(dtype)? })
    }

    /// The decoder.
    #[must_use]
    pub const fn decoder(&self) -> &Decoder {
        &self.decoder
    }

    /// Names of the tokens; the index of a name is the id of its token. A symbol has its own name,
    /// the first state is `STATE//`, and an action is `STATE/SYMBOL/MOVE`.
    #[must_use]
    pub fn vocabulary(&self) -> Vec<String> {
        let words = Vocabulary::for_machine(&self.machine);
        let (states, symbols) = (self.machine.states(), self.machine.symbols());
        let special = ["<pad>", "<unk>", "<s>", "</s>"].map(str::to_owned).into_iter();
        let start = format!("{}//", states[self.machine.start()]);
        let action = |action: &Action| {
            let (state, symbol) = (&states[action.state], &symbols[action.symbol]);
            format!("{state}/{symbol}/{}", action.shift.letter())
        };
        let actions = words.actions.iter().map(action);
        special.chain(symbols.iter().cloned()).chain([start]).chain(actions).collect()
    }

    /// Ids of the input and the first state: the text before the first step.
    #[must_use]
    pub fn prompt(&self, input: &[usize]) -> Vec<u32> {
        let start = Vocabulary::for_machine(&self.machine).start();
        let symbols = input.iter().map(|symbol| (SPECIAL + symbol) as u32);
        symbols.chain([start as u32]).collect()
    }

    /// Ids of the input, the first state and `steps`.
    ///
    /// # Panics
    /// If no rule of the machine has the action of a step.
    #[must_use]
    pub fn text(&self, input: &[usize], steps: &[Action]) -> Vec<u32> {
        let words = Vocabulary::for_machine(&self.machine);
        let steps = steps.iter().map(|action| words.id(*action) as u32);
        self.prompt(input).into_iter().chain(steps).collect()
    }

    /// Generates the steps of the machine, token by token, until it halts, but at most `steps` of
    /// them. The steps are the machine's while f32 has the bits that
    /// [`precision`](super::precision) computes; beyond, they can be wrong. Cells beyond 4096 always
    /// need more bits.
    ///
    /// # Errors
    /// If input and steps have more tokens than there are positions.
    pub fn run(&self, input: &[usize], steps: usize) -> Result<Vec<Action>, TheoryError> {
        let needed = input.len() + 1 + steps;
        if needed > self.positions {
            return Err(TheoryError::Input(format!(
                "an input of {} symbols and {steps} steps take {needed} positions, and the \
                 decoder has {}",
                input.len(),
                self.positions
            )));
        }
        let words = Vocabulary::for_machine(&self.machine);
        let prompt = self.prompt(input);
        let (last, before) = (prompt[prompt.len() - 1], &prompt[..prompt.len() - 1]);
        let inference = self.decoder.0.inference(self.positions + 1);
        let mut state = inference.start(&[before])?;
        let (mut token, mut made) = (last, Vec::new());
        while made.len() < steps {
            let tokens = [token];
            let logits = inference.step(&mut state, &tokens)?.next();
            let Some(logits) = logits.transpose()? else { break };
            token = logits.argmax(1)?.to_vec1::<u32>()?[0];
            match words.action(token as usize) {
                Some(action) => made.push(action),
                None => break,
            }
        }
        Ok(made)
    }
}
