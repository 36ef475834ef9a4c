//! Event files that TensorBoard reads: scalars, histograms, text, pictures, hyper-parameters.
//!
//! Records are appended to an [`EventFile`]. Each [`Value`] of a record has a tag, and TensorBoard
//! draws the values of a tag by step. A run that resumes from an earlier state first drops the
//! records written after that state ([`EventFile::resume`]), so that no step appears twice.
//!
//! ```
//! use taper_tensorboard::{EventFile, Value};
//! # fn main() -> std::io::Result<()> {
//! # let folder = tempfile::tempdir()?;
//! let path = folder.path().join("events.out.tfevents.0.taper");
//! let mut events = EventFile::resume(&path, |_, _| true)?;
//! events.append(10, &[Value::scalar("train/loss", 2.5)]);
//! events.flush()?;
//! # Ok(())
//! # }
//! ```
//!
//! The files consist of TensorFlow's protocol-buffer messages (`event.proto`, `summary.proto`,
//! `tensor.proto`, and `plugin_data.proto` of the plugin for hyper-parameters). The few fields that
//! are needed are written one by one. A code generator was rejected, because it would be larger
//! than the code that it would replace.
#![forbid(unsafe_code)]

mod checksum;
mod file;
mod histogram;
mod value;
mod wire;

pub use file::{EventFile, Record};
pub use histogram::Histogram;
pub use value::{Parameter, Value};
