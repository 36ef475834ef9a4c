//! Tests tables of pairs, running text, labels and tags: fields, columns and byte-order marks.

mod common;

use std::path::Path;

use common::mentions;
use taper_data::{
    DataConfig, Documents, Format, LabelOf, Pairs, Result, Task, TokenizerKind, prepare_labelled,
    prepare_text, read_pairs, tagged_words,
};

fn config(folder: &Path) -> DataConfig {
    let mut config = DataConfig {
        dir: folder.to_owned(),
        validation: "".into(),
        test: "".into(),
        ..DataConfig::default()
    };
    config.tokenizer.kind = TokenizerKind::Char;
    config
}

fn file(config: &DataConfig, name: &str, bytes: impl AsRef<[u8]>) -> DataConfig {
    std::fs::write(config.dir.join(name), bytes).unwrap();
    DataConfig { train: name.into(), ..config.clone() }
}

/// Decoded training text of a language model.
fn running_text(config: &DataConfig) -> Result<String> {
    let run = tempfile::tempdir().unwrap();
    let prepared = prepare_text(config, run.path())?;
    let ids = prepared.train.read(0, prepared.train.tokens() as usize)?;
    let texts = ids.split(|&id| id == prepared.tokenizers.target().end());
    let decoded: Result<Vec<String>> =
        texts.map(|ids| prepared.tokenizers.target().decode(ids)).collect();
    Ok(decoded?.join("|"))
}

fn said<T>(result: Result<T>) -> String {
    result.map(drop).expect_err("refused").to_string()
}

const RECORDS: &str = "{\"text\": \"a film, {good}\", \"label\": 1, \"inner\": {\"body\": \"b\"}}\n\n\
                       {\"text\": \"two\\nlines\", \"label\": \"0\", \"inner\": {\"body\": \"c\"}}\n";

#[test]
fn running_text_of_a_table_is_the_text_of_its_records() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path());
    config.text.block_length = 2;
    for documents in [Documents::Files, Documents::Lines] {
        config.text.documents = documents;
        let lines = file(&config, "train.jsonl", RECORDS);
        assert_eq!(running_text(&lines).unwrap(), "a film, {good}|two\nlines");
        let packed = zstd::encode_all(RECORDS.as_bytes(), 1).unwrap();
        let packed = file(&config, "train.jsonl.zst", packed);
        assert_eq!(running_text(&packed).unwrap(), "a film, {good}|two\nlines");
    }
    let csv = "id,Text\n1,\"a film, \"\"good\"\"\"\n2,two\n";
    let csv = file(&config, "train.csv", csv);
    assert_eq!(running_text(&csv).unwrap(), "a film, \"good\"|two");
    let mut named = file(&config, "train.ndjson", RECORDS);
    named.fields.text = "inner.body".to_owned();
    assert_eq!(running_text(&named).unwrap(), "b|c");
    named.fields.text = "body".to_owned();
    mentions(
        said(running_text(&named)),
        &["line 1: no field body; the record has inner, label, text"],
    );
    let null = file(&config, "train.jsonl", "{\"text\": \"a\"}\n{\"text\": null}\n");
    mentions(said(running_text(&null)), &["line 2: field \"text\" is null"]);
    let list = file(&config, "train.jsonl", "[\"text\"]\n");
    mentions(said(running_text(&list)), &["line 1: no field text, nor any other"]);
    let mut tsv = file(&config, "train.tsv", "1\tone\n2\ttwo\n");
    let error = said(running_text(&tsv));
    assert!(error.contains("no column \"text\" in the header (1, one); set data.fields.text"));
    tsv.fields.text = "2".to_owned();
    assert_eq!(running_text(&tsv).unwrap(), "one|two");
    let error = said(running_text(&file(&config, "train.json", "[{\"text\": \"one\"}]")));
    mentions(&error, &["train.json: is JSON", ".jsonl"]);
}

#[test]
fn texts_with_labels_are_read_from_tables_by_their_fields() {
    let folder = tempfile::tempdir().unwrap();
    let plain = config(folder.path());
    let classes = |config: &DataConfig| {
        let run = tempfile::tempdir().unwrap();
        Result::Ok(prepare_labelled(LabelOf::Text, config, run.path())?.train.classes())
    };
    let read = |name: &str, text: &str| classes(&file(&plain, name, text));
    assert_eq!(read("train.jsonl", RECORDS).unwrap(), [1, 0]);
    assert_eq!(read("train.csv", "text,label\n\"a, b\",0\nc,1\n").unwrap(), [0, 1]);
    assert_eq!(read("train.tsv", "1\ta\n0\tb\n").unwrap(), [1, 0]);
    let error = said(read("train.jsonl", "{\"text\": \"a\", \"label\": 7}\n"));
    mentions(&error, &["train.jsonl, record 1: has the label \"7\""]);
    let error = said(read("train.jsonl", "{\"text\": \"a\"}\n"));
    mentions(&error, &["line 1: no field label; the record has text"]);
    mentions(said(read("train.json", "[]")), &["train.json: is JSON"]);
    mentions(said(read("train.tsv", "1\ta\n0\tb\tc\n")), &["line 2: has two texts", "pairs"]);

    let mut named = file(&plain, "named.tsv", "grade\tpremise\thypothesis\n1\ta\tb\n0\tc\td\n");
    named.labelled.pairs = Pairs::Yes;
    named.fields.label = "grade".to_owned();
    named.fields.text = "premise".to_owned();
    named.fields.text_pair = "hypothesis".to_owned();
    assert_eq!(classes(&named).unwrap(), [1, 0]);
    let mut pairs = file(&plain, "pairs.tsv", "1\ta\tb\n0\tc\td\te\n");
    pairs.labelled.pairs = Pairs::Yes;
    mentions(said(classes(&pairs)), &["pairs.tsv, line 2: has 3 texts after its label"]);
}

#[test]
fn a_row_with_more_or_fewer_columns_than_the_first_is_refused_by_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let plain = DataConfig { format: Format::Tsv, ..config(folder.path()) };
    for (text, line, count) in [
        ("en\tde\na\tx\nb\ty\tz\n", 3, 3),
        ("id\ten\tde\n1\ta\tx\n2\tb\n", 3, 2),
        ("a\tx\nb\ty\tz\n", 2, 3),
    ] {
        let error = said(read_pairs(&file(&plain, "train.tsv", text), "train"));
        let expected = format!("train.tsv, line {line}: has {count} tab-separated columns");
        assert!(error.contains(&expected), "{text:?}: {error}");
        let csv = DataConfig { format: Format::Csv, ..plain.clone() };
        let error = said(read_pairs(&file(&csv, "train.csv", text.replace('\t', ",")), "train"));
        let expected = format!("train.csv, line {line}: has {count} comma-separated columns");
        assert!(error.contains(&expected), "{text:?}: {error}");
    }
    // If columns are chosen by number, rows may have any number of other columns.
    let mut numbered = file(&plain, "train.tsv", "a\tx\nb\ty\tz\n");
    (numbered.fields.source, numbered.fields.target) = ("1".to_owned(), "2".to_owned());
    assert_eq!(read_pairs(&numbered, "train").unwrap().len(), 2);
}

#[test]
fn columns_are_found_whatever_the_case_of_their_names() {
    let folder = tempfile::tempdir().unwrap();
    let plain = DataConfig { format: Format::Csv, ..config(folder.path()) };
    let read = |header: &str, fields: [&str; 2]| {
        let mut config = file(&plain, "train.csv", format!("{header}\n1,a,x\n"));
        [config.fields.source, config.fields.target] = fields.map(str::to_owned);
        let pairs = read_pairs(&config, "train")?;
        Result::Ok((pairs[0].source.clone(), pairs[0].target.clone()))
    };
    let expected = ("a".to_owned(), "x".to_owned());
    assert_eq!(read("id, Source ,TARGET", ["source", "target"]).unwrap(), expected);
    assert_eq!(read("ID,EN,De", ["", ""]).unwrap(), expected);
    // If names differ only by case, the column with exactly the configured name is read.
    assert_eq!(read("text,TEXT,target", ["TEXT", "target"]).unwrap(), expected);
    mentions(said(read("id,en,de", ["source", "de"])), &["no column \"source\" in the header"]);
    // If the configuration names the column of only one side, the other column is found by the name
    // of its language.
    assert_eq!(read("id,en,de", ["en", ""]).unwrap(), expected);
    assert_eq!(read("id,en,de", ["", "3"]).unwrap(), expected);
    let error = said(read("id,en,x", ["en", ""]));
    mentions(&error, &["column 2 would be both", "named \"de\"", "set data.fields.target"]);
}

#[test]
fn columns_of_tags_are_divided_by_spaces_and_tabs_alone() {
    let folder = tempfile::tempdir().unwrap();
    let mut plain = config(folder.path());
    plain.labelled.labels = vec!["O".to_owned(), "B".to_owned()];
    let words = |text: &str| {
        let config = file(&plain, "train.conll", text);
        tagged_words(&config, &config.train)
    };
    let sentences =
        words("\u{feff}-DOCSTART- -X-\n\n10\u{a0}000 x O\n\u{a0}\tx  B\r\n \nb\u{3000}c\tx\tO\n");
    let of = |words: &[&str], tags: &[&str]| {
        let owned = |list: &[&str]| list.iter().map(|&text| text.to_owned()).collect();
        (owned(words), owned(tags))
    };
    let expected: Vec<(Vec<String>, Vec<String>)> =
        vec![of(&["10\u{a0}000", "\u{a0}"], &["O", "B"]), of(&["b\u{3000}c"], &["O"])];
    assert_eq!(sentences.unwrap(), expected);
    for (text, place) in [
        ("a O\nNew York B\n", "line 2: has 3 columns, but line 1 has 2"),
        ("a x O\nb O\n", "line 2: has 2 columns, but line 1 has 3"),
        ("a O\nb\u{a0}O\n", "line 2: has \"b\\u{a0}O\" alone"),
    ] {
        mentions(said(words(text)), &[place]);
    }
}

#[test]
fn a_byte_order_mark_is_dropped_in_every_format_and_another_encoding_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let plain = config(folder.path());
    let utf_16 = |text: &str| -> Vec<u8> {
        [0xFEFF].into_iter().chain(text.encode_utf16()).flat_map(u16::to_le_bytes).collect()
    };
    for (format, name, text) in [
        (Format::Tsv, "train.tsv", "en\tde\na\tx\n"),
        (Format::Csv, "train.csv", "en,de\na,x\n"),
        (Format::Jsonl, "train.jsonl", "{\"en\": \"a\", \"de\": \"x\"}\n"),
    ] {
        let config = DataConfig { format, ..plain.clone() };
        let marked = file(&config, name, format!("\u{feff}{text}"));
        let pairs = read_pairs(&marked, "train").unwrap();
        assert_eq!((pairs[0].source.as_str(), pairs[0].target.as_str()), ("a", "x"), "{name}");
        let error = said(read_pairs(&file(&config, name, utf_16(text)), "train"));
        mentions(&error, &[&format!("{name}: is UTF-16")]);
    }
    let mut text = file(&plain, "train.txt", "\u{feff}one text\n");
    text.text.block_length = 2;
    for documents in [Documents::Files, Documents::Lines] {
        text.text.documents = documents;
        assert_eq!(running_text(&text).unwrap().trim_end(), "one text");
        let text = file(&text, "train.txt", utf_16("one text\n"));
        mentions(said(running_text(&text)), &["train.txt: is UTF-16"]);
        file(&plain, "train.txt", "\u{feff}one text\n");
    }
    let questions = "\u{feff}{\"data\": [{\"paragraphs\": [{\"context\": \"a b\", \"qas\": [{\"id\": \
                     \"1\", \"question\": \"q\", \"answers\": [{\"text\": \"b\", \
                     \"answer_start\": 2}]}]}]}]}";
    let mut count = 0;
    let config = file(&plain, "train.json", questions);
    taper_data::read_questions(&config, &config.train, |_| {
        count += 1;
        Ok(())
    })
    .unwrap();
    assert_eq!(count, 1);
    assert!(Task::QuestionAnswering.files(&config, &config.train).is_ok());
    let config = file(&plain, "train.json", utf_16(questions));
    mentions(said(taper_data::read_questions(&config, &config.train, |_| Ok(()))), &["is UTF-16"]);
}

#[cfg(not(feature = "parquet"))]
#[test]
fn a_build_without_parquet_says_which_feature_it_needs() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = file(&config(folder.path()), "train.parquet", "PAR1");
    config.text.block_length = 2;
    let error = said(running_text(&config));
    mentions(&error, &["train.parquet: ", "cargo feature `parquet`", "JSON lines"]);
}
