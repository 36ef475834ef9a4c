//! Families of translation models: an encoder reads a text, and a decoder writes another text.

pub(super) mod bart;
mod bart_names;
pub(super) mod m2m100;
pub(super) mod marian;
pub(super) mod mbart;
pub(super) mod mt5;
pub(super) mod pegasus;
pub(super) mod t5;
mod t5_keys;
pub(super) mod umt5;
