//! Arguments of the commands that exchange weights: `import`, `export`, `push`, `pull`.

mod exchange;
mod hub;

pub(crate) use exchange::{Export, Format, Import};
pub(crate) use hub::{Pull, Push};
