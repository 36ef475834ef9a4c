//! Segmentation of text into pieces before tokenisation, and joining of tokens to text.

use tokenizers::decoders::byte_fallback::ByteFallback;
use tokenizers::decoders::fuse::Fuse;
use tokenizers::decoders::sequence::Sequence as DecoderSequence;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::metaspace::{Metaspace, PrependScheme};
use tokenizers::pre_tokenizers::punctuation::Punctuation;
use tokenizers::pre_tokenizers::sequence::Sequence as PreTokenizerSequence;
use tokenizers::pre_tokenizers::split::Split;
use tokenizers::{DecoderWrapper, PreTokenizerWrapper, SplitDelimiterBehavior};

use crate::text::tokenizer::fault;
use crate::{Result, TokenizerKind};

/// Mark that replaces a space; each word begins with it.
pub(crate) const SPACE_MARK: char = '▁';

/// Layout of a tokenizer's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    /// One sentence at a time. Its first word is marked like every other word, as if a space came
    /// before it.
    Sentences,
    /// Many lines. Nothing is added, and each line end is a separate piece, so that pieces of a
    /// text decode to the text.
    RunningText,
}

/// Splitter into pieces that no token crosses; `None` for characters.
///
/// # Errors
/// Never: the patterns are right.
pub(crate) fn pre_tokenizer(
    kind: TokenizerKind,
    layout: Layout,
) -> Result<Option<PreTokenizerWrapper>> {
    let mut steps = match kind {
        TokenizerKind::Char => return Ok(None),
        TokenizerKind::Bytes => return Ok(Some(byte_level().into())),
        TokenizerKind::Bpe | TokenizerKind::Unigram => vec![metaspace(layout).into()],
    };
    if layout == Layout::RunningText {
        let lines = Split::new("\n", SplitDelimiterBehavior::Isolated, false);
        steps.push(lines.map_err(fault("split at line ends"))?.into());
    }
    steps.push(Punctuation::new(SplitDelimiterBehavior::Isolated).into());
    steps.push(Digits::new(true).into());
    Ok(Some(PreTokenizerSequence::new(steps).into()))
}

/// Decoder from tokens to text.
pub(crate) fn decoder(kind: TokenizerKind, layout: Layout) -> DecoderWrapper {
    match kind {
        TokenizerKind::Char => Fuse::new().into(),
        TokenizerKind::Bytes => byte_level().into(),
        // Marks become spaces before bytes become text, so that a mark spelled in bytes stays a
        // mark, and each stage sees whole tokens; fusing earlier would join everything to the first
        // token.
        TokenizerKind::Bpe | TokenizerKind::Unigram => DecoderSequence::new(vec![
            metaspace(layout).into(),
            DecoderWrapper::ByteFallback(ByteFallback::new()),
            Fuse::new().into(),
        ])
        .into(),
    }
}

fn metaspace(layout: Layout) -> Metaspace {
    let prepended = match layout {
        Layout::Sentences => PrependScheme::Always,
        Layout::RunningText => PrependScheme::Never,
    };
    Metaspace::new(SPACE_MARK, prepended, true)
}

/// GPT-2's segmentation, which adds nothing to the text.
fn byte_level() -> ByteLevel {
    ByteLevel::new(false, true, true)
}
