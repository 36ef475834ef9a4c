//! Damaged files of every kind are read or refused. None ends the program or exhausts its memory.
//!
//! A few thousand cases of each kind run with the other tests; a million of each with
//! `cargo test --release -p taper-hostile --test corpora -- --ignored`.

use std::fs;
use std::io::Write;
use std::path::Path;

use taper_data::{
    DataConfig, Format, ImageFormat, PairReader, Tokenizer, TokenizerConfig, prepare_pairs,
};
use taper_hostile::corpora::{
    CAPTIONS, CATALOG, COLUMNS, CaptionTable, EXCHANGE, ImageSplit, JSON_LINES, MEMORY, QUESTIONS,
    SIDE, Split, TABLE, TEXT, tokenizer_file,
};
use taper_hostile::{assault, assault_with_text};

/// A ZIP archive with the texts of both languages of a corpus, written by Python's library.
const ARCHIVE: &[u8] = include_bytes!("../../data/tests/golden/bilingual/deflated.zip");
/// A text that is compressed by xz.
const XZ: &[u8] = include_bytes!("../../data/tests/golden/bilingual/packed.en.xz");

const FEW: u32 = 3_000;
const MANY: u32 = 1_000_000;

fn readers(cases: u32) {
    let text = Split::text();
    assault(cases, &[TEXT], |bytes| text.read(bytes));
    for columns in COLUMNS {
        let table = Split::table(columns);
        assault(cases / 3, &[TABLE], |bytes| table.read(bytes));
    }
    let json_lines = Split::json_lines();
    assault(cases, &[JSON_LINES], |bytes| json_lines.read(bytes));
    for (format, name, seed) in [
        (Format::Tmx, "train.tmx", MEMORY),
        (Format::Xliff, "train.xlf", EXCHANGE),
        (Format::Po, "train.po", CATALOG),
    ] {
        let split = Split::new(format, name, "", ["", ""]);
        split.read(seed);
        assault(cases, &[seed], |bytes| split.read(bytes));
    }
    let questions = Split::questions();
    questions.read_questions(QUESTIONS);
    assault(cases, &[QUESTIONS], |bytes| questions.read_questions(bytes));
}

fn compressed(cases: u32) {
    let text = "one\ntwo\nthree\n".repeat(50);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(text.as_bytes()).unwrap();
    let zstd = zstd::encode_all(text.as_bytes(), 3).unwrap();
    let mut bzip2 = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
    bzip2.write_all(text.as_bytes()).unwrap();
    for (name, seed) in [
        ("train.en.gz", gzip.finish().unwrap()),
        ("train.en.zst", zstd),
        ("train.en.bz2", bzip2.finish().unwrap()),
        ("train.en.xz", XZ.to_vec()),
    ] {
        let split = Split::new(Format::Text, name, &text, ["", ""]);
        assault(cases, &[&seed], |bytes| split.read(bytes));
    }
    for (name, format) in [("train.zip", Format::Zip), ("train.en.zip", Format::Text)] {
        let split = Split::new(format, name, &text, ["", ""]);
        assault(cases, &[ARCHIVE], |bytes| split.read(bytes));
    }
}

/// Reads damaged images in each format.
fn images(cases: u32) {
    let word = |number: usize| (number as u32).to_be_bytes();
    let pixels: Vec<u8> = (0..3 * SIDE * SIDE).map(|at| (at * 5) as u8).collect();
    let header = [[0, 0, 8, 3], word(3), word(SIDE), word(SIDE)].concat();
    let idx = [header, pixels.clone()].concat();
    let labels = [&[0, 0, 8, 1][..], &word(3), &[0, 1, 1]].concat();
    let split = ImageSplit::new(ImageFormat::Idx, "train-images-idx3-ubyte", &labels);
    assault(cases, &[&idx], |bytes| split.read(bytes));
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&idx).unwrap();
    let (zipped, name) = (gzip.finish().unwrap(), "train-images-idx3-ubyte.gz");
    let split = ImageSplit::new(ImageFormat::Idx, name, &labels);
    assault(cases, &[&zipped], |bytes| split.read(bytes));
    let cifar = [vec![1], vec![7; 3072], vec![0], vec![9; 3072]].concat();
    let split = ImageSplit::new(ImageFormat::Cifar10, "train.bin", &[]);
    assault(cases / 3, &[&cifar], |bytes| split.read(bytes));
    for (name, format) in [
        ("train/a/one.png", image::ImageFormat::Png),
        ("train/b/one.jpg", image::ImageFormat::Jpeg),
    ] {
        let picture = image::RgbImage::from_fn(9, 7, |x, y| image::Rgb([30 * x as u8, y as u8, 7]));
        let mut bytes = std::io::Cursor::new(Vec::new());
        picture.write_to(&mut bytes, format).unwrap();
        let split = ImageSplit::new(ImageFormat::Folders, name, &[]);
        assault(cases, &[bytes.get_ref()], |bytes| split.read(bytes));
    }
}

/// Reads damaged tables of captions.
fn captions(cases: u32) {
    let picture = image::RgbImage::from_fn(9, 7, |x, y| image::Rgb([30 * x as u8, y as u8, 7]));
    let mut bytes = std::io::Cursor::new(Vec::new());
    picture.write_to(&mut bytes, image::ImageFormat::Png).unwrap();
    let table = CaptionTable::new(bytes.get_ref());
    assault(cases, &[CAPTIONS], |bytes| table.read(bytes));
}

/// Checks that any list of lines is read as it was written.
fn lines_come_back(cases: u32) {
    let folder = tempfile::tempdir().unwrap();
    let config = DataConfig { dir: folder.path().to_owned(), ..DataConfig::default() };
    assault_with_text(cases, 6, |lines| {
        // Two characters do not come back. A `\r` before `\n` belongs to the line end, and a
        // byte-order mark at the beginning of a file is not text.
        let plain: Vec<String> = lines
            .iter()
            .map(|line| line.replace('\n', " ").trim_end_matches('\r').replace('\u{feff}', ""))
            .collect();
        let bytes: String = plain.iter().map(|line| format!("{line}\n")).collect();
        fs::write(folder.path().join("train.en"), &bytes).unwrap();
        fs::write(folder.path().join("train.de"), &bytes).unwrap();
        let pairs: Vec<_> =
            PairReader::open(&config, "train").unwrap().map(Result::unwrap).collect();
        assert_eq!(pairs.iter().map(|pair| pair.source.as_str()).collect::<Vec<_>>(), plain);
    });
}

/// Makes a sentence of a small grammar. `index` determines its words and their number.
fn sentence(index: usize) -> String {
    let words =
        ["the dog", "a woman", "sees", "paints", "two birds", "and", "the sea", "my friend"];
    let chosen = (0..2 + index * index % 9).map(|at| words[(index + at * at) % words.len()]);
    chosen.collect::<Vec<_>>().join(" ") + "."
}

fn small_tokenizer() -> Tokenizer {
    let config = TokenizerConfig { vocabulary_size: 300, ..TokenizerConfig::default() };
    let texts = (0..60).map(|index| Ok(sentence(index)));
    Tokenizer::train(&config, false, false, texts).unwrap()
}

fn tokenizer_files(cases: u32) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json");
    small_tokenizer().save(&path).unwrap();
    let seed = fs::read(&path).unwrap();
    assault(cases, &[&seed], |bytes| tokenizer_file(&path, bytes));
}

/// Checks that any text is encoded, and decoded to the same text. The tokenizer can encode any
/// text, because it divides unknown characters into bytes.
fn texts_are_encoded(cases: u32) {
    let tokenizer = small_tokenizer();
    assault_with_text(cases, 3, |lines| {
        for line in lines {
            let ids = tokenizer.encode(line).unwrap();
            assert!(
                ids.iter().all(|id| *id > 3 && (*id as usize) < tokenizer.vocabulary_size()),
                "{ids:?}"
            );
            assert_eq!(tokenizer.decode(&ids).unwrap().trim(), line.trim());
        }
    });
}

/// Checks that a damaged cache is rebuilt, and then gives the same pairs as the undamaged cache.
fn caches(cases: u32) {
    let folder = tempfile::tempdir().unwrap();
    let text: String = (0..600).map(|index| sentence(index) + "\n").collect();
    for side in ["train.en", "train.de"] {
        fs::write(folder.path().join(side), &text).unwrap();
    }
    let mut config = DataConfig {
        dir: folder.path().to_owned(),
        validation: "".into(),
        ..DataConfig::default()
    };
    config.tokenizer.vocabulary_size = 300;
    config.batching.max_tokens = 120;
    let run = folder.path().join("run");
    let whole = prepare_pairs(&config, &run).unwrap().train;
    let path = run.join("cache/train.bin");
    let seed = fs::read(&path).unwrap();
    assault(cases, &[&seed], |bytes| {
        replace(&path, bytes);
        let again = prepare_pairs(&config, &run).unwrap().train;
        assert_eq!(
            (again.len(), again.pair(7).unwrap(), again.pair(599).unwrap()),
            (whole.len(), whole.pair(7).unwrap(), whole.pair(599).unwrap())
        );
    });
    let path = run.join("text/train.json");
    let seed = fs::read(&path).unwrap();
    assault(cases, &[&seed], |bytes| {
        replace(&path, bytes);
        prepare_pairs(&config, &run).unwrap();
    });
}

/// Replaces a file, which may be open, by a new file with the same name.
fn replace(path: &Path, bytes: &[u8]) {
    fs::remove_file(path).unwrap();
    fs::write(path, bytes).unwrap();
}

#[test]
fn damaged_text_is_read_or_refused() {
    readers(FEW);
    compressed(FEW);
}

#[test]
fn damaged_images_are_read_or_refused() {
    images(FEW);
    captions(FEW / 30);
}

#[test]
fn text_of_any_kind_comes_back() {
    lines_come_back(FEW);
    texts_are_encoded(FEW);
}

#[test]
fn damaged_tokenizers_are_loaded_or_refused() {
    tokenizer_files(FEW);
}

#[test]
fn damaged_caches_are_rebuilt() {
    caches(40);
}

#[test]
#[ignore = "hours; see the head of this file"]
fn a_million_of_each_kind() {
    readers(MANY);
    compressed(MANY);
    images(MANY);
    captions(MANY / 30);
    lines_come_back(MANY);
    texts_are_encoded(MANY);
    tokenizer_files(MANY);
    caches(10_000);
}
