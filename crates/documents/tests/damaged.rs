//! Tests that damaged documents are either read or give an error, and never cause a panic.

use taper_documents::{
    Document, DocumentFormat, Docx, Line, Tmx, Translated, po_pairs, utf8_of, xliff_pairs,
};

const SEEDS: [&str; 8] = [
    "<p class='x'>One <b>bold</b> &amp; {x}. Two <a href=\"y\">é</a></p><script>a</script><pre>b</pre>",
    "# A *b* [c](d \"e\")\n\n- [x] ~~f~~ `g`\n\n| h | i |\n|---|---|\n| j \\| | <b>k</b> |\n\n[^1]: l\n",
    "1\n00:00:01,000 --> 00:00:02,000\n<i>Hello ü,\n{\\an8}there</i>\n\n2\n00:00:03,000 --> x\n- a\n- b\n",
    "WEBVTT\n\nNOTE x\n\n00:01.000 --> 00:02.000\n<v Roger>Salt &amp; <00:01.5>p</v>\n",
    "msgid \"\"\nmsgstr \"Language: de\\n\"\n\n#, fuzzy\nmsgid \"a\"\nmsgid_plural \"\\x41ü\"\nmsgstr[0] \"\"\n",
    "<?xml version='1.0'?><xliff><file source-language='en'><trans-unit><source>a <g id='1'>ü</g><x/>\
     </source><target/></trans-unit></file></xliff>",
    "<tmx><body><tu><tuv xml:lang='en'><seg>a<ph>x</ph></seg></tuv><tuv lang='de'><seg>ü</seg></tuv>\
     </tu></body></tmx>",
    "<w:document><w:p><w:r><w:rPr><w:b/></w:rPr><w:t>one </w:t></w:r><w:hyperlink r='1'><w:r><w:t>tü\
     </w:t></w:r></w:hyperlink><w:proofErr/><w:r><w:t>x</w:t><w:tab/></w:r></w:p></w:document>",
];

const FORMATS: [DocumentFormat; 8] = [
    DocumentFormat::Html,
    DocumentFormat::Markdown,
    DocumentFormat::Srt,
    DocumentFormat::Vtt,
    DocumentFormat::Po,
    DocumentFormat::Xliff,
    DocumentFormat::Docx,
    DocumentFormat::Text,
];

/// Makes a function that returns a pseudo-random number below its argument. The numbers depend only
/// on the seed.
fn draws(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below.max(1) as u64) as usize
    }
}

/// Returns a copy of `bytes` with a few changes: changed bytes, and parts that are removed,
/// repeated, cut off or inserted.
fn damaged(bytes: &[u8], draw: &mut impl FnMut(usize) -> usize) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..=draw(4) {
        let at = draw(bytes.len());
        let end = (at + draw(20)).min(bytes.len());
        match draw(5) {
            0 if at < bytes.len() => bytes[at] = draw(256) as u8,
            1 => drop(bytes.drain(at..end)),
            2 => {
                let part = bytes[at..end].to_vec();
                let to = draw(bytes.len());
                bytes.splice(to..to, part);
            }
            3 => bytes.truncate(end),
            _ => {
                let special = b"<>&;\"'/\\{}[]()*_`|#-\n\r \0=%!?.:x\xff";
                let to = draw(bytes.len() + 1);
                bytes.insert(to, special[draw(special.len())]);
            }
        }
    }
    bytes
}

/// Reads bytes in every format. Documents that are accepted are written again, once unchanged and
/// once with other texts.
fn read(bytes: &[u8]) {
    let languages = ["en", "de"];
    if let Ok(mut memory) = Tmx::new(bytes, languages) {
        while let Ok(Some(_)) = memory.next_pair() {}
    }
    let Ok(text) = utf8_of(bytes) else { return };
    let _ = po_pairs(&text, languages);
    let _ = xliff_pairs(&text, languages);
    for format in FORMATS {
        let Ok(document) = Document::parse(text.clone(), format, "en") else { continue };
        assert_eq!(document.write(&[]), text, "{format:?}");
        let other = |line: &Line| {
            let line = line.without_placeholders();
            let text: String = line.text().chars().rev().collect();
            let whole = 0..text.len();
            Some(Translated { links: vec![(0..line.text().len(), whole)], text })
        };
        let translations: Vec<_> = document.lines().iter().map(other).collect();
        let made = document.write(&translations);
        // A document in a format based on XML must stay well-formed.
        if matches!(format, DocumentFormat::Xliff | DocumentFormat::Docx) {
            let again = Document::parse(made.clone(), format, "en");
            assert!(again.is_ok(), "{format:?}: {text}\n{made}");
        }
    }
}

#[test]
fn damaged_documents_are_read_or_refused() {
    for seed in SEEDS {
        read(seed.as_bytes());
    }
    for case in 0..6000 {
        let mut draw = draws(case);
        let seed = SEEDS[draw(SEEDS.len())];
        read(&damaged(seed.as_bytes(), &mut draw));
    }
}

#[test]
fn damaged_archives_are_read_or_refused() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/letter.docx");
    let whole = std::fs::read(path).unwrap();
    for case in 0..300 {
        if let Ok((docx, text)) = Docx::read(damaged(&whole, &mut draws(case))) {
            let _ = docx.write(&text);
        }
    }
}
