//! Tests that every format gives the same pairs, and that every error names its place.

mod common;

use std::io::Write;
use std::path::Path;

use common::mentions;
use taper_data::{
    Corpus, DataConfig, Format, PairReader, RawPair, Result, is_compressed, read_pairs, split_files,
};

fn config(directory: &Path, format: Format) -> DataConfig {
    DataConfig { dir: directory.to_owned(), format, ..DataConfig::default() }
}

fn write(directory: &Path, name: &str, bytes: impl AsRef<[u8]>) {
    std::fs::write(directory.join(name), bytes).unwrap();
}

fn sides(pairs: &[RawPair]) -> Vec<(&str, &str)> {
    pairs.iter().map(|pair| (pair.source.as_str(), pair.target.as_str())).collect()
}

fn message<T>(result: Result<T>) -> String {
    match result {
        Ok(_) => panic!("an error was expected"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn only_a_newline_ends_a_line() {
    let directory = tempfile::tempdir().unwrap();
    let source = "one\u{2028}still one\r\ntwo\u{b}\u{85}two\nthree\rthree\n\nlast";
    write(directory.path(), "train.en", format!("\u{feff}{source}"));
    write(directory.path(), "train.de", "eins\nzwei\ndrei\nleer\nletzte\n");
    let pairs = read_pairs(&config(directory.path(), Format::Text), "train").unwrap();
    assert_eq!(
        sides(&pairs),
        [
            ("one\u{2028}still one", "eins"),
            ("two\u{b}\u{85}two", "zwei"),
            ("three\rthree", "drei"),
            ("", "leer"),
            ("last", "letzte"),
        ]
    );
    assert_eq!(pairs[4].line, 5);
}

#[test]
fn compressed_files_are_found_and_read() {
    let directory = tempfile::tempdir().unwrap();
    // Two gzip members in one file, as in the output of `cat a.gz b.gz`.
    let member = |text: &str| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    };
    write(directory.path(), "train.en.gz", [member("a\nb\n"), member("c\n")].concat());
    write(directory.path(), "train.de.zst", zstd::encode_all(&b"x\ny\nz\n"[..], 1).unwrap());
    let config = config(directory.path(), Format::Text);
    let files = split_files(&config, "train").unwrap();
    assert!(files[0].ends_with("train.en.gz") && files[1].ends_with("train.de.zst"));
    let pairs = read_pairs(&config, "train").unwrap();
    assert_eq!(sides(&pairs), [("a", "x"), ("b", "y"), ("c", "z")]);
}

#[test]
fn the_case_of_endings_does_not_matter() {
    let directory = tempfile::tempdir().unwrap();
    let gzip = |text: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    };
    write(directory.path(), "pairs.TSV.GZ", gzip(b"a\tx\n"));
    write(directory.path(), "pairs.tsv.Zst", zstd::encode_all(&b"a\tx\n"[..], 1).unwrap());
    let config = config(directory.path(), Format::Text);
    for name in ["pairs.TSV.GZ", "pairs.tsv.Zst"] {
        let path = directory.path().join(name);
        assert!(is_compressed(&path));
        let corpus = Corpus { file: path.into(), ..Corpus::default() };
        assert_eq!(sides(&read_pairs(&config, &corpus).unwrap()), [("a", "x")], "{name}");
    }
}

#[test]
fn a_truncated_gzip_file_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(b"some text\n").unwrap();
    let bytes = encoder.finish().unwrap();
    write(directory.path(), "train.en.gz", &bytes[..bytes.len() - 9]);
    write(directory.path(), "train.de", "etwas Text\n");
    let said = message(read_pairs(&config(directory.path(), Format::Text), "train"));
    mentions(&said, &["train.en.gz"]);
}

#[test]
fn tsv_takes_columns_by_number_and_by_name() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), "train.tsv", "a\tx\t1\nb\ty\t2\n");
    let mut config = config(directory.path(), Format::Tsv);
    assert_eq!(sides(&read_pairs(&config, "train").unwrap()), [("a", "x"), ("b", "y")]);
    config.fields.source = "2".to_owned();
    config.fields.target = "3".to_owned();
    assert_eq!(sides(&read_pairs(&config, "train").unwrap()), [("x", "1"), ("y", "2")]);
    config.fields.target = "4".to_owned();
    mentions(message(read_pairs(&config, "train")), &["line 1: has 3 tab-separated columns"]);

    write(directory.path(), "named.tsv", "id\tgerman\tenglish\n1\tx\ta\n");
    config.fields.source = "english".to_owned();
    config.fields.target = "german".to_owned();
    assert_eq!(sides(&read_pairs(&config, "named").unwrap()), [("a", "x")]);
    config.fields.target = "french".to_owned();
    mentions(message(read_pairs(&config, "named")), &["\"french\"", "id, german, english"]);
}

#[test]
fn json_lines_take_plain_and_nested_fields() {
    let directory = tempfile::tempdir().unwrap();
    let text =
        "{\"translation\": {\"en\": \"a\\tb\", \"de\": \"x\"}}\n\n{\"en\": \"c\", \"de\": \"y\"}\n";
    write(directory.path(), "train.jsonl", text);
    let mut config = config(directory.path(), Format::Jsonl);
    assert_eq!(sides(&read_pairs(&config, "train").unwrap()), [("a\tb", "x"), ("c", "y")]);
    config.fields.source = "question.text".to_owned();
    mentions(message(read_pairs(&config, "train")), &["line 1: no field question.text"]);
    write(directory.path(), "bad.jsonl", "{\"en\": \"a\", \"de\": \"x\"}\n{\"en\": 3}\n");
    config.fields.source.clear();
    mentions(message(read_pairs(&config, "bad")), &["line 2: field \"en\" is 3, not a string"]);
}

#[test]
fn invalid_utf8_names_file_and_line() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), "train.en", b"fine\nalso fine\nb\xffd\n");
    write(directory.path(), "train.de", "gut\nauch gut\nschlecht\n");
    let mut reader = PairReader::open(&config(directory.path(), Format::Text), "train").unwrap();
    assert!(reader.next().unwrap().is_ok() && reader.next().unwrap().is_ok());
    let error = message(reader.next().unwrap());
    mentions(&error, &["train.en, line 3: not valid UTF-8"]);
    assert!(reader.next().is_none(), "nothing follows an error");
}

#[test]
fn unequal_line_counts_name_both_files_and_both_counts() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), "train.en", "1\n2\n3\n4\n5\n");
    write(directory.path(), "train.de", "1\n2\n");
    let error = message(read_pairs(&config(directory.path(), Format::Text), "train"));
    mentions(&error, &["train.en has 5 lines", "train.de has 2;"]);
}

#[test]
fn missing_and_empty_files_say_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let text = config(directory.path(), Format::Text);
    mentions(message(read_pairs(&text, "train")), &["train.en: no such file", "data.train"]);
    let elsewhere = config(&directory.path().join("nowhere"), Format::Text);
    mentions(message(read_pairs(&elsewhere, "train")), &["data.dir"]);
    common::write_split(directory.path(), "void", &[]);
    mentions(message(read_pairs(&text, "void")), &["\"void\" is empty", "void.de"]);
}

#[test]
fn a_line_without_an_end_is_refused_before_it_fills_the_memory() {
    let directory = tempfile::tempdir().unwrap();
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(b"one\n").unwrap();
    let block = vec![b'a'; 1 << 20];
    (0..80).for_each(|_| encoder.write_all(&block).unwrap());
    write(directory.path(), "train.en.gz", encoder.finish().unwrap());
    write(directory.path(), "train.de", "eins\nzwei\n");
    let said = message(read_pairs(&config(directory.path(), Format::Text), "train"));
    mentions(&said, &["train.en.gz, line 2: is longer than"]);
}

#[test]
fn word_links_are_read_beside_any_format_and_their_faults_are_named() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), "train.en", "a b\n\nc\n");
    write(directory.path(), "train.de", "x y\n\nz\n");
    write(directory.path(), "train.tsv", "a b\tx y\n\t\nc\tz\n");
    let links = directory.path().join("train.links");
    let read = |format: Format, tag: &str, text: &str| {
        std::fs::write(&links, text).unwrap();
        let mut config = config(directory.path(), format);
        config.train.0[0].links = links.clone().into();
        config.train.0[0].tag = tag.to_owned();
        assert!(split_files(&config, &config.train).unwrap().contains(&links));
        let pairs = read_pairs(&config, &config.train)?;
        let shown = |pair: &RawPair| {
            pair.links.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
        };
        Result::Ok(pairs.iter().map(shown).collect::<Vec<_>>())
    };
    for format in [Format::Text, Format::Tsv] {
        assert_eq!(read(format, "", "1-0 0?1\n\n0-0\n").unwrap(), ["0?1 1-0", "", "0-0"]);
        // A tag is the first word of a source, so the indices of the other words are one higher.
        assert_eq!(read(format, "<t>", "1-0 0-1\n\n0-0\n").unwrap(), ["1-1 2-0", "", "1-0"]);
        let said = message(read(format, "", "0-0\n\n0-1\n"));
        mentions(&said, &["train.links, line 3: 0-1 is beyond the pair"]);
        let said = message(read(format, "", "0-0\n\nx\n"));
        mentions(&said, &["train.links, line 3: \"x\" is no link"]);
        let said = message(read(format, "", "0-0\n\n"));
        mentions(&said, &["has fewer lines than the corpus \"train\""]);
        let said = message(read(format, "", "0-0\n\n\n\n"));
        mentions(&said, &["has more lines than the corpus \"train\""]);
    }
    let mut missing = config(directory.path(), Format::Text);
    missing.train.0[0].links = directory.path().join("none.links").into();
    assert!(message(read_pairs(&missing, &missing.train)).contains("none.links: no such file"));
}
