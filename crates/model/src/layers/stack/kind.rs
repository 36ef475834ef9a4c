//! Kinds of stacks.

/// Kind of a stack. The kinds differ in what a token of the stack sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StackKind {
    /// A token sees its whole sequence.
    Encoder,
    /// A token sees itself, the tokens before it, and the output of an encoder.
    Decoder,
    /// A token sees itself and the tokens before it, as in a language model.
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
