//! Alignments, and lines that are longer than the model accepts.

use serde_json::Value;

use super::common::{Workspace, stderr, stdout};
use super::{best, records};

pub(super) fn alignments(workspace: &Workspace, input: &str) {
    let plain = workspace.run_with_input("translate run --alignments", input.as_bytes());
    let plain = stdout(&plain);
    let records = records(workspace, "--alignments", input);
    assert_eq!((plain.lines().count(), records.len()), (4, 4));
    for (line, record) in plain.lines().zip(records) {
        let (text, pairs) = line.split_once('\t').expect("a tab");
        assert_eq!(text, best(&record));
        let alignment = &record["translations"][0]["alignment"];
        let from_json: Vec<String> = alignment["pairs"]
            .as_array()
            .expect("pairs")
            .iter()
            .map(|pair| format!("{}-{}", pair[0], pair[1]))
            .collect();
        assert_eq!(pairs, from_json.join(" "));
        let sources = alignment["source_tokens"].as_array().expect("tokens").len();
        for row in alignment["weights"].as_array().expect("weights") {
            assert_eq!(row.as_array().expect("row").len(), sources);
        }
    }
}

pub(super) fn overlong_lines(workspace: &Workspace) {
    let long = "red cat sees. two big dogs run here. red cat sees.\n";
    let output = workspace
        .run_with_input("translate run --max-source-tokens 8 --json --alignments", long.as_bytes());
    assert!(stderr(&output).starts_with("line 1: "), "{}", stderr(&output));
    let record: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    assert_eq!(record["overlong"]["rule"], "split");
    let parts = record["overlong"]["parts"].as_u64().expect("parts");
    assert!(parts > 1, "{record}");
    let alignment = &record["translations"][0]["alignment"];
    // The source tokens are those of the whole line, even if it is translated in parts.
    let whole = records(workspace, "--alignments", long);
    let sources = alignment["source_tokens"].as_array().expect("tokens");
    assert_eq!(
        sources,
        whole[0]["translations"][0]["alignment"]["source_tokens"].as_array().expect("tokens")
    );
    let weights = alignment["weights"].as_array().expect("weights");
    assert_eq!(weights.len(), alignment["target_tokens"].as_array().expect("tokens").len());
    for row in weights {
        let row: Vec<f64> = row
            .as_array()
            .expect("row")
            .iter()
            .map(|weight| weight.as_f64().expect("a number"))
            .collect();
        assert_eq!(row.len(), sources.len());
        assert!((row.iter().sum::<f64>() - 1.0).abs() < 1e-4, "{row:?}");
    }
    // No pair points beyond the words of the line, not even in the last part.
    let pairs = alignment["pairs"].as_array().expect("pairs");
    assert!(
        pairs.iter().all(|pair| pair[0].as_u64().expect("a position") + 1 < sources.len() as u64),
        "{pairs:?}"
    );

    let cut = records(workspace, "--max-source-tokens 8 --overlong cut", long);
    assert_eq!(cut[0]["overlong"]["rule"], "cut");
    let refused = workspace
        .run_with_input("translate run --max-source-tokens 8 --overlong error", long.as_bytes());
    super::common::refused(&refused, &["line 1 has", "more than 8"]);
    assert!(records(workspace, "", long)[0].get("overlong").is_none());
}

/// A line without blanks is divided within words. Each such part gets a mark for the beginning of a
/// word, which must not appear among the tokens of the line.
pub(super) fn lines_without_blanks(workspace: &Workspace) {
    let line = "\u{4eca}\u{5929}\u{6211}\u{4eec}\u{53bb}\u{3002}\u{6821}\u{5728}\u{5b66}\u{3002}redcatsees,redcatsees\n";
    let whole = &records(workspace, "--alignments", line)[0]["translations"][0]["alignment"];
    let split = &records(workspace, "--alignments --max-source-tokens 12", line)[0];
    assert!(split["overlong"]["parts"].as_u64().expect("parts") > 2, "{split}");
    let alignment = &split["translations"][0]["alignment"];
    assert_eq!(alignment["source_tokens"], whole["source_tokens"]);
    let sources = alignment["source_tokens"].as_array().expect("tokens").len();
    let rows: Vec<Vec<f64>> =
        serde_json::from_value(alignment["weights"].clone()).expect("weights");
    assert!(
        rows.iter().all(|row| row.len() == sources && (row.iter().sum::<f64>() - 1.0).abs() < 1e-4),
        "{rows:?}"
    );
    let pairs: Vec<(usize, usize)> =
        serde_json::from_value(alignment["pairs"].clone()).expect("pairs");
    assert_eq!(pairs.len(), rows.len());
    // A pair links each target token with a source token of non-zero weight.
    assert!(
        pairs.iter().all(|&(source, target)| source + 1 < sources && rows[target][source] > 0.0),
        "{pairs:?}"
    );
}

/// Checks that memory holds the weights of one line at a time. Each line has megabytes of weights.
#[cfg(target_os = "linux")]
pub(super) fn alignments_of_long_lines_take_little_memory(workspace: &Workspace) {
    let line = "red cat sees two big dogs run here. ".repeat(100) + "\n";
    workspace.write("long.txt", line.repeat(80));
    let translate = "ulimit -v 300000; \"$0\" translate run -i long.txt --alignments --window 80 --max-source-tokens 20 --beam 1 \
                     --set threads=2 --set decoding.min_length=20";
    let output = workspace.script(&["sh"], translate);
    assert!(output.status.success(), "{}", stderr(&output));
    let plain = stdout(&output);
    let count = stdout(&workspace.script(&["sh"], &format!("{translate} --json | wc -l")));
    assert_eq!((plain.lines().count(), count.trim()), (80, "80"));
    workspace.write("long.txt", &line);
    let record: Value =
        serde_json::from_str(&stdout(&workspace.script(&["sh"], &format!("{translate} --json"))))
            .expect("JSON");
    let alignment = &record["translations"][0]["alignment"];
    let length = |key: &str| alignment[key].as_array().expect(key).len();
    assert!(
        length("weights") * length("source_tokens") > 1 << 20,
        "{} {}",
        length("weights"),
        length("source_tokens")
    );
    let (_, pairs) = plain.lines().next().and_then(|line| line.rsplit_once('\t')).expect("a tab");
    assert_eq!(pairs.split(' ').count(), length("pairs"));
}
