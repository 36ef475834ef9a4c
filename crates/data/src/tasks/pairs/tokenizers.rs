//! Tokenizers trained on both sides of the training pairs.

use std::path::Path;

use crate::{Cleaner, DataConfig, PairReader, Result, Tokenizer, TokenizerConfig, TokenizerPair};

impl TokenizerPair {
    /// Trains on the training split, or loads the configured files.
    ///
    /// # Errors
    ///
    /// Errors of [`Tokenizer::train`], [`Tokenizer::load`] and [`PairReader`].
    pub fn train(config: &DataConfig) -> Result<Self> {
        // Each tag takes a place in the vocabulary of its texts.
        let tags = config.tags();
        let room = config.tokenizer.vocabulary_size.saturating_sub(tags.len());
        let source = &TokenizerConfig { vocabulary_size: room, ..config.tokenizer.clone() };
        let settings = &config.tokenizer;
        match (&settings.path, &settings.target_path) {
            (Some(source), Some(target)) => {
                let load = |path: &Path| Tokenizer::load(path)?.with_special_tokens(path);
                Ok(Self::separate(load(source)?, load(target)?))
            }
            (Some(path), None) => {
                Ok(Self::joint(Tokenizer::load(path)?.with_special_tokens(path)?))
            }
            (None, _) if settings.joint => {
                let texts = training_pairs(config)?.flat_map(|pair| match pair {
                    Ok((source, target)) => vec![Ok(source), Ok(target)],
                    Err(error) => vec![Err(error)],
                });
                let trained = Tokenizer::train(source, config.nfkc, config.lowercase, texts)?;
                trained.with_tags(&tags).map(Self::joint)
            }
            (None, _) => {
                type Texts<'a> = &'a mut dyn Iterator<Item = Result<String>>;
                let train = |settings: &TokenizerConfig, texts: Texts<'_>| {
                    Tokenizer::train(settings, config.nfkc, config.lowercase, texts)
                };
                // The corpus is read once for each side rather than kept in memory.
                Ok(Self::separate(
                    train(source, &mut training_pairs(config)?.map(|pair| Ok(pair?.0)))?
                        .with_tags(&tags)?,
                    train(settings, &mut training_pairs(config)?.map(|pair| Ok(pair?.1)))?,
                ))
            }
        }
    }

    /// Tokenizers of a run: the existing ones, or else new ones, which are saved there.
    ///
    /// # Errors
    ///
    /// Errors of [`TokenizerPair::train`] and [`TokenizerPair::save`].
    pub fn obtain(config: &DataConfig, directory: &Path) -> Result<Self> {
        Self::load_or_train(directory, || Self::train(config))
    }

    /// The tokenizers of a run, or those that `train` gives, which are saved there.
    ///
    /// # Errors
    ///
    /// Errors of `train`, [`TokenizerPair::load`] and [`TokenizerPair::save`].
    pub(crate) fn load_or_train(
        directory: &Path,
        train: impl FnOnce() -> Result<Self>,
    ) -> Result<Self> {
        if Self::exists(directory) {
            return Self::load(directory);
        }
        let tokenizers = train()?;
        tokenizers.save(directory)?;
        Ok(tokenizers)
    }
}

/// Texts of the training pairs that cleaning keeps before tokens are known.
fn training_pairs(
    config: &DataConfig,
) -> Result<impl Iterator<Item = Result<(String, String)>> + use<>> {
    let cleaner = Cleaner::new(&config.cleaning);
    let limit = usize::try_from(config.tokenizer.max_pairs).unwrap_or(usize::MAX);
    Ok(PairReader::open(config, &config.train)?
        .without_tags()
        .filter(move |pair| match pair {
            Ok(pair) => cleaner.check_text(&pair.source, &pair.target).is_ok(),
            Err(_) => true,
        })
        .take(limit)
        .map(|pair| pair.map(|pair| (pair.source, pair.target))))
}
