//! Tests tables in Parquet, with sentence pairs and with running text.

mod common;

use std::path::Path;
use std::sync::Arc;

use common::mentions;
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use taper_data::{
    DataConfig, Format, LabelOf, PairReader, RawPair, Result, TokenizerKind, prepare_labelled,
    prepare_text, read_pairs, running_text_size,
};

/// Writes a Parquet file with a nested column, as Hugging Face's hub stores translations, and with
/// one row without a German text.
fn write_parquet(path: &Path) {
    let schema = "message schema {
        REQUIRED BYTE_ARRAY id (UTF8);
        REQUIRED group translation { OPTIONAL BYTE_ARRAY de (UTF8); OPTIONAL BYTE_ARRAY en (UTF8); }
    }";
    let file = std::fs::File::create(path).unwrap();
    let mut writer = SerializedFileWriter::new(
        file,
        Arc::new(parse_message_type(schema).unwrap()),
        Arc::new(WriterProperties::builder().build()),
    )
    .unwrap();
    for (ids, german, english, present) in [
        (["1", "2"], vec!["x", "y"], ["a", "b"], [1, 1]),
        (["3", "4"], vec!["z"], ["c", "d"], [1, 0]),
    ] {
        let mut group = writer.next_row_group().unwrap();
        let columns: [(Vec<&str>, Option<&[i16]>); 3] =
            [(ids.to_vec(), None), (german, Some(&present)), (english.to_vec(), Some(&[1, 1]))];
        for (values, levels) in columns {
            let values: Vec<ByteArray> = values.into_iter().map(ByteArray::from).collect();
            let mut column = group.next_column().unwrap().unwrap();
            column.typed::<ByteArrayType>().write_batch(&values, levels, None).unwrap();
            column.close().unwrap();
        }
        group.close().unwrap();
    }
    writer.close().unwrap();
}

fn sides(pairs: &[RawPair]) -> Vec<(&str, &str)> {
    pairs.iter().map(|pair| (pair.source.as_str(), pair.target.as_str())).collect()
}

fn refusal<T>(result: Result<T>) -> String {
    result.map(drop).expect_err("refused").to_string()
}

#[test]
fn rows_are_read_across_row_groups() {
    let folder = tempfile::tempdir().unwrap();
    write_parquet(&folder.path().join("train.parquet"));
    let mut config = DataConfig {
        dir: folder.path().to_owned(),
        format: Format::Parquet,
        ..DataConfig::default()
    };
    let mut reader = PairReader::open(&config, "train").unwrap();
    let pairs: Vec<RawPair> = reader.by_ref().take(3).map(Result::unwrap).collect();
    assert_eq!(sides(&pairs), [("a", "x"), ("b", "y"), ("c", "z")]);
    // A missing text is an error, as it is in JSON lines, and not an empty text.
    mentions(refusal(reader.next().unwrap()), &["row 4: field \"translation.de\" is null"]);
    config.fields.source = "id".to_owned();
    config.fields.target = "translation.en".to_owned();
    assert_eq!(sides(&read_pairs(&config, "train").unwrap())[3], ("4", "d"));
    config.fields.source = "nothing".to_owned();
    mentions(refusal(read_pairs(&config, "train")), &["row 1: no field nothing"]);
    std::fs::write(folder.path().join("bad.parquet"), "not parquet at all").unwrap();
    mentions(refusal(read_pairs(&config, "bad")), &["bad.parquet: not a readable Parquet file"]);
}

#[test]
fn running_text_is_a_column() {
    let folder = tempfile::tempdir().unwrap();
    write_parquet(&folder.path().join("train.parquet"));
    let mut config = DataConfig {
        dir: folder.path().to_owned(),
        train: "train.parquet".into(),
        validation: "".into(),
        test: "".into(),
        ..DataConfig::default()
    };
    config.tokenizer.kind = TokenizerKind::Char;
    config.text.block_length = 2;
    config.fields.text = "translation.en".to_owned();
    let run = tempfile::tempdir().unwrap();
    let prepared = prepare_text(&config, run.path()).unwrap();
    let ids = prepared.train.read(0, prepared.train.tokens() as usize).unwrap();
    let tokenizer = prepared.tokenizers.target();
    let texts: Vec<String> =
        ids.split(|&id| id == tokenizer.end()).map(|ids| tokenizer.decode(ids).unwrap()).collect();
    assert_eq!(texts.join("|"), "a|b|c|d");
}

#[test]
fn columns_may_have_dots_and_labels_may_be_fractions() {
    let folder = tempfile::tempdir().unwrap();
    let schema = "message schema {
        REQUIRED BYTE_ARRAY review.text (UTF8);
        REQUIRED DOUBLE label;
    }";
    let file = std::fs::File::create(folder.path().join("train.parquet")).unwrap();
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let mut writer = SerializedFileWriter::new(file, schema, Arc::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let texts = ["a", "b"].map(ByteArray::from);
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<ByteArrayType>().write_batch(&texts, None, None).unwrap();
    column.close().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<DoubleType>().write_batch(&[0.5, 1.0], None, None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();
    let lines =
        "{\"review.text\": \"a\", \"label\": 0.5}\n{\"review.text\": \"b\", \"label\": 1.0}\n";
    std::fs::write(folder.path().join("train.jsonl"), lines).unwrap();
    // A Parquet file is read like the same records in JSON lines.
    for name in ["train.jsonl", "train.parquet"] {
        let mut config = DataConfig {
            dir: folder.path().to_owned(),
            train: name.into(),
            validation: "".into(),
            test: "".into(),
            ..DataConfig::default()
        };
        config.tokenizer.kind = TokenizerKind::Char;
        config.labelled.labels = ["1.0", "0.5"].map(str::to_owned).into();
        config.fields.text = "review.text".to_owned();
        let run = tempfile::tempdir().unwrap();
        let prepared = prepare_labelled(LabelOf::Text, &config, run.path()).unwrap();
        assert_eq!(prepared.train.classes(), [1, 0], "{name}");
    }
}

#[test]
fn the_size_of_running_text_is_that_of_its_column() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("train.parquet");
    let schema = "message schema {
        REQUIRED BYTE_ARRAY note (UTF8);
        REQUIRED BYTE_ARRAY text (UTF8);
    }";
    let mut writer = SerializedFileWriter::new(
        std::fs::File::create(&path).unwrap(),
        Arc::new(parse_message_type(schema).unwrap()),
        Arc::new(WriterProperties::builder().build()),
    )
    .unwrap();
    // Equal texts are stored once, so the file is much smaller than its texts. The longest texts
    // are in the rows after those that are read.
    for (rows, text) in [(1000, "four"), (500, "a longer text")] {
        let mut group = writer.next_row_group().unwrap();
        for value in ["a note that is not read", text] {
            let mut column = group.next_column().unwrap().unwrap();
            let values = vec![ByteArray::from(value); rows];
            column.typed::<ByteArrayType>().write_batch(&values, None, None).unwrap();
            column.close().unwrap();
        }
        group.close().unwrap();
    }
    writer.close().unwrap();
    let mut config = DataConfig::default();
    assert_eq!(running_text_size(&path, &config).unwrap(), 1500 * 4);
    config.fields.text = "absent".to_owned();
    mentions(refusal(running_text_size(&path, &config)), &["no column absent"]);
    let lines = folder.path().join("text.txt");
    std::fs::write(&lines, "one\ntwo\n").unwrap();
    assert_eq!(running_text_size(&lines, &config).unwrap(), 8);
}
