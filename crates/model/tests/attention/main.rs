//! Tests of self-attention in whole models: its kinds, its shapes (numbers and widths of heads),
//! and dual chunk attention (rotary positions that restart in each chunk of tokens).

#[path = "../common/mod.rs"]
mod common;
mod dual_chunk;
mod kinds;
mod shapes;
