//! Tests emphasis in Markdown that reaches across sentences.

use std::ops::Range;

use taper_documents::{Document, DocumentFormat, Line, Translated};

/// Translates the lines of `text`, which have the given texts and translations. The units of a
/// translation, which are separated by `|`, are linked with the words of the text in order.
fn translated(text: &str, lines: &[(&str, &str)]) -> String {
    let document = Document::parse(text.to_owned(), DocumentFormat::Markdown, "en").unwrap();
    let texts: Vec<&str> = document.lines().iter().map(Line::text).collect();
    assert_eq!(texts, lines.iter().map(|(text, _)| *text).collect::<Vec<_>>());
    let turned = lines.iter().map(|(text, units)| {
        let targets = ranges(units, '|').enumerate();
        let targets = targets.map(|(number, range)| range.start - number..range.end - number);
        let links = ranges(text, ' ').zip(targets).collect();
        Some(Translated { text: units.replace('|', ""), links })
    });
    document.write(&turned.collect::<Vec<_>>())
}

fn ranges(text: &str, separator: char) -> impl Iterator<Item = Range<usize>> {
    text.split(separator).map(move |part| {
        let start = part.as_ptr().addr() - text.as_ptr().addr();
        start..start + part.len()
    })
}

#[test]
fn delimiters_that_are_read_stay() {
    let made = translated(
        "Zero **one. Two** three.\n",
        &[("Zero one.", "零|一。"), ("Two three.", "二|三。")],
    );
    assert_eq!(made, "零**一。 二**三。\n");
    let made =
        translated("**One. Two** three.\n", &[("One.", "eins."), ("Two three.", "zwei| drei.")]);
    assert_eq!(made, "**eins. zwei** drei.\n");
}

/// Within a Chinese sentence, `_` is no delimiter, and neither is `**` between a letter and a
/// quotation mark.
#[test]
fn delimiters_that_are_not_read_become_tags() {
    let made = translated(
        "Zero _one. Two_ three.\n",
        &[("Zero one.", "零|一。"), ("Two three.", "二|三。")],
    );
    assert_eq!(made, "零<em>一。 二</em>三。\n");
    let made = translated(
        "**One. Two** three and __four__.\n",
        &[("One.", "一。"), ("Two three and four.", "“二”|三|和|四。")],
    );
    assert_eq!(made, "<strong>一。 “二”</strong>三和**四。**\n");
    let made = translated(
        "Zero ~~one. Two. Three~~ four.\n",
        &[("Zero one.", "零|“一。"), ("Two.", "二。"), ("Three four.", "三”|四。")],
    );
    assert_eq!(made, "零<del>“一。 二。 三”</del>四。\n");
}
