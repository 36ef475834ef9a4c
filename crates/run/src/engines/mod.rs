//! Models of runs for engines of others, written without Python.

pub mod ctranslate2;
