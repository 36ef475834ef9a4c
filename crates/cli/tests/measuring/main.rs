//! Tests of commands that measure and search.

#[path = "../common/mod.rs"]
mod common;

mod architectures;
mod bench_attention;
mod bench_kernels;
mod bench_train;
mod bleu;
mod hostile;
mod languages;
mod theory;
mod tune;
