//! Damaged tables in Parquet are read or refused. None ends the program or exhausts its memory.
//!
//! A few thousand cases run with the other tests; a million with
//! `cargo test --release -p taper-hostile --features parquet --test parquet -- --ignored`.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use parquet::data_type::{ByteArray, ByteArrayType};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use taper_hostile::assault;
use taper_hostile::corpora::Split;

/// Writes a Parquet file with a nested column, the form in which the Hugging Face Hub stores
/// translations. One of its rows has no target.
fn write_parquet(path: &Path) {
    let schema = "message schema {
        REQUIRED BYTE_ARRAY id (UTF8);
        REQUIRED group translation { OPTIONAL BYTE_ARRAY de (UTF8); OPTIONAL BYTE_ARRAY en (UTF8); }
    }";
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let mut writer =
        SerializedFileWriter::new(File::create(path).unwrap(), schema, Arc::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let columns: [(&[&str], Option<&[i16]>); 3] =
        [(&["1", "2"], None), (&["x"], Some(&[1, 0])), (&["a", "b"], Some(&[1, 1]))];
    for (values, levels) in columns {
        let values: Vec<ByteArray> = values.iter().map(|value| ByteArray::from(*value)).collect();
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<ByteArrayType>().write_batch(&values, levels, None).unwrap();
        column.close().unwrap();
    }
    group.close().unwrap();
    writer.close().unwrap();
}

fn tables(cases: u32) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("seed.parquet");
    write_parquet(&path);
    let split = Split::parquet();
    assault(cases, &[&fs::read(&path).unwrap()], |bytes| split.read(bytes));
}

#[test]
fn damaged_tables_are_read_or_refused() {
    tables(3_000);
}

#[test]
#[ignore = "an hour; see the head of this file"]
fn a_million_damaged_tables() {
    tables(1_000_000);
}
