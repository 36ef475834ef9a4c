//! Self-attention in whole models: its kinds, its shapes, and dual chunks.

#[path = "../common/mod.rs"]
mod common;
mod dual_chunk;
mod kinds;
mod shapes;
