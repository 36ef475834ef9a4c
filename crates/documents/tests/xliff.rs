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

#[test]
fn states_say_what_is_translated() {
    // Version 1.2: a target, and whether it is translated anew.
    for (target, approved, is_new) in [
        ("<target state=\"new\">one</target>", "", true),
        ("<target state=\"needs-translation\">one</target>", "", true),
        ("<target state=\"needs-l10n\">one</target>", "approved=\"no\"", true),
        ("<target state=\"new\"><g id=\"9\">old</g> one</target>", "", true),
        ("<target state=\"new\"/>", "", true),
        ("<target> </target>", "", true),
        ("<target>eins</target>", "", false),
        ("<target state=\"translated\">eins</target>", "", false),
        ("<target state=\"final\">eins</target>", "", false),
        ("<target state=\"signed-off\">eins</target>", "", false),
        ("<target state=\"needs-adaptation\">eins</target>", "", false),
        ("<target state=\"needs-review-translation\">eins</target>", "", false),
        ("<target state=\"x-own\">eins</target>", "", false),
        ("<target state=\"new\">eins</target>", "approved=\"yes\"", false),
        ("<target/>", "approved=\"yes\"", false),
        ("<target state=\"new\">eins</target>", "translate=\"no\"", false),
    ] {
        let file = |target: &str| {
            format!(
                "<xliff version=\"1.2\"><file><body><trans-unit id=\"1\" {approved}><source>one</source>\
                 {target}</trans-unit></body></file></xliff>"
            )
        };
        let begin = target.find(['>', '/']).expect("a tag");
        let expected = match is_new {
            true => format!("{}>ONE</target>", &target[..begin]),
            false => target.to_owned(),
        };
        assert_eq!(shouted(&file(target)), file(&expected), "{target} {approved}");
    }
    // Version 2.
    for (state, target, is_new) in [
        ("state=\"initial\"", "<target>one</target>", true),
        ("state=\"initial\"", "", true),
        ("state=\"translated\"", "<target>eins</target>", false),
        ("state=\"reviewed\"", "<target>eins</target>", false),
        ("state=\"final\"", "<target>eins</target>", false),
        ("", "<target>eins</target>", false),
        ("", "", true),
    ] {
        let file = |target: &str| {
            format!(
                "<xliff version=\"2.1\"><file><unit><segment state=\"initial\"><source>a</source>\
                 <target>A</target></segment><segment {state}><source>one</source>{target}\
                 </segment></unit></file></xliff>"
            )
        };
        let expected = if is_new { "<target>ONE</target>" } else { target };
        assert_eq!(shouted(&file(target)), file(expected), "{state} {target}");
    }
}

/// A unit of which a sentence has no translation gets no target, so that it does not seem to be
/// translated.
#[test]
fn a_unit_is_translated_as_a_whole() {
    let text = "<xliff><file><unit><source>One. Two.</source></unit></file></xliff>";
    let document =
        Document::parse(text.to_owned(), DocumentFormat::Xliff, "en").expect("an exchange file");
    let eins = Translated { text: "Eins.".to_owned(), links: Vec::new() };
    assert_eq!(document.write(&[Some(eins), None]), text);
}

/// Codes that stand for an opening and a closing tag stay around their words.
#[test]
fn pairs_of_codes_are_elements() {
    let made = |source: &str| {
        let file = format!("<xliff><file><unit><source>{source}</source></unit></file></xliff>");
        let document =
            Document::parse(file, DocumentFormat::Xliff, "en").expect("an exchange file");
        // "one two red" as "red two one".
        assert_eq!(document.lines()[0].text(), "one two red", "{source}");
        let links = vec![(0..3, 8..11), (4..7, 4..7), (8..11, 0..3)];
        let made = document.write(&[Some(Translated { text: "red two one".to_owned(), links })]);
        Document::parse(made.clone(), DocumentFormat::Xliff, "en").expect("an exchange file");
        let from = made.find("<target>").expect("a target") + "<target>".len();
        made[from..made.find("</target>").expect("a target")].to_owned()
    };
    for (source, expected) in [
        (
            "<bpt id=\"1\">&lt;b></bpt>one<ept id=\"1\">&lt;/b></ept> two red",
            "red two <bpt id=\"1\">&lt;b></bpt>one<ept id=\"1\">&lt;/b></ept>",
        ),
        (
            "one <bx id=\"1\" rid=\"7\"/>two<ex id=\"2\" rid=\"7\"/> <x id=\"3\"/>red",
            "<x id=\"3\"/>red <bx id=\"1\" rid=\"7\"/>two<ex id=\"2\" rid=\"7\"/> one",
        ),
        (
            "<sc id=\"1\"/><sc id=\"2\"/>one<ec startRef=\"2\"/><ec startRef=\"1\"/> two red",
            "red two <sc id=\"1\"/><sc id=\"2\"/>one<ec startRef=\"2\"/><ec startRef=\"1\"/>",
        ),
        (
            "<pc id=\"1\">one <sc id=\"2\"/>two<ec startRef=\"2\"/></pc> red",
            "red <pc id=\"1\"><sc id=\"2\"/>two<ec startRef=\"2\"/> one</pc>",
        ),
        // Codes that cross an element stand alone, and the element stays whole.
        (
            "one <sc id=\"2\"/><pc id=\"1\">two<ec startRef=\"2\"/></pc> red",
            "red <sc id=\"2\"/><pc id=\"1\">two<ec startRef=\"2\"/></pc> one",
        ),
    ] {
        assert_eq!(made(source), expected);
    }
}
