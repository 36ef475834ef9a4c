//! Functions shared by the tasks whose texts have labels.

use std::sync::Arc;

use anyhow::Result;
use taper_data::{Dataset, LabelOf, LabelledDataset, TokenizerPair};

use super::Batches;
use crate::config::RunConfig;
use crate::training::in_order;

/// The texts of a split.
pub(super) fn texts(
    label_of: LabelOf,
    split: &str,
    config: &RunConfig,
    tokenizers: &TokenizerPair,
) -> Result<Arc<LabelledDataset>> {
    let (data, tokenizer) = (&config.data, tokenizers.target());
    Ok(Arc::new(LabelledDataset::read(label_of, data, tokenizer, &data.split(split))?))
}

/// The batches of a split, in order.
pub(super) fn batches<'a>(
    label_of: LabelOf,
    split: &str,
    config: &'a RunConfig,
    tokenizers: &TokenizerPair,
) -> Result<Batches<'a>> {
    let texts: Arc<dyn Dataset> = texts(label_of, split, config, tokenizers)?;
    Ok(Box::new(in_order(&texts, &config.data.batching)))
}
