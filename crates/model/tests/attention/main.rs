//! Tests of self-attention in whole models: its kinds, its shapes (numbers and widths of heads),
//! and dual chunks.

#[path = "../common/mod.rs"]
mod common;
mod dual_chunk;
mod kinds;
mod shapes;
