//! Differentiable operations for training Transformers on Candle. Each has two implementations. One
//! is fused, for the CPU, with a backward pass. The other is composed of Candle's own operations;
//! it is the reference in tests, and the fallback.
//!
//! **Decision.** Sequences are packed: an activation is `(N, D)` with one row for each real token,
//! and lengths say where sequences end. So nothing is computed for padding, and no result depends
//! on padding. The alternative would be padded tensors `(B, T, D)` with masks. They spend up to
//! half of the work on padding, and make the results of a sequence depend on the rest of its batch.
//!
//! **Decision.** Our own tape ([`Tape`]) records the graph of operations for the backward pass, on
//! every device. In an earlier version, the fused kernels were custom operations in Candle's graph.
//! A training step then spent a third of its time between kernels: it filled memory with zeros, and
//! copied and added gradients. Every activation lived until the end of the step. If there is no
//! tape and Candle tracks the inputs of an operation, the operation is composed of Candle's
//! operations, so that Candle's autodiff can differentiate it.
//!
//! If an operation has no fused version for the current device, Candle's operations compute it, and
//! the tape records them as a single operation ([`composed::on_tape`]).
//!
//! All `unsafe` code of the project is in this crate. It serves four purposes: matrix products on
//! raw pointers; threads that write to disjoint parts of a slice; calls of functions that are
//! compiled for processor features detected at run time; and calls of system and CUDA functions for
//! which there is no safe library.

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
mod mapped;
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
pub use mapped::{MappedFile, MappedValues};
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
    ABSENT, Activation, AdamStep, AdditiveAttention, AttentionShape, AttentionSpec, CacheType,
    CachedRows, Cell, CompactRows, CrossEntropySpec, Dropout, DualChunk, EmbeddingSpec, Factors,
    GatedSpec, JoinedRows, LinearSpec, LossSums, LowRankSpec, MuonStep, NormSpec, NormedColumns,
    Pairs, Recurred, Recurrence, RecurrenceSpec, Rotations, Sparse, StateGradients, Turns,
    VisibleKeys,
};
pub use tape::{
    Adjoints, ElementFactors, Gradients, Parameter, ParameterStore, Tape, WhenFinal, scalars,
};
