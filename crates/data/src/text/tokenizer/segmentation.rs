//! Pre-tokenizers, which divide text into pieces that no token crosses, and decoders, which join
//! tokens to text.

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

/// Mark that replaces a space at the beginning of a word.
pub(crate) const SPACE_MARK: char = '▁';

/// Layout of the texts that a tokenizer is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Single sentences. The first word of a sentence gets the mark of a space although no space is
    /// before it. So a word has the same tokens at the beginning of a sentence as after a space.
    Sentences,
    /// Text of many lines. Nothing is added, and each line end is a separate piece. So decoding the
    /// pieces of a text gives exactly the text.
    RunningText,
}

/// Pre-tokenizer, which divides text into pieces that no token crosses; `None` for a vocabulary of
/// characters.
///
/// # Errors
/// Never, because the pattern is fixed and valid.
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
        // Marks become spaces before bytes become text. So a mark that is part of the text, and is
        // spelled in bytes, stays a mark. Tokens are joined only at the end, because the first two
        // steps need separate tokens.
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
