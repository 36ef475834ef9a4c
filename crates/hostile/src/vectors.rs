//! Checks that damaged files of word vectors can be read, or are refused with an error that names
//! the file. The same is checked for files of human judgements of how similar two words are.

use std::path::Path;

use taper_embeddings::{Format, SimilaritySet, WordVectors};

/// Valid vectors as text, to be damaged.
pub const TEXT_VECTORS: &[u8] = "3 2\nthe 0.5 -1.25\nß 1e-05 2.0\nzero 0.0 -0.0\n".as_bytes();
/// Valid vectors as text without a header, like GloVe's, to be damaged.
pub const GLOVE: &[u8] = "the 0.5 -1.25\nß 1e-05 2.0\nzero 0.0 -0.0\n".as_bytes();
/// Valid vectors in binary, to be damaged.
pub const BINARY_VECTORS: &[u8] =
    b"3 2\nthe \x00\x00\x00?\x00\x00\xa0\xbfof \xac\xc5'7\x00\x00\x00@zero \x00\x00\x00\x00\x00\x00\x00\x80";
/// Valid judgements: a table of two words and their similarity, to be damaged.
pub const JUDGEMENTS: &[u8] =
    b"# pairs\nWord 1\tWord 2\tHuman\nthe\tof\t3.5\nthe\tzero\t1\nof\tzero\t9.25\n";

/// Checks a damaged file of vectors. If it can be read, queries must be answered. If the vectors
/// are then written and read again, they must have the same bits. If the file cannot be read, the
/// error must name the file.
///
/// # Panics
/// If the check fails.
pub fn vector_file(path: &Path, bytes: &[u8]) {
    std::fs::write(path, bytes).unwrap();
    let vectors = match WordVectors::read(path) {
        Ok(vectors) => vectors,
        Err(error) => {
            let (message, name) = (error.to_string(), path.file_name().unwrap().to_string_lossy());
            assert!(message.contains(&*name), "{message}");
            return;
        }
    };
    let word = vectors.words()[0].as_str();
    for (_, cosine) in vectors.nearest(&[word], 3).unwrap() {
        assert!(!cosine.is_nan());
    }
    let again = path.with_extension("again");
    // The binary format is used here. In both formats, a word with a blank or a line end cannot be
    // read again. Vectors with such words are written, but not compared.
    vectors.write(&again, Format::Binary).unwrap();
    if vectors.words().iter().any(|word| word.contains([' ', '\n'])) {
        return;
    }
    let read = WordVectors::read(&again).unwrap();
    assert_eq!(read.words(), vectors.words());
    for row in 0..read.words().len() {
        let bits = |vectors: &WordVectors| -> Vec<u32> {
            vectors.row(row).iter().map(|value| value.to_bits()).collect()
        };
        assert_eq!(bits(&read), bits(&vectors));
    }
}

/// Checks that judgements are read, or refused with an error that names the file.
///
/// # Panics
/// If the check fails.
pub fn judgements(path: &Path, bytes: &[u8]) {
    std::fs::write(path, bytes).unwrap();
    match SimilaritySet::read(path) {
        Ok(set) => assert!(set.pairs.iter().all(|(_, _, judgement)| judgement.is_finite())),
        Err(error) => {
            let (message, name) = (error.to_string(), path.file_name().unwrap().to_string_lossy());
            assert!(message.contains(&*name), "{message}");
        }
    }
}
