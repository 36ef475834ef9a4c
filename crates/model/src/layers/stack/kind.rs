//! Kinds of stacks.

/// Kind of a stack, by the tokens that each of its tokens sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StackKind {
    /// The whole sequence of the token.
    Encoder,
    /// The token itself, the tokens before it, and an encoder's output.
    Decoder,
    /// The token itself and the tokens before it, as in a language model.
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
