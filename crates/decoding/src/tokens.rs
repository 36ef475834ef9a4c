//! The special token ids, the same in every vocabulary of the project.

/// `<pad>`: padding; unused in decoding and never produced.
pub const PAD: u32 = 0;
/// `<unk>`: text that the vocabulary cannot spell; produced only if the configuration allows it.
pub const UNKNOWN: u32 = 1;
/// `<s>`: first input of the decoder; never produced.
pub const START: u32 = 2;
/// `</s>`: end of a sentence; every finished hypothesis ends with it.
pub const END: u32 = 3;
