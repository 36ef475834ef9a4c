//! Kinds of stacks.

/// Tokens that a stack's tokens see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StackKind {
    /// The whole sequence.
    Encoder,
    /// The past, and an encoder's output.
    Decoder,
    /// The past alone, as in a language model.
    DecoderOnly,
}

impl StackKind {
    pub(crate) fn is_causal(self) -> bool {
        matches!(self, Self::Decoder | Self::DecoderOnly)
    }

    pub(crate) fn attends_to_encoder(self) -> bool {
        self == Self::Decoder
    }
}
