//! Tests at a terminal, which `script` of util-linux provides: conversations, bars, and the report
//! of a finished training.
#![cfg(target_os = "linux")]

mod common;

use common::{Workspace, mentions, stderr, stdout};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Returns the output of `taper` with `arguments` at a terminal. `typed` has pairs of a text to
/// wait for in the output and the input that is typed then.
fn at_terminal(workspace: &Workspace, arguments: &str, typed: &[(&str, &str)]) -> String {
    at_terminal_of(80, workspace, arguments, typed)
}

/// Returns the output as [`at_terminal`] does, at a terminal of `columns` columns.
fn at_terminal_of(
    columns: usize,
    workspace: &Workspace,
    arguments: &str,
    typed: &[(&str, &str)],
) -> String {
    let piece = |(shown, text): &(&str, &str)| {
        let wait = "for _ in $(seq 600)";
        format!("{wait}; do grep -qa '{shown}' shown && break; sleep 0.05; done; printf '{text}'; ")
    };
    let pieces: String = typed.iter().map(piece).collect();
    let script = format!(
        "touch shown; ({pieces}true) | TERM=xterm script -qfec \"stty rows 24 columns {columns}; $0 \
         {arguments}\" shown"
    );
    let output = workspace.script(&["sh"], &script);
    assert!(output.status.success(), "{}{}", stdout(&output), stderr(&output));
    stdout(&output)
}

/// Returns the rows that a terminal of `columns` columns has shown, without control sequences. A
/// row ends at a carriage return, at a line break, or when it is full.
fn rows(output: &str, columns: usize) -> Vec<String> {
    let mut plain = String::new();
    let mut characters = output.chars();
    while let Some(character) = characters.next() {
        if character != '\u{1b}' {
            plain.push(character);
        } else if characters.next() == Some('[') {
            characters.by_ref().find(char::is_ascii_alphabetic);
        }
    }
    let mut rows = vec![String::new()];
    for character in plain.chars() {
        let is_end = character == '\r' || character == '\n';
        let width = character.width().unwrap_or(0);
        if is_end || rows.last().is_some_and(|row| row.width() + width > columns) {
            rows.push(String::new());
        }
        if let Some(row) = rows.last_mut().filter(|_| !is_end) {
            row.push(character);
        }
    }
    rows.iter().map(|row| row.trim_end().to_owned()).filter(|row| !row.is_empty()).collect()
}

#[test]
fn a_conversation_shows_more_on_request_and_survives_a_bad_byte() {
    let workspace = Workspace::new();
    workspace.train("run");
    let alone = |sentence: &str| {
        let input = format!("{sentence}\n");
        stdout(&workspace.run_with_input("translate run", input.as_bytes())).trim().to_owned()
    };
    let (first, second) = (alone("red cat sees"), alone("two big dogs run here"));
    let shown = at_terminal(
        &workspace,
        "translate run",
        &[
            // One letter too many is typed and deleted.
            (":help tells more", r":alt\nred cat seesx\177\n:alt 2\n:align\n\377\n"),
            // The last line is called back from the history.
            ("not UTF-8", r"two big dogs run here\n\033[A\n:help\n:quit\n"),
        ],
    );
    mentions(&shown, &["there is no sentence yet"]);
    assert!(shown.contains(&first) && shown.contains(&second), "{first:?} {second:?} {shown}");
    mentions(&shown, &["not UTF-8"]);
    let is_second = |line: &&str| line.trim_end().ends_with(&second);
    assert!(shown.lines().filter(is_second).count() >= 2, "{shown}");
    // Two alternatives, each after its score; the better alternative comes first.
    let scored: Vec<&str> = shown
        .lines()
        .filter(|line| line.trim_start().starts_with('-') && line.contains("  "))
        .collect();
    assert!(scored.len() >= 2 && scored[0].trim_end().ends_with(&first), "{shown}");
    // Each token of the translation is shown with the source tokens to which it is aligned.
    let sources = ["\u{2581}red", "\u{2581}cat", "\u{2581}sees", "</s>"];
    let aligned = shown.lines().map(str::trim_end).filter(|line| line.starts_with("  "));
    assert!(aligned.clone().count() > 0, "{shown}");
    assert!(
        aligned.into_iter().all(|line| sources.iter().any(|one| line.contains(one))),
        "{shown}"
    );
    mentions(&shown, &[":align "]);
}

#[test]
fn translating_a_file_shows_how_far_it_is() {
    let workspace = Workspace::new();
    workspace.train("run");
    workspace.write("in.txt", "red cat sees two big dogs\n".repeat(300));
    let said = at_terminal(&workspace, "translate run -i in.txt -o out.txt", &[]);
    mentions(&said, &["translating", "/300 sentences"]);
}

#[test]
fn a_training_shows_its_bar_and_says_how_to_go_on() {
    let workspace = Workspace::new();
    let shown = at_terminal(&workspace, "train tiny.toml --run 'my run'", &[]);
    mentions(&shown, &["smoothed loss"]);
    // The course of the score has two validations.
    assert!(shown.contains("validation BLEU") && shown.contains('█'), "{shown}");
    mentions(
        &shown,
        &["taper resume 'my run' --set training.max_updates=24", "taper evaluate 'my run'"],
    );
    let shown = workspace.succeed("train tiny.toml --run b --set data.test=");
    assert!(shown.contains("taper translate b") && !shown.contains("taper evaluate"), "{shown}");
}

#[test]
fn lines_of_validations_are_no_wider_than_the_terminal() {
    let workspace = Workspace::new();
    for columns in [36, 60] {
        let arguments = format!("train tiny.toml --run run-{columns}");
        let shown = rows(&at_terminal_of(columns, &workspace, &arguments, &[]), columns);
        let place = |text: &str| {
            let found = shown.iter().position(|row| row.contains(text));
            found.unwrap_or_else(|| panic!("{text} is not in {shown:#?}"))
        };
        // Rows from the first validation to the course of the score, which precedes the reports of
        // the end. Bars alone fill a row.
        let of_training = &shown[place("validation:")..=place("validation BLEU")];
        let lines: Vec<&String> = of_training
            .iter()
            .filter(|row| !row.contains(['░', '█']) || row.contains("BLEU"))
            .collect();
        let full: Vec<_> = lines.iter().filter(|row| row.width() >= columns).collect();
        assert!(full.is_empty(), "at {columns} columns: {full:#?} in {shown:#?}");
        // No text is left out to make the lines fit.
        let told: String =
            lines.into_iter().flat_map(|row| row.chars()).filter(|one| *one != ' ').collect();
        mentions(&told, &["step12", "validation:", "chrF2", "(bestsofar)", "reference"]);
    }
}

#[test]
fn every_command_that_computes_takes_threads() {
    let workspace = Workspace::new();
    workspace.succeed("train tiny.toml --run run --threads 1");
    workspace.succeed("resume run --set training.max_updates=14 --threads 1");
    workspace.succeed("--threads 1 evaluate run");
    workspace.succeed("score run --source data/test.aa --target data/test.bb --threads 2");
    workspace.succeed("translate run --input data/test.aa --threads 1");
    workspace.succeed("tokenizer train tiny.toml -o tok --threads 1");
    workspace.succeed("bleu data/test.bb data/test.bb --threads 1");
    // The option applies to the process and is not written into the run.
    mentions(workspace.read("run/config.toml"), &["threads = 0"]);
    workspace.fail("evaluate run --threads 5000", &["--threads 5000: must be at most"]);
}
