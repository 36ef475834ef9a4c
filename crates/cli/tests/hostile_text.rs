//! Tests of text that nobody would translate: the output must have as many lines as the input, in
//! the same order, without a panic.

mod common;

use common::{Workspace, json_lines, mentions, stderr, stdout};
use serde_json::Value;

/// Length of the longest lines, in bytes.
const LONG: usize = 1 << 20;

#[test]
fn hostile_text_is_translated_line_by_line() {
    let workspace = Workspace::new();
    workspace.train("run");
    let lines: Vec<String> = [
        "",
        " \t ",
        "red cat sees",
        "\0\u{1}\u{7}\u{8}\u{b}\u{c}\u{1b}[31mred\u{7f}",
        "\u{85}\u{2028}\u{2029}",
        "\u{1f469}\u{200d}\u{1f469}\u{200d}\u{1f467}\u{1f3ff} \u{1f1e9}\u{1f1ea}",
        "\u{202e}tac der\u{202c} \u{5e9}\u{5dc}\u{5d5}\u{5dd} \u{645}\u{631}\u{62d}\u{628}\u{627}",
        "\u{301}\u{301}\u{301}",
        "\u{feff}\u{200b}\u{ad}\u{e000}\u{ffff}\u{10ffff}",
        "<s> </s> <pad> <unk> <0x41>",
        "two\rdogs",
        "red cat sees",
    ]
    .map(str::to_owned)
    .into_iter()
    .chain([format!("e{}", "\u{301}".repeat(300)), "red cat ".repeat(200)])
    .chain((0..50).map(|number| format!("dogs run here {number}")))
    .collect();
    let input = lines.join("\n") + "\n";

    let output = workspace.run_with_input("translate run --json", input.as_bytes());
    assert!(output.status.success(), "{}", stderr(&output));
    let records = json_lines(&stdout(&output));
    assert_eq!(records.len(), lines.len());
    for (index, (record, line)) in records.iter().zip(&lines).enumerate() {
        assert_eq!(record["line"], index + 1);
        assert_eq!(record["source"], line.as_str());
    }
    for empty in [0, 1] {
        assert_eq!(records[empty]["translations"][0]["text"], "");
    }
    assert_eq!(records[2]["translations"], records[11]["translations"]);

    let plain = workspace.run_with_input("translate run", input.as_bytes());
    assert_eq!(
        stdout(&plain).matches('\n').count(),
        lines.len(),
        "a translation holds a line break"
    );
    // The last line may lack its line end, and empty input gives empty output.
    assert_eq!(
        stdout(&workspace.run_with_input("translate run", b"red cat\ndogs")).matches('\n').count(),
        2
    );
    assert_eq!(stdout(&workspace.run_with_input("translate run", b"")), "");
}

/// Each of the first five lines has 1 MiB: the first consists of many words, the second of a single
/// word whose letters have combining marks, the third of emoji and right-to-left text, the fourth
/// of control characters and digits, and the fifth of spaces.
#[test]
fn lines_of_a_mebibyte_are_translated_in_parts() {
    let workspace = Workspace::new();
    workspace.train("run");
    let fragments = [
        "red cat ",
        "xe\u{301}",
        "\u{1f469}\u{200d}\u{1f680}\u{5e9}\u{5dc}\u{5d5}\u{5dd} ",
        "\0\u{1b}[31m7!",
        " ",
    ];
    let mut lines: Vec<String> =
        fragments.map(|fragment| fragment.repeat(LONG / fragment.len())).into();
    lines.push("red cat sees".to_owned());
    let input = lines.join("\n") + "\n";

    // Translations are limited to a few tokens to save time, because their text does not matter
    // here.
    let quick = "translate run --json --beam 1 --set decoding.max_length=3 --max-source-tokens 500";
    let output = workspace.run_with_input(quick, input.as_bytes());
    assert!(output.status.success(), "{}", stderr(&output));
    let records = json_lines(&stdout(&output));
    assert_eq!(records.len(), lines.len());
    for (record, line) in records.iter().zip(&lines) {
        assert!(record["source"] == line.as_str(), "line {} is another", record["line"]);
        let parts = record["overlong"]["parts"].as_u64().unwrap_or(0);
        // A line of blanks is not translated, so it has no parts.
        let fewest = if line.trim().is_empty() { 0 } else { line.len() as u64 / 500 / 10 };
        assert!(parts >= fewest, "line {} in {parts} parts", record["line"]);
    }
    let alone = workspace.run_with_input(quick, b"red cat sees\n");
    let alone: Value = serde_json::from_str(&stdout(&alone)).expect("JSON");
    assert_eq!(records[5]["translations"][0]["text"], alone["translations"][0]["text"]);
}

/// `evaluate` translates overlong lines of a test set in parts, as `translate` does. `score`
/// refuses overlong lines unless `--max-tokens` allows them.
#[test]
fn overlong_lines_are_evaluated_in_parts_and_scored_if_asked_for() {
    let workspace = Workspace::new();
    workspace.train("run");
    let text = format!("{}\ndogs run here\n", "red cat ".repeat(400));
    workspace.write("data/long.aa", &text);
    workspace.write("data/long.bb", &text);
    let said = workspace.succeed("evaluate run --split long");
    mentions(
        &said,
        &["long (2 sentences, 1 of them longer than training saw and translated in parts)"],
    );

    let score = "score run --source data/long.aa --target data/long.bb";
    workspace.fail(score, &["data/long.aa, line 1: ", "tokens, more than 250; `--max-tokens N`"]);
    let scores = workspace.succeed(format!("{score} --max-tokens 5000"));
    assert_eq!(scores.lines().count(), 2);
}

/// The tokenizer has a pattern that tries every division of a sequence of letters. For long
/// sequences, the regular expression engine gives up.
#[test]
fn a_text_at_which_the_tokenizer_gives_up_is_an_error_with_the_text() {
    let workspace = Workspace::of_text();
    let short = "--set training.max_updates=2 --set training.validate_every=2";
    workspace.succeed(format!("train tiny.toml --run first {short}"));
    let file = std::fs::read(workspace.path("first/tokenizer.json")).expect("a tokenizer");
    let mut file: Value = serde_json::from_slice(&file).expect("JSON");
    let mut parts = vec![serde_json::json!({
        "type": "Split", "pattern": { "Regex": "(a+)+$" }, "behavior": "Isolated", "invert": false,
    })];
    parts.extend(Some(file["pre_tokenizer"].clone()).filter(|own| !own.is_null()));
    file["pre_tokenizer"] = serde_json::json!({ "type": "Sequence", "pretokenizers": parts });
    workspace.write("endless.json", file.to_string());
    let path = workspace.path("endless.json");
    let of_path = format!("--set data.tokenizer.path={}", path.display());
    let train = |run| format!("train tiny.toml --run {run} {short} {of_path}");
    workspace.succeed(train("run"));

    let endless = format!("{}.", "a".repeat(60));
    workspace.write("texts", format!("red cat\n{endless}\n"));
    let given_up = "retry-limit-in-match over";
    for (arguments, place) in [
        (format!("generate run --prompt {endless}").as_str(), "the prompt"),
        ("score run --text texts", "line 2"),
    ] {
        let message = workspace.fail(arguments, &[given_up, place, "\"aaaaaaaa"]);
        assert!(!message.contains("panicked"), "{message}");
    }
    let text = workspace.read("data/text.txt");
    workspace.write("data/text.txt", format!("{text}{endless}\n"));
    let message = workspace.fail(train("other"), &[given_up]);
    assert!(!message.contains("panicked"), "{message}");
}
