//! Tests of documents of word processors: paragraphs with marks, text boxes and hyphens.

use taper_documents::{Document, DocumentFormat, Line, Translated};

fn document(paragraph: &str) -> Document {
    let text = format!("<w:document><w:body><w:p>{paragraph}</w:p></w:body></w:document>");
    Document::parse(text, DocumentFormat::Docx, "en").expect("a document")
}

fn lines(paragraph: &str) -> Vec<String> {
    document(paragraph).lines().iter().map(|line| line.text().to_owned()).collect()
}

/// Returns the paragraph with its texts in capitals, in which each word is linked to itself.
fn shouted(paragraph: &str) -> String {
    let document = document(paragraph);
    let shout = |line: &Line| {
        let text = line.text().to_uppercase();
        let links = (0..text.len()).map(|at| (at..at + 1, at..at + 1)).collect();
        Some(Translated { text, links })
    };
    let made = document.write(&document.lines().iter().map(shout).collect::<Vec<_>>());
    let made = made.replace(" xml:space=\"preserve\"", "");
    let from = made.find("<w:p>").expect("a paragraph") + "<w:p>".len();
    made[from..made.rfind("</w:p>").expect("a paragraph")].to_owned()
}

#[test]
fn marks_do_not_divide_a_sentence() {
    for mark in [
        "<w:r><w:rPr><w:vertAlign w:val=\"superscript\"/></w:rPr><w:footnoteReference w:id=\"2\"/></w:r>",
        "<w:commentRangeEnd w:id=\"0\"/><w:r><w:commentReference w:id=\"0\"/></w:r>",
        "<w:del w:id=\"1\"><w:r><w:delText>no</w:delText></w:r></w:del>",
        "<w:moveFrom w:id=\"1\"><w:r><w:t>gone</w:t></w:r></w:moveFrom>",
        "<m:oMath><m:r><m:t>x</m:t></m:r></m:oMath>",
    ] {
        let paragraph = format!("<w:r><w:t>A note</w:t></w:r>{mark}<w:r><w:t> in it.</w:t></w:r>");
        assert_eq!(lines(&paragraph), ["A note in it."], "{mark}");
        let made = shouted(&paragraph).replace("<w:r><w:t></w:t></w:r>", "");
        assert_eq!(made, paragraph.replace("A note", "A NOTE").replace(" in it", " IN IT"));
    }
}

#[test]
fn text_boxes_are_translated() {
    let paragraph = "<w:r><w:t>One</w:t></w:r><w:r><w:pict><v:textbox><w:txbxContent><w:p><w:r>\
        <w:t>In a box</w:t></w:r></w:p><w:p><w:r><w:t>two</w:t></w:r></w:p></w:txbxContent>\
        </v:textbox></w:pict></w:r><w:r><w:t>Three</w:t></w:r>";
    assert_eq!(lines(paragraph), ["One", "In a box", "two", "Three"]);
    let expected = paragraph
        .replace("One", "ONE")
        .replace("In a box", "IN A BOX")
        .replace("two", "TWO")
        .replace("Three", "THREE");
    assert_eq!(shouted(paragraph), expected);
}

#[test]
fn hyphens_do_not_divide_a_word() {
    let paragraph = "<w:r><w:t>trans</w:t><w:softHyphen/><w:t>lated e</w:t><w:noBreakHyphen/><w:t>mail</w:t></w:r>";
    assert_eq!(lines(paragraph), ["translated e-mail"]);
    assert_eq!(shouted(paragraph), "<w:r><w:t>TRANSLATED E-MAIL</w:t></w:r>");
    // A hyphen without text behind it stays where it is.
    let paragraph = "<w:r><w:t>one</w:t><w:noBreakHyphen/></w:r><w:r><w:t>two</w:t></w:r>";
    let expected = paragraph.replace("one", "ONE").replace("two", "TWO");
    assert_eq!(shouted(paragraph), expected);
}

#[test]
fn links_keep_both_tags_whatever_is_in_them() {
    let run = |text: &str| format!("<w:r><w:t>{text}</w:t></w:r>");
    let [see, link, more, now] = ["See", "link", "more", "now"].map(run);
    for (paragraph, expected) in [
        (
            format!(
                "{see}<w:hyperlink r:id=\"a\">{link}<w:r><w:tab/></w:r>{more}</w:hyperlink>{now}"
            ),
            &["See", "link", "more", "now"][..],
        ),
        (
            format!("{see}<w:hyperlink>{link}<w:sdt>{more}</w:sdt></w:hyperlink>{now}"),
            &["See", "link", "more", "now"],
        ),
        (
            format!("{see}<w:ins w:id=\"1\"><w:hyperlink>{link}</w:hyperlink>{more}</w:ins>{now}"),
            &["See", "linkmore", "now"],
        ),
        (format!("{see}<w:ins w:id=\"1\">{more}</w:ins>{now}"), &["Seemorenow"]),
        (format!("{see}<w:smartTag>{more}</w:smartTag>{now}"), &["Seemorenow"]),
    ] {
        assert_eq!(lines(&paragraph), expected, "{paragraph}");
        let made = shouted(&paragraph);
        let count = |text: &str, tag: &str| text.matches(tag).count();
        for tag in ["<w:hyperlink", "</w:hyperlink>", "<w:ins", "</w:ins>", "<w:tab/>", "<w:sdt>"] {
            assert_eq!(count(&made, tag), count(&paragraph, tag), "{made}");
        }
        assert_eq!(count(&made, "<w:r>"), count(&made, "</w:r>"), "{made}");
    }
}
