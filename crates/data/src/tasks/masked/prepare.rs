//! Prepares rows with hidden tokens from files of running text.

use std::path::Path;
use std::sync::Arc;

use crate::tasks::masked::dataset::MaskedDataset;
use crate::tasks::masked::hiding::Words;
use crate::tasks::running_text::blocks::TextBlocks;
use crate::tasks::running_text::prepare as running_text;
use crate::text::tokenizer::special::MARKS;
use crate::{
    DataConfig, Error, Prepared, Result, TextDataset, TokenisingProgress, Tokenizer, TokenizerPair,
};

/// Smallest number of tokens of a useful row.
const SHORTEST_ROW: usize = 8;

/// Refuses settings that are impossible for a masked language model.
///
/// # Errors
///
/// [`Error::Config`], with the offending key, if a setting is impossible.
pub(crate) fn validate(config: &DataConfig) -> Result<()> {
    running_text::validate(config)?;
    if config.text.block_length < SHORTEST_ROW {
        let message = format!("must be at least {SHORTEST_ROW} for a masked language model");
        return Err(Error::Config { key: "data.text.block_length", message });
    }
    Ok(())
}

/// The tokenizer of running text, with `<cls>`, `<sep>` and `<mask>` added. It is the configured
/// one, or one that is trained on the training text.
///
/// # Errors
///
/// If a text cannot be read, or the tokenizer cannot be trained or loaded.
pub(crate) fn train_tokenizer(config: &DataConfig) -> Result<TokenizerPair> {
    let mut config = config.clone();
    // The three special tokens (marks) are entries of the vocabulary too.
    let size = &mut config.tokenizer.vocabulary_size;
    *size = size.saturating_sub(MARKS.len());
    let trained = running_text::train_tokenizer(&config)?.target().clone();
    trained.with_marks().map(TokenizerPair::joint)
}

/// Prepares the training and validation text of a run.
///
/// # Errors
///
/// Any fault of configuration, text, tokenizer or disk, see [`Error`].
pub fn prepare_masked(config: &DataConfig, run: &Path) -> Result<Prepared<MaskedDataset>> {
    prepare_observed(config, run, &mut |_| ())
}

/// Prepares like [`prepare_masked`], and reports progress to `observe` while text is tokenised.
pub(crate) fn prepare_observed(
    config: &DataConfig,
    run: &Path,
    observe: &mut dyn FnMut(&TokenisingProgress),
) -> Result<Prepared<MaskedDataset>> {
    config.validate()?;
    validate(config)?;
    let blocks = without_marks(config);
    let prepared = running_text::prepare_with(&blocks, run, train_tokenizer, observe)?;
    let tokenizer = prepared.tokenizers.target().clone();
    let of = |text: Arc<TextDataset>| of_text(text, config, &tokenizer).map(Arc::new);
    Ok(Prepared {
        train: of(prepared.train)?,
        validation: prepared.validation.map(of).transpose()?,
        tokenizers: prepared.tokenizers,
    })
}

/// Opens a split for measuring a model. If `split` is `None`, opens the part of the training text
/// that `data.text.hold_out` reserves.
///
/// # Errors
///
/// If a file is missing or cannot be read, or there is no text.
pub fn masked_split(
    config: &DataConfig,
    tokenizer: &Tokenizer,
    split: Option<&str>,
) -> Result<MaskedDataset> {
    let blocks = without_marks(config);
    let mut reader = TextBlocks::open(&blocks, tokenizer, split)?;
    let mut ids: Vec<u32> = Vec::new();
    for batch in reader.by_ref() {
        let batch = batch?;
        // The last answer of a block is the first token of the next block.
        ids.extend(&batch.streams[0].ids[usize::from(!ids.is_empty())..]);
        ids.extend(batch.answers.last());
    }
    reader.require_text()?;
    let text = TextDataset::in_memory(ids, &blocks.text, reader.report().clone());
    of_text(Arc::new(text), config, tokenizer)
}

/// Copy of the settings for reading running text. Its blocks are shorter than a row, so that the
/// row has room for its special tokens (marks). The reading of running text need not separate
/// documents within a block, because each block is later divided into rows of one document each.
fn without_marks(config: &DataConfig) -> DataConfig {
    let mut blocks = config.clone();
    blocks.text.barrier = false;
    blocks.text.block_length -= MaskedDataset::marks(&config.masked);
    blocks
}

fn of_text(
    text: Arc<TextDataset>,
    config: &DataConfig,
    tokenizer: &Tokenizer,
) -> Result<MaskedDataset> {
    let words = Words::new(tokenizer, tokenizer.marks()?);
    let shape = (config.text.block_length, tokenizer.end());
    Ok(MaskedDataset::new(text, words, &config.masked, shape, &config.batching))
}
