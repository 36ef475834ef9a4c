//! Tests of a run whose text, recipe, checkpoint or learning rate is changed.

use std::fs;

use crate::common::{Workspace, mentions, metrics, refused, stderr, stdout};

#[test]
fn changed_text_and_recipes_are_refused_with_the_differences() {
    let workspace = Workspace::new();
    workspace.train("run");
    let resume = "resume run --set training.max_updates=14";

    let text = workspace.read("data/train.aa");
    workspace.write("data/train.aa", text.replacen("cat", "dog", 1));
    workspace.fail(
        resume,
        &["train.aa", "trained on so far", "other text of the same", "--accept-changes", "--run"],
    );
    // If the run has no checkpoint yet, the error is about the tokenizer, which was made from the
    // old text.
    let checkpoints = workspace.path("run/checkpoints");
    fs::rename(&checkpoints, workspace.path("kept")).expect("move");
    workspace.fail(
        resume,
        &[
            "train.aa",
            "made its tokenizer from",
            "other text of the same",
            "--accept-changes",
            "--run",
        ],
    );
    fs::rename(workspace.path("kept"), &checkpoints).expect("move back");
    workspace.write("data/train.aa", &text);

    let other = "--set data.batching.max_tokens=100 --set model.embedding_dropout=0.3";
    let fragments = [
        "data.batching.max_tokens is 100 but was 200",
        "model.embedding_dropout is 0.3 but was",
        "--accept-changes",
    ];
    workspace.fail(format!("{resume} {other}"), &fragments);
    workspace.fail(format!("train tiny.toml --run run --resume {other}"), &fragments);
    // Settings with which the tokenizer was made cannot be changed.
    for change in ["data.tokenizer.vocabulary_size=280", "data.lowercase=true"] {
        let key = change.split('=').next().expect("key");
        workspace.fail(
            format!("{resume} --set {change} --accept-changes"),
            &["tokenizer and seed cannot be changed", key],
        );
    }
    // The seed cannot be changed during a run, because it is the whole random state.
    workspace.fail(
        format!("{resume} --set training.seed=9 --accept-changes"),
        &["tokenizer and seed cannot be changed", "training.seed is 9 but was 1"],
    );

    workspace.write("data/train.aa", text.replacen("cat", "dog", 1));
    workspace.succeed(format!("{resume} {other} --accept-changes"));
    // Accepted changes become the configuration of the run.
    workspace.succeed("resume run --set training.max_updates=15");
    // With such large batches, the current epoch has fewer batches than the run has already trained
    // on.
    let larger =
        "--set data.batching.max_tokens=1000 --set data.tokenizer.dropout=0.1 --accept-changes";
    workspace.succeed(format!("resume run --set training.max_updates=30 {larger}"));
}

#[test]
fn an_average_from_before_a_run_went_on_is_not_used() {
    let workspace = Workspace::new();
    workspace.train("run");
    let step = || {
        let report = workspace.json("evaluate run --json");
        (
            report["step"].as_u64().expect("step"),
            report["checkpoint"].as_str().expect("path").ends_with("averaged"),
        )
    };
    assert_eq!(step(), (12, true));
    workspace.succeed("resume run --set training.max_updates=24 --set training.average_last=0");
    let (newest, averaged) = step();
    assert!(newest > 12 && !averaged, "{newest}");
    workspace.succeed("average run");
    assert_eq!(step(), (24, true));
    // A damaged average is an error, and no other weights are used in its place.
    let state = workspace.path("run/checkpoints/averaged/state.json");
    let text = fs::read_to_string(&state).expect("state");
    fs::write(&state, &text[..text.len() / 2]).expect("damage");
    workspace.fail("evaluate run", &["averaged", "state.json", "taper average run"]);
}

#[test]
fn a_run_goes_on_from_its_own_checkpoints_only() {
    let workspace = Workspace::new();
    workspace.train("run");
    workspace.train("other");
    let before = fs::read(workspace.path("run/checkpoints/step-00000012/model.safetensors"))
        .expect("weights");
    workspace.fail(
        "resume run --from other/checkpoints/step-00000006",
        &["checkpoint other", "not a checkpoint of run"],
    );
    workspace.fail("resume run --from step-7", &["checkpoint step-7", "step-00000006"]);
    assert_eq!(
        fs::read(workspace.path("run/checkpoints/step-00000012/model.safetensors"))
            .expect("weights"),
        before
    );
    workspace.succeed("resume run --from run/../run/checkpoints/step-00000006");
    assert!(workspace.path("run/checkpoints/left-step-00000012").is_dir());
    // A checkpoint that was left behind cannot be continued, because its metrics would be mixed
    // with those of the present course.
    workspace.fail(
        "resume run --from left-step-00000012",
        &["checkpoint left-step-00000012", "copy the run's folder"],
    );
    workspace.succeed("average run");
    workspace.fail("resume run --from average", &["checkpoint average", "called step-"]);
}

#[test]
fn divergence_ends_training_with_advice_that_works() {
    let workspace = Workspace::new();
    workspace.train("run");
    let wild = "--set training.schedule.learning_rate=1e30 --set training.clip_norm=0 \
         --set training.max_updates=60";
    let output = workspace.run(format!("resume run {wild}"));
    refused(
        &output,
        &[
            "diverged",
            "8 updates in a row",
            "first in",
            "step-00000012",
            "lower learning rate",
            "--from",
        ],
    );
    assert!(stdout(&output).contains("update skipped"), "{}", stdout(&output));
    let skipped: Vec<_> = metrics(&workspace.path("run"))
        .into_iter()
        .filter(|line| line["event"] == "skipped")
        .collect();
    assert_eq!(skipped.len(), 8);
    assert!(
        skipped
            .iter()
            .all(|line| line["place"].as_str().is_some_and(|place| place.starts_with("first in"))),
        "{skipped:?}"
    );
    // Follows the advice of the error.
    let tame = "--set training.schedule.learning_rate=1e-3 --set training.clip_norm=1 \
         --set training.max_updates=20";
    workspace.succeed(format!("resume run --from step-00000006 {tame}"));
    let record = metrics(&workspace.path("run"));
    assert!(
        record.iter().all(|line| line["event"] != "skipped"),
        "the record is that of the run as it is now"
    );
    assert_eq!(record.last().expect("lines")["step"], 20);
}

/// The best score on other text does not count for the new text.
#[test]
fn a_run_that_goes_on_with_other_text_forgets_the_old_best() {
    let workspace = Workspace::new();
    workspace.succeed("train tiny.toml --run run --set training.early_stopping.patience=2");
    let best = workspace.path("run/checkpoints/best");
    // The run has not learned the other text, so no score on it is as good as the old best.
    std::fs::create_dir(workspace.path("other")).expect("folder");
    for stem in ["train", "val", "test"] {
        for side in ["aa", "bb"] {
            let text = workspace.read(&format!("data/{stem}.{side}"));
            let words = text.replace("cat", "house").replace("red", "green").replace("two", "nine");
            workspace.write(&format!("other/{stem}.{side}"), words);
        }
    }
    let on = |updates: &str, more: &str| {
        let updates = format!("training.max_updates={updates}");
        let arguments = format!("resume run --accept-changes --set {updates} {more}");
        let output = workspace.finish(&arguments);
        stderr(&output)
    };
    let before = fs::read_to_string(&best).expect("best");
    let said = on("30", "--set data.dir=other --set training.validate_every=6");
    mentions(&said, &["note: scores of validations cannot be compared", "the validation text"]);
    let after = fs::read_to_string(&best).expect("best");
    assert!(after > before, "{before} {after}");
    let validations = |updates: u64| {
        metrics(&workspace.path("run"))
            .into_iter()
            .filter(|line| line["event"] == "validation" && line["step"].as_u64() > Some(updates))
            .collect::<Vec<_>>()
    };
    assert_eq!(validations(12)[0]["improved"], true, "the first of the new scores");
    // With the same text again, the best score is kept.
    let said = on("36", "");
    assert!(!said.contains("cannot be compared"), "{said}");
    // Changes of cleaning and of the metric also make scores incomparable.
    mentions(on("42", "--set data.cleaning.max_tokens=40"), &["data.cleaning.max_tokens"]);
    let said = on("48", "--set training.early_stopping.metric=bleu");
    mentions(&said, &["training.early_stopping.metric"]);
    mentions(on("54", "--set evaluation.tokenize=char"), &["evaluation.tokenize"]);
}

/// Checks that the advice to continue with more updates says how the learning rate changes.
#[test]
fn a_schedule_that_has_fallen_to_its_end_jumps_when_the_run_goes_on() {
    let workspace = Workspace::new();
    let proposal = |kind: &str| {
        let set = format!("training.schedule.kind={kind}");
        let said = workspace.succeed(format!("train tiny.toml --run {kind} --set {set}"));
        let mut lines = said.lines().filter(|line| line.contains("taper resume"));
        lines.next().expect("a proposal").to_owned()
    };
    for kind in ["cosine", "linear"] {
        let line = proposal(kind);
        mentions(
            &line,
            &["--set training.max_updates=24 ", "jumps from 0.00e0 to 1.", "update 24"],
        );
    }
    assert!(!proposal("inverse_sqrt").contains("learning rate"));
}
