//! Models whose weights are set by hand, which show what attention can compute.
//!
//! **Decision.** A construction is written as a [`Blueprint`]: columns of the residual stream,
//! heads that compare and copy columns, and units of feed-forward layers. A blueprint is assembled
//! to an ordinary model of `taper-model`, including norms and biases. So a result about a
//! construction holds for the same code with which other crates train models. The alternative, a
//! separate implementation of attention for proofs, would prove something about other code.
//!
//! **Norms.** A norm changes every column, but constructions need exact values. One column
//! therefore holds a large constant. It is so large that, in f32, the root mean square of a row
//! equals the root mean square of the constant alone. An RMS norm with the matching weight is then
//! exactly the identity ([`blueprint`]).
//!
//! There are three kinds of constructions: Turing machines ([`turing`]); programs of select and
//! aggregate, in the language RASP ([`rasp`]); and [`studies`], each of which measures a claim and
//! returns a table and figures.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod blueprint;
mod error;
pub mod rasp;
pub mod studies;
pub mod turing;

pub use blueprint::Blueprint;
pub use error::{Place, TheoryError};
