//! Tests that a document stays identical byte for byte if nothing is translated, and that
//! everything except text stays identical if everything is translated.

use taper_documents::{Document, DocumentFormat, Docx, Line, Translated};

fn parse(text: &str, format: DocumentFormat) -> Document {
    Document::parse(text.to_owned(), format, "en").unwrap()
}

/// Returns the document with each line changed by `turn`, which must keep the order of words.
fn turned(text: &str, format: DocumentFormat, turn: impl Fn(&str) -> String) -> String {
    let document = parse(text, format);
    let translated = |line: &Line| Some(Translated { text: turn(line.text()), links: Vec::new() });
    document.write(&document.lines().iter().map(translated).collect::<Vec<_>>())
}

fn shouted(text: &str, format: DocumentFormat) -> String {
    turned(text, format, str::to_uppercase)
}

fn lines(text: &str, format: DocumentFormat) -> Vec<String> {
    parse(text, format).lines().iter().map(|line| line.text().to_owned()).collect()
}

const PAGE: &str = "<!DOCTYPE html>\r\n<html lang=en><head><title>A &amp; b</title>\n<style>p > a { color: red }</style>\
    <script>if (a < b) { \"</p>\" }</script></head>\n<body class='x > y'><!-- not <p>this</p> -->\n\
    <p>One  <b>bold</b>\n  word. And <a href=\"?a=1&b=2\">a <i>link</i></a>!</p><br>\n\
    <ul><li>First<li> <em>All of it.</em> </ul><pre> keep   me </pre>\n\
    <p>Run <code>ls -l</code> now</p><p translate=\"no\">Taper</p><p>12.5 %</p>\n\
    a < b and <unknown>text</unknown> &copy; &nosuch; <p";

const NOTES: &str = "---\ntitle: kept\n---\n# A *first* heading #\n\nA paragraph that is\nwrapped, with `code`, [a link](http://a.b \"t\"),\n\
    ![alt](i.png) and <b>tags</b>. Then **more**.\n\n> quoted text\n> goes on\n\n1. one\n2. two  \n   broken\n\n\
    - [x] done\n\n| a | b |\n|---|:-:|\n| cell \\| one | two |\n\n```rust\nfn kept() {}\n```\n\n    indented code\n\n\
    <div>html block</div>\n\nA note[^1].\n\n[^1]: The note.\n\n[ref]: http://x.y\n";

const SRT: &str = "1\r\n00:00:01,000 --> 00:00:02,000\r\n<i>Hello there,\r\nmy friend.</i>\r\n\r\n2\r\n\
    00:00:03,000 --> 00:00:04,000\r\n- {\\an8}Who?\r\n- Me!\r\n\r\n3\r\n00:00:05,000 --> 00:00:06,000\r\n123\r\n";

const VTT: &str = "WEBVTT - a title\n\nNOTE kept\nas it is\n\nSTYLE\n::cue { color: red }\n\nintro\n\
    00:01.000 --> 00:02.000 align:start\n<v Roger>Salt &amp; <00:01.500>pepper</v>\n";

const CATALOG: &str = "# c\nmsgid \"\"\nmsgstr \"Language: de\\n\"\n\nmsgid \"Open %s\\n\"\nmsgstr \"\"\n\n\
    msgid \"done\"\nmsgstr \"fertig\"\n\nmsgid \"a \\\"file\\\"\"\nmsgid_plural \"files\"\nmsgstr[0] \"\"\nmsgstr[1] \"\"\n\n\
    #~ msgid \"old\"\n#~ msgstr \"alt\"\n";

const EXCHANGE: &str = "<?xml version=\"1.0\"?>\n<xliff version=\"1.2\"><file source-language=\"en\"><body>\n\
    <trans-unit id=\"1\">\n  <source>Press <g id=\"1\">this &amp; that</g><x id=\"2\"/> now</source>\n</trans-unit>\n\
    <trans-unit id=\"2\"><source>two</source><target/></trans-unit>\n\
    <trans-unit id=\"3\"><source>three</source><target state=\"new\"></target></trans-unit>\n\
    <trans-unit id=\"4\"><source>four</source><target>vier</target></trans-unit>\n\
    <trans-unit id=\"5\" translate=\"no\"><source>five</source></trans-unit></body></file></xliff>\n";

const LETTER: &str = "\u{feff}Title\n\nThis is a paragraph that was broken at about the\nsame width by the \
    program that it was written in, as\nmails are. It has two sentences.\n\n  * an item\n  * another one\n\n42\n";

const ALL: [(&str, DocumentFormat); 7] = [
    (PAGE, DocumentFormat::Html),
    (NOTES, DocumentFormat::Markdown),
    (SRT, DocumentFormat::Srt),
    (VTT, DocumentFormat::Vtt),
    (CATALOG, DocumentFormat::Po),
    (EXCHANGE, DocumentFormat::Xliff),
    (LETTER, DocumentFormat::Text),
];

#[test]
fn nothing_changes_without_translations() {
    for (text, format) in ALL {
        assert_eq!(parse(text, format).write(&[]), text, "{format:?}");
        if !matches!(format, DocumentFormat::Po | DocumentFormat::Xliff) {
            assert_eq!(turned(text, format, str::to_owned), text, "{format:?}");
        }
    }
}

#[test]
fn what_has_no_words_is_not_asked_for() {
    let page = "<p>{name} %s</p><p>https://a.b/c</p><p>12 &euro;</p><p>Dear {name}</p>";
    assert_eq!(lines(page, DocumentFormat::Html), ["Dear {name}"]);
}

#[test]
fn pages_keep_their_tags() {
    let expected = PAGE
        .replace("A &amp; b", "A &amp; B")
        .replace("One  <b>bold</b>\n  word. And", "ONE <b>BOLD</b> WORD. AND")
        .replace("a <i>link</i>", "A <i>LINK</i>")
        .replace("<li>First<li> <em>All of it.", "<li>FIRST<li> <em>ALL OF IT.")
        .replace("Run <code>ls -l</code> now", "RUN <code>ls -l</code> NOW")
        .replace("a < b and", "A &lt; B AND")
        .replace(">text</unknown> &copy; &nosuch;", ">TEXT</unknown> © &amp;NOSUCH;");
    assert_eq!(shouted(PAGE, DocumentFormat::Html), expected);
    assert_eq!(
        lines(PAGE, DocumentFormat::Html),
        [
            "A & b",
            "One bold word.",
            "And a link!",
            "First",
            "All of it.",
            "Run now",
            "a < b and",
            "text",
            "© &nosuch;",
        ]
    );
}

#[test]
fn markdown_keeps_its_marks() {
    let made = shouted(NOTES, DocumentFormat::Markdown);
    for part in [
        "---\ntitle: kept\n---\n# A *FIRST* HEADING #\n\n",
        "A PARAGRAPH THAT IS WRAPPED, WITH `code`, [A LINK](http://a.b \"t\"), ![alt](i.png) AND <b>TAGS</b>. THEN **MORE**.\n\n",
        "> QUOTED TEXT GOES ON\n\n1. ONE\n2. TWO  \n   BROKEN\n\n- [x] DONE\n\n",
        "| A | B |\n|---|:-:|\n| CELL \\| ONE | TWO |\n\n```rust\nfn kept() {}\n```\n\n    indented code\n",
        "<div>html block</div>\n\nA NOTE[^1].\n\n[^1]: THE NOTE.\n\n[ref]: http://x.y\n",
    ] {
        assert!(made.contains(part), "{part}\n---\n{made}");
    }
}

/// Checks documents with very deeply nested elements, with very many marks, and with marks that are
/// opened but never closed.
#[test]
fn no_number_of_marks_is_too_much() {
    const MANY: usize = 20_000;
    let nested = format!("<p>one {}two{} three", "<b>".repeat(MANY), "</b>".repeat(MANY));
    let crossed = format!("<p>one {}{} two", "<b>".repeat(MANY), "</i>".repeat(MANY));
    for (page, tag) in [(nested, "</b>"), (crossed, "</i>")] {
        let made = shouted(&page, DocumentFormat::Html);
        assert_eq!([made.matches("<b>").count(), made.matches(tag).count()], [MANY, MANY]);
        assert!(made.contains("ONE") && made.contains("TWO"));
    }
    for (part, format) in [
        ("{", DocumentFormat::Text),
        ("%(", DocumentFormat::Text),
        ("a-", DocumentFormat::Text),
        ("{a} ", DocumentFormat::Text),
        ("&", DocumentFormat::Html),
        ("<script></script>", DocumentFormat::Html),
        ("**b** ", DocumentFormat::Markdown),
        ("`b` ", DocumentFormat::Markdown),
    ] {
        let made = shouted(&format!("one {} two\n", part.repeat(MANY)), format).to_lowercase();
        let made = made.replace("&amp;", "&");
        assert_eq!(made.matches(part.trim()).count(), MANY, "{part}");
    }
}

#[test]
fn links_of_markdown_keep_their_addresses() {
    let notes = "See [the page], [*here*][] and [there][p], `a``b`.\n\n\
        [the page]: /page\n[*here*]: /here\n[p]: /there\n";
    let expected = "SEE [THE PAGE][the page], [*HERE*][*here*] AND [THERE][p], `a``b`.\n\n\
        [the page]: /page\n[*here*]: /here\n[p]: /there\n";
    assert_eq!(shouted(notes, DocumentFormat::Markdown), expected);
    // These marks at the beginning of a paragraph would make it a heading, an item or a quotation.
    let marks = |text: &str| turned("one\n", DocumentFormat::Markdown, |_| text.to_owned());
    for (text, expected) in [
        ("- a", "\\- a"),
        ("# a", "\\# a"),
        ("12. a", "12\\. a"),
        ("> a", "\\> a"),
        ("-a 1. b", "-a 1. b"),
        ("C# - a", "C# - a"),
    ] {
        assert_eq!(marks(text), format!("{expected}\n"));
    }
}

#[test]
fn subtitles_keep_times_and_lines() {
    let expected = SRT
        .replace("Hello there,\r\nmy friend.", "HELLO THERE,\r\nMY FRIEND.")
        .replace("Who?", "WHO?")
        .replace("Me!", "ME!");
    assert_eq!(shouted(SRT, DocumentFormat::Srt), expected);
    let expected = VTT.replace("Salt &amp;", "SALT &amp;").replace("pepper", "PEPPER");
    assert_eq!(shouted(VTT, DocumentFormat::Vtt), expected);
}

#[test]
fn texts_of_a_cue_are_all_translated() {
    let of = |srt: &str| lines(srt, DocumentFormat::Srt);
    // The cases include blank lines within a cue, no blank line after a cue, and cues without
    // numbers.
    for (cues, expected) in [
        (
            "1\n00:00:01,000 --> 00:00:02,000\nOne.\n\nTwo.\n\n2\n00:00:03,000 --> 00:00:04,000\nThree.\n",
            3,
        ),
        ("1\n00:00:01,000 --> 00:00:02,000\nOne.\n2\n00:00:03,000 --> 00:00:04,000\nTwo.\n", 2),
        ("00:00:01,000 --> 00:00:02,000\nOne.\n\n00:00:03,000 --> 00:00:04,000\nTwo.\n", 2),
        ("1\r00:00:01,000 --> 00:00:02,000\rOne.\r\r2\r00:00:03,000 --> 00:00:04,000\rTwo.\r", 2),
        ("1\n00:00:01,000 --> 00:00:02,000 X1:5 X2:6\nA --> b\n", 1),
    ] {
        assert_eq!(of(cues).len(), expected, "{cues}");
        assert!(!of(cues).iter().any(|line| line.contains(['1', '2'])), "{cues}");
    }
    // Marks next to the words stay, because only the words are translated.
    let cue =
        "1\n00:00:01,000 --> 00:00:02,000\n- Who is\nthere?\n- ♪ Me! ♪\n\n-5 of\n*us* ♪ all ♪\n";
    assert_eq!(of(cue), ["Who is there?", "Me!", "-5 of *us* ♪ all"]);
    let made = turned(cue, DocumentFormat::Srt, |_| "x".to_owned());
    assert_eq!(made, "1\n00:00:01,000 --> 00:00:02,000\n- x\n- ♪ x ♪\n\nx ♪\n");
    let cues = "WEBVTT\n\n00:01.000 --> 00:02.000\nOne.\n\nNOTE Two.\n";
    assert_eq!(lines(cues, DocumentFormat::Vtt), ["One."]);
    let voices = "WEBVTT\n\n00:01.000 --> 00:02.000\n<v Ann>One\ntwo\n<v.loud Bob>Three</v>\n";
    assert_eq!(lines(voices, DocumentFormat::Vtt), ["One two", "Three"]);
    let made = turned(voices, DocumentFormat::Vtt, |_| "x".to_owned());
    assert!(made.ends_with("\n<v Ann>x\n<v.loud Bob>x</v>\n"), "{made}");
    let text = "• One\r\r- Two\r";
    assert_eq!(lines(text, DocumentFormat::Text), ["One", "Two"]);
    assert_eq!(shouted(text, DocumentFormat::Text), text.to_uppercase());
}

#[test]
fn what_has_no_translation_is_given_one() {
    let expected = CATALOG
        .replace("Open %s\\n\"\nmsgstr \"\"", "Open %s\\n\"\nmsgstr \"OPEN %S\\n\"")
        .replace(
            "msgstr[0] \"\"\nmsgstr[1] \"\"",
            "msgstr[0] \"A \\\"FILE\\\"\"\nmsgstr[1] \"FILES\"",
        );
    assert_eq!(shouted(CATALOG, DocumentFormat::Po), expected);
    let expected = EXCHANGE
        .replace(
            "now</source>",
            "now</source>\n  <target>PRESS <g id=\"1\">THIS &amp; THAT</g><x id=\"2\"/> NOW</target>",
        )
        .replace("<target/>", "<target>TWO</target>")
        .replace("<target state=\"new\"></target>", "<target state=\"new\">THREE</target>");
    assert_eq!(shouted(EXCHANGE, DocumentFormat::Xliff), expected);
}

#[test]
fn paragraphs_are_broken_as_they_were() {
    let expected = "\u{feff}TITLE\n\nTHIS IS A PARAGRAPH THAT WAS BROKEN AT ABOUT THE\nSAME WIDTH BY THE PROGRAM \
        THAT IT WAS WRITTEN IN, AS\nMAILS ARE. IT HAS TWO SENTENCES.\n\n  * AN ITEM\n  * ANOTHER ONE\n\n42\n";
    assert_eq!(shouted(LETTER, DocumentFormat::Text), expected);
}

#[test]
fn times_within_a_subtitle_ascend() {
    let cue = "WEBVTT\n\n00:01.000 --> 00:04.000\none <00:02.000>two <00:03.000>three\n";
    let document = parse(cue, DocumentFormat::Vtt);
    let links = vec![(0..3, 10..13), (4..7, 6..9), (8..13, 0..5)];
    let made = document.write(&[Some(Translated { text: "three two one".to_owned(), links })]);
    assert!(made.ends_with("\n<00:02.000>three <00:03.000>two one\n"), "{made}");
}

/// Lines of a language without blanks are joined without blanks, and sentences of a language with
/// blanks are written with blanks.
#[test]
fn blanks_are_those_of_the_language() {
    let cue = "1\n00:00:01,000 --> 00:00:02,000\n你好，\n我的朋友。\n";
    assert_eq!(lines(cue, DocumentFormat::Srt), ["你好，我的朋友。"]);
    let made = turned(cue, DocumentFormat::Srt, |_| "再见，我的好朋友".to_owned());
    assert_eq!(made, "1\n00:00:01,000 --> 00:00:02,000\n再见，我\n的好朋友\n");
    let made = |text: &str| {
        let english =
            |line: &str| if line.contains('你') { "You. " } else { "I." }.trim().to_owned();
        turned(text, DocumentFormat::Html, english)
    };
    assert_eq!(made("<p>你。我。你。</p>"), "<p>You. I. You.</p>");
    assert_eq!(made("<p>你。<br>我。</p>"), "<p>You.<br>I.</p>");
    assert_eq!(shouted("<p>一a。二b。</p>", DocumentFormat::Html), "<p>一A。二B。</p>");
    let heart = "1\n00:00:01,000 --> 00:00:02,000\nI <b you\n";
    assert_eq!(shouted(heart, DocumentFormat::Srt), heart.replace("I <b you", "I <B YOU"));
}

/// Makes a function that returns a pseudo-random number below its argument. The numbers depend only
/// on the seed.
fn draws(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    }
}

/// Checks documents that are put together at random from difficult parts. If nothing is translated,
/// they must stay identical byte for byte. If their texts change, each tag must still occur as
/// often as before.
#[test]
fn no_byte_is_lost_in_any_document() {
    let parts = [
        "<b>",
        "</b>",
        "<i class=\"a b\">",
        "</i>",
        "<p>",
        "</p>",
        "<br/>",
        "text. More",
        " ",
        "\n",
        "\r\n",
        "\n\n",
        "&amp;",
        "&",
        "<",
        ">",
        "<!--",
        "-->",
        "*",
        "**",
        "_",
        "`",
        "[",
        "](",
        ")",
        "![",
        "|",
        "---",
        "# ",
        "> ",
        "- ",
        "1. ",
        "00:01 --> 00:02",
        "{x}",
        "%s",
        "\u{1f642}",
        "ü",
        "。",
        "\\",
        "\"",
        "<code>",
        "</code>",
        "<script>",
        "\t",
        "~~",
        "$",
        "[^1]",
        "<a",
        "WEBVTT\n\n",
        "\u{feff}",
        "é\u{301}",
        "msgid ",
    ];
    for seed in 0..4000 {
        let mut draw = draws(seed);
        let text: String = (0..draw(40)).map(|_| parts[draw(parts.len())]).collect();
        for (_, format) in ALL {
            let Ok(document) = Document::parse(text.clone(), format, "en") else { continue };
            assert_eq!(document.write(&[]), text, "{format:?}");
            let same =
                |line: &Line| Some(Translated { text: line.text().to_owned(), links: Vec::new() });
            let same: Vec<_> = document.lines().iter().map(same).collect();
            assert_eq!(document.write(&same), text, "{format:?}");
            // Translations with the words in another order, and with links.
            let other = |line: &Line| {
                let words: Vec<&str> = line.text().split(' ').rev().collect();
                let length = line.text().len();
                let links =
                    vec![(0..length / 2, length / 2..length), (length / 2..length, 0..length / 2)];
                Some(Translated { text: words.join(" "), links })
            };
            let other: Vec<_> = document.lines().iter().map(other).collect();
            let made = document.write(&other);
            if format == DocumentFormat::Html {
                for tag in ["<b>", "</b>", "<i class=\"a b\">", "</i>", "<p>", "</p>", "<br/>"] {
                    assert_eq!(
                        made.matches(tag).count(),
                        text.matches(tag).count(),
                        "{text}\n{made}"
                    );
                }
            }
        }
    }
}

#[test]
fn placeholders_come_back_once_whatever_a_model_makes_of_them() {
    let text = "<p>Dear {name}, <b>see https://a.b/c?d=1&amp;e</b> by %(day)s.</p>";
    let mut document = parse(text, DocumentFormat::Html);
    let line = &document.lines()[0];
    assert!(!line.keeps_placeholders("Lieber {Name}, siehe https://a.b bis %(day)s."));
    let line = line.without_placeholders();
    assert_eq!(line.text(), "Dear, see by.");
    document.replace(0, line);
    let to = Translated { text: "Lieber, siehe bis.".to_owned(), links: Vec::new() };
    let made = document.write(&[Some(to)]);
    for part in ["{name}", "https://a.b/c?d=1&amp;e", "%(day)s", "<b>", "</b>"] {
        assert_eq!(made.matches(part).count(), 1, "{made}");
    }
}

/// Checks pages that are put together at random from words, elements and placeholders. If no word
/// changes, a page without its placeholders is the same page again. If the words come in another
/// order, with random links, all tags stay nested as they were, and each placeholder stays.
#[test]
fn markup_is_a_tree_in_any_translation() {
    const TAGS: [&str; 5] = ["b", "i", "u", "a", "q"];
    for seed in 0..3000 {
        let mut draw = draws(seed);
        let (mut page, mut open) = (String::from("<p>"), Vec::new());
        for _ in 0..=draw(14) {
            match draw(8) {
                0 | 1 if open.len() < 4 => {
                    let tag = TAGS[draw(5)];
                    page += &format!("<{tag}>");
                    open.push(tag);
                }
                2 | 3 => page += &open.pop().map_or(String::new(), |tag| format!("</{tag}>")),
                4 => {
                    page += ["{x}", "%(n)s", " https://a.b/c ", "<br-x>", "<img>", "<wbr>"][draw(6)]
                }
                5 => page += ["one", "Two.", "three,", "(four)", "五。", "ห้า"][draw(6)],
                _ => page += " ",
            }
        }
        while let Some(tag) = open.pop() {
            page += &format!("</{tag}>");
        }
        page += "</p>";
        let document = parse(&page, DocumentFormat::Html);
        let shape = |page: &str| tree(page);
        let mut plain = document.clone();
        for (number, line) in document.lines().iter().enumerate() {
            plain.replace(number, line.without_placeholders());
        }
        for document in [&document, &plain] {
            let mut other = Vec::new();
            for line in document.lines() {
                let mut words: Vec<&str> = line.text().split(' ').collect();
                let turn = draw(words.len().max(1));
                words.rotate_left(turn);
                let text = words.join(" ") + ["", " more", "!"][draw(3)];
                let mut part = |length: usize| {
                    let start = draw(length + 1);
                    start..start + draw(length - start + 1)
                };
                let links = (0..4).map(|_| (part(line.text().len()), part(text.len()))).collect();
                other.push(Some(Translated { text, links }));
            }
            let made = document.write(&other);
            assert_eq!(shape(&made), shape(&page), "{page}\n{made}");
            for part in ["{x}", "%(n)s", "https://a.b/c"] {
                assert_eq!(
                    made.matches(part).count(),
                    page.matches(part).count(),
                    "{page}\n{made}"
                );
            }
        }
    }
}

/// For each tag of a page, sorted: the tag with the tags around it. The tags must be nested.
fn tree(page: &str) -> Vec<String> {
    let (mut open, mut tags) = (Vec::<String>::new(), Vec::new());
    for part in page.split('<').skip(1) {
        let (tag, _) = part.split_once('>').expect("a tag");
        match tag.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop().as_deref(), Some(name), "{page}"),
            None => {
                tags.push(format!("{}/{tag}", open.join("/")));
                if !matches!(tag, "img" | "wbr" | "br-x") {
                    open.push(tag.to_owned());
                }
            }
        }
    }
    assert!(open.is_empty(), "{page}");
    tags.sort_unstable();
    tags
}

#[test]
fn word_documents_keep_their_runs() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/letter.docx");
    let bytes = std::fs::read(path).unwrap();
    let (docx, text) = Docx::read(bytes.clone()).unwrap();
    assert_eq!(parse(&text, DocumentFormat::Docx).write(&[]), text);
    assert_eq!(turned(&text, DocumentFormat::Docx, str::to_owned), text);
    assert_eq!(
        lines(&text, DocumentFormat::Docx),
        [
            "A letter",
            "Some text with bold words & italic ones.",
            "Another sentence.",
            "before a tab",
            "and a break",
            "behind it",
            "left",
            "the header",
        ]
    );
    let made = shouted(&text, DocumentFormat::Docx);
    let again = Docx::read(docx.write(&made).unwrap()).unwrap().1;
    assert_eq!(again, made);
    // Without links, markup is placed in proportion, so its order is that of the source.
    let plain = |text: &str| {
        let mut plain = String::new();
        let mut in_tag = false;
        for character in text.chars() {
            match character {
                '<' => in_tag = true,
                '>' => in_tag = false,
                _ if !in_tag => plain.push(character),
                _ => {}
            }
        }
        plain
    };
    assert_eq!(plain(&made), plain(&text).to_uppercase().replace("&AMP;", "&amp;"));
    assert!(made.contains("<w:b/></w:rPr><w:t xml:space=\"preserve\">BOLD</w:t></w:r>"), "{made}");
    for damaged in [&bytes[..bytes.len() / 2], b"PK", b""] {
        assert!(Docx::read(damaged.to_vec()).is_err());
    }
}

#[test]
fn an_archive_expands_only_so_far() {
    let bytes = std::fs::read(
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/letter.docx"),
    )
    .unwrap();
    let (_, text) = Docx::read(bytes.clone()).unwrap();
    // The characters between the parts do not count towards the size.
    let size = text.replace('\0', "").len() as u64;
    assert!(Docx::read_within(bytes.clone(), size).is_ok());
    let error = Docx::read_within(bytes, size - 1).unwrap_err().to_string();
    assert!(error.contains("larger than"), "{error}");
}

/// Checks that every document in the folder `TAPER_DOCUMENTS` and its subfolders stays identical
/// byte for byte, without translations and with translations that equal the texts. Does nothing if
/// this environment variable is not set.
#[test]
fn documents_of_a_folder_come_back() {
    let Some(folder) = std::env::var_os("TAPER_DOCUMENTS") else { return };
    let (mut folders, mut documents, mut lines) = (vec![std::path::PathBuf::from(folder)], 0, 0);
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() && !path.is_symlink() {
                folders.push(path);
                continue;
            }
            if !path.is_file() {
                continue;
            }
            let Ok(format) = DocumentFormat::by_name(&path) else { continue };
            let Ok(text) = std::fs::read_to_string(&path) else { continue };
            let Ok(document) = Document::parse(text.clone(), format, "en") else { continue };
            assert!(document.write(&[]) == text, "{}", path.display());
            if !matches!(format, DocumentFormat::Po | DocumentFormat::Xliff) {
                let same = |line: &Line| {
                    Some(Translated { text: line.text().to_owned(), links: Vec::new() })
                };
                let same: Vec<_> = document.lines().iter().map(same).collect();
                assert!(document.write(&same) == text, "{}", path.display());
                // A document with changed texts can be parsed again.
                let shout = |line: &Line| {
                    Some(Translated { text: line.text().to_uppercase(), links: Vec::new() })
                };
                let shouted: Vec<_> = document.lines().iter().map(shout).collect();
                Document::parse(document.write(&shouted), format, "en").unwrap();
            }
            (documents, lines) = (documents + 1, lines + document.lines().len());
        }
    }
    println!("{documents} documents with {lines} sentences");
}
