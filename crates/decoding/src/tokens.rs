//! The special token ids, the same in every vocabulary of the project.

/// `<pad>`: fills nothing at decoding time and is never produced.
pub const PAD: u32 = 0;
/// `<unk>`: stands for text that the vocabulary cannot spell; produced only where configured.
pub const UNKNOWN: u32 = 1;
/// `<s>`: the first decoder input; never produced.
pub const START: u32 = 2;
/// `</s>`: ends a sentence; every finished hypothesis ends with it.
pub const END: u32 = 3;
