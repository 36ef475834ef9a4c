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
        // The closing tags that the standard lets out, each before an outer element ends.
        (
            "<dl><div><dt>a<dd translate=no>b</div><div><dt translate=no>c</dt><dd>d</div></dl>e",
            "<dl><div><dt>A<dd translate=no>b</div><div><dt translate=no>c</dt><dd>D</div></dl>E",
        ),
        (
            "<div><dl><dt translate=no>a<dd translate=no>b</dl></div><p>c",
            "<div><dl><dt translate=no>a<dd translate=no>b</dl></div><p>C",
        ),
        (
            "<section><ul><li>a<li translate=no>b</section><p>c",
            "<section><ul><li>A<li translate=no>b</section><p>C",
        ),
        ("<a><p translate=no>a</a><p>b", "<a><p translate=no>a</a><p>B"),
        (
            "<table><caption translate=no>a<tr><td>b<tbody translate=no><tr><td>c<tfoot><tr><th>d</table>",
            "<table><caption translate=no>a<tr><td>B<tbody translate=no><tr><td>c<tfoot><tr><th>D</table>",
        ),
        (
            "<table><colgroup translate=no><col><thead translate=no><tr><th>a<tbody><tr><td>b</table>c",
            "<table><colgroup translate=no><col><thead translate=no><tr><th>a<tbody><tr><td>B</table>C",
        ),
        (
            "<table><tr><td><div translate=no>a<td>b<tr translate=no><td>c</table>d",
            "<table><tr><td><div translate=no>a<td>B<tr translate=no><td>c</table>D",
        ),
        (
            "<select><optgroup translate=no><option>a<optgroup><option translate=no>b<option>c</select>d",
            "<select><optgroup translate=no><option>a<optgroup><option translate=no>b<option>C</select>D",
        ),
        (
            "<datalist><option translate=no>a</datalist><p>b",
            "<datalist><option translate=no>a</datalist><p>B",
        ),
        (
            "<head translate=no><title>a</title><body><p>b",
            "<head translate=no><title>a</title><body><p>B",
        ),
        (
            "<head translate=no><title>a</title></head><p>b",
            "<head translate=no><title>a</title></head><p>B",
        ),
        ("<head translate=no><meta>\ntext", "<head translate=no><meta>\nTEXT"),
        // Elements that must have a closing tag, but lack it, end with the outer element.
        ("<div><span translate=no>a</div><p>b", "<div><span translate=no>a</div><p>B"),
        ("<p><code>a<p>b", "<p><code>a<p>B"),
        ("<h1 translate=no>a</h2><p>b", "<h1 translate=no>a</h2><p>B"),
        // An element within an element that is not translated can be translated.
        (
            "<div translate=no>a <p translate=yes>b <i>c</i><p>d <span translate>e</span> f</div>g",
            "<div translate=no>a <p translate=yes>B <i>C</i><p>d <span translate>E</span> f</div>G",
        ),
        ("<pre>a<b>c</b></pre>d<xmp><p></xmp>e", "<pre>a<b>c</b></pre>D<xmp><p></xmp>E"),
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

#[test]
fn pronunciation_and_drawings_do_not_divide_a_sentence() {
    let lines = |page: &str| -> Vec<String> {
        let document =
            Document::parse(page.to_owned(), DocumentFormat::Html, "ja").expect("a page");
        document.lines().iter().map(|line| line.text().to_owned()).collect()
    };
    for page in [
        "<p><ruby>漢<rp>(</rp><rt>kan</rt><rp>)</rp>字<rt>ji</ruby>です</p>",
        "<p><ruby>漢<rp>(<rt>kan<rp>)</ruby><ruby>字<rt>ji</rt></ruby>です</p>",
        "<p>漢<svg><text>kan</text><g/></svg>字<picture><source><img></picture>です</p>",
    ] {
        assert_eq!(lines(page), ["漢字です"], "{page}");
    }
    let page = "<p>A <ruby>word<rt>w</ruby> is <math><mi>x</mi></math> here</p>";
    assert_eq!(shouted(page), "<p>A <ruby>WORD<rt>w</ruby> IS <math><mi>x</mi></math> HERE</p>");
}

/// Stand-alone tags at the edges of an element stay in it, whatever the order of words.
#[test]
fn elements_keep_what_is_in_them() {
    let turned = |page: &str, text: &str, links: &[[usize; 4]]| {
        let document =
            Document::parse(page.to_owned(), DocumentFormat::Html, "en").expect("a page");
        let links = links.iter().map(|&[a, b, c, d]| (a..b, c..d)).collect();
        document.write(&[Some(Translated { text: text.to_owned(), links })])
    };
    // "See the page now" as "Now see the page".
    let links = [[0, 3, 4, 7], [4, 7, 8, 11], [8, 12, 12, 16], [13, 16, 0, 3]];
    for (page, expected) in [
        ("<p>See <a><img>the page</a> now</p>", "<p>Now see <a><img>the page</a></p>"),
        ("<p>See <a>the page<img></a> now</p>", "<p>Now see <a>the page<img></a></p>"),
        (
            "<p><a><img>See</a> the <b>page<wbr></b> <i>now</i></p>",
            "<p><i>Now</i> <a><img>see</a> the <b>page<wbr></b></p>",
        ),
    ] {
        assert_eq!(turned(page, "Now see the page", &links), expected);
    }
    let page = "<p>See <b><img></b> the <i></i> page now</p>";
    let expected = "<p>Now see <b><img></b> the <i></i> page</p>";
    assert_eq!(turned(page, "Now see the page", &links), expected);
    // A blank between code and a placeholder, both of which are taken out of the text.
    let page = "<p>See the <code>x</code> {dir} of <b><img></b> <i>{n}</i> {m} files.</p>";
    let mut document =
        Document::parse(page.to_owned(), DocumentFormat::Html, "en").expect("a page");
    let line = document.lines()[0].without_placeholders();
    assert_eq!(line.text(), "See the of files.");
    document.replace(0, line);
    let to = Translated { text: "Sieh die von dateien.".to_owned(), links: Vec::new() };
    let expected =
        page.replace("See the", "Sieh die").replace("of", "von").replace("files", "dateien");
    assert_eq!(document.write(&[Some(to)]), expected);
    // The outer elements go on after the line break.
    let page = "<p>See <b>the <i>page now<br>two</i> three</b> four</p>";
    let document = Document::parse(page.to_owned(), DocumentFormat::Html, "en").expect("a page");
    let same = document
        .lines()
        .iter()
        .map(|line| Some(Translated { text: line.text().to_uppercase(), links: Vec::new() }));
    let expected = "<p>SEE <b>THE <i>PAGE NOW<br>TWO</i> THREE</b> FOUR</p>";
    assert_eq!(document.write(&same.collect::<Vec<_>>()), expected);
}

#[test]
fn parts_of_words_keep_their_tags() {
    let page = "<p>Pure H<sub>2</sub>O and m<sup>2</sup>. Now</p>";
    assert_eq!(shouted(page), "<p>PURE H<sub>2</sub>O AND M<sup>2</sup>. NOW</p>");
}
