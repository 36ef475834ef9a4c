//! Arguments of the commands that make weights from weights, and exchange them.

mod derived;
mod exchange;
mod hub;

pub(crate) use derived::{Average, Merge, Quantize};
pub(crate) use exchange::{Export, Format, Import};
pub(crate) use hub::{Pull, Push};
