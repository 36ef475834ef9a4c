//! Tests of `tune`: settings of the search are found on the validation set and written into the
//! run.

use crate::common::{Workspace, mentions};
use serde_json::Value;

fn config(workspace: &Workspace) -> String {
    workspace.read("run/config.toml")
}

/// Returns the settings of a trial as `--set` options.
fn overrides(trial: &Value) -> String {
    ["beam_size", "length_penalty", "length_reward"]
        .map(|key| format!(" --set decoding.{key}={}", trial[key]))
        .concat()
}

/// Returns the lines of a configuration without the tuned keys.
fn others(text: &str) -> Vec<&str> {
    let tuned = ["beam_size =", "length_penalty =", "length_reward ="];
    text.lines().filter(|line| !tuned.iter().any(|key| line.starts_with(key))).collect()
}

#[test]
fn the_best_settings_are_written_into_the_run_and_used_from_then_on() {
    let workspace = Workspace::new();
    let longer = "--set training.max_updates=120 --set training.validate_every=0";
    workspace.succeed(format!("train tiny.toml --run run {longer}"));
    let before = config(&workspace);
    let tune = |more: &str| {
        let arguments = "tune run --beams 1,3 --length-penalties 0,1,2";
        workspace.succeed(format!("{arguments} --length-rewards 0,2 {more}"))
    };
    let tuning: Value = serde_json::from_str(&tune("--dry-run --json")).expect("JSON");
    assert_eq!((&tuning["written"], &tuning["sentences"]), (&false.into(), &12.into()));
    assert_eq!(config(&workspace), before, "a dry run changes nothing");
    let trials = tuning["trials"].as_array().expect("trials");
    // `tune` adds the settings of the run: beam 2 and length penalty 0.6.
    assert_eq!(trials.len(), 3 * 4 * 2);
    let bleu = |trial: &&Value| (1e6 * trial["bleu"].as_f64().expect("BLEU")) as u64;
    let best = trials.iter().max_by_key(bleu).expect("trials");
    let worst =
        trials.iter().filter(|trial| trial["beam_size"] != 1).min_by_key(bleu).expect("trials");
    assert!(bleu(&best) > bleu(&worst), "{trials:?}");
    assert_eq!(tuning["best"]["bleu"], best["bleu"]);

    // Each trial has the score of a separate evaluation with its settings.
    for trial in [best, worst] {
        let evaluate = format!("evaluate run --split val --json {}", overrides(trial));
        let record = workspace.json(evaluate);
        assert_eq!(record["results"][0]["bleu"]["score"], trial["bleu"], "{trial}");
    }

    // Starts from bad settings, and writes good ones into the run.
    let mut spoilt = before.clone();
    for (key, old) in [("beam_size", "2"), ("length_penalty", "0.6"), ("length_reward", "0.0")] {
        let value = &worst[key];
        spoilt = spoilt.replace(&format!("\n{key} = {old}\n"), &format!("\n{key} = {value}\n"));
    }
    workspace.write("run/config.toml", &spoilt);
    mentions(tune(""), &["the run's\n", "written into run/config.toml"]);
    let after = config(&workspace);
    assert_eq!(others(&after), others(&before));
    let evaluated = workspace.json("evaluate run --split val --json");
    assert_eq!(evaluated["results"][0]["bleu"]["score"], best["bleu"]);
    assert!(tune("").contains("the run's settings are the best of"));
    assert_eq!(config(&workspace), after);
    workspace.succeed("resume run --set training.max_updates=122");
}

#[test]
fn what_cannot_be_tuned_is_said() {
    let workspace = Workspace::new();
    workspace.succeed("train tiny.toml --run run --set data.validation=");
    workspace.fail("tune run", &["no validation set", "--split"]);
    workspace.succeed("tune run --split val --dry-run --sentences 3");
    workspace.fail(
        "tune run --split val --set decoding.sampling.temperature=1",
        &["drawn, not searched for"],
    );
    workspace.fail("tune run --split val --sentences 0", &["--sentences"]);
    let negative = "tune run --split val --length-penalties=-1";
    workspace.fail(negative, &["decoding.length_penalty", "-1"]);
}

#[test]
fn weights_of_a_choice_among_candidates_are_found_and_written() {
    let workspace = Workspace::new();
    let longer = "--set training.max_updates=120 --set training.validate_every=0";
    workspace.succeed(format!("train tiny.toml --run run {longer}"));
    let candidates = "--set decoding.reranking.candidates=6";
    let before = config(&workspace);
    let tuned = workspace.json(format!("tune run --json --dry-run {candidates}"));
    assert_eq!(config(&workspace), before, "a dry run changes nothing");
    assert_eq!((&tuned["sentences"], &tuned["candidates"]), (&12.into(), &(12 * 6).into()));
    let bleu = |trial: &Value| trial["bleu"].as_f64().expect("BLEU");
    let best = &tuned["best"];
    assert!(bleu(best) >= bleu(&tuned["before"]), "{tuned}");
    // There are four starting points without other models: the utility alone, the model's score
    // alone, both, and the run's weights.
    let trials = tuned["trials"].as_array().expect("trials");
    assert_eq!(trials.len(), 4);
    assert!(trials.iter().all(|trial| bleu(trial) <= bleu(best)), "{tuned}");

    // Each trial has the score of a separate evaluation with its weights.
    for trial in trials.iter().chain([&tuned["before"], best]) {
        let weight =
            |key| format!("--set decoding.reranking.{key}_weight={}", trial["weights"][key]);
        let weights = format!("{} {}", weight("utility"), weight("model"));
        let evaluate = format!("evaluate run --split val --json {weights} {candidates}");
        let record = workspace.json(&evaluate);
        assert_eq!(record["results"][0]["bleu"]["score"], trial["bleu"], "{trial}");
    }

    // In a run whose recipe sets candidates for reranking, `tune` writes the weights of reranking,
    // and refuses to tune the search.
    let with_candidates =
        format!("{before}\n[decoding.reranking]\ncandidates = 6\nmodel_weight = 0.001\n");
    workspace.write("run/config.toml", &with_candidates);
    workspace.fail("tune run --beams 1,2", &["decoding.reranking.candidates=0"]);
    let said = workspace.succeed("tune run");
    mentions(&said, &["72 candidates of 12 sentences"]);
    assert!(said.contains("written into") || said.contains("are the best of"), "{said}");
    assert!(workspace.succeed("tune run").contains("are the best of"));
}
