//! Trains tokenizers on both sides of the training pairs.

use std::path::Path;

use crate::draws::Draws;
use crate::tasks::pairs::directions::mix;
use crate::tasks::pairs::modifiers::in_case;
use crate::{
    Cleaner, Corpora, DataConfig, Direction, Error, LanguageTag, PairReader, RawPair, Result,
    Tokenizer, TokenizerConfig, TokenizerPair,
};

/// Purpose number of the random draws that choose the pairs for a vocabulary of several directions
/// (see [`crate::Draws::new`]).
const PURPOSE: u64 = 11;
/// Purpose number of the draws that choose the pairs that are added a second time in capitals.
const CASE: u64 = 15;

/// Texts of both sides of a pair.
type PairTexts = Result<(String, String)>;

impl TokenizerPair {
    /// Trains on the training split, or loads the configured files.
    ///
    /// # Errors
    ///
    /// Errors of [`Tokenizer::train`], [`Tokenizer::load`] and [`PairReader`].
    pub fn train(config: &DataConfig) -> Result<Self> {
        // Each tag takes a place in the vocabulary of the source. Each language takes a place in
        // the vocabulary of the side that contains its token.
        let (tags, languages) = (config.tags(), config.language_marks());
        let settings = &config.tokenizer;
        let (of_source, of_target) = match config.languages.tag {
            _ if settings.joint => (languages.as_slice(), [].as_slice()),
            LanguageTag::Source => (languages.as_slice(), [].as_slice()),
            LanguageTag::Target => ([].as_slice(), languages.as_slice()),
        };
        let with_room = |taken: usize| TokenizerConfig {
            vocabulary_size: settings.vocabulary_size.saturating_sub(taken),
            ..settings.clone()
        };
        let (source, target) =
            (&with_room(tags.len() + of_source.len()), &with_room(of_target.len()));
        match (&settings.path, &settings.target_path) {
            (Some(source_path), Some(target_path)) => {
                let source = Tokenizer::load(source_path)?.with_known_specials(source_path)?;
                let target = Tokenizer::load_beside(&source, target_path)?
                    .with_known_specials(target_path)?;
                if settings.joint && !source.has_vocabulary_of(&target) {
                    return Err(Error::Config {
                        key: "data.tokenizer.target_path",
                        message: "has another vocabulary than data.tokenizer.path: set \
                                  data.tokenizer.joint to false"
                            .to_owned(),
                    });
                }
                let source = source.with_language_marks(of_source)?;
                let of_target = if settings.joint { of_source } else { of_target };
                Ok(Self::separate(source, target.with_language_marks(of_target)?))
            }
            (Some(path), None) => {
                let loaded = Tokenizer::load(path)?.with_known_specials(path)?;
                loaded.with_language_marks(of_source).map(Self::joint)
            }
            (None, _) if settings.joint => {
                let texts = training_pairs(config)?.flat_map(|pair| match pair {
                    Ok((source, target)) => vec![Ok(source), Ok(target)],
                    Err(error) => vec![Err(error)],
                });
                let trained = Tokenizer::train(source, config.nfkc, config.lowercase, texts)?;
                trained.with_tags(&tags)?.with_language_marks(of_source).map(Self::joint)
            }
            (None, _) => {
                type Texts<'a> = &'a mut dyn Iterator<Item = Result<String>>;
                let train = |settings: &TokenizerConfig, texts: Texts<'_>| {
                    Tokenizer::train(settings, config.nfkc, config.lowercase, texts)
                };
                // The corpus is read once for each side rather than kept in memory.
                Ok(Self::separate(
                    train(source, &mut training_pairs(config)?.map(|pair| Ok(pair?.0)))?
                        .with_tags(&tags)?
                        .with_language_marks(of_source)?,
                    train(target, &mut training_pairs(config)?.map(|pair| Ok(pair?.1)))?
                        .with_language_marks(of_target)?,
                ))
            }
        }
    }

    /// Tokenizers of the run in the folder `directory`. If there are none, they are trained and
    /// saved there.
    ///
    /// # Errors
    ///
    /// Errors of [`TokenizerPair::train`] and [`TokenizerPair::save`].
    pub fn obtain(config: &DataConfig, directory: &Path) -> Result<Self> {
        Self::load_or_train(directory, || Self::train(config))
    }

    /// Tokenizers of the run in the folder `directory`. If there are none, `train` makes them, and
    /// they are saved there.
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

/// Texts of the training pairs that cleaning by text keeps. With one direction, these are the first
/// pairs; with several directions, they are a sample in which each direction has the same share as
/// in an epoch. Some pairs are added a second time in capitals, with the probability that this
/// change has in training. Without them, the vocabulary would lack words in capitals, which would
/// be spelled letter by letter.
fn training_pairs(config: &DataConfig) -> Result<Box<dyn Iterator<Item = PairTexts>>> {
    let limit = usize::try_from(config.tokenizer.max_pairs).unwrap_or(usize::MAX);
    let pairs: Box<dyn Iterator<Item = PairTexts>> = match config.is_multilingual() {
        true => Box::new(mixed_pairs(config, limit)?),
        false => Box::new(clean_pairs(config, &config.train)?.take(limit)),
    };
    let (modifiers, draws) = (config.modifiers.clone(), Draws::new(0, 0, CASE));
    let with_cased = move |(pair, place): (PairTexts, u64)| {
        let cased =
            pair.as_ref().ok().and_then(|pair| in_case(&modifiers, pair, draws.unit(place)));
        std::iter::once(pair).chain(cased.map(Ok))
    };
    Ok(Box::new(pairs.zip(0..).flat_map(with_cased)))
}

/// Texts of the pairs of `split` that cleaning by text keeps.
fn clean_pairs(
    config: &DataConfig,
    split: &Corpora,
) -> Result<impl Iterator<Item = PairTexts> + use<>> {
    let cleaner = Cleaner::new(&config.cleaning);
    let pairs = PairReader::open(config, split)?.without_tags();
    let is_clean = move |pair: &Result<RawPair>| {
        pair.as_ref().map_or(true, |pair| cleaner.check_text(&pair.source, &pair.target).is_ok())
    };
    Ok(pairs.filter(is_clean).map(|pair| pair.map(|pair| (pair.source, pair.target))))
}

/// Texts of a sample of at most about `limit` pairs. Each direction has the same share as in an
/// epoch.
fn mixed_pairs(
    config: &DataConfig,
    limit: usize,
) -> Result<impl Iterator<Item = PairTexts> + use<>> {
    let mut sizes = Vec::with_capacity(config.train.len());
    for corpus in config.train.iter() {
        let mut pairs = 0_usize;
        for pair in clean_pairs(config, &corpus.into())? {
            pair?;
            pairs += 1;
        }
        sizes.push((config.direction_of(corpus), corpus.weight * pairs as f64));
    }
    let sizes: Vec<(&Direction, f64)> = sizes.iter().map(|(one, size)| (one, *size)).collect();
    let factors = mix(&sizes, config.languages.temperature);
    let all: f64 = sizes.iter().map(|(_, size)| size).sum();
    let scale = (limit as f64 / all.max(1.0)).min(1.0);
    let mut corpora = Vec::with_capacity(config.train.len());
    for (number, (corpus, factor)) in config.train.iter().zip(factors).enumerate() {
        let times = corpus.weight * factor * scale;
        let draws = Draws::new(0, number as u64, PURPOSE);
        let pairs = clean_pairs(config, &corpus.into())?;
        corpora.push(pairs.zip(0..).flat_map(move |(pair, place)| {
            let often = times.trunc() as usize + usize::from(draws.unit(place) < times.fract());
            // An error is returned once, whatever the weight.
            match pair {
                Ok(pair) => vec![pair; often].into_iter().map(Ok).collect::<Vec<_>>(),
                Err(error) => vec![Err(error)],
            }
        }));
    }
    Ok(corpora.into_iter().flatten())
}
