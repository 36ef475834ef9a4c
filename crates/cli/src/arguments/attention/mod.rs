//! Arguments of the commands that show attention.

mod align;
mod steps;
mod view;

pub(crate) use align::{Align, AlignCommand, AlignEvaluate};
pub(crate) use steps::{Explain, PositionsArguments};
pub(crate) use view::{Attention, PruneHeads};
