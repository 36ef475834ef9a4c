//! What a model is to learn: each task makes batches of its corpus.

pub(crate) mod pairs;
