//! Settings of each operation, apart from its tensors. An operation's two implementations, the
//! fused one and the reference composed of Candle's operations, share these settings and nothing
//! else.

mod adam;
pub(crate) mod attention;
mod attention_shape;
mod dropout;
mod embedding;
mod linear;
mod loss;
mod low_rank;
mod muon;
mod norm;
mod recurrence;
mod rotary;

pub use adam::AdamStep;
pub(crate) use attention::compact::CompactElements;
pub use attention::compact::{CacheType, CompactRows};
pub use attention::dual_chunk::DualChunk;
pub(crate) use attention::mask_index;
pub use attention::sparse::Sparse;
pub(crate) use attention::sparse::{Sight, merge};
pub use attention::{ABSENT, AttentionSpec, CachedRows, JoinedRows, VisibleKeys};
pub use attention_shape::AttentionShape;
pub use dropout::Dropout;
pub use embedding::EmbeddingSpec;
pub use linear::{Activation, GatedSpec, LinearSpec};
pub(crate) use linear::{CUBE, QUICK, TWICE_ROOT, for_activation, sigmoid};
pub(crate) use loss::smoothed;
pub use loss::{CrossEntropySpec, LossSums};
pub use low_rank::{Factors, LowRankSpec};
pub use muon::MuonStep;
pub(crate) use muon::{POLYNOMIAL, ROUNDS, SMALLEST_NORM, update_scale};
pub use norm::{NormSpec, NormedColumns};
pub(crate) use recurrence::TimeSteps;
pub use recurrence::{
    AdditiveAttention, Cell, Recurred, Recurrence, RecurrenceSpec, StateGradients,
};
pub use rotary::{Pairs, Rotations, Turns};
