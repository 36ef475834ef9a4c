//! Arguments of the commands that show where models look.

mod align;

pub(crate) use align::{Align, AlignCommand, AlignEvaluate};
