//! Shortlists of target tokens.

use std::fs;

use super::common::{Workspace, mentions, refused, stderr, stdout};
use super::{best, records};

pub(super) fn shortlists(workspace: &Workspace, input: &str) {
    let translate = "translate run --shortlist";
    refused(
        &workspace.run_with_input(translate, input.as_bytes()),
        &["has no shortlist", "`taper shortlist run` makes it"],
    );
    mentions(workspace.succeed("shortlist run"), &["run/shortlist.bin", "pairs", "--shortlist"]);
    let file = workspace.path("run/shortlist.bin");
    let bytes = fs::read(&file).expect("a file");
    workspace.succeed("shortlist run --threads 1");
    assert!(fs::read(&file).expect("a file") == bytes, "the same file each time");
    let names = fs::read_dir(workspace.path("run")).expect("a folder");
    let mut names = names.map(|entry| entry.expect("an entry").file_name());
    assert!(
        names.all(|name| !name.to_string_lossy().ends_with(".partial")),
        "nothing else is left"
    );

    for search in ["--beam 1", "--n-best 3", "--weights int8", "--sample --seed 3"] {
        let limited = records(workspace, &format!("--shortlist {search}"), input);
        let one_by_one = format!("--shortlist {search} --set decoding.batch_rows=1 --threads 1");
        assert_eq!(records(workspace, &one_by_one, input), limited, "{search}");
        let by_key = format!("--set decoding.shortlist=true {search}");
        assert_eq!(records(workspace, &by_key, input), limited, "{search}");
        assert_ne!(records(workspace, search, input), limited, "{search}: scores of fewer tokens");
    }
    // `explain` shows the same beam that `translate` uses.
    for line in input.lines().filter(|line| !line.is_empty()) {
        let explained =
            workspace.json(format!("explain run '{line}' --json --set decoding.shortlist=true"));
        let limited = records(workspace, "--shortlist", &format!("{line}\n"));
        assert_eq!(explained["found"][0]["text"], best(&limited[0]), "{line}");
        assert_eq!(explained["found"][0]["score"], limited[0]["translations"][0]["score"]);
    }
    workspace.fail(
        "explain run 'red cat' --set decoding.reranking.candidates=4",
        &["chooses among candidates", "decoding.reranking.candidates"],
    );
    workspace.succeed("evaluate run --shortlist");
    workspace.succeed("evaluate run --hostile --set decoding.shortlist=true");
    workspace.succeed("quantize run -o with-shortlist");
    assert_eq!(fs::read(workspace.path("with-shortlist/shortlist.bin")).expect("a file"), bytes);

    // Terms and prefixes may have other tokens.
    workspace.succeed("shortlist run --best 1 --frequent 1");
    workspace.write("terms", "red\there here\n");
    let forced = records(workspace, "--shortlist --terms terms", "red cat sees\n");
    assert!(best(&forced[0]).contains("here here"), "{forced:?}");
    damage(workspace, input);
    fs::remove_file(&file).expect("removed");
}

fn damage(workspace: &Workspace, input: &str) {
    let mut bytes = fs::read(workspace.path("run/shortlist.bin")).expect("a file");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    fs::write(workspace.path("run/shortlist.bin"), bytes).expect("write");
    let translate = "translate run --shortlist";
    let output = workspace.run_with_input(translate, input.as_bytes());
    refused(&output, &["shortlist.bin", "damaged", "taper shortlist run"]);
    // Without the option, the file is not read.
    let output = workspace.run_with_input("translate run", input.as_bytes());
    assert!(output.status.success() && !stdout(&output).is_empty(), "{}", stderr(&output));
    workspace.fail("shortlist run --best 0", &["at least one"]);
    workspace.fail("shortlist run --best 513", &["at most 512", "513"]);
    workspace.fail("shortlist run --split nothing", &["nothing"]);
}
