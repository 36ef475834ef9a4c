//! Damaged and hostile input, and checks of all code that reads such input.
//!
//! Each module states what must hold for one damaged input: [`corpora`] for text, images and
//! tokenizers, [`checkpoints`], [`recipes`], [`records`] for the logs and scores of trainings,
//! [`scores`], and [`vectors`] for word vectors. Their tests are property tests, which damage valid
//! input at random. The fuzz targets in `fuzz` run the same checks on inputs that a coverage-guided
//! fuzzer generates.
//!
//! Random bytes test little of a parser, because it already refuses the first bytes. [`assault`]
//! therefore starts from valid input and damages it a little. So the parser understands most of the
//! input before it reaches the damage. The cases are the same each time. A failing case is reduced
//! to the smallest case that still fails, which is printed.
//!
//! This crate is for tests only, so failures are panics.

pub mod checkpoints;
pub mod corpora;
pub mod recipes;
pub mod records;
pub mod scores;
pub mod vectors;

use std::fmt;

use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any};
use proptest::sample::{Index, select};
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

/// Largest growth of the process's memory over all cases. It is far more than any test input needs,
/// and far less than a length field of four damaged bytes can request.
const MOST_GROWTH: u64 = 1 << 30;

/// Fragments of bytes that often reveal faults in parsers.
const FRAGMENTS: [&[u8]; 20] = [
    b"\0",
    b"\xff\xfe",
    b"\xc0\xaf",
    b"\r",
    b"\n",
    b"\t",
    b"\"",
    b"\\u0000",
    b"\\ud800",
    b"{",
    b"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
    b"null",
    b"-1",
    b"1e400",
    b"NaN",
    b"18446744073709551615",
    b"9223372036854775808",
    "\u{202e}\u{feff}\u{301}".as_bytes(),
    "\u{1f469}\u{200d}\u{1f680}".as_bytes(),
    b"<s></s><pad>",
];

/// One change that damages bytes.
#[derive(Debug, Clone)]
enum Damage {
    Change(Index, u8),
    Insert(Index, Vec<u8>),
    Remove(Index, usize),
    Truncate(Index),
    Repeat(Index, usize, usize),
}

impl Damage {
    fn apply(&self, bytes: &mut Vec<u8>) {
        let at = |index: &Index, bytes: &[u8]| index.index(bytes.len() + 1);
        match self {
            Self::Change(index, byte) => {
                let at = at(index, bytes);
                if let Some(old) = bytes.get_mut(at) {
                    *old = *byte;
                }
            }
            Self::Insert(index, new) => {
                let at = at(index, bytes);
                bytes.splice(at..at, new.iter().copied());
            }
            Self::Remove(index, count) => {
                let at = at(index, bytes);
                bytes.drain(at..bytes.len().min(at + count));
            }
            Self::Truncate(index) => bytes.truncate(at(index, bytes)),
            Self::Repeat(index, count, times) => {
                let at = at(index, bytes);
                let part = bytes[at..bytes.len().min(at + count)].repeat(*times);
                bytes.splice(at..at, part);
            }
        }
    }
}

fn damage() -> impl Strategy<Value = Damage> {
    let index = any::<Index>;
    proptest::prop_oneof![
        4 => (index(), any::<u8>()).prop_map(|(at, byte)| Damage::Change(at, byte)),
        4 => (index(), select(FRAGMENTS.as_slice())).prop_map(|(at, fragment)| Damage::Insert(at, fragment.to_vec())),
        1 => (index(), vec(any::<u8>(), 1..16)).prop_map(|(at, bytes)| Damage::Insert(at, bytes)),
        3 => (index(), 1usize..40).prop_map(|(at, count)| Damage::Remove(at, count)),
        1 => index().prop_map(Damage::Truncate),
        1 => (index(), 1usize..40, 2usize..30).prop_map(|(at, count, times)| Damage::Repeat(at, count, times)),
    ]
}

/// Calls `survives` with `cases` damaged copies of `seeds`, which are valid inputs. The call must
/// not panic, and the memory of the process must not grow much. It does not matter whether the
/// damaged input is refused.
///
/// # Panics
/// With the smallest input found for which `survives` fails.
pub fn assault(cases: u32, seeds: &[&[u8]], survives: impl Fn(&[u8])) {
    assert!(!seeds.is_empty(), "nothing to damage");
    let seeds: Vec<Vec<u8>> = seeds.iter().map(|seed| seed.to_vec()).collect();
    let input = (select(seeds), vec(damage(), 0..6)).prop_map(|(mut bytes, damage)| {
        damage.iter().for_each(|damage| damage.apply(&mut bytes));
        bytes
    });
    run(cases, input, |bytes| survives(&bytes));
}

/// Calls `survives` with `cases` lists of up to `lines` lines of text. The lines have letters,
/// characters of every plane of Unicode, control and combining characters, and text that looks like
/// special tokens.
///
/// # Panics
/// With the smallest list found for which `survives` fails.
pub fn assault_with_text(cases: u32, lines: usize, survives: impl Fn(&[String])) {
    let fragment = select(FRAGMENTS.as_slice())
        .prop_map(|fragment| String::from_utf8_lossy(fragment).into_owned());
    let line = proptest::prop_oneof![
        2 => "[a-zé ,.!]{0,40}".prop_map(|text| text),
        2 => any::<String>(),
        1 => Just(String::new()),
        1 => vec(fragment, 1..12).prop_map(|fragments| fragments.concat()),
    ];
    run(cases, vec(line, 0..=lines), |lines| survives(&lines));
}

fn run<T: fmt::Debug>(cases: u32, input: impl Strategy<Value = T>, survives: impl Fn(T)) {
    let before = peak();
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let mut runner =
        TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let ended = runner.run(&input, |input| {
        survives(input);
        Ok::<(), TestCaseError>(())
    });
    match ended {
        Ok(()) => {}
        Err(TestError::Fail(reason, input)) => {
            panic!("not survived: {reason}; the smallest such input is {input:?}")
        }
        Err(TestError::Abort(reason)) => panic!("given up: {reason}"),
    }
    // Linux updates its count of a process's memory in batches, so the reported peak may even fall
    // a little.
    let growth = peak().saturating_sub(before);
    assert!(growth < MOST_GROWTH, "the process grew by {growth} bytes");
}

/// Returns the peak memory of the process so far in bytes; 0 if the system does not report it.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kibibytes =
        line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kibibytes.unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn damage_reaches_the_parser_and_leaves_most_of_the_input() {
        let (cases, changed, kept) = (Cell::new(0), Cell::new(0), Cell::new(0));
        let seed = b"{\"key\": [1, 2, 3], \"other\": \"some text that is longer\"}";
        assault(2000, &[seed], |bytes| {
            cases.set(cases.get() + 1);
            changed.set(changed.get() + u32::from(bytes != seed));
            kept.set(kept.get() + u32::from(bytes.len() > seed.len() / 2));
        });
        assert_eq!(cases.get(), 2000);
        assert!(changed.get() > 1500 && kept.get() > 1200, "{changed:?} {kept:?}");
    }

    #[test]
    fn a_fault_is_found_and_reduced() {
        let fails = catch_unwind(AssertUnwindSafe(|| {
            assault(5000, &[b"abc"], |bytes| assert!(!bytes.contains(&b'\t')))
        }));
        let message =
            *fails.expect_err("a tab is among the fragments").downcast::<String>().expect("text");
        assert!(message.contains("not survived"), "{message}");
        let fails = catch_unwind(AssertUnwindSafe(|| {
            assault_with_text(2000, 3, |lines| assert!(lines.len() < 3))
        }));
        assert!(fails.is_err());
    }
}
