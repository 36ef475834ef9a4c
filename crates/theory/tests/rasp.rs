//! Compares the results of compiled RASP programs (programs of select and aggregate) with those of
//! the interpreter and of plain Rust.

use taper_ops::rng::{Counter, mix};
use taper_theory::TheoryError;
use taper_theory::rasp::{CompiledProgram, Program};

type TestResult = Result<(), Box<dyn std::error::Error>>;

fn program(name: &str) -> Result<Program, Box<dyn std::error::Error>> {
    let path = format!("{}/../../configs/theory/{name}.rasp", env!("CARGO_MANIFEST_DIR"));
    Ok(Program::parse(&std::fs::read_to_string(path)?)?)
}

/// All texts of at most `longest` characters of `alphabet`.
fn texts(alphabet: &[char], longest: u32) -> Vec<String> {
    let count = alphabet.len();
    let of_length = |length: u32| {
        (0..count.pow(length)).map(move |number| {
            (0..length).map(|at| alphabet[number / count.pow(at) % count]).collect()
        })
    };
    (0..=longest).flat_map(of_length).collect()
}

/// Draws a random text of `length` characters.
fn random(alphabet: &[char], length: usize, seed: u64) -> String {
    let counter = Counter::new(mix(53, &[seed]));
    let pick = |at| alphabet[counter.u64_at(at) as usize % alphabet.len()];
    (0..length as u64).map(pick).collect()
}

/// Returns the result that the program `name` should compute on a text, computed in plain Rust.
fn expected(name: &str, text: &str) -> Vec<String> {
    let characters: Vec<char> = text.chars().collect();
    let count = |one: char| characters.iter().filter(|other| **other == one).count();
    let shown = |characters: Vec<char>| characters.iter().map(char::to_string).collect();
    match name {
        "reverse" => shown(characters.iter().rev().copied().collect()),
        "sort" => {
            let mut sorted = characters.clone();
            sorted.sort_unstable();
            shown(sorted)
        }
        "histogram" => characters.iter().map(|one| count(*one).to_string()).collect(),
        "dyck-depth" => {
            let mut depth = 0_i32;
            let after = |one: &char| {
                depth += if *one == '(' { 1 } else { -1 };
                depth.to_string()
            };
            characters.iter().map(after).collect()
        }
        _ => {
            let mut best = characters.first().copied();
            for one in &characters {
                if best.is_some_and(|best| count(*one) > count(best)) {
                    best = Some(*one);
                }
            }
            characters.iter().map(|_| best.unwrap_or(' ').to_string()).collect()
        }
    }
}

/// Compares compiled programs with plain Rust and with the interpreter, on every input of at most
/// eight characters from an alphabet of at most three. The programs are those of Weiss et al. 2021,
/// section 3, and of Lindner et al. 2023, section 3.
#[test]
fn compiled_programs_are_interpreted_programs() -> TestResult {
    for name in ["reverse", "sort", "histogram", "dyck-depth", "most-frequent"] {
        let program = program(name)?;
        let alphabet = &program.alphabet()[..program.alphabet().len().min(3)];
        let texts = texts(alphabet, 8);
        let compiled = CompiledProgram::new(&program, 8)?;
        for some in texts.chunks(2000) {
            let some: Vec<&str> = some.iter().map(String::as_str).collect();
            for (text, answer) in some.iter().zip(compiled.run(&some)?) {
                assert_eq!(answer, expected(name, text), "{name} of {text:?}");
                assert_eq!(answer, program.interpret(text)?, "{name} of {text:?}");
            }
        }
    }
    Ok(())
}

#[test]
fn compiled_programs_hold_for_long_inputs() -> TestResult {
    for name in ["reverse", "sort", "histogram", "dyck-depth", "most-frequent"] {
        let program = program(name)?;
        let lengths = [9, 17, 33, 48, 63, 64].into_iter().zip(0..);
        let texts: Vec<String> =
            lengths.map(|(length, seed)| random(program.alphabet(), length, seed)).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let compiled = CompiledProgram::new(&program, 64)?;
        for (text, answer) in texts.iter().zip(compiled.run(&texts)?) {
            assert_eq!(answer, expected(name, text), "{name} of {text:?}");
            assert_eq!(answer, program.interpret(text)?, "{name} of {text:?}");
        }
    }
    Ok(())
}

/// Checks that every operation of the language gives the same result compiled and interpreted, on
/// all inputs of at most five characters.
#[test]
fn every_operation_is_compiled() -> TestResult {
    for text in [
        "'a' if indices == 1 or tokens == 'b' else tokens",
        "length - 2 * 1",
        "not (tokens < 'c') and indices >= 1",
        "aggregate(select(indices, indices + 1, ==), tokens, 'c')",
        "aggregate(select(indices, indices - 1, ==) or select(indices, 0, ==) and \
         select(1, length, ==), indices, -1)",
        "selector_width(not (select(tokens, tokens, !=) or select(indices, indices, >)))",
        "indices - length + selector_width(select(true, tokens == 'a', ==))",
        "selector_width(select(indices, 2, <=) and not select(tokens, 'b', ==)) == 2",
        "7",
        "(indices if tokens == 'a' else length) if length > 3 else 0 - indices",
    ] {
        let source = format!("alphabet \"abc\"\nx = {}\nx", text.replace(" 2 * 1", " 2"));
        let program = Program::parse(&source)?;
        let compiled = CompiledProgram::new(&program, 5)?;
        let texts = texts(&['a', 'b', 'c'], 5);
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        for (input, answer) in texts.iter().zip(compiled.run(&texts)?) {
            assert_eq!(answer, program.interpret(input)?, "{text} of {input:?}");
        }
    }
    Ok(())
}

#[test]
fn faults_of_programs_are_told_with_their_place() {
    let told = |text: &str| {
        let compiled = Program::parse(text).and_then(|program| CompiledProgram::new(&program, 8));
        match compiled {
            Err(TheoryError::Program { place, message }) => {
                format!("{}:{} {message}", place.line, place.column)
            }
            other => panic!("{text:?}: {other:?}"),
        }
    };
    for (text, said) in [
        ("tokens", "1:1 expected `alphabet"),
        ("alphabet \"ab\"\n", "1:14 expected `alphabet"),
        ("alphabet \"ab\"\ntokens +", "2:9 expected a value"),
        ("alphabet \"ab\"\ntokens + 1", "2:8 expected values of one kind"),
        ("alphabet \"ab\"\n  x = nothing", "2:7 expected a value or a name"),
        ("alphabet \"ab\"\nselect(tokens, tokens, ==)", "2:1 the result is a selector"),
        ("alphabet \"ab\"\nselect(tokens, tokens, +)", "2:24 expected a comparison"),
        ("alphabet \"ab\"\ntokens == 'c'", "2:11 the alphabet does not have"),
        ("alphabet \"ab\"\nselector_width(tokens)", "2:16 expected a selector"),
        ("alphabet \"ab\"\n'ab'", "2:1 a character stands"),
        ("alphabet \"ab\"\n1 ? 2", "2:3 '?' has no meaning"),
        ("alphabet \"ab\"\nx = (1 +\n", "2:9 expected"),
    ] {
        let message = told(text);
        assert!(message.starts_with(said), "{text:?}: {message}");
    }
    let mut doubled = "alphabet \"a\"\nx0 = indices\n".to_owned();
    for number in 1..12 {
        doubled += &format!("x{number} = x{0} + x{0}\n", number - 1);
    }
    assert!(told(&doubled).contains("combinations") || told(&doubled).contains("values"));
    let deep = format!("alphabet \"a\"\n{}1{}", "(".repeat(900), ")".repeat(900));
    assert!(told(&deep).contains("nested"));
    let program = Program::parse("alphabet \"ab\"\naggregate(select(0, 0, ==), tokens)").unwrap();
    let said = program.interpret("ab").unwrap_err().to_string();
    assert_eq!(said, "line 2, column 1: both a and b are selected at place 0");
    assert!(program.interpret("ax").unwrap_err().to_string().contains("alphabet is \"ab\""));
    let compiled = CompiledProgram::new(&program, 2).unwrap();
    assert!(compiled.run(&["aab"]).unwrap_err().to_string().contains("compiled for 2"));
}

/// Number of characters of the inputs in the following tests.
const LONG: usize = 140;

/// Compares a compiled program with the interpreter, on an input of [`LONG`] characters.
fn compare(lines: &[&str]) -> TestResult {
    let program = Program::parse(&format!("alphabet \"ab\"\n{}\n", lines.join("\n")))?;
    let input = random(&['a', 'b'], LONG, 7);
    let answer = &CompiledProgram::new(&program, LONG)?.run(&[&input])?[0];
    let expected = program.interpret(&input)?;
    let wrong = answer.iter().zip(&expected).filter(|(one, other)| one != other).count();
    assert_eq!(wrong, 0, "{lines:?}: {wrong} of {LONG}, such as {:?}", answer.last());
    Ok(())
}

#[test]
fn large_numbers_are_exact() -> TestResult {
    compare(&["x = indices + indices", "x - indices"])?;
    compare(&["x = indices + 1000000", "x - 1000000"])?;
    compare(&["x = 1000000 - indices", "y = x - 500000", "y - 500000"])?;
    compare(&["x = 1000000 + 1000000", "x = x + x + x + x", "indices + x"])?;
    compare(&["x = 999999 if tokens == 'a' else 3 if indices > 7 else 0", "x + x - 1"])?;
    compare(&[
        "x = 500000 if tokens == 'a' else 1 if indices > 7 else 0",
        "y = x + indices",
        "y - x",
    ])
}

#[test]
fn numbers_that_f32_cannot_tell_apart_are_refused() {
    let refusal = |definitions: &str| {
        let program = Program::parse(&format!("alphabet \"ab\"\n{definitions}")).unwrap();
        CompiledProgram::new(&program, 8).unwrap_err().to_string()
    };
    let doubled = |times: usize| {
        let double = |number: usize| format!("x{} = x{number} + x{number}\n", number + 1);
        "x0 = 1000000\n".to_owned() + &(0..times).map(double).collect::<String>()
    };
    let said = refusal(&format!("{}big = x17 + 1\ny = indices + big\ny - big", doubled(17)));
    assert!(said.contains("f32"), "{said}");
    let said = refusal(&format!("{}x45", doubled(45)));
    assert!(said.contains("line 46, column") && said.contains("overflow"), "{said}");
    for last in ["x + x", "x if indices > 2 else x + indices", "indices if x < 0 else length"] {
        let choice = "x = x42 if tokens == 'a' else 0 - x42";
        let said = refusal(&format!("{}{choice}\n{last}", doubled(42)));
        assert!(said.contains("f32"), "{last}: {said}");
    }
}

#[test]
fn selectors_may_be_combined_many_times() -> TestResult {
    let mut lines = vec!["s = select(tokens, 'a', ==) and select(indices, indices, <)".to_owned()];
    lines.extend(
        ["s = s or s".to_owned(), "s = not (s and s)".to_owned()].into_iter().cycle().take(60),
    );
    lines.push("b = select(tokens, 'b', ==)".to_owned());
    lines.push("other = select(indices, 3, !=)".to_owned());
    lines.extend(
        ["s = s or b".to_owned(), "s = s and other".to_owned()].into_iter().cycle().take(60),
    );
    lines.push("selector_width(s)".to_owned());
    let program = Program::parse(&format!("alphabet \"ab\"\n{}\n", lines.join("\n")))?;
    let compiled = CompiledProgram::new(&program, 6)?;
    let texts = texts(&['a', 'b'], 6);
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    for (input, answer) in texts.iter().zip(compiled.run(&texts)?) {
        assert_eq!(answer, program.interpret(input)?, "{input:?}");
    }
    Ok(())
}
