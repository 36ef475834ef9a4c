//! Tests of `taper pipeline`.

use std::fs;

#[cfg(unix)]
use crate::common::wait_for;
use crate::common::{Workspace, mentions, stderr, stdout};

const STEPS: &str = r#"
[steps.forward.train]
recipe = "tiny.toml"
set = ["training.max_updates=40", "training.checkpoint_every=5", "training.validate_every=0"]

[steps.backward.train]
recipe = "tiny.toml"
set = [
    "data.source_language=bb", "data.target_language=aa",
    "training.max_updates=40", "training.validate_every=0", "training.checkpoint_every=5",
]

[steps.diverse.diversify]
forward = ["forward"]
backward = ["backward"]

[steps.final.train]
recipe = "tiny.toml"
text = ["diverse"]
set = ["training.max_updates=40", "training.checkpoint_every=5", "training.validate_every=0"]

[steps.scores.evaluate]
run = "final"
splits = ["val"]
"#;

#[test]
fn what_is_wrong_with_a_file_is_told_with_line_and_key() {
    let workspace = Workspace::new();
    let told = |from: &str, to: &str, fragments: &[&str]| {
        assert!(STEPS.contains(from), "{from}");
        workspace.write("steps.toml", STEPS.replacen(from, to, 1));
        workspace.fail("pipeline steps.toml", fragments);
        assert!(!workspace.path("pipelines").exists(), "nothing has begun");
    };
    told(
        "text = [\"diverse\"]",
        "text = [\"divers\"]",
        &["line 19", "text", "did you mean diverse"],
    );
    told("forward = [\"forward\"]", "forward = [\"diverse\"]", &["line 14", "forward", "diverse"]);
    told("recipe = \"tiny.toml\"\ntext", "recipe = \"tiny.tml\"\ntext", &["line 18", "tiny.tml"]);
    told("text = [\"diverse\"]", "txt = [\"diverse\"]", &["steps.toml", "txt"]);
    told("[steps.scores.evaluate]", "[steps.scores.rate]", &["steps.toml", "rate", "evaluate"]);
    told(
        "recipe = \"tiny.toml\"\nset = [\"training.max_updates=40\", \"training.checkpoint_every=5\"",
        "recipe = \"tiny.toml\"\nfrom = \"final\"\nset = [\"training.max_update=40\", \"training.ema_decay=0.5\"",
        &["line 3", "recipe", "training.max_updates"],
    );
    told(
        "recipe = \"tiny.toml\"\nset",
        "recipe = \"tiny.toml\"\nfrom = \"final\"\nset",
        &["circle", "diverse, final, forward, scores"],
    );
    workspace.write("steps.toml", "[steps]\n");
    workspace.fail("pipeline steps.toml", &["no steps"]);
    workspace.write("steps.toml", STEPS);
    let shown = workspace.succeed("pipeline steps.toml --dry-run");
    // Commands are printed with quotes, so that a shell reads them unchanged.
    mentions(&shown, &["final: taper train", "--set 'data.train=[{ source = \""]);
    let names: Vec<&str> = shown.lines().filter_map(|line| line.split(':').next()).collect();
    assert_eq!(names, ["backward", "forward", "diverse", "final", "scores"]);
}

#[test]
fn a_report_that_cannot_be_written_is_made_by_the_same_command_later() {
    let workspace = Workspace::new();
    workspace.write("steps.toml", "[steps.only.train]\nrecipe = \"tiny.toml\"\n");
    // A folder with the name of the report makes writing the report fail.
    let report = workspace.path("results/report.html");
    fs::create_dir_all(&report).expect("a folder");
    let output = workspace.finish("pipeline steps.toml --folder results");
    mentions(stderr(&output), &["cannot write", "report.html"]);
    mentions(stdout(&output), &["only: done in", "the same command writes the report"]);
    assert!(!stdout(&output).contains("taper report"), "{}", stdout(&output));
    fs::remove_dir(&report).expect("removed");
    mentions(
        workspace.succeed("pipeline steps.toml --folder results"),
        &["only: done already", "report: "],
    );
    assert!(report.is_file());
}

#[test]
fn a_step_is_called_unlike_what_the_pipeline_writes() {
    let workspace = Workspace::of_frozen_run();
    workspace.write("page.wasm", b"\0asm\x01\0\0\0");
    for (step, name) in [
        ("[steps.report.page]\nrun = \"run\"\nmodule = \"page.wasm\"\n", "\"report\""),
        ("[steps.Cache.distill]\nruns = [\"run\"]\n", "\"Cache\""),
    ] {
        workspace.write("steps.toml", step);
        workspace.fail("pipeline steps.toml", &[name, "another name"]);
    }
}

#[test]
fn a_validation_set_is_not_drawn_from_text_that_models_make() {
    let workspace = Workspace::of_frozen_run();
    let recipe = workspace.read("tiny.toml");
    let drawing = recipe.replace("[data.tokenizer]", "hold_out = 20\n\n[data.tokenizer]");
    assert_ne!(recipe, drawing);
    workspace.write("drawing.toml", drawing);
    let steps = |made: &str, more: &str| {
        let steps = format!(
            "[steps.made.{made}\n[steps.final.train]\nrecipe = \"drawing.toml\"\n\
             text = [\"made\"]\n{more}"
        );
        workspace.write("steps.toml", steps);
    };
    steps("distill]\nruns = [\"run\"]", "");
    workspace.fail("pipeline steps.toml", &["line 4", "recipe", "data.hold_out", "validation"]);
    // A validation set may be held out from pairs that a filter keeps, because they are pairs of
    // the corpus.
    steps("filter]\nforward = \"run\"\nbackward = \"run\"", "");
    workspace.succeed("pipeline steps.toml --dry-run");
    steps("distill]\nruns = [\"run\"]", "set = [\"data.hold_out=0\"]\n");
    workspace.succeed("pipeline steps.toml --dry-run");
}

#[test]
fn what_a_recipe_lacks_with_the_text_of_steps_is_told_before_anything_begins() {
    let workspace = Workspace::of_frozen_run();
    workspace.write("train.links", "0-0\n".repeat(200));
    workspace.write(
        "steps.toml",
        "[steps.made.distill]\nruns = [\"run\"]\n\
         [steps.final.train]\nrecipe = \"tiny.toml\"\ntext = [\"made\"]\n\
         set = [\"training.guided_alignment.weight=0.05\", \
         \"data.train={stem='train',links='train.links'}\"]\n",
    );
    workspace.fail("pipeline steps.toml", &["line 5", "text", "guided_alignment", "links"]);
    assert!(!workspace.path("pipelines").exists(), "nothing has begun");
}

#[test]
fn a_changed_text_or_run_is_told() {
    let workspace = Workspace::new();
    workspace.train("run");
    workspace.write("mono.aa", "two dogs run\n");
    workspace
        .write("steps.toml", "[steps.made.backtranslate]\nrun = \"run\"\ntext = \"mono.aa\"\n");
    workspace.succeed("pipeline steps.toml");
    mentions(workspace.succeed("pipeline steps.toml"), &["made: done already"]);
    workspace.write("mono.aa", "two dogs run\nbig cat\n");
    workspace.fail("pipeline steps.toml", &["step made", "text", "made.done.json"]);
    workspace.write("mono.aa", "two dogs run\n");
    workspace.succeed("pipeline steps.toml");
    workspace.succeed("resume run --set training.max_updates=14");
    workspace.fail("pipeline steps.toml", &["step made", "another definition, recipe, run"]);
}

#[cfg(unix)]
#[test]
fn a_pipeline_that_is_killed_three_times_ends_like_any_other() {
    let workspace = Workspace::new();
    workspace.write("steps.toml", STEPS);
    let run = |folder: &str| format!("pipeline steps.toml --folder {folder}");
    let shown = workspace.succeed(run("whole"));
    for name in ["backward", "forward", "diverse", "final", "scores"] {
        mentions(&shown, &[&format!("{name}: done in")]);
    }
    // The pipeline is killed in the first training, before the text is made, and in the last
    // training.
    for moment in ["backward/checkpoints/last", "forward.done.json", "final/checkpoints/last"] {
        let mut child = workspace.spawn(run("killed"));
        let path = workspace.path("killed").join(moment);
        wait_for(moment, || path.exists());
        child.kill().expect("killed");
        child.wait().expect("ended");
    }
    mentions(workspace.succeed(run("killed")), &["backward: done already"]);
    let weights = "checkpoints/step-00000040/model.safetensors";
    for file in [
        &format!("backward/{weights}")[..],
        &format!("forward/{weights}"),
        "diverse/train.aa",
        "diverse/train.bb",
        &format!("final/{weights}"),
    ] {
        let [whole, killed] =
            ["whole", "killed"].map(|run| fs::read(workspace.path(run).join(file)).expect(file));
        assert!(whole == killed, "{file} differs");
    }
    // No step runs again, and a changed step is an error.
    let again = workspace.succeed(run("killed"));
    assert_eq!(again.matches("done already").count(), 5, "{again}");
    workspace.write("steps.toml", STEPS.replacen("max_updates=40", "max_updates=41", 1));
    workspace.fail(run("killed"), &["step forward", "another definition"]);
}
