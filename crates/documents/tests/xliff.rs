//! Tests of exchange files: which texts are translated, and where translations are inserted.

use taper_documents::{Document, DocumentFormat, Translated};

/// Returns the file with its texts in capitals.
fn shouted(text: &str) -> String {
    let document =
        Document::parse(text.to_owned(), DocumentFormat::Xliff, "en").expect("an exchange file");
    let translated = |line: &taper_documents::Line| {
        Some(Translated { text: line.text().to_uppercase(), links: Vec::new() })
    };
    document.write(&document.lines().iter().map(translated).collect::<Vec<_>>())
}

#[test]
fn protected_text_stays_and_lines_are_separate() {
    for (source, target) in [
        // These cases follow the sections "mtype" and "ctype" of the specification of version 1.2.
        (
            "Try <mrk mtype=\"protected\">Taper</mrk> now",
            "TRY <mrk mtype=\"protected\">Taper</mrk> NOW",
        ),
        ("one<x id=\"1\" ctype=\"lb\"/>two", "ONE<x id=\"1\" ctype=\"lb\"/>TWO"),
        (
            "one<ph id=\"1\" ctype=\"lb\">&lt;br></ph>two",
            "ONE<ph id=\"1\" ctype=\"lb\">&lt;br></ph>TWO",
        ),
        // These cases follow the sections "translate" and "subType" of the specification of version
        // 2.
        (
            "<mrk id=\"1\" translate=\"no\">Taper</mrk> x",
            "<mrk id=\"1\" translate=\"no\">Taper</mrk> X",
        ),
        ("one<ph id=\"1\" subType=\"fmt:lb\"/>two", "ONE<ph id=\"1\" subType=\"fmt:lb\"/>TWO"),
    ] {
        let file = |target: &str| {
            format!("<xliff><file><unit><source>{source}</source>{target}</unit></file></xliff>")
        };
        assert_eq!(shouted(&file("")), file(&format!("<target>{target}</target>")));
    }
}

#[test]
fn only_sources_of_units_are_translated() {
    let text = "<xliff><file><skeleton><source>one</source></skeleton><unit><ignorable>\
        <source>two</source></ignorable><segment><source>three</source></segment></unit></file></xliff>";
    let expected = text.replace("three</source>", "three</source><target>THREE</target>");
    assert_eq!(shouted(text), expected);
}

#[test]
fn a_target_follows_the_division_of_its_source() {
    let text = "<xliff><file><trans-unit><source>one</source>\
        <seg-source><mrk mtype=\"seg\">one</mrk></seg-source></trans-unit></file></xliff>";
    let expected = text.replace("</seg-source>", "</seg-source><target>ONE</target>");
    assert_eq!(shouted(text), expected);
}
