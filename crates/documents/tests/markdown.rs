//! Tests of Markdown whose meaning depends on lines, marks and characters around the text.

use taper_documents::{Document, DocumentFormat, Translated};

/// Returns the text with its sentences in capitals, except for placeholders.
fn shouted(text: &str) -> String {
    let document =
        Document::parse(text.to_owned(), DocumentFormat::Markdown, "en").expect("a document");
    let shout = |line: &str| {
        let (mut out, mut at) = (String::new(), 0);
        for range in taper_documents::placeholders(line) {
            out += &line[at..range.start].to_uppercase();
            out += &line[range.clone()];
            at = range.end;
        }
        out + &line[at..].to_uppercase()
    };
    let translated = |line: &taper_documents::Line| {
        Some(Translated { text: shout(line.text()), links: Vec::new() })
    };
    document.write(&document.lines().iter().map(translated).collect::<Vec<_>>())
}

#[test]
fn the_first_character_stays_escaped() {
    for (text, expected) in [
        ("\\# no heading\n", "\\# NO HEADING\n"),
        ("- \\_a b\n\n\\*c\n", "- \\_A B\n\n\\*C\n"),
        ("a\n\n\\\\b\n", "A\n\n\\\\B\n"),
    ] {
        assert_eq!(shouted(text), expected);
    }
}

#[test]
fn dialects_keep_their_lines() {
    for (text, expected) in [
        ("> [!NOTE]\n> Take care\n", "> [!NOTE]\n> TAKE CARE\n"),
        (
            "# A title {#id .c}\n\nTerm\n: Its meaning\n",
            "# A TITLE {#id .c}\n\nTERM\n: ITS MEANING\n",
        ),
        ("::: tip Be *good*\nWatch\nout\n:::\n", "::: tip Be *good*\nWATCH OUT\n:::\n"),
        ("- ::: tip\n  one\n  :::\n", "- ::: tip\n  ONE\n  :::\n"),
        ("!!! note \"A *b*\"\n    some text\n", "!!! note \"A *b*\"\n    SOME TEXT\n"),
        ("!!! Listen\nnow\n", "!!! LISTEN NOW\n"),
    ] {
        assert_eq!(shouted(text), expected);
    }
}

#[test]
fn tildes_strike_out_only_what_they_did() {
    for (text, expected) in [
        ("A \\~b\\~ c\n", "A ~B\\~ C\n"),
        ("A \\~\\~b\\~\\~ c\n", "A \\~\\~B\\~\\~ C\n"),
        ("A ~b~ and ~~c~~ d\n", "A ~B~ AND ~~C~~ D\n"),
        ("About ~10 to ~20 km\n", "ABOUT ~10 TO ~20 KM\n"),
    ] {
        assert_eq!(shouted(text), expected);
        // Each translation is read like its source, so it stays the same.
        assert_eq!(shouted(expected), expected);
    }
}

#[test]
fn dollars_are_prices_or_mathematics() {
    for (text, expected) in [
        ("A \\$x\\$ b $x+y$ c\n", "A \\$X\\$ B $x+y$ C\n"),
        ("From US$5 to A$6.\n", "FROM US\\$5 TO A\\$6.\n"),
        ("For $5 now.\n", "FOR $5 NOW.\n"),
    ] {
        assert_eq!(shouted(text), expected);
    }
}

#[test]
fn templates_are_written_as_they_were_read() {
    let text = "Hi {{ a[0].x }} and {{< fig >}} you {% if a < b %}now{% endif %}\n";
    let expected = "HI {{ a[0].x }} AND {{< fig >}} YOU {% if a < b %}NOW{% endif %}\n";
    assert_eq!(shouted(text), expected);
    // A full stop in a placeholder ends no sentence.
    let forms = "You have {n, plural, one {a file. It} other {# files}} left. Yes\n";
    let document = Document::parse(forms.to_owned(), DocumentFormat::Text, "en").expect("a text");
    let lines: Vec<&str> = document.lines().iter().map(taper_documents::Line::text).collect();
    assert_eq!(lines, ["You have {n, plural, one {a file. It} other {# files}} left.", "Yes"]);
}
