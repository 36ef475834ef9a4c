//! Differentiable operations for training Transformers on Candle: fused on the CPU, with backward
//! passes, and each also composed of Candle primitives, as oracle and fallback.
//!
//! **Decision.** Sequences are packed: an activation is `(N, D)` with one row for each real token,
//! and lengths say where sequences end. So no pass computes padding, and no result depends on it.
//! The alternative, padded `(B, T, D)` tensors with masks, spends up to half of the work on padding
//! and makes a result depend on its batch.
//!
//! **Decision.** Our own tape records the graph ([`Tape`]), on every device. As custom ops in
//! Candle's graph, the same kernels spent a third of a step on zeros, copies and additions at its
//! edges, and every activation lived until the end. Without a tape, the composed operations are
//! used, which are the oracle, and Candle's autodiff has the graph.
//!
//! Operations that are not fused yet, on any device or on this one, are recorded on the tape in
//! plain Candle ([`composed::on_tape`]).
//!
//! All `unsafe` of the project is here: raw products, threads that write to disjoint parts of a
//! slice, calls of functions compiled for processor features detected at run time, and calls of
//! system and CUDA functions without a safe library.

mod adapters;
pub mod allocator;
mod claims;
pub mod composed;
#[cfg(feature = "cuda")]
mod cuda;
pub mod device;
mod float;

mod host;
mod kernels;
mod loss;
mod nn;
mod optim;
mod packed_weights;
mod parallel;
pub mod products;
pub mod profile;
pub mod rng;
mod shared;
pub mod signals;
mod spec;
pub mod standard_output;
mod sums;
mod tape;
pub mod threads;

pub use adapters::{Adapted, merge};
pub use float::all_finite;
pub use loss::{biased_cross_entropy, loss_bytes, smoothed_cross_entropy};
#[cfg(feature = "kinds")]
pub use nn::attention::kinds::{
    causal_convolution, causal_convolution_after, hierarchical_attention,
    hierarchical_attention_arithmetic, kept_by_hierarchical_attention, kept_by_linear_attention,
    linear_attention, linear_attention_after, linear_attention_arithmetic, selective_scan,
    selective_scan_after, sequence_sums,
};
pub use nn::{
    Cache, activation, columns, computed_pairs, converted, cross_attention, decoding_attention,
    embedding, gated, keeps_scores, kept_by_attention, linear, low_rank, norm, norm_columns,
    normalizer, packed_linear, recurrence, relative_bias, rotary, self_attention, windows,
};
pub use optim::{
    NORM_CHUNK, Piece, adam_step, ema_step, global_norm, muon_step, sums_of_squares, update_pieces,
};
pub use packed_weights::PackedWeights;
pub use products::int8::{Int8Kernel, Int8Matrix};
pub use products::{Kernel, KernelError, Products};
#[cfg(feature = "kinds")]
pub use spec::attention::kinds::{
    ConvolutionSpec, HierarchicalSpec, LinearAttentionSpec, ScanInputs, ScanSpec,
};
pub use spec::{
    ABSENT, Activation, AdamStep, AdditiveAttention, AttentionShape, AttentionSpec, CachedRows,
    Cell, CrossEntropySpec, Dropout, DualChunk, EmbeddingSpec, Factors, GatedSpec, JoinedRows,
    LinearSpec, LossSums, LowRankSpec, MuonStep, NormSpec, NormedColumns, Pairs, Recurred,
    Recurrence, RecurrenceSpec, Rotations, Sparse, StateGradients, Turns, VisibleKeys,
};
pub use tape::{Adjoints, Gradients, Parameter, ParameterStore, Tape, WhenFinal, scalars};
