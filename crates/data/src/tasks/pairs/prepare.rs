//! From the files of a corpus to data sets ready to be batched.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::tasks::pairs::cache::push;
use crate::tasks::pairs::hold_out::fingerprint;
use crate::tasks::pairs::reader::empty_corpus;
use crate::tasks::pairs::report::SideCounter;
use crate::tasks::pairs::subwords::PairSampler;
use crate::text::cache::{CACHE_FOLDER, CacheWriter, Key};
use crate::text::fingerprint::Fingerprint;
use crate::{
    BatchingReport, Cleaner, Corpora, Corpus, CorpusReport, DataConfig, DataReport, DropReason,
    Dropped, Error, Format, PairDataset, PairLinks, PairReader, Prepared, RawPair, Result, Side,
    TokenizerPair, split_files, split_name,
};

/// Pairs that are read before they are tokenised together, in parallel.
const CHUNK: usize = 16_384;

/// Bytes of text that are, where pairs are long.
const CHUNK_BYTES: usize = 1 << 24;

/// Refuses what cannot work for pairs.
///
/// # Errors
///
/// [`Error::Config`] with the offending key.
pub(crate) fn validate(config: &DataConfig) -> Result<()> {
    let wrong = |key, message: &str| Err(Error::Config { key, message: message.to_owned() });
    let has_stems = [&config.train, &config.validation, &config.test]
        .iter()
        .any(|corpora| corpora.iter().any(|corpus| !corpus.stem.is_empty()));
    if has_stems
        && config.format == Format::Text
        && config.source_language == config.target_language
    {
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
    let cleaning = &config.cleaning;
    if cleaning.max_tokens == 0 || cleaning.max_tokens < cleaning.min_tokens {
        return wrong(
            "data.cleaning.max_tokens",
            "must be at least 1 and at least data.cleaning.min_tokens",
        );
    }
    if !(cleaning.max_ratio == 0.0 || cleaning.max_ratio >= 1.0) {
        return wrong("data.cleaning.max_ratio", "must be 0 (no limit) or at least 1");
    }
    Ok(())
}

/// Readies the training and validation splits of a run.
///
/// The folder `run` comes to hold the tokenizers and, under `cache`, the tokenised splits; what it
/// already holds is used as far as it still fits. Every file of the configuration is looked up
/// before anything is written.
///
/// # Errors
///
/// Whatever is wrong with configuration, text, tokenizer or disk, as [`Error`] lists it.
pub fn prepare_pairs(config: &DataConfig, run: &Path) -> Result<Prepared<PairDataset>> {
    config.validate()?;
    validate(config)?;
    split_files(config, &config.train)?;
    split_files(config, &config.validation)?;
    // First of all, so that what the tokenizer is made from is what is recorded, and found changed
    // if it was meanwhile.
    let text_of =
        |split: &Corpora| Fingerprint::obtain(&split_files(config, split)?, &split.name(), run);
    let train_text = text_of(&config.train)?;
    let tokenizers = TokenizerPair::obtain(config, run).map_err(|error| match error {
        // A tokenizer cannot be trained without text; the reader wants to know why there is none.
        Error::Tokenizer { .. } => require_pairs(config).err().unwrap_or(error),
        other => other,
    })?;
    let cache = run.join(CACHE_FOLDER);
    // A tokenizer that cannot be sampled from is found before the text is tokenised.
    let sampler = PairSampler::new(&tokenizers, &config.tokenizer, config.cleaning.max_tokens)?;
    let held_out = match config.hold_out {
        0 => None,
        _ => Some(text_of(&config.validation)?.text_hash),
    };
    let part = Part {
        split: &config.train,
        is_training: true,
        text: &train_text,
        held_out: held_out.as_deref(),
        bidirectional_epochs: config.bidirectional_epochs,
    };
    let train = Arc::new(prepare_split(config, &tokenizers, &part, &cache)?.with_sampler(sampler));
    let validation = match config.validation.is_empty() {
        true => None,
        false => {
            let text = text_of(&config.validation)?;
            let part = Part {
                split: &config.validation,
                is_training: false,
                text: &text,
                held_out: None,
                bidirectional_epochs: 0,
            };
            Some(Arc::new(prepare_split(config, &tokenizers, &part, &cache)?))
        }
    };
    Ok(Prepared { tokenizers, train, validation })
}

/// Refuses a training split that is empty, or of which cleaning keeps nothing.
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

/// A split that is to be prepared.
struct Part<'a> {
    split: &'a Corpora,
    is_training: bool,
    text: &'a Fingerprint,
    /// The hash of what is held out of it.
    held_out: Option<&'a str>,
    bidirectional_epochs: u64,
}

impl Part<'_> {
    /// Whether its pairs have word links, or some of them.
    fn has_links(&self) -> bool {
        self.split.iter().any(Corpus::has_links)
    }
}

/// Tokenises one split into `{cache_directory}/{split}.bin`, or opens that file where it still fits
/// the text, the tokenizers and the cleaning.
///
/// # Errors
///
/// As for [`prepare_pairs`].
fn prepare_split(
    config: &DataConfig,
    tokenizers: &TokenizerPair,
    part: &Part<'_>,
    cache_directory: &Path,
) -> Result<PairDataset> {
    let key = cache_key(config, tokenizers, part);
    let path = cache_directory.join(format!("{}.bin", split_name(&part.split.name())));
    let weights: Vec<f64> = part.split.iter().map(|corpus| corpus.weight).collect();
    let has_links = part.has_links();
    let epochs = part.bidirectional_epochs;
    let open = || PairDataset::open(&path, &key, &config.batching, &weights, epochs, has_links);
    if let Some(dataset) = open()? {
        return Ok(dataset);
    }
    std::fs::create_dir_all(cache_directory).map_err(|error| Error::io(cache_directory, error))?;
    let mut builder = Builder::new(config, tokenizers, CacheWriter::create(&path)?, part);
    let mut reader = PairReader::open(config, part.split)?;
    while let Some(pair) = reader.next() {
        builder.add(pair?, reader.corpus())?;
    }
    builder.held_out = reader.left_out();
    part.text.still_holds()?;
    builder.finish(part, &key)?;
    let message = "cannot be read back right after it was written; check the disk".to_owned();
    open()?.ok_or(Error::Malformed { path, message })
}

/// Cleans, tokenises and counts pairs on their way to the cache.
struct Builder<'a> {
    config: &'a DataConfig,
    tokenizers: &'a TokenizerPair,
    writer: CacheWriter,
    cleaner: Cleaner,
    /// Pairs whose text is kept, to be tokenised together, and the corpus that each is of.
    chunk: Vec<(RawPair, usize)>,
    chunk_bytes: usize,
    read: u64,
    kept: u64,
    held_out: u64,
    dropped: Dropped,
    /// The pairs that were seen, where the same pair is not to come again.
    seen: Option<HashSet<u128>>,
    corpora: Vec<CorpusReport>,
    sides: [SideCounter; 2],
    is_byte: [Vec<bool>; 2],
    has_links: bool,
}

impl<'a> Builder<'a> {
    fn new(
        config: &'a DataConfig,
        tokenizers: &'a TokenizerPair,
        writer: CacheWriter,
        part: &Part<'_>,
    ) -> Self {
        let report = |corpus: &Corpus| CorpusReport {
            name: corpus.name(),
            weight: corpus.weight,
            tag: corpus.tag.clone(),
            ..CorpusReport::default()
        };
        Self {
            config,
            tokenizers,
            writer,
            cleaner: Cleaner::new(&config.cleaning),
            chunk: Vec::with_capacity(CHUNK),
            chunk_bytes: 0,
            read: 0,
            kept: 0,
            held_out: 0,
            dropped: Dropped::default(),
            seen: (part.is_training && config.cleaning.drop_duplicates).then(HashSet::new),
            corpora: part.split.iter().map(report).collect(),
            sides: Default::default(),
            is_byte: [tokenizers.source().byte_ids(), tokenizers.target().byte_ids()],
            has_links: part.has_links(),
        }
    }

    /// Takes a pair in, unless its text is reason enough to drop it.
    fn add(&mut self, pair: RawPair, corpus: usize) -> Result<()> {
        self.read += 1;
        self.corpora[corpus].pairs_read += 1;
        if let Err(reason) = self.cleaner.check_text(&pair.source, &pair.target) {
            self.dropped.count(reason);
            return Ok(());
        }
        if let Some(seen) = &mut self.seen {
            // No text holds a line break, so that two sides cannot be taken for two others.
            if !seen.insert(fingerprint(&format!("{}\n{}", pair.source, pair.target))) {
                self.dropped.count(DropReason::Duplicate);
                return Ok(());
            }
        }
        self.chunk_bytes += pair.source.len() + pair.target.len();
        self.chunk.push((pair, corpus));
        if self.chunk.len() < CHUNK && self.chunk_bytes < CHUNK_BYTES {
            return Ok(());
        }
        self.tokenise()
    }

    /// Tokenises the pairs that were taken in, and writes those that are kept.
    fn tokenise(&mut self) -> Result<()> {
        self.chunk_bytes = 0;
        let chunk = std::mem::take(&mut self.chunk);
        let sources: Vec<&str> = chunk.iter().map(|(pair, _)| pair.source.as_str()).collect();
        let targets: Vec<&str> = chunk.iter().map(|(pair, _)| pair.target.as_str()).collect();
        let sources = self.tokenizers.source().encode_batch(&sources)?;
        let targets = self.tokenizers.target().encode_batch(&targets)?;
        for ((source, target), (pair, corpus)) in sources.iter().zip(&targets).zip(&chunk) {
            if let Err(reason) = self.cleaner.check_tokens(source.len(), target.len()) {
                self.dropped.count(reason);
                continue;
            }
            self.kept += 1;
            self.corpora[*corpus].pairs_kept += 1;
            self.sides[0].add(source, &self.is_byte[0]);
            self.sides[1].add(target, &self.is_byte[1]);
            let links = match self.has_links {
                true => Some(self.links(pair)?),
                false => None,
            };
            push(&mut self.writer, source, target, pair.line, links.as_ref())?;
        }
        Ok(())
    }

    /// The word links of a pair.
    fn links(&self, pair: &RawPair) -> Result<PairLinks> {
        let (_, source_words) = self.tokenizers.source().encode_words(&pair.source)?;
        let (_, target_words) = self.tokenizers.target().encode_words(&pair.target)?;
        let links = pair.links.iter().map(|link| (link.source, link.target)).collect();
        Ok(PairLinks::new(source_words, target_words, links))
    }

    fn finish(mut self, part: &Part<'_>, key: &Key) -> Result<()> {
        self.tokenise()?;
        let split = part.split.name();
        if self.read == 0 {
            return Err(empty_corpus(self.config, part.split));
        }
        if self.kept == 0 {
            return Err(Error::AllDropped {
                split,
                read: self.read,
                reasons: self.dropped.to_string(),
            });
        }
        // Each may come in both directions, and as often as its corpus weighs.
        let often = |corpus: &CorpusReport| corpus.pairs_kept as f64 * corpus.weight.max(1.0);
        let most: f64 = self.corpora.iter().map(often).sum();
        if most > f64::from(u32::MAX / 2) {
            return Err(Error::Config {
                key: "data.train",
                message: format!(
                    "split {split:?} has {most:.0} pairs an epoch but at most 2^31 - 1 can be \
                     batched; divide it, or weigh it less"
                ),
            });
        }
        let [source, target] = self.sides;
        let report = DataReport {
            split,
            pairs_read: self.read,
            pairs_kept: self.kept,
            dropped: self.dropped,
            held_out: self.held_out,
            corpora: self.corpora,
            source: source.finish(self.config.language(Side::Source)),
            target: target.finish(self.config.language(Side::Target)),
            // Filled in when the cache is opened, from the settings of the day.
            batching: BatchingReport::default(),
            text_hash: part.text.text_hash.clone(),
            tokenizer_hash: self.tokenizers.hash(),
        };
        self.writer.finish(key, &report)
    }
}

/// A hash of all that the tokenised split follows from.
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
    if part.has_links() {
        let has_links: Vec<bool> = part.split.iter().map(Corpus::has_links).collect();
        facts["links"] = has_links.into();
    }
    Sha256::digest(facts.to_string().as_bytes()).into()
}
