//! Compares vector files, neighbours, analogies and agreement with judgements with the results of
//! gensim. The script `scripts/golden/word_vectors.py` made these results.

use std::path::{Path, PathBuf};

use serde_json::Value;
use taper_embeddings::{Format, SimilaritySet, WordVectors};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

fn vectors(name: &str) -> (WordVectors, Format) {
    WordVectors::read_with_format(&golden(name)).expect("a file of gensim")
}

fn results() -> Value {
    let text = std::fs::read_to_string(golden("gensim.json")).expect("results");
    serde_json::from_str(&text).expect("JSON")
}

fn bits(vectors: &WordVectors) -> Vec<Vec<u32>> {
    let row = |row| vectors.row(row).iter().map(|value: &f32| value.to_bits()).collect();
    (0..vectors.words().len()).map(row).collect()
}

#[test]
fn files_go_round_byte_for_byte() {
    let folder = tempfile::tempdir().expect("folder");
    for name in ["vectors", "special"] {
        let files = [(Format::Binary, "bin"), (Format::Text, "txt")]
            .map(|(format, ending)| (format, golden(&format!("{name}.{ending}"))));
        for (format, file) in &files {
            let (read, found) = WordVectors::read_with_format(file).expect("a file of gensim");
            assert_eq!(found, *format);
            // Vectors that were read from either format can be written to both.
            for (format, file) in &files {
                let path = folder.path().join("written");
                read.write(&path, *format).expect("write");
                let (ours, theirs) = (std::fs::read(&path), std::fs::read(file));
                assert!(ours.expect("written") == theirs.expect("golden"), "{name} {format:?}");
            }
        }
    }
    let (lines, gensim) = (vectors("lines.bin").0, vectors("vectors.bin").0);
    assert_eq!((lines.words(), bits(&lines)), (gensim.words(), bits(&gensim)));
}

#[test]
fn glove_files_without_a_head_are_read() {
    let folder = tempfile::tempdir().expect("folder");
    let text = std::fs::read_to_string(golden("vectors.txt")).expect("text");
    let path = folder.path().join("glove.txt");
    std::fs::write(&path, text.split_once('\n').expect("a head").1).expect("write");
    let (read, whole) = (WordVectors::read(&path).expect("rows"), vectors("vectors.txt").0);
    assert_eq!((read.words(), bits(&read)), (whole.words(), bits(&whole)));
}

#[test]
fn a_mark_before_the_head_is_dropped_and_what_follows_the_last_vector_is_refused() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("changed");
    let read = |bytes: &[u8]| {
        std::fs::write(&path, bytes).expect("write");
        WordVectors::read(&path)
    };
    let whole = vectors("vectors.txt").0;
    for name in ["vectors.txt", "vectors.bin", "lines.bin"] {
        let file = std::fs::read(golden(name)).expect("golden");
        let marked = read(&["\u{feff}".as_bytes(), &file].concat()).expect("vectors");
        assert_eq!((marked.words(), bits(&marked)), (whole.words(), bits(&whole)), "{name}");
        // This header announces one vector less than the file has.
        let head = file.iter().position(|&byte| byte == b'\n').expect("a head");
        let (count, dimensions) = (whole.words().len() - 1, whole.row(0).len());
        let fewer = [format!("{count} {dimensions}").as_bytes(), &file[head..]].concat();
        let error = read(&fewer).expect_err("more follows").to_string();
        assert!(error.contains(&format!("more follows after the {count} vectors")), "{error}");
        read(&[&file, &b"\n\n\r\n"[..]].concat()).expect("line ends alone");
        let error = read(&[&file, &b"\n\nmore"[..]].concat()).expect_err("more follows");
        assert!(error.to_string().contains("more follows"), "{error}");
    }
    let marked = std::fs::read(golden("vectors.txt")).expect("golden");
    let utf_16: Vec<u8> = [0xFF, 0xFE].into_iter().chain(marked).collect();
    let error = read(&utf_16).expect_err("another encoding").to_string();
    assert!(error.contains("UTF-16"), "{error}");
}

/// In this file, the bytes of the first number begin with a letter, followed by a line end or a
/// space. So the first row looks like a short line of text.
#[test]
fn a_binary_file_that_begins_like_text_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("vectors.bin");
    for second in [b'\n', b' '] {
        let like_text = f32::from_le_bytes([b'i', second, 0x5A, 0x3D]);
        let words = vec!["is".to_owned(), "was".to_owned()];
        let values = vec![like_text, 0.5, -1.0, f32::from_le_bytes(*b"1 2\n")];
        let vectors = WordVectors::new(words, values, 2).unwrap();
        vectors.write(&path, Format::Binary).unwrap();
        let (read, format) = WordVectors::read_with_format(&path).unwrap();
        assert_eq!(format, Format::Binary);
        assert_eq!(bits(&read), bits(&vectors));
    }
}

#[test]
fn a_line_with_a_number_too_many_is_refused_and_a_word_may_hold_spaces() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("vectors");
    let read = |text: &str| {
        std::fs::write(&path, text).expect("write");
        WordVectors::read(&path)
    };
    // The first text is in word2vec's format. The second is in the format of GloVe, in which words
    // can contain spaces.
    for before in ["2 3\nb 1 2 3\n", "b 1 2 3\n"] {
        let error = read(&format!("{before}a 1 2 3 4\n")).expect_err("four numbers").to_string();
        assert!(error.contains("a word and 3 numbers are expected"), "{error}");
        let vectors = read(&format!("{before}. . . 1 2 3\n")).expect("three numbers");
        assert_eq!(vectors.words(), ["b", ". . ."]);
    }
}

/// Compares words and similarities with gensim's list. Similarities can differ by up to 1e-5,
/// because gensim normalises the vectors before it computes products.
fn same(ours: Vec<(&str, f64)>, theirs: &Value, question: &Value) {
    let theirs = theirs.as_array().expect("a list");
    assert_eq!(ours.len(), theirs.len());
    for ((word, cosine), pair) in ours.iter().zip(theirs) {
        assert_eq!(*word, pair[0].as_str().expect("a word"), "{question}");
        let expected = pair[1].as_f64().expect("a number");
        assert!((cosine - expected).abs() < 1e-5, "{question}: {cosine} {expected}");
    }
}

#[test]
fn neighbours_and_analogies_are_gensims() {
    let (vectors, results) = (vectors("vectors.bin").0, results());
    let words = |question: &Value| -> Vec<String> {
        serde_json::from_value(question.clone()).expect("words")
    };
    for case in results["nearest"].as_array().expect("cases") {
        let words = words(&case[0]);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        same(vectors.nearest(&words, 5).expect("known"), &case[1], &case[0]);
    }
    for case in results["analogy"].as_array().expect("cases") {
        let words = words(&case[0]);
        let words = [words[0].as_str(), words[1].as_str(), words[2].as_str()];
        same(vectors.analogy(words, 5).expect("known"), &case[1], &case[0]);
    }
}

#[test]
fn agreement_is_gensims() {
    let (vectors, results) = (vectors("vectors.bin").0, results());
    for name in ["similarity.tsv", "similarity_columns.tsv"] {
        let set = SimilaritySet::read(&golden(name)).expect("pairs");
        let ours = set.agreement(&vectors).expect("enough pairs");
        let theirs = &results["agreement"][name];
        let spearman = theirs["spearman"].as_f64().expect("a number");
        assert!((ours.spearman - spearman).abs() < 1e-12, "{} {spearman}", ours.spearman);
        let unknown = 100.0 * ours.out_of_vocabulary as f64 / set.pairs.len() as f64;
        assert!((unknown - theirs["out_of_vocabulary"].as_f64().expect("a number")).abs() < 1e-9);
        assert_eq!(ours.pairs + ours.out_of_vocabulary, 40);
    }
}
