//! Models as the library Transformers keeps them in a folder: `config.json`, weights, and a
//! tokenizer or the settings of an image processor.
//!
//! A folder becomes a run, and a run of such a shape a folder. Weights are copied, transposed or
//! put together: both ways change no bit. Each family of models has a file of tables, in which the
//! names there stand beside the names here; finding and reading files, comparing keys and tensors,
//! and writing folders is one code for all. A new family is a file like `gpt2.rs`, and its name in
//! the list of families below.

mod bert;
mod export;
mod family;
mod gpt2;
mod import;
mod keys;
mod pickle;
mod preprocessor;
mod recipe;
mod safetensors;
mod sources;
mod tokens;
mod vit;
mod weights;

pub use export::{Exported, export, export_run};
pub use import::{Imported, import};

/// The families that can be read and written.
const FAMILIES: &[&family::Family] = &[&gpt2::FAMILY, &bert::FAMILY, &vit::FAMILY];

/// The file of the weights.
const WEIGHTS: &str = "model.safetensors";
/// The file of the shape.
const CONFIG: &str = "config.json";

/// More bytes than any file of JSON has that describes a model.
const MOST_BYTES: u64 = 1 << 26;
