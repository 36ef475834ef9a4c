//! Tests of `taper student`.

#[cfg(unix)]
use crate::common::wait_for;
use crate::common::{Workspace, mentions};

const SMALL: &str = "--set model.encoder_layers=2 --set model.decoder_layers=1 \
    --set training.max_updates=40 --set training.checkpoint_every=5 \
    --set training.validate_every=0";

/// Makes a workspace with a trained teacher, and a file that looks like a WebAssembly module.
fn workspace() -> Workspace {
    let workspace = Workspace::new();
    workspace.train("teacher");
    workspace.write("module.wasm", b"\0asm\x01\0\0\0");
    workspace
}

#[test]
fn a_student_is_trained_compared_and_put_on_a_page() {
    let workspace = workspace();
    let student = format!("student teacher --output small --module module.wasm {SMALL}");
    let steps = workspace.succeed(format!("{student} --dry-run"));
    mentions(&steps, &["text: taper distill", "student: taper train"]);
    mentions(&steps, &["shortlist: taper shortlist", "page: taper page"]);
    let recipe = workspace.read("small/student.toml");
    mentions(&recipe, &["encoder_layers = 6", "decoder_layers = 2", "beam_size = 1"]);
    assert!(!workspace.path("small/text").exists(), "nothing has begun");

    let shown = workspace.succeed(&student);
    mentions(
        &shown,
        &["teacher: ", "student: ", "int8, beam 1", "BLEU", "times as fast", "page.html"],
    );
    let [teacher, own] =
        ["teacher", "small/student"].map(|run| workspace.read(&format!("{run}/tokenizer.json")));
    assert_eq!(teacher, own);
    assert!(workspace.path("small/student/shortlist.bin").exists());
    assert!(workspace.read("small/page.html").contains("shortlist.bin"));
    assert!(workspace.read("small/page.html").starts_with("<!doctype html>"));
    let translated = workspace.run_with_input("translate small/student", b"two dogs run\n");
    assert!(translated.status.success());

    let again = workspace.succeed(&student);
    assert_eq!(again.matches("done already").count(), 4, "{again}");
    workspace.fail(
        "student teacher --output small --module module.wasm",
        &["pipeline.toml", "other settings", "another folder"],
    );
}

#[cfg(unix)]
#[test]
fn a_student_that_is_killed_ends_like_any_other() {
    let workspace = workspace();
    let run = |folder: &str| format!("student teacher --output {folder} --no-page {SMALL}");
    workspace.succeed(run("whole"));
    for moment in ["text/train.aa", "student/checkpoints/last"] {
        let mut child = workspace.spawn(run("killed"));
        let path = workspace.path("killed").join(moment);
        wait_for(moment, || path.exists());
        child.kill().expect("killed");
        child.wait().expect("ended");
    }
    let shown = workspace.succeed(run("killed"));
    assert!(!shown.contains("page:"), "{shown}");
    for file in ["text/train.bb", "student/checkpoints/step-00000040/model.safetensors"] {
        let [whole, killed] = ["whole", "killed"]
            .map(|run| std::fs::read(workspace.path(run).join(file)).expect(file));
        assert!(whole == killed, "{file} differs");
    }
}

#[test]
fn what_cannot_become_a_student_is_told_at_once() {
    let workspace = workspace();
    let fail = |arguments: &str, fragments: &[&str]| {
        workspace.fail(arguments, fragments);
        assert!(!workspace.path("small").exists(), "nothing was written");
    };
    fail("student teacher --output small", &["taper.wasm", "--module"]);
    fail("student teacher --output small --module none.wasm", &["none.wasm"]);
    fail("student nobody --output small --no-page", &["nobody"]);
    fail(
        "student teacher --output small --no-page --set model.encoder_layer=2",
        &["model.encoder_layer", "model.encoder_layers"],
    );
    let text = Workspace::of_text();
    text.train("model");
    text.fail("student model --output small --no-page", &["language-model", "translates"]);
}
