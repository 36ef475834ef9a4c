//! The options of `translate` and `bench decode`, in the real binary on a small trained run.

mod common;

use common::{Workspace, stderr, stdout};
use serde_json::Value;

/// The JSON record of each line that `translate` prints for `input`.
fn records(workspace: &Workspace, arguments: &[&str], input: &str) -> Vec<Value> {
    let output = workspace.run_with_input(&[&["translate", "run", "--json"], arguments].concat(), input.as_bytes());
    assert!(output.status.success(), "{}", stderr(&output));
    stdout(&output).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn best(record: &Value) -> &str {
    record["translations"][0]["text"].as_str().expect("text")
}

/// One training serves all checks; it takes most of the time.
#[test]
fn decoding_options() {
    let workspace = Workspace::new();
    workspace.train("run");
    let input = "red cat sees\ntwo big dogs run here\n\nred cat sees\n";
    greedy_sampling_and_seeds(&workspace, input);
    prefixes_and_n_best(&workspace, input);
    ensembles(&workspace, input);
    alignments(&workspace, input);
    overlong_lines(&workspace);
    bench(&workspace, input);
}

fn greedy_sampling_and_seeds(workspace: &Workspace, input: &str) {
    let greedy = records(workspace, &["--beam", "1"], input);
    assert_eq!(records(workspace, &["--top-k", "1"], input), greedy);
    assert_eq!(records(workspace, &["--temperature", "1e-6"], input), greedy);
    let drawn = records(workspace, &["--temperature", "2", "--seed", "7"], input);
    // Scores may differ in their last digits, since products of other sizes round otherwise; draws may not.
    let one_by_one = records(workspace, &["--temperature", "2", "--seed", "7", "--set", "decoding.batch_rows=1"], input);
    assert!(one_by_one.iter().map(best).eq(drawn.iter().map(best)), "{one_by_one:?} {drawn:?}");
    assert_ne!(records(workspace, &["--temperature", "2", "--seed", "8"], input), drawn);
    let refused = workspace.run_with_input(&["translate", "run", "--top-p", "0"], input.as_bytes());
    common::refused(&refused, &["decoding.sampling.top_p = 0"]);
    let single = records(workspace, &["--no-repeat-ngram", "1", "--beam", "1", "--alignments"], input);
    for record in single {
        let tokens = record["translations"][0]["alignment"]["target_tokens"].as_array().expect("tokens");
        assert!(tokens.iter().enumerate().all(|(place, token)| !tokens[..place].contains(token)), "{record}");
    }
}

fn prefixes_and_n_best(workspace: &Workspace, input: &str) {
    workspace.write("prefixes", "dog\n\nhere\nbig dogs\n");
    let found = records(workspace, &["--prefix", "prefixes", "--n-best", "3"], input);
    for (record, prefix) in found.iter().zip(["dog", "", "here", "big dogs"]) {
        let translations = record["translations"].as_array().expect("translations");
        assert!(translations.iter().all(|one| one["text"].as_str().expect("text").starts_with(prefix)), "{record}");
        let scores: Vec<f64> = translations.iter().map(|one| one["score"].as_f64().expect("score")).collect();
        assert!(scores.is_sorted_by(|a, b| a >= b), "{record}");
    }
    workspace.write("prefixes", "dog\n");
    let refused = workspace.run_with_input(&["translate", "run", "--prefix", "prefixes"], input.as_bytes());
    common::refused(&refused, &["prefixes: 1 lines, but 4"]);
}

fn ensembles(workspace: &Workspace, input: &str) {
    let alone = records(workspace, &["--checkpoint", "last"], input);
    let last = std::fs::read_to_string(workspace.path("run/checkpoints/last")).expect("last");
    let checkpoint = format!("run/checkpoints/{}", last.trim());
    assert_eq!(records(workspace, &["--checkpoint", "last", "--ensemble", &checkpoint], input), alone);
    let first = "run/checkpoints/step-00000006";
    assert_ne!(records(workspace, &["--checkpoint", "last", "--ensemble", first, &checkpoint], input), alone);

    workspace.succeed(&["train", "tiny.toml", "--run", "other", "--set", "data.tokenizer.vocabulary_size=290"]);
    let refused = workspace.run_with_input(&["translate", "run", "--ensemble", "other"], input.as_bytes());
    common::refused(&refused, &["--ensemble other", "tokenizer"]);
}

fn alignments(workspace: &Workspace, input: &str) {
    let plain = workspace.run_with_input(&["translate", "run", "--alignments"], input.as_bytes());
    let plain = stdout(&plain);
    for (line, record) in plain.lines().zip(records(workspace, &["--alignments"], input)) {
        let (text, pairs) = line.split_once('\t').expect("a tab");
        assert_eq!(text, best(&record));
        let alignment = &record["translations"][0]["alignment"];
        let from_json: Vec<String> =
            alignment["pairs"].as_array().expect("pairs").iter().map(|pair| format!("{}-{}", pair[0], pair[1])).collect();
        assert_eq!(pairs, from_json.join(" "));
        let sources = alignment["source_tokens"].as_array().expect("tokens").len();
        for row in alignment["weights"].as_array().expect("weights") {
            assert_eq!(row.as_array().expect("row").len(), sources);
        }
    }
}

fn overlong_lines(workspace: &Workspace) {
    let long = "red cat sees. two big dogs run here. red cat sees.\n";
    let output = workspace.run_with_input(&["translate", "run", "--max-source-tokens", "8", "--json", "--alignments"], long.as_bytes());
    assert!(stderr(&output).starts_with("line 1: "), "{}", stderr(&output));
    let record: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    assert_eq!(record["overlong"]["rule"], "split");
    let parts = record["overlong"]["parts"].as_u64().expect("parts");
    assert!(parts > 1, "{record}");
    let alignment = &record["translations"][0]["alignment"];
    let ends = alignment["source_tokens"].as_array().expect("tokens").iter().filter(|token| *token == "</s>").count();
    assert_eq!(ends as u64, parts);
    let weights = alignment["weights"].as_array().expect("weights");
    assert_eq!(weights.len(), alignment["target_tokens"].as_array().expect("tokens").len());

    let cut = records(workspace, &["--max-source-tokens", "8", "--overlong", "cut"], long);
    assert_eq!(cut[0]["overlong"]["rule"], "cut");
    let refused = workspace.run_with_input(&["translate", "run", "--max-source-tokens", "8", "--overlong", "error"], long.as_bytes());
    common::refused(&refused, &["line 1 has", "more than 8"]);
    assert!(records(workspace, &[], long)[0].get("overlong").is_none());
}

fn bench(workspace: &Workspace, input: &str) {
    workspace.write("in.txt", input);
    let shown =
        workspace.succeed(&["bench", "decode", "run", "--input", "in.txt", "--beam", "2", "--threads", "1", "--repeats", "2", "--json"]);
    let report: Value = serde_json::from_str(&shown).expect("JSON");
    assert_eq!((&report["sentences"], &report["threads"], &report["beam_size"]), (&4.into(), &1.into(), &2.into()));
    assert_eq!(report["seconds"].as_array().expect("seconds").len(), 2);
    for rate in ["sentences_per_second", "tokens_per_second", "first_translation_seconds"] {
        assert!(report[rate].as_f64().expect(rate) > 0.0, "{report}");
    }
    workspace.write("empty.txt", "");
    workspace.fail(&["bench", "decode", "run", "--input", "empty.txt"], &["empty.txt", "no line"]);
}
