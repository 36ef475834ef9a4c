//! Commands that measure and search, through the program.

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
