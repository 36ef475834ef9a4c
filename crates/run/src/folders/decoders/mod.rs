//! Families of language models: models with only a decoder, which continue a text.

pub(super) mod gpt2;
pub(super) mod gpt_neox;
pub(super) mod gptj;
pub(super) mod llama;
pub(super) mod mistral;
pub(super) mod phi;
pub(super) mod qwen2;
pub(super) mod qwen3;
mod rotary;
mod windows;
