//! Models of runs in the formats of other engines, written without Python.

pub mod ctranslate2;
