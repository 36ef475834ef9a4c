//! Makes data sets of sentence pairs from the files of a corpus.

mod shards;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest, Sha256};

use self::shards::PairShards;
use crate::tasks::pairs::directions::SplitCorpora;
use crate::tasks::pairs::reader::empty_corpus;
use crate::tasks::pairs::rules::TextRules;
use crate::tasks::pairs::variation::PairVariation;
use crate::text::cache::{CACHE_FOLDER, Cache, Key};
use crate::text::fingerprint::Fingerprint;
use crate::text::shards::Shards;
use crate::{
    Cleaner, Corpora, Corpus, DataConfig, Direction, Dropped, Error, Format, PairDataset,
    PairReader, Prepared, Result, Share, TokenisingProgress, TokenizerPair, split_files,
    split_name,
};

/// Refuses settings that are impossible for pairs.
///
/// # Errors
///
/// [`Error::Config`], with the offending key, if a setting is impossible.
pub(crate) fn validate(config: &DataConfig) -> Result<()> {
    let wrong = |key, message: &str| Err(Error::Config { key, message: message.to_owned() });
    config.validate_directions()?;
    let stems = || {
        let splits = [&config.train, &config.validation, &config.test].into_iter();
        splits.flat_map(|split| split.iter()).filter(|corpus| !corpus.stem.is_empty())
    };
    let has_stems = stems().next().is_some();
    let is_alike = |corpus: &Corpus| {
        let Direction { from, to } = config.direction_of(corpus);
        from == to
    };
    if config.format == Format::Text && stems().any(is_alike) {
        return wrong(
            "data.target_language",
            "is the source language too, so both sides would be the same file",
        );
    }
    if has_stems && config.format == Format::Hub && !config.hub.dataset.contains('/') {
        return wrong(
            "data.hub.dataset",
            "must be an id like \"owner/name\" when data.format is \"hub\"",
        );
    }
    if config.bidirectional_epochs > 0 && !config.tokenizer.joint {
        return wrong(
            "data.bidirectional_epochs",
            "needs one vocabulary for both languages: set data.tokenizer.joint = true, or 0 here",
        );
    }
    config.cleaning.validate()?;
    if config.modifiers.single_words > 0.0 && config.is_multilingual() {
        return wrong(
            "data.modifiers.single_words",
            "knows the words of one direction, and data.train has several: set it to 0",
        );
    }
    for direction in config.directions() {
        // Impossible rules are refused here, before text is tokenised.
        TextRules::new(&config.cleaning, direction, "")?;
    }
    Ok(())
}

/// Prepares the training and validation splits of a run.
///
/// The tokenizers are written to the folder `run`, and the tokenised splits to `cache` in this
/// folder. Existing tokenizers and tokenised splits are used if they still fit. Nothing is written
/// before all files of the configuration have been looked up.
///
/// # Errors
///
/// Any fault of configuration, text, tokenizer or disk, see [`Error`].
pub fn prepare_pairs(config: &DataConfig, run: &Path) -> Result<Prepared<PairDataset>> {
    prepare_observed(config, run, &mut |_| ())
}

/// Prepares pairs like [`prepare_pairs`], and reports progress to `observe` while text is
/// tokenised.
pub(crate) fn prepare_observed(
    config: &DataConfig,
    run: &Path,
    observe: &mut dyn FnMut(&TokenisingProgress),
) -> Result<Prepared<PairDataset>> {
    let ready = Ready::obtain(config, run)?;
    // If the tokenizer cannot sample segmentations as required, this fails before text is
    // tokenised.
    let variation = PairVariation::new(config, &ready.tokenizers)?;
    let mut open = |part: &Part<'_>| prepare_split(config, &ready.tokenizers, part, run, observe);
    let train = open(&Part::of_training(config, &ready))?.with_variation(variation);
    let validation = match &ready.validation {
        Some(text) => Some(Arc::new(open(&Part::of_validation(config, text))?)),
        None => None,
    };
    Ok(Prepared { tokenizers: ready.tokenizers, train: Arc::new(train), validation })
}

/// Does the work that a single process must do before several processes tokenise the splits
/// together. Returns true if there is anything to tokenise.
///
/// # Errors
///
/// See [`prepare_pairs`].
pub(crate) fn begin(config: &DataConfig, run: &Path) -> Result<bool> {
    let ready = Ready::obtain(config, run)?;
    for part in parts(config, &ready) {
        let (path, key) = (part.cache(run), cache_key(config, &ready.tokenizers, &part));
        if Cache::report::<serde_json::Value>(&path, &key)?.is_none() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Tokenises this process's share of the splits. One process must have called [`begin`] before.
///
/// # Errors
///
/// See [`prepare_pairs`].
pub(crate) fn tokenise_share(
    config: &DataConfig,
    run: &Path,
    share: Share,
    observe: &mut dyn FnMut(&TokenisingProgress),
) -> Result<()> {
    let ready = Ready::find(config, run)?;
    for part in parts(config, &ready) {
        let (path, key) = (part.cache(run), cache_key(config, &ready.tokenizers, &part));
        if Cache::report::<serde_json::Value>(&path, &key)?.is_none() {
            let shards = Shards::new(&path, &key);
            PairShards::new(config, &ready.tokenizers, &part, shards)?.make(share, observe)?;
        }
    }
    Ok(())
}

/// Tokenizers and fingerprints of the text, which must be known before a split is tokenised.
struct Ready {
    tokenizers: TokenizerPair,
    train: Fingerprint,
    validation: Option<Fingerprint>,
}

impl Ready {
    /// Examines the text, and trains the tokenizers if the run has none.
    fn obtain(config: &DataConfig, run: &Path) -> Result<Self> {
        config.validate()?;
        validate(config)?;
        split_files(config, &config.train)?;
        split_files(config, &config.validation)?;
        // The fingerprint of the training text is recorded before the tokenizer is trained. So a
        // change of the text after that is noticed.
        let text_of =
            |split: &Corpora| Fingerprint::obtain(&split_files(config, split)?, &split.name(), run);
        let train = text_of(&config.train)?;
        let tokenizers = TokenizerPair::obtain(config, run).map_err(|error| match error {
            // A tokenizer cannot be trained without text. If this is the cause, the error should
            // say why there is no text.
            Error::Tokenizer { .. } => require_pairs(config).err().unwrap_or(error),
            other => other,
        })?;
        let tokenizers = tokenizers.with_source_prefix(&config.source_prefix)?;
        let is_validated = !config.validation.is_empty();
        let validation = is_validated.then(|| text_of(&config.validation)).transpose()?;
        Ok(Self { tokenizers, train, validation })
    }

    /// Reads what [`Self::obtain`] wrote in another process. Writes nothing.
    fn find(config: &DataConfig, run: &Path) -> Result<Self> {
        let text_of = |split: &Corpora| {
            Fingerprint::compute(&split_files(config, split)?, &split.name(), run)
        };
        let is_validated = !config.validation.is_empty();
        Ok(Self {
            tokenizers: TokenizerPair::load(run)?.with_source_prefix(&config.source_prefix)?,
            train: text_of(&config.train)?,
            validation: is_validated.then(|| text_of(&config.validation)).transpose()?,
        })
    }
}

/// The splits to prepare.
fn parts<'a>(config: &'a DataConfig, ready: &'a Ready) -> Vec<Part<'a>> {
    let validation = ready.validation.as_ref().map(|text| Part::of_validation(config, text));
    [Part::of_training(config, ready)].into_iter().chain(validation).collect()
}

/// Refuses a training split that has no pairs, or none that cleaning keeps.
fn require_pairs(config: &DataConfig) -> Result<()> {
    let cleaner = Cleaner::new(&config.cleaning);
    let (mut read, mut dropped) = (0, Dropped::default());
    for pair in PairReader::open(config, &config.train)? {
        let pair = pair?;
        read += 1;
        if let Err(reason) = cleaner.check_text(&pair.source, &pair.target) {
            dropped.count(reason);
        }
    }
    if read == 0 {
        return Err(empty_corpus(config, &config.train));
    }
    if dropped.total() == read {
        let (split, reasons) = (config.train.name(), dropped.to_string());
        return Err(Error::AllDropped { split, read, reasons });
    }
    Ok(())
}

/// A split to prepare.
pub(crate) struct Part<'a> {
    pub(crate) split: &'a Corpora,
    pub(crate) is_training: bool,
    pub(crate) text: &'a Fingerprint,
    /// Hash of the held-out sentences, which are omitted from the split.
    held_out: Option<&'a str>,
    bidirectional_epochs: u64,
}

impl<'a> Part<'a> {
    fn of_training(config: &'a DataConfig, ready: &'a Ready) -> Self {
        let held_out = ready.validation.as_ref().filter(|_| config.hold_out > 0);
        Self {
            split: &config.train,
            is_training: true,
            text: &ready.train,
            held_out: held_out.map(|text| text.text_hash.as_str()),
            bidirectional_epochs: config.bidirectional_epochs,
        }
    }

    fn of_validation(config: &'a DataConfig, text: &'a Fingerprint) -> Self {
        Self {
            split: &config.validation,
            is_training: false,
            text,
            held_out: None,
            bidirectional_epochs: 0,
        }
    }

    /// True if some pairs of the split have word links.
    pub(crate) fn has_links(&self) -> bool {
        self.split.iter().any(Corpus::has_links)
    }

    /// Path of the split's cache in the folder `run` of a run.
    fn cache(&self, run: &Path) -> PathBuf {
        run.join(CACHE_FOLDER).join(format!("{}.bin", split_name(&self.split.name())))
    }
}

/// Opens the cache of a split in the folder `run`. The split is tokenised first unless the cache
/// fits the text, the tokenizers and the cleaning.
///
/// # Errors
///
/// See [`prepare_pairs`].
fn prepare_split(
    config: &DataConfig,
    tokenizers: &TokenizerPair,
    part: &Part<'_>,
    run: &Path,
    observe: &mut dyn FnMut(&TokenisingProgress),
) -> Result<PairDataset> {
    let (path, key) = (part.cache(run), cache_key(config, tokenizers, part));
    let corpora = SplitCorpora::new(config, tokenizers, part.split, part.is_training)?;
    let has_links = part.has_links();
    let epochs = part.bidirectional_epochs;
    let open = || PairDataset::open(&path, &key, &config.batching, &corpora, epochs, has_links);
    let shards = Shards::new(&path, &key);
    let make = || {
        let made = PairShards::new(config, tokenizers, part, shards.clone())?;
        made.make(Share::WHOLE, observe)?;
        made.merge(&path, &key)
    };
    shards.open_or_make(&path, open, make)
}

/// Hash of everything on which the tokenised split depends.
fn cache_key(config: &DataConfig, tokenizers: &TokenizerPair, part: &Part<'_>) -> Key {
    let each = |corpus: &Corpus| (corpus.fields(config).clone(), corpus.tag.clone());
    let mut facts = serde_json::json!({
        "split": part.split.name(),
        "text": part.text.text_hash,
        "held_out": part.held_out,
        "tokenizers": tokenizers.hash(),
        "cleaning": config.cleaning,
        "format": config.format,
        "corpora": part.split.iter().map(each).collect::<Vec<_>>(),
        "languages": [config.source_language, config.target_language],
    });
    if part.split.iter().any(|corpus| !corpus.from.is_empty() || !corpus.to.is_empty()) {
        let directions = part.split.iter().map(|corpus| config.direction_of(corpus));
        facts["directions"] = directions.map(|one| one.to_string()).collect();
    }
    if part.has_links() {
        let has_links: Vec<bool> = part.split.iter().map(Corpus::has_links).collect();
        facts["links"] = has_links.into();
    }
    Sha256::digest(facts.to_string().as_bytes()).into()
}
