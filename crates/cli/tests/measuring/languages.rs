//! Tests of `languages`: with the model in the program, and with a model that is trained.

use serde_json::Value;

use crate::common::{Workspace, mentions, stderr, stdout};

#[test]
fn the_model_in_the_program_names_the_language_of_each_line() {
    let workspace = Workspace::new();
    let text = "This is a sentence in English.\nDas ist ein Satz auf Deutsch.\n\n42\n";
    let identified = |options: &str| {
        let all = format!("languages identify {options}");
        let output = workspace.run_with_input(&all, text.as_bytes());
        assert!(output.status.success(), "{}", stderr(&output));
        stdout(&output)
    };
    let lines = identified("");
    let codes = lines.lines().map(|line| line.split('\t').next().expect("a code"));
    assert!(codes.eq(["en", "de", "zxx", "zxx"]), "{lines}");
    let records: Vec<Value> = identified("--json")
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(records[1]["language"]["language"], "de");
    assert!(records[1]["language"]["probability"].as_f64().expect("a number") > 0.9);
    assert!(records[2]["language"].is_null());
}

#[test]
fn a_model_is_trained_measured_and_used() {
    let workspace = Workspace::new();
    // Both languages of the test corpus have the same words, so a letter is replaced in the text of
    // one language to make a difference.
    let text = workspace.read("data/train.aa");
    let turned: String = text.chars().map(|one| if one == 'e' { 'ö' } else { one }).collect();
    let labelled = |code: &str, text: &str| -> String {
        text.lines().map(|line| format!("{code}\t{line}\n")).collect()
    };
    workspace.write("lines.tsv", labelled("aa", &text) + &labelled("bb", &turned));
    let train = "languages train lines.tsv -o own.bin --features 500";
    mentions(workspace.succeed(format!("{train} --pieces 4000")), &["own.bin: 2 languages"]);
    let result = workspace.json("languages evaluate lines.tsv --model own.bin --json");
    assert!(result["mean_accuracy"].as_f64().expect("a number") > 90.0, "{result}");
    let output =
        workspace.run_with_input("languages identify --model own.bin", "rud sööd\n".as_bytes());
    assert!(stdout(&output).starts_with("bb\t"), "{}", stdout(&output));
    workspace.fail(
        "languages evaluate data/train.aa --model own.bin",
        &["data/train.aa, line 1", "a tab"],
    );
    workspace
        .fail("languages identify --model lines.tsv", &["lines.tsv", "not a model of languages"]);
    // Cleaning cannot identify made-up languages.
    workspace.fail(
        "train tiny.toml --run run --set data.cleaning.other_language=0.9",
        &["data.cleaning.other_language", "\"aa\""],
    );
}
