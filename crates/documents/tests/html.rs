//! Tests that pages are read as browsers read them: an element that must not be translated ends
//! where the HTML standard says.

use taper_documents::{Document, DocumentFormat, Translated};

/// Returns the page with its texts in capitals.
fn shouted(page: &str) -> String {
    let document = Document::parse(page.to_owned(), DocumentFormat::Html, "en").expect("a page");
    let translations: Vec<Option<Translated>> = document
        .lines()
        .iter()
        .map(|line| Some(Translated { text: line.text().to_uppercase(), links: Vec::new() }))
        .collect();
    document.write(&translations)
}

#[test]
fn kept_elements_end_where_browsers_end_them() {
    for (page, expected) in [
        // Elements that have no closing tag.
        (
            "<p>Look <img class=\"notranslate\" src=x> here.</p><p>More</p>",
            "<p>LOOK <img class=\"notranslate\" src=x> HERE.</p><p>MORE</p>",
        ),
        ("<input translate=no><p>text</p>", "<input translate=no><p>TEXT</p>"),
        // Elements whose closing tag is left out.
        (
            "<ul><li class=\"a notranslate\">Brand<ul><li>x</ul><li>one<li translate=no>two</ul>end",
            "<ul><li class=\"a notranslate\">Brand<ul><li>x</ul><li>ONE<li translate=no>two</ul>END",
        ),
        (
            "<div><p translate='no'>kept<p>one<p translate=no>two</div>end",
            "<div><p translate='no'>kept<p>ONE<p translate=no>two</div>END",
        ),
        (
            "<table><tr><td translate=no>a<table><tr><td>b</table>c<td>d<tr translate=no><td>e\
             <tr><td>f</table>",
            "<table><tr><td translate=no>a<table><tr><td>b</table>c<td>D<tr translate=no><td>e\
             <tr><td>F</table>",
        ),
        (
            "<dl><dt translate=no>a<dd>b</dl><select><option translate=no>a<option>b</select>",
            "<dl><dt translate=no>a<dd>B</dl><select><option translate=no>a<option>B</select>",
        ),
        // Tags in a program.
        (
            "<div translate=no><script>write('<div>')</script></div><p>text</p>",
            "<div translate=no><script>write('<div>')</script></div><p>TEXT</p>",
        ),
        ("<script>'</scripts>a b'</script>text", "<script>'</scripts>a b'</script>TEXT"),
        // Attributes and values that only resemble `translate=no`, and a `translate=no` in another
        // spelling.
        (
            "<a href=\"/notranslate\" title='translate=no'>one</a><b translate = \"No\">two</b>",
            "<a href=\"/notranslate\" title='translate=no'>ONE</a><b translate = \"No\">two</b>",
        ),
        // Comments without content.
        (
            "<!-->one<p>two<p><!-- a --!>three<p><!--->four",
            "<!-->ONE<p>TWO<p><!-- a --!>THREE<p><!--->FOUR",
        ),
        // A `>` in a value.
        ("<p title=\n\"a > b\"\tx = '>'>text", "<p title=\n\"a > b\"\tx = '>'>TEXT"),
    ] {
        assert_eq!(shouted(page), expected);
    }
}

#[test]
fn a_slash_at_the_end_of_a_value_ends_no_element() {
    let page = "<p>See <a href=https://a.b/c/>the page</a> now.</p>";
    let document = Document::parse(page.to_owned(), DocumentFormat::Html, "en").expect("a page");
    let links = vec![(0..3, 13..16), (4..7, 4..7), (8..12, 8..12), (13..16, 0..3)];
    let text = "now the page see".to_owned();
    let made = document.write(&[Some(Translated { text, links })]);
    assert!(made.contains("<a href=https://a.b/c/>the page</a>"), "{made}");
}

#[test]
fn references_are_characters() {
    assert_eq!(shouted("<p>&copy 2024 it&#146;s A&nbspB"), "<p>© 2024 IT’S A\u{a0}B");
}

#[test]
fn elements_over_several_sentences_stay_nested() {
    for (page, expected) in [
        (
            "<p>A <b>one! <i>Two words</i></b> more.</p>",
            "<p>A <b>ONE! <i>TWO WORDS</i></b> MORE.</p>",
        ),
        (
            "<p>A <b>b <i>c one! Two</i></b> more <q>d! Yes</q></p>",
            "<p>A <b>B <i>C ONE! TWO</i></b> MORE <q>D! YES</q></p>",
        ),
    ] {
        assert_eq!(shouted(page), expected);
    }
}
