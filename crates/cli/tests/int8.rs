//! Tests of `--weights` and `quantize`, with the real binary and small trained runs.

mod common;

use std::fs;

use common::{Workspace, mentions, refused, stderr, stdout};

const INPUT: &str = "red cat sees\ntwo big dogs run here\n\ncat cat red here two dogs\n";

/// Returns the JSON output of `translate` for [`INPUT`], with all digits of the scores.
fn translated(workspace: &Workspace, run: &str, arguments: &str) -> String {
    let all = format!("translate {run} --json {arguments}");
    let output = workspace.run_with_input(&all, INPUT.as_bytes());
    assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
    stdout(&output)
}

#[test]
fn weights_in_int8() {
    let workspace = Workspace::new();
    workspace.train("run");
    rounded_here_and_rounded_before(&workspace);
    types_of_weights(&workspace);
    pages(&workspace);
    what_an_int8_folder_is_not_for(&workspace);
    damage(&workspace);
}

fn rounded_here_and_rounded_before(workspace: &Workspace) {
    mentions(workspace.succeed("quantize run"), &["rounded the weights of step 12", "run-int8"]);
    let size = |run: &str| {
        let folder = workspace.path(run).join("checkpoints/step-00000012");
        fs::metadata(folder.join("model.safetensors")).expect("weights").len()
    };
    assert!(size("run-int8") * 2 < size("run"), "{} {}", size("run-int8"), size("run"));
    for search in ["--beam 1", "--beam 3"] {
        let here = translated(workspace, "run", &format!("--weights int8 {search}"));
        assert_eq!(translated(workspace, "run-int8", search), here);
        // With every kernel, the result of a line depends neither on other lines nor on threads.
        let one_by_one = "--set decoding.batch_rows=1 --threads 1";
        assert_eq!(translated(workspace, "run-int8", &format!("{search} {one_by_one}")), here);
        assert_ne!(translated(workspace, "run", search), here, "rounding shows in the scores");
    }
    // All members of an ensemble multiply in int8. The first member has the averaged weights.
    workspace.succeed("quantize run --checkpoint last -o small");
    let here = "--weights int8 --ensemble run/checkpoints/step-00000012";
    assert_eq!(
        translated(workspace, "run-int8", "--ensemble small"),
        translated(workspace, "run", here)
    );
}

fn types_of_weights(workspace: &Workspace) {
    let plain = translated(workspace, "run", "");
    assert_eq!(translated(workspace, "run", "--weights f32"), plain);
    let bf16 = translated(workspace, "run", "--weights bf16");
    assert_eq!(translated(workspace, "run", "--set dtype=bf16"), bf16);
    // Rounded weights, multiplied in f32.
    let exact = translated(workspace, "run-int8", "--weights f32");
    assert!(exact != plain && exact != translated(workspace, "run-int8", ""));
    workspace.fail(
        "evaluate run --weights int8 --set dtype=f32",
        &["weights in int8", "override of dtype"],
    );
    let evaluated = workspace.succeed("evaluate run --weights int8");
    assert_eq!(
        evaluated.lines().skip(1).collect::<Vec<_>>(),
        workspace.succeed("evaluate run-int8").lines().skip(1).collect::<Vec<_>>()
    );
    workspace.write("lines", INPUT);
    let bench = "bench decode run-int8 --input lines --repeats 1 --json";
    assert!(workspace.succeed(bench).contains("\"weights\":\"int8\""));
}

fn what_an_int8_folder_is_not_for(workspace: &Workspace) {
    mentions(workspace.fail("resume run-int8", &["int8", "resume the run"]), &["run/checkpoints/"]);
    workspace.fail("average run-int8", &["is in int8"]);
    workspace.fail("quantize run-int8", &["is in int8"]);
    workspace.fail("quantize run", &["run-int8 exists", "name another folder"]);
    workspace.fail("quantize run -o no/such/place", &["no/such/place"]);
    assert!(!workspace.path("no").exists());
}

/// Checks pages for browsers. `scripts/check/web_page.py` checks their translations in a browser.
fn pages(workspace: &Workspace) {
    fs::write(workspace.path("module.wasm"), b"\0asm\x01\0\0\0").expect("write");
    let weights = |page: &str| {
        let html = fs::read_to_string(workspace.path(page)).expect("a page");
        let data = html.split("id=\"files\">").nth(1).expect("files");
        let files: serde_json::Value =
            serde_json::from_str(data.split("</script>").next().expect("an end")).expect("JSON");
        let paths: Vec<&String> = files.as_object().expect("an object").keys().collect();
        let checkpoint = "/run/checkpoints/step-00000012";
        let [weights, state] =
            ["model.safetensors", "state.json"].map(|file| format!("{checkpoint}/{file}"));
        let expected = ["/run/checkpoints/last", &weights, &state, "/run/config.toml"];
        assert_eq!(paths[..4], expected);
        assert_eq!(paths[4..], ["/run/tokenizer.json"]);
        files[&weights].as_str().expect("base64").to_owned()
    };
    let page = "page run rounded.html --module module.wasm";
    mentions(workspace.succeed(page), &["rounded.html", "step 12"]);
    workspace.succeed("page run-int8 was-rounded.html --module module.wasm --language zh");
    assert_eq!(weights("rounded.html"), weights("was-rounded.html"));
    let beside = fs::read_dir(workspace.path(".")).expect("a folder");
    let mut names = beside.map(|entry| entry.expect("an entry").file_name());
    assert!(
        names.all(|name| !name.to_string_lossy().starts_with("rounded.html.")),
        "what was made for it is gone"
    );
    workspace.fail(page, &["rounded.html exists"]);
    workspace.write("rounded.html", "something else");
    workspace.succeed(format!("{page} --replace"));
    assert_eq!(weights("rounded.html"), weights("was-rounded.html"));
    workspace.fail("page run other.html --module rounded.html", &["not WebAssembly"]);
    workspace.fail("page run other.html --module nowhere", &["nowhere"]);
    workspace.fail("page run other.html", &["taper.wasm", "--module"]);
}

fn damage(workspace: &Workspace) {
    let weights = workspace.path("run-int8/checkpoints/step-00000012/model.safetensors");
    let whole = fs::read(&weights).expect("weights");
    let translate = || workspace.run_with_input("translate run-int8", INPUT.as_bytes());
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 4;
    fs::write(&weights, flipped).expect("write");
    refused(&translate(), &["model.safetensors is corrupt"]);
    fs::write(&weights, &whole[..whole.len() / 2]).expect("write");
    refused(&translate(), &["model.safetensors is truncated"]);
    fs::remove_file(&weights).expect("remove");
    refused(&translate(), &["model.safetensors is missing"]);
}

#[test]
fn a_language_model_in_int8() {
    let workspace = Workspace::of_text();
    workspace.train("run");
    workspace.succeed("quantize run");
    let generated = |run: &str, arguments: &str| {
        workspace.succeed(format!("generate {run} --prompt 'red cat' -n 30 --json {arguments}"))
    };
    let here = generated("run", "--weights int8");
    assert_eq!(generated("run-int8", ""), here);
    assert_ne!(generated("run", ""), here, "rounding shows in the probability");
    fs::write(workspace.path("module.wasm"), b"\0asm").expect("write");
    workspace.fail("page run page.html --module module.wasm", &["they only translate"]);
    // `evaluate` reads text with the rounded weights, in f32.
    assert_eq!(
        workspace.succeed("evaluate run-int8").lines().nth(2),
        workspace.succeed("evaluate run --weights int8").lines().nth(2)
    );
}
