//! Models as the library Transformers keeps them in a folder: `config.json`, `model.safetensors`,
//! `tokenizer.json`.
//!
//! GPT-2 (Radford et al. 2019) is a language model of ours with some settings, so that a folder of
//! it becomes a run, and a run of that shape a folder. Weights are copied, those of linear layers
//! transposed: both ways change no bit. So does a ViT (Dosovitskiy et al. 2021), whose folder has
//! `preprocessor_config.json` in place of a tokenizer.

mod export;
mod gpt2;
mod import;
mod vit;

pub use export::export;
pub use import::{Imported, import};
pub use vit::export_vit;

/// The file of the weights.
const WEIGHTS: &str = "model.safetensors";
/// The file of the tokenizer.
const TOKENIZER: &str = "tokenizer.json";
/// The file of the shape.
const CONFIG: &str = "config.json";
