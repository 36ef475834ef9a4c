//! Arguments of the commands that make new weights, and exchange them with other programs.

mod derived;
mod exchange;
mod hub;

pub(crate) use derived::{Average, Merge, PageOfRun, Quantize, ShortlistOfRun};
pub(crate) use exchange::{Export, Format, Import};
pub(crate) use hub::{Pull, Push};
