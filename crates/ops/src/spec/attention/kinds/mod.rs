//! Settings of the kinds of attention other than a softmax over keys.

mod hierarchical;
mod linear_attention;
mod scan;

pub use hierarchical::HierarchicalSpec;
pub(crate) use hierarchical::Hierarchy;
pub(crate) use linear_attention::LinearAttentionShape;
pub use linear_attention::LinearAttentionSpec;
pub(crate) use scan::ScanShape;
pub use scan::{ConvolutionSpec, ScanInputs, ScanSpec};
