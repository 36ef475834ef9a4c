//! Compares Turing machines on decoders with machines that are written here as functions and run on
//! a tape of strings.

use candle_core::DType;
use taper_model::{AttentionConfig, AttentionKind, Pass, Sequences};
use taper_theory::TheoryError;
use taper_theory::turing::{Action, Machine, TableauDecoder, TuringDecoder, precision};

type TestResult = Result<(), Box<dyn std::error::Error>>;

/// Rules of a machine as a function of state and symbol. It returns the next state, the symbol
/// written and the move, or `None` if the machine halts.
type Rule = fn(&str, &str) -> Option<(&'static str, &'static str, i32)>;

fn increment(state: &str, symbol: &str) -> Option<(&'static str, &'static str, i32)> {
    Some(match (state, symbol) {
        ("right", "0") => ("right", "0", 1),
        ("right", "1") => ("right", "1", 1),
        ("right", _) => ("carry", "_", -1),
        (_, "1") => ("carry", "0", -1),
        _ => ("right", "1", 1),
    })
}

fn busy_beaver(state: &str, symbol: &str) -> Option<(&'static str, &'static str, i32)> {
    match (state, symbol) {
        ("A", "0") => Some(("B", "1", 1)),
        ("A", _) => Some(("H", "1", 1)),
        ("B", "0") => Some(("C", "0", 1)),
        ("B", _) => Some(("B", "1", 1)),
        ("C", "0") => Some(("C", "1", -1)),
        ("C", _) => Some(("A", "1", -1)),
        _ => None,
    }
}

/// Runs a machine for at most `steps` steps. Returns its steps as (state, symbol, move), and the
/// last tape.
fn simulate(
    rule: Rule,
    (start, blank): (&'static str, &'static str),
    input: &[&'static str],
    steps: usize,
) -> (Vec<(String, String, i32)>, Vec<&'static str>) {
    let middle = steps + 1;
    let mut tape = vec![blank; 2 * middle + input.len()];
    tape[middle..middle + input.len()].copy_from_slice(input);
    let (mut state, mut head, mut made) = (start, middle as i32, Vec::new());
    while made.len() < steps
        && let Some((next, symbol, shift)) = rule(state, tape[head as usize])
    {
        tape[head as usize] = symbol;
        (state, head) = (next, head + shift);
        made.push((next.to_owned(), symbol.to_owned(), shift));
    }
    (made, tape)
}

fn named(machine: &Machine, actions: &[Action]) -> Vec<(String, String, i32)> {
    let name = |action: &Action| {
        let state = machine.states()[action.state].clone();
        (state, machine.symbols()[action.symbol].clone(), action.shift.cells() as i32)
    };
    actions.iter().map(name).collect()
}

fn machine(name: &str) -> Result<Machine, Box<dyn std::error::Error>> {
    let path = format!("{}/../../configs/theory/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    Ok(Machine::parse(&std::fs::read_to_string(path)?)?)
}

/// Checks theorem 4.1 of Pérez et al. 2021 by an example: the decoder counts for 200 steps, token
/// by token.
#[test]
fn a_decoder_counts_in_binary_for_200_steps() -> TestResult {
    let machine = machine("binary-increment")?;
    let decoder = TuringDecoder::new(&machine, 256)?;
    for input in [vec!["1", "0", "1", "1"], vec![], vec!["1"; 48]] {
        let (steps, _) = simulate(increment, ("right", "_"), &input, 200);
        let actions = decoder.run(&machine.read(&input.concat())?, 200)?;
        assert_eq!(named(&machine, &actions), steps, "{input:?}");
    }
    Ok(())
}

/// Checks the decoder's answers on all words of at most four letters, and on two longer words. A
/// word is a palindrome if it equals the reversed word.
#[test]
fn a_decoder_knows_palindromes() -> TestResult {
    let machine = machine("palindrome")?;
    let decoder = TuringDecoder::new(&machine, 256)?;
    let words = (0..=4).flat_map(|length| {
        (0..1_u32 << length).map(move |bits| {
            (0..length).map(|at| if bits >> at & 1 == 1 { 'b' } else { 'a' }).collect::<String>()
        })
    });
    for word in words.chain(["abbabbabbabba".to_owned(), "abbabbabbabab".to_owned()]) {
        let actions = decoder.run(&machine.read(&word)?, 240 - word.len())?;
        let state = &machine.states()[actions.last().expect("a step").state];
        let is_palindrome = word.chars().eq(word.chars().rev());
        assert_eq!(state, if is_palindrome { "yes" } else { "no" }, "{word}");
    }
    Ok(())
}

/// Checks a result of Radó 1962: the machine writes six ones in fourteen steps.
#[test]
fn a_decoder_runs_the_busy_beaver_of_three_states() -> TestResult {
    let machine = machine("busy-beaver-3")?;
    let (steps, tape) = simulate(busy_beaver, ("A", "0"), &[], 200);
    let actions = TuringDecoder::new(&machine, 64)?.run(&[], 60)?;
    assert_eq!(named(&machine, &actions), steps);
    assert_eq!((steps.len(), tape.iter().filter(|symbol| **symbol == "1").count()), (14, 6));
    let simulated = machine.simulate(&[], 200);
    assert!(simulated.halted);
    assert_eq!(simulated.last.shown(&machine), "111[1]11");
    Ok(())
}

/// Checks that with matrix products in bf16, which has a precision of eight bits, the first wrong
/// step is one that needs more than eight bits.
#[test]
fn precision_that_is_missing_is_missed() -> TestResult {
    let machine = machine("binary-increment")?;
    let input = machine.read(&"1".repeat(48))?;
    let right = machine.simulate(&input, 200).actions();
    let narrow = TuringDecoder::with(&machine, 256, DType::BF16, AttentionConfig::default())?;
    let made = narrow.run(&input, 200)?;
    let wrong = made.iter().zip(&right).position(|(made, right)| made != right);
    let wrong = wrong.unwrap_or(made.len());
    assert!(wrong < 200, "bf16 ran 200 steps");
    let needed = precision(&machine, &input, 200);
    assert!(needed[wrong].lookup > 8.0, "{wrong}: {:?}", needed[wrong]);
    assert!(needed.iter().all(|step| step.bits() < 24.0));
    let near = machine.read("10")?;
    assert!(precision(&machine, &near, 20).iter().all(|step| step.lookup < 8.0));
    let narrow = TuringDecoder::with(&machine, 32, DType::BF16, AttentionConfig::default())?;
    assert_eq!(narrow.run(&near, 20)?, machine.simulate(&near, 20).actions());
    Ok(())
}

/// Checks that a document can begin with `</s>`, which does not change its predictions, and that
/// the text ends with `</s>` when the machine halts.
#[test]
fn texts_may_begin_with_their_mark() -> TestResult {
    const END: u32 = 3;
    for (name, input) in [("busy-beaver-3", ""), ("palindrome", "abba"), ("palindrome", "ab")] {
        let machine = machine(name)?;
        let input = machine.read(input)?;
        let decoder = TuringDecoder::new(&machine, 64)?;
        let text = decoder.text(&input, &machine.simulate(&input, 50).actions());
        let marked: Vec<u32> = [END].into_iter().chain(text.iter().copied()).collect();
        for (before, text) in [(0, &text), (1, &marked)] {
            let model = &decoder.decoder().0;
            let (pass, texts) = (Pass::evaluate(), Sequences::pack(&[text]));
            let logits = model.logits(&model.hidden(&texts, &pass)?, &pass)?;
            let next: Vec<u32> = logits.argmax(1)?.to_vec1()?;
            let first = input.len() + before;
            let expected: Vec<u32> = text[first + 1..].iter().copied().chain([END]).collect();
            assert_eq!(next[first..], expected, "{name} {input:?}");
        }
    }
    Ok(())
}

/// Checks the construction of Zaheer et al. 2020, appendix B, on a bounded tape of W cells: an
/// attention window of W + 1 tokens is enough, additional global and random blocks do no harm, and
/// a window of W tokens is not enough.
#[test]
fn sparse_attention_runs_machines() -> TestResult {
    let cells = 13;
    let pattern = |window, global_first, random| AttentionConfig {
        kind: AttentionKind::Sparse,
        block: 1,
        window,
        global_first,
        random,
        ..AttentionConfig::default()
    };
    let cases = [
        ("binary-increment", increment as Rule, ["right", "_"], vec!["1", "0", "1", "1"], 200),
        ("busy-beaver-3", busy_beaver, ["A", "0"], vec![], 20),
    ];
    for (name, rule, [start, blank], input, steps) in cases {
        let machine = machine(name)?;
        let (right, _) = simulate(rule, (start, blank), &input, steps);
        let read = machine.read(&input.concat())?;
        let run = |attention| -> Result<Vec<(String, usize)>, TheoryError> {
            let decoder = TableauDecoder::new(&machine, (cells, steps), attention)?;
            let made = decoder.run((&read, 6), steps)?.into_iter();
            let named = made.map(|one| (machine.states().get(one.state).cloned(), one.head));
            Ok(named.map(|(state, head)| (state.unwrap_or_default(), head)).collect())
        };
        let mut head = 6;
        let mut expected: Vec<(String, usize)> = Vec::new();
        for (state, _, shift) in right {
            head += shift;
            expected.push((state, head as usize));
        }
        while let (true, Some(last)) = (expected.len() < steps, expected.last().cloned()) {
            expected.push(last);
        }
        assert_eq!(run(pattern(cells + 1, 0, 0))?, expected, "{name}");
        assert_eq!(run(pattern(cells + 1, 1, 2))?, expected, "{name}");
        assert_ne!(run(pattern(cells, 0, 0))?, expected, "{name}");
    }
    let machine = machine("busy-beaver-3")?;
    assert!(TableauDecoder::new(&machine, (100, 100), pattern(102, 0, 0)).is_err());
    let decoder = TableauDecoder::new(&machine, (5, 20), pattern(6, 0, 0))?;
    let left = decoder.run((&[], 4), 20).expect_err("the head leaves").to_string();
    assert_eq!(left, "step 1 leaves the tape of 5 cells");
    let more = decoder.run((&[], 2), 21).expect_err("too many steps").to_string();
    assert!(more.contains("assembled for 20 steps, not for 21"), "{more}");
    Ok(())
}

#[test]
fn faults_of_machines_are_told_with_their_place() {
    for (text, place, said) in [
        ("blank _\nstart a\na _ -> a _ X\n", (3, 12), "no move"),
        ("blank _\nstart a\na _ -> a _ R\na _ -> a _ L\n", (4, 1), "second rule"),
        ("blank _\nblank x\nstart a\nhalt a\n", (2, 1), "second line `blank`"),
        ("blank _\nstart a\nhalt a\nstart a\n", (4, 1), "second line `start`"),
        ("blank _\nstart a\na _ -> b _ R\n", (3, 8), "state b has no rules"),
        ("blank _\nstart a\nhalt a\na _ -> a _ R", (2, 7), "halts, and has rules"),
        ("start a\nhalt a\n", (1, 1), "no line `blank SYMBOL`"),
        ("blank _\nstart a/b\n", (2, 7), "contains no /"),
        ("blank _\nstart a\n  a _ => a _ R", (3, 3), "no line begins with"),
    ] {
        let Err(TheoryError::Program { place: at, message }) = Machine::parse(text) else {
            panic!("{text:?} was read");
        };
        assert_eq!((at.line, at.column), place, "{text:?}: {message}");
        assert!(message.contains(said), "{text:?}: {message}");
    }
    let machine = Machine::parse("blank _\nstart a\nhalt b\na _ -> b _ R").expect("a machine");
    assert!(machine.read("_ x").is_err_and(|error| error.to_string().contains("\"x\"")));
    let decoder = TuringDecoder::new(&machine, 4).expect("a decoder");
    assert!(decoder.run(&[0], 200).is_err_and(|error| error.to_string().contains("positions")));
}

#[test]
#[should_panic(expected = "no action of the machine")]
fn an_action_of_another_machine_has_no_token() {
    let machine = Machine::parse("blank _\nstart a\nhalt b\na _ -> b _ R").expect("a machine");
    let decoder = TuringDecoder::new(&machine, 4).expect("a decoder");
    let mut action = machine.actions()[0];
    action.shift = taper_theory::turing::Move::Left;
    let _ = decoder.text(&[0], &[action]);
}

/// Checks that an attention window that contains the whole text changes nothing, and that a smaller
/// window makes the decoder err.
#[test]
fn a_decoder_that_forgets_is_no_machine() -> TestResult {
    let machine = machine("palindrome")?;
    let input = machine.read("abba")?;
    let window = |window| AttentionConfig {
        kind: AttentionKind::Sparse,
        block: 1,
        window,
        random: 0,
        ..AttentionConfig::default()
    };
    let right = machine.simulate(&input, 40).actions();
    let run = |attention| -> Result<Vec<Action>, TheoryError> {
        TuringDecoder::with(&machine, 64, DType::F32, attention)?.run(&input, 40)
    };
    assert_eq!(run(window(64))?, right);
    assert_ne!(run(window(6))?, right);
    Ok(())
}
