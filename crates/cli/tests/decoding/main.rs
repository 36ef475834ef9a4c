//! Tests of the options of `translate` and `bench decode`, with the real binary and a small trained
//! run.

#[path = "../common/mod.rs"]
mod common;

mod attention;
mod lengths;
mod long_lines;
mod options;
#[cfg(feature = "serve")]
mod serving;
mod shortlist;
mod streams;
mod terms;
mod word_alignment;

use common::{Workspace, json_lines, stderr, stdout};
use serde_json::Value;

/// Translates `input` with `arguments`; returns the JSON record of each line.
fn records(workspace: &Workspace, arguments: &str, input: &str) -> Vec<Value> {
    let output =
        workspace.run_with_input(format!("translate run --json {arguments}"), input.as_bytes());
    assert!(output.status.success(), "{}", stderr(&output));
    json_lines(&stdout(&output))
}

fn best(record: &Value) -> &str {
    record["translations"][0]["text"].as_str().expect("text")
}

/// Trains once for all checks, because training takes most of the time.
#[test]
fn decoding_options() {
    let workspace = Workspace::new();
    workspace.train("run");
    let input = "red cat sees\ntwo big dogs run here\n\nred cat sees\n";
    options::greedy_sampling_and_seeds(&workspace, input);
    options::prefixes_and_n_best(&workspace, input);
    options::ensembles(&workspace, input);
    long_lines::alignments(&workspace, input);
    long_lines::overlong_lines(&workspace);
    long_lines::lines_without_blanks(&workspace);
    #[cfg(target_os = "linux")]
    long_lines::alignments_of_long_lines_take_little_memory(&workspace);
    options::bench(&workspace, input);
    options::choosing_among_candidates(&workspace, input);
    options::reranking_by_other_models(&workspace, input);
    options::options_without_effect(&workspace, input);
    options::evaluation_draws_as_translate(&workspace);
    streams::marks_and_pipes(&workspace, input);
    streams::endless(&workspace, input);
    streams::windows(&workspace);
    streams::one_line_at_a_time(&workspace, input);
    streams::output_files(&workspace, input);
    terms::terms_are_used(&workspace);
    shortlist::shortlists(&workspace, input);
    options::learned_positions(&workspace, input);
}
