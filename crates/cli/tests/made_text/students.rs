//! Tests of `taper student`.

#[cfg(unix)]
use crate::common::wait_for;
use crate::common::{Workspace, golden, mentions, set, stderr};

/// Settings of a small student that is trained briefly.
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

#[test]
fn a_student_is_validated_on_the_pairs_that_its_teacher_held_out() {
    let workspace = Workspace::new();
    let recipe = workspace.read("tiny.toml").replace("test = [\"test\"]", "test = []");
    let recipe = recipe.replace("[data.tokenizer]", "hold_out = 20\n\n[data.tokenizer]");
    workspace.write("tiny.toml", recipe);
    workspace.train("teacher");
    let shown = workspace.succeed(format!("student teacher --output small --no-page {SMALL}"));
    mentions(&shown, &["held-out: BLEU"]);
    // The student's training text has all pairs except those that the teacher held out, and no more
    // pairs are held out from it.
    assert_eq!(workspace.read("small/text/train.aa").lines().count(), 180);
    mentions(&shown, &["train: 180 pairs read", "held-out: 20 pairs read"]);
    let scored = workspace.json("evaluate teacher --split held-out --json");
    let bleu = scored["results"][0]["bleu"]["score"].as_f64().expect("a score");
    mentions(&shown, &[&format!("held-out: BLEU {bleu:.2} by the teacher")]);
    workspace.write(
        "small/own.toml",
        workspace.read("small/pipeline.toml").replace("text = [", "own_text = true\ntext = ["),
    );
    workspace.fail("pipeline small/own.toml --folder own", &["own_text", "data.hold_out"]);
}

/// The tokenizers of an imported model have special tokens of their own. A MarianMT and an NLLB
/// have two tokenizers, which share one vocabulary.
#[test]
fn a_model_that_was_imported_and_fine_tuned_is_a_teacher() {
    let workspace = Workspace::new();
    let settings = set("training.schedule.warmup=3 training.early_stopping.patience=0");
    for model in ["marian", "marian-two", "nllb"] {
        workspace.succeed(format!("import {} {model}", golden(model).display()));
        workspace.succeed(format!(
            "finetune {model} --pairs data/train.aa data/train.bb --source-language aa \
             --target-language bb --output {model}.toml --run teacher-{model} \
             --set training.max_updates=8"
        ));
        workspace.succeed(format!(
            "student teacher-{model} --output small-{model} --no-page {SMALL} {settings}"
        ));
        let [teacher, student] = ["teacher-", "small-"].map(|folder| {
            let folder =
                format!("{folder}{model}{}", if folder == "small-" { "/student" } else { "" });
            let is_tokenizer = |name: &String| name.starts_with("tokenizer");
            let names = std::fs::read_dir(workspace.path(&folder)).expect(&folder);
            let names = names.map(|entry| entry.expect("entry").file_name());
            let mut names: Vec<String> = names
                .map(|name| name.to_string_lossy().into_owned())
                .filter(is_tokenizer)
                .collect();
            names.sort();
            let contents: Vec<String> =
                names.iter().map(|name| workspace.read(&format!("{folder}/{name}"))).collect();
            (names, contents)
        });
        assert!(teacher == student, "{model}: {:?} and {:?}", teacher.0, student.0);
    }
    let output = workspace.run("student teacher-marian --output told --no-page --dry-run");
    mentions(stderr(&output), &["began with the weights of another run", "training.max_updates"]);
}

#[test]
fn a_student_of_a_teacher_that_lowercases_lowercases() {
    let workspace = Workspace::new();
    workspace.succeed(format!(
        "train tiny.toml --run teacher {}",
        set("data.lowercase=true data.nfkc=true")
    ));
    workspace.succeed(format!("student teacher --output small --no-page {SMALL}"));
    let [teacher, student] = ["teacher", "small/student"]
        .map(|run| workspace.json(format!("evaluate {run} --json"))["results"][0].clone());
    assert_eq!(teacher["bleu"]["signature"], student["bleu"]["signature"]);
    mentions(student["bleu"]["signature"].as_str().expect("text"), &["case:lc"]);
}

#[test]
fn a_student_searches_greedily_and_learns_all_of_its_weights() {
    let workspace = Workspace::new();
    let settings = "training.freeze=['decoder.*'] training.layer_decay=0.5 \
         training.guided_alignment.weight=0.1 data.train={stem='train',links='train.links'} \
         data.validation=[] data.test=[] decoding.reranking.candidates=2";
    workspace.write("train.links", "0-0\n".repeat(200));
    workspace.succeed(format!("train tiny.toml --run teacher {}", set(settings)));
    let shown = workspace.succeed(format!("student teacher --output small --no-page {SMALL}"));
    // There are no sets to compare on.
    mentions(&shown, &["not compared", "run: "]);
    let recipe = workspace.read("small/student.toml");
    for key in ["freeze", "layer_decay", "guided_alignment", "candidates"] {
        assert!(!recipe.contains(key), "{key} in {recipe}");
    }
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
