//! Terms whose translations the user supplies.

use super::common::{Workspace, refused, stderr, stdout};
use super::{best, records};

/// The run is hardly trained, so that it does not translate terms in this way by itself.
pub(super) fn terms_are_used(workspace: &Workspace) {
    let input = "Red cat sees\ntwo big dogs run here\n\nred cat sees\nredcat\n";
    let plain = records(workspace, "", input);
    workspace.write("terms", "red\there here\n\nbig dogs\ttwo\r\n");
    let found = records(workspace, "--terms terms", input);
    assert!(best(&found[0]).contains("here here"), "{found:?}");
    assert!(best(&found[3]).contains("here here"), "{found:?}");
    assert!(best(&found[1]).contains("two"), "{found:?}");
    // The other lines have no term.
    for line in [2, 4] {
        assert_eq!(best(&found[line]), best(&plain[line]));
    }
    assert!(found.iter().all(|record| record.get("missing_terms").is_none()), "{found:?}");
    for search in ["--beam 1", "--n-best 3", "--alignments", "--sample"] {
        let found = records(workspace, &format!("--terms terms {search}"), input);
        let translations = found[3]["translations"].as_array().expect("translations");
        for one in translations {
            assert!(one["text"].as_str().expect("text").contains("here here"), "{one}");
        }
    }
    // The translation of a term may exceed the maximum length.
    let short = "--terms terms --set decoding.max_length=1 --beam 2";
    workspace.write("terms", "red\there here here here here here here here here\n");
    let output = workspace.run_with_input(format!("translate run {short}"), b"red\n");
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stdout(&output).contains("here here here here here here here here"), "{output:?}");
    terms_in_documents(workspace);
    refusals(workspace);
}

fn terms_in_documents(workspace: &Workspace) {
    workspace.write("terms", "red\there here\n");
    workspace.write("page.html", "<p>the <b>red</b> cat</p>\n<p>two dogs</p>\n");
    workspace.succeed("translate run --file page.html --output translated.html --terms terms");
    let page = workspace.read("translated.html");
    let text = page.replace("<b>", "").replace("</b>", "");
    assert!(text.contains("here here"), "{page}");
    assert_eq!((page.matches("<b>").count(), page.matches("</b>").count()), (1, 1), "{page}");
}

fn refusals(workspace: &Workspace) {
    let terms = "translate run --terms terms";
    for (file, told) in [
        ("red\there\nred cat\n", "terms, line 2"),
        ("red\there\nred\ttwo\n", "has another translation before, \"here\""),
        ("\n", "no terms"),
    ] {
        workspace.write("terms", file);
        refused(&workspace.run_with_input(terms, b"red\n"), &[told]);
    }
    // The vocabulary of this run of an earlier version has no tokens for bytes.
    let frozen = Workspace::of_frozen_run();
    frozen.write("terms", "red\tZÜRICH\n");
    refused(&frozen.run_with_input(terms, b"red\n"), &["line 1", "cannot spell \"ZÜRICH\""]);
    refused(&workspace.run_with_input("translate run --terms missing", b"red\n"), &["missing"]);
}
