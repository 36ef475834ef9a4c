//! Tests of translated documents: sentences have the same translations as lines of text, and all
//! other bytes are kept.

mod common;

use std::fs;

use common::{Workspace, frozen, mentions, refused, stderr};

/// Returns four sentences, each with its translation by the workspace's run.
fn known(workspace: &Workspace) -> Vec<(String, String)> {
    let source = fs::read_to_string(frozen("source.txt")).expect("source");
    let lines: Vec<&str> =
        source.lines().filter(|line| line.split(' ').count() > 4).take(4).collect();
    workspace.write("lines.txt", lines.join("\n"));
    let translated = workspace.succeed("translate run --input lines.txt");
    lines.into_iter().map(str::to_owned).zip(translated.lines().map(str::to_owned)).collect()
}

#[test]
fn sentences_of_a_document_are_translated_as_lines_are() {
    let workspace = Workspace::of_frozen_run();
    let known = known(&workspace);
    let [(one, eins), (two, zwei), (three, drei), ..] = known.as_slice() else {
        panic!("too few sentences");
    };
    let translate = |name: &str, text: &str| {
        workspace.write(name, text);
        let output = format!("translated-{name}");
        workspace.succeed(format!("translate run --file {name} --output {output}"));
        workspace.read(&output)
    };
    let page = |one: &str, two: &str, three: &str| {
        format!(
            "<html>\n<!-- {{x}} -->\n<p class=\"a>b\">{one}</p><p><b>{two}</b></p>\n<pre>a dog</pre>\r\n\
             <ul><li>{three}\n</ul>"
        )
    };
    assert_eq!(translate("page.html", &page(one, two, three)), page(eins, zwei, drei));
    let titles = |one: &str, two: &str| {
        format!(
            "1\n00:00:01,000 --> 00:00:02,000\n<i>{one}</i>\n\n2\n00:00:03,000 --> 00:00:04,000\n{two}\n"
        )
    };
    assert_eq!(translate("film.srt", &titles(one, two)), titles(eins, zwei));
    let catalog = translate("a.po", &format!("msgid \"{one}\"\nmsgstr \"\"\n"));
    assert!(catalog.replace("\"\n\"", "").contains(&format!("msgstr \"{eins}\"")), "{catalog}");

    // The document has markup within a sentence, and placeholders that the model has never seen.
    let words: Vec<&str> = one.split(' ').collect();
    let marked = format!(
        "<p><i>{}</i> {{name}} {} <a href='https://a.b/c'>{}</a> https://d.e/f %(n)s</p>\n",
        words[0],
        words[1..3].join(" "),
        words[3..].join(" ")
    );
    let made = translate("marked.html", &marked);
    for part in [
        "<p>",
        "<i>",
        "</i>",
        "{name}",
        "<a href='https://a.b/c'>",
        "</a>",
        "https://d.e/f",
        "%(n)s",
    ] {
        assert_eq!(made.matches(part).count(), 1, "{part} in {made}");
    }
    let at = |part: &str| made.find(part).expect(part);
    assert!(at("<i>") < at("</i>") && at("<a ") < at("</a>"), "{made}");
    assert!(made.ends_with("</p>\n"), "{made}");
}

#[test]
fn documents_that_cannot_be_translated_are_refused() {
    let workspace = Workspace::of_frozen_run();
    workspace.write("a.po", "msgid \"a\"\nwords\n");
    workspace.write("a.xlf", "<tmx/>");
    workspace.write("a.doc", "x");
    workspace.write("a.txt", "x");
    workspace.write("wide.txt", b"\xff\xfea\0");
    for (arguments, said) in [
        (["a.po", "b.po"], "a.po: line 2: a string in quotes is missing"),
        (["a.xlf", "b.xlf"], "a.xlf: line 1: begins with <tmx>"),
        (["a.doc", "b.doc"], "its name does not say what it is"),
        (["a.txt", "a.txt"], "exists already"),
        (["a.txt", "-"], "give --output the name of a file"),
        (["wide.txt", "b.txt"], "is UTF-16 by its byte-order mark"),
        (["none.txt", "b.txt"], "none.txt"),
    ] {
        let [file, output] = arguments;
        let found = workspace.run(format!("translate run --file {file} --output {output}"));
        assert!(!found.status.success(), "{arguments:?}");
        assert!(stderr(&found).contains(said), "{}", stderr(&found));
        assert!(!workspace.path("b.txt").exists());
    }
}

/// With `--strict`, a sentence without a translation is an error, but the other translations are
/// kept.
#[test]
fn a_strict_translation_keeps_what_was_translated() {
    let workspace = Workspace::of_frozen_run();
    let known = known(&workspace);
    let (one, eins) = &known[0];
    let long = vec![one.trim_end_matches(['.', ' ']); 40].join(" ");
    workspace.write("a.html", format!("<p>{one}</p>\n<p>{long}</p>\n<p>{long}</p>\n"));
    let translate =
        "translate run --file a.html --output b.html --overlong error --max-source-tokens 60";
    let output = workspace.run(format!("{translate} --strict"));
    refused(&output, &["a.html, sentence 2"]);
    mentions(stderr(&output), &["a.html, sentence 3", "b.html.part", "2 of 3"]);
    assert!(!workspace.path("b.html").exists());
    let expected = format!("<p>{eins}</p>\n<p>{long}</p>\n<p>{long}</p>\n");
    assert_eq!(workspace.read("b.html.part"), expected);
    refused(&workspace.run(format!("{translate} --strict")), &["b.html.part exists already"]);
    // Without it, the document has its name, and the error names the sentences, too.
    let output = workspace.run(translate);
    refused(&output, &["2 of 3"]);
    mentions(stderr(&output), &["a.html, sentence 2", "a.html, sentence 3"]);
    assert_eq!(workspace.read("b.html"), expected);
}
