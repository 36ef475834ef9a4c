//! Damaged files of word vectors, and of human judgements of how similar two words are, are read or
//! refused, and never end the program.
//!
//! A few thousand cases run with the other tests; a million with
//! `cargo test --release -p taper-hostile --test vectors -- --ignored`.

use taper_hostile::assault;
use taper_hostile::vectors::{
    BINARY_VECTORS, GLOVE, JUDGEMENTS, TEXT_VECTORS, judgements, vector_file,
};

fn vectors(cases: u32) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("vectors");
    assault(cases, &[TEXT_VECTORS, BINARY_VECTORS, GLOVE], |bytes| vector_file(&path, bytes));
    assault(cases / 4, &[JUDGEMENTS], |bytes| judgements(&path, bytes));
}

#[test]
fn damaged_vectors_are_read_or_refused() {
    vectors(2_000);
}

#[test]
#[ignore = "minutes; see the head of this file"]
fn a_million_damaged_vectors_are_read_or_refused() {
    vectors(1_000_000);
}

#[test]
fn a_head_that_promises_too_much_takes_no_memory() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("vectors");
    for head in ["18446744073709551615 2\n", "99999999999 65536\n", "3 99999999\n", "0 2\n"] {
        let bytes = [head.as_bytes(), b"the \0\0\0\0"].concat();
        std::fs::write(&path, &bytes).unwrap();
        let error = taper_embeddings::WordVectors::read(&path).unwrap_err().to_string();
        assert!(error.contains("vectors"), "{error}");
        vector_file(&path, &bytes);
    }
}
