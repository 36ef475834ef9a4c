//! Tests of message catalogs: which strings are translated, and what stays.

use taper_documents::{Document, DocumentFormat, Line, Translated, parse_po};

/// Returns the catalog with its untranslated messages in capitals.
fn shouted(text: &str) -> String {
    let document = Document::parse(text.to_owned(), DocumentFormat::Po, "en").expect("a catalog");
    let translated =
        |line: &Line| Some(Translated { text: line.text().to_uppercase(), links: Vec::new() });
    let made = document.write(&document.lines().iter().map(translated).collect::<Vec<_>>());
    parse_po(&made).expect("a catalog");
    made
}

#[test]
fn everything_but_untranslated_strings_stays() {
    for (before, after) in [
        // Comments between the parts of a string stay.
        (
            "msgid \"one\"\nmsgstr \"\"\n# a comment\n\"\"\n#, fuzzy\n\"\"\n",
            "msgid \"one\"\nmsgstr \"ONE\"\n# a comment\n\"\"\n#, fuzzy\n\"\"\n",
        ),
        (
            "msgid \"\"\n# a comment\n\"one\"\nmsgstr \"\"\n\"\"\n",
            "msgid \"\"\n# a comment\n\"one\"\nmsgstr \"ONE\"\n",
        ),
        // Contexts, flags, previous texts and obsolete messages, with the line ends of Windows.
        (
            "#. note\r\n#: a.c:1\r\n#, fuzzy, c-format\r\n#| msgctxt \"x\"\r\n#| msgid \"\"\r\n\
             #| \"old %s\\n\"\r\nmsgctxt \"menu\"\r\nmsgid \"one\\n\"\r\nmsgstr \"\"\r\n\r\n\
             #, fuzzy\r\n#~| msgid \"a\"\r\n#~ msgid \"b\"\r\n#~ msgstr \"\"\r\n",
            "#. note\r\n#: a.c:1\r\n#, fuzzy, c-format\r\n#| msgctxt \"x\"\r\n#| msgid \"\"\r\n\
             #| \"old %s\\n\"\r\nmsgctxt \"menu\"\r\nmsgid \"one\\n\"\r\nmsgstr \"ONE\\n\"\r\n\r\n\
             #, fuzzy\r\n#~| msgid \"a\"\r\n#~ msgid \"b\"\r\n#~ msgstr \"\"\r\n",
        ),
        // A fuzzy translation is a proposal for a person.
        (
            "#, fuzzy\nmsgid \"one\"\nmsgstr \"eins\"\n",
            "#, fuzzy\nmsgid \"one\"\nmsgstr \"eins\"\n",
        ),
        // Missing plural forms are added to those that are there.
        (
            "msgid \"one\"\nmsgid_plural \"more\"\nmsgstr[0] \"eins\"\nmsgstr[1] \"\"\n",
            "msgid \"one\"\nmsgid_plural \"more\"\nmsgstr[0] \"eins\"\nmsgstr[1] \"MORE\"\n",
        ),
        // A language with a single form, in a catalog with two.
        (
            "msgid \"\"\nmsgstr \"Plural-Forms: nplurals=1; plural=0;\\n\"\n\n\
             msgid \"one\"\nmsgid_plural \"more\"\nmsgstr[0] \"\"\nmsgstr[1] \"\"\n",
            "msgid \"\"\nmsgstr \"Plural-Forms: nplurals=1; plural=0;\\n\"\n\n\
             msgid \"one\"\nmsgid_plural \"more\"\nmsgstr[0] \"MORE\"\nmsgstr[1] \"MORE\"\n",
        ),
        // Escapes.
        (
            "msgid \"\\101\\x42 \\303\\244 \\\"q\\\" \\\\n \\t\\a\"\nmsgstr \"\"\n",
            "msgid \"\\101\\x42 \\303\\244 \\\"q\\\" \\\\n \\t\\a\"\nmsgstr \"AB Ä \\\"Q\\\" \\\\N \\t\\a\"\n",
        ),
    ] {
        assert_eq!(shouted(before), after);
    }
}

#[test]
fn flags_within_a_message_belong_to_it() {
    let messages = parse_po("msgid \"a\"\n#, fuzzy\nmsgstr \"b\"\n\nmsgid \"c\"\nmsgstr \"d\"\n");
    let fuzzy: Vec<bool> = messages.expect("two").iter().map(|message| message.is_fuzzy).collect();
    assert_eq!(fuzzy, [true, false]);
}

#[test]
fn tags_in_messages_are_kept() {
    for (message, expected) in [
        (
            "Click <a href=\\\"%s\\\" class='x'>here</a> &amp; <b>wait</b>",
            "CLICK <a href=\\\"%s\\\" class='x'>HERE</a> &AMP; <b>WAIT</b>",
        ),
        ("One<br/>two <img src='a'> three", "ONE<br/>TWO <img src='a'> THREE"),
        ("<p>One</p><ul><li>two</ul>", "<p>ONE</p><ul><li>TWO</ul>"),
        ("<b>one", "<b>ONE"),
        ("a < b, a <b, <nothing>", "A < B, A <B, <NOTHING>"),
    ] {
        let catalog =
            |translation: &str| format!("msgid \"{message}\"\nmsgstr \"{translation}\"\n");
        assert_eq!(shouted(&catalog("")), catalog(expected));
    }
    // The words of a tag move, and the tag moves with them.
    let text = "msgid \"Click <b>here</b> now\"\nmsgstr \"\"\n".to_owned();
    let document = Document::parse(text, DocumentFormat::Po, "en").expect("a catalog");
    assert_eq!(document.lines()[0].text(), "Click here now");
    let links = vec![(0..5, 11..17), (6..10, 6..10), (11..14, 0..5)];
    let made = document.write(&[Some(Translated { text: "Jetzt hier klicken".to_owned(), links })]);
    assert!(made.ends_with("msgstr \"Jetzt <b>hier</b> klicken\"\n"), "{made}");
}
