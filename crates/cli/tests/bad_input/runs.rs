//! Runs that exist already, do not exist or are damaged, and paths that are not files.

use std::fs;

use super::TRAIN;
use super::common::{Workspace, mentions, refused};

#[test]
fn a_run_folder_that_exists_is_left_alone() {
    let workspace = Workspace::new();
    fs::create_dir(workspace.path("run")).expect("run folder");
    workspace.write("run/precious", "mine");
    workspace.fail(TRAIN, &["run exists already", "taper resume run", "--run"]);
    assert_eq!(fs::read(workspace.path("run/precious")).expect("read"), b"mine");
    assert_eq!(fs::read_dir(workspace.path("run")).expect("list").count(), 1);
}

#[test]
fn a_run_that_is_not_there() {
    let workspace = Workspace::new();
    let advice = "nowhere: no such run; `taper train CONFIG --run nowhere` would make it";
    workspace.fail("resume nowhere", &[advice]);
    workspace.fail("translate nowhere", &["nowhere", "no such run"]);
    workspace.fail("average nowhere", &["nowhere"]);
}

#[test]
fn damaged_runs() {
    let workspace = Workspace::new();
    workspace.train("run");

    // The run's tokenizer is replaced by another tokenizer.
    let tokenizer = workspace.path("run/tokenizer.json");
    let original = fs::read(&tokenizer).expect("tokenizer");
    workspace.succeed(
        "tokenizer train tiny.toml --output other --set data.tokenizer.vocabulary_size=290",
    );
    fs::copy(workspace.path("other/tokenizer.json"), &tokenizer).expect("copy");
    workspace.fail("translate run", &["tokenizer"]);
    workspace.fail("resume run", &["tokenizer"]);
    fs::write(&tokenizer, &original).expect("restore");

    // The weights of a checkpoint are first truncated, and then have one changed byte.
    let model = workspace.path("run/checkpoints/step-00000012/model.safetensors");
    let bytes = fs::read(&model).expect("model");
    fs::write(&model, &bytes[..bytes.len() / 2]).expect("truncate");
    let last = "translate run --checkpoint last";
    workspace.fail(last, &["model.safetensors"]);
    workspace.fail("resume run --set training.max_updates=14", &["model.safetensors"]);
    let mut changed = bytes.clone();
    let middle = changed.len() / 2;
    changed[middle] ^= 1;
    fs::write(&model, &changed).expect("change");
    workspace.fail(last, &["model.safetensors"]);
    fs::write(&model, &bytes).expect("restore");
    refused(
        &workspace.run_with_input("translate run", b"fine\n\xff\n"),
        &["standard input, line 2", "UTF-8"],
    );
    workspace.write("taken.txt", "mine");
    workspace.fail("translate run --output taken.txt", &["taken.txt"]);
    assert_eq!(fs::read(workspace.path("taken.txt")).expect("read"), b"mine");
    workspace.fail("average run --last 99", &["--last 99"]);
    workspace.fail("resume run --set model.d_model=32", &["[model]", "differ"]);
    // The run's configuration gets a size for which no machine has memory.
    let config = workspace.read("run/config.toml");
    let width = config.lines().find(|line| line.starts_with("d_ff = ")).expect("a width");
    workspace.write("run/config.toml", config.replacen(width, "d_ff = 1000000000000", 1));
    workspace.fail("translate run", &["run/config.toml", "model.d_ff is 1000000000000 but"]);
    // `inspect` allocates no memory for the weights, so it accepts this size.
    mentions(workspace.succeed("inspect run/config.toml"), &["feed-forward 1000000000000"]);
}

#[cfg(unix)]
#[test]
fn what_is_no_file_is_named_as_what_it_is() {
    let workspace = Workspace::new();
    workspace.train("run");
    let pipe = |name: &str| {
        let made = std::process::Command::new("mkfifo").arg(workspace.path(name)).status();
        assert!(made.expect("mkfifo").success());
    };
    pipe("pipe");
    for (path, kind) in [("/dev/zero", "a device"), ("data", "a folder"), ("pipe", "a pipe")] {
        workspace.fail(format!("config check {path}"), &[path, kind]);
        workspace.fail(format!("tokenizer encode {path}"), &[path]);
        let tokenizer = format!("data.tokenizer.path={path}");
        workspace
            .fail(format!("tokenizer train tiny.toml -o made --set {tokenizer}"), &[path, kind]);
    }
    // The text file is replaced by a folder, a pipe, a device and a link in turn.
    let val = workspace.path("data/val.aa");
    let text = fs::read(&val).expect("text");
    let instead: [(&str, &dyn Fn()); 4] = [
        ("a folder", &|| fs::create_dir(&val).expect("folder")),
        ("a pipe", &|| pipe("data/val.aa")),
        ("a device", &|| std::os::unix::fs::symlink("/dev/zero", &val).expect("link")),
        ("may lead back to itself", &|| std::os::unix::fs::symlink("val.aa", &val).expect("link")),
    ];
    fs::remove_file(&val).expect("remove");
    for (kind, make) in instead {
        make();
        workspace.fail("train tiny.toml --run other", &["data/val.aa", kind]);
        if kind == "a folder" { fs::remove_dir(&val) } else { fs::remove_file(&val) }
            .expect("remove");
    }
    fs::write(&val, text).expect("restore");
    // Each file of a run is replaced by a device, and then by a file that is too large.
    for name in ["tokenizer.json", "checkpoints/best", "checkpoints/last", "config.toml"] {
        let path = workspace.path("run").join(name);
        let bytes = fs::read(&path).expect("a file");
        fs::remove_file(&path).expect("remove");
        std::os::unix::fs::symlink("/dev/zero", &path).expect("link");
        let checkpoint = if name.ends_with("last") { "last" } else { "best" };
        let evaluate = format!("evaluate run --checkpoint {checkpoint}");
        // If `config.toml` is not a file, the folder does not count as a run.
        let named = if name == "config.toml" { "not a run" } else { name };
        workspace.fail(&evaluate, &[named]);
        fs::remove_file(&path).expect("remove");
        let large = fs::File::create(&path).expect("a file");
        large.set_len(3 << 30).expect("a size");
        workspace.fail(&evaluate, &[name, "larger than"]);
        fs::write(&path, bytes).expect("restore");
    }
    workspace.succeed("evaluate run --checkpoint best");
}
