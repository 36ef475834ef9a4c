//! Pairs in [shards](crate::text::shards): a shard is so many pairs of files that are read together,
//! cleaned by their text and tokenised.
//!
//! A shard has its pairs as their cache has them, but for the line, which is counted from the
//! beginning of the files. Where the same pair is not to come again, each has more before it: 16
//! bytes that tell pairs apart, and a byte that says why it is dropped by its tokens, or 0. Which of
//! two pairs comes first is known only when shards are put together.

use std::collections::HashSet;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::tasks::pairs::cache::{Record, record};
use crate::tasks::pairs::hold_out::{fingerprint, held_out_sentences};
use crate::tasks::pairs::prepare::Part;
use crate::tasks::pairs::reader::{FileReader, PairFiles, empty_corpus, pair_files};
use crate::tasks::pairs::report::SideCounter;
use crate::text::cache::{CacheWriter, Items, Key};
use crate::text::shards::Shards;
use crate::{
    BatchingReport, Cleaner, Corpus, CorpusReport, DataConfig, DataReport, DropReason, Dropped,
    Error, PairLinks, RawPair, Result, Share, Side, TokenisingProgress, TokenizerPair,
};

/// Pairs of a shard, as they stand in the files: some 15 MB of text, a few seconds of work. Shards of
/// a run that was killed are of no use to a version in which it is another number.
const PAIRS: u64 = if cfg!(test) { 16 } else { 1 << 17 };

/// Pairs that are read before they are tokenised together, in parallel.
const CHUNK: usize = 16_384;

/// Bytes of text that are, where pairs are long.
const CHUNK_BYTES: usize = 1 << 24;

/// What a shard is made of.
#[derive(Debug, Default, Serialize, Deserialize)]
struct ShardReport {
    /// Pairs in the files.
    pairs: u64,
    /// Those of them whose source is held out.
    held_out: u64,
    /// Those that are dropped and not in the shard.
    dropped: Dropped,
    /// Whether the files end with it.
    is_last: bool,
}

/// The shards of a split of pairs.
pub(crate) struct PairShards<'a> {
    config: &'a DataConfig,
    tokenizers: &'a TokenizerPair,
    part: &'a Part<'a>,
    shards: Shards,
    files: Vec<PairFiles>,
    /// Bytes of each of `files`.
    bytes: Vec<u64>,
    held_out: HashSet<u128>,
    drops_duplicates: bool,
}

impl<'a> PairShards<'a> {
    /// Those of `part`, which lie in `shards`.
    ///
    /// # Errors
    ///
    /// If a file is missing.
    pub(crate) fn new(
        config: &'a DataConfig,
        tokenizers: &'a TokenizerPair,
        part: &'a Part<'a>,
        shards: Shards,
    ) -> Result<Self> {
        let files = pair_files(config, part.split)?;
        let size = |files: &PairFiles| -> Result<u64> {
            let of = |path| std::fs::metadata(path).map_err(|error| Error::io(path, error));
            files.paths().map(|path| Ok(of(path)?.len())).sum()
        };
        let bytes = files.iter().map(size).collect::<Result<_>>()?;
        let held_out = if part.is_training { held_out_sentences(config)? } else { HashSet::new() };
        let drops_duplicates = part.is_training && config.cleaning.drop_duplicates;
        Ok(Self { config, tokenizers, part, shards, files, bytes, held_out, drops_duplicates })
    }

    /// Makes those shards of a process's share that are not there.
    ///
    /// # Errors
    ///
    /// If the text cannot be read or has changed, or the disk is full.
    pub(crate) fn make(
        &self,
        share: Share,
        observe: &mut dyn FnMut(&TokenisingProgress),
    ) -> Result<()> {
        let owners = share.owners(&self.bytes);
        let own = (0..self.files.len()).filter(|&file| owners.reads(file));
        let all: u64 = own.clone().map(|file| self.bytes[file]).sum();
        let (mut behind, mut tokenised) = (0, 0);
        let mut tell = |read: u64, text: u64| {
            tokenised += text;
            observe(&TokenisingProgress {
                split: self.part.split.name(),
                done: read as f64 / all.max(1) as f64,
                bytes: tokenised,
                processes: share.of,
            });
        };
        for file in own {
            let mut reader = None;
            // Pairs before the next shard that nobody has read here.
            let mut unread = 0;
            for shard in 0.. {
                if let Some(report) = self.shards.report::<ShardReport>(file, shard)? {
                    if report.is_last {
                        break;
                    }
                    unread += report.pairs;
                    continue;
                }
                let reader = match &mut reader {
                    Some(reader) => reader,
                    none => none.insert(self.open(file)?),
                };
                if !skip(reader, &mut unread)? {
                    break;
                }
                if !owners.makes(file, shard) {
                    unread = PAIRS;
                    continue;
                }
                let mut tell = |reader: &FileReader, text| tell(behind + reader.bytes_read(), text);
                if self.make_shard((file, shard), reader, &mut tell)? {
                    break;
                }
            }
            behind += self.bytes[file];
            tell(behind, 0);
        }
        Ok(())
    }

    fn open(&self, file: usize) -> Result<FileReader> {
        let files = &self.files[file];
        FileReader::open(self.config, &self.part.split[files.corpus], files)
    }

    /// Makes a shard of the pairs that come next; true if they are the last of their files.
    fn make_shard(
        &self,
        place: (usize, usize),
        reader: &mut FileReader,
        tell: &mut dyn FnMut(&FileReader, u64),
    ) -> Result<bool> {
        let mut builder = Builder::new(self, self.shards.writer(place.0, place.1)?);
        while builder.report.pairs < PAIRS {
            let Some(pair) = reader.next_pair()? else {
                builder.report.is_last = true;
                break;
            };
            if builder.add(pair)? {
                let text = builder.tokenise()?;
                tell(reader, text);
            }
        }
        let text = builder.tokenise()?;
        tell(reader, text);
        self.part.text.seems_to_hold()?;
        let is_last = builder.report.is_last;
        self.shards.finish(place, builder.writer, &builder.report)?;
        Ok(is_last)
    }

    /// Puts the shards together into the cache at `path`; false if one of them is not there.
    ///
    /// # Errors
    ///
    /// If no pair is left, or the text has changed, or the disk is full.
    pub(crate) fn merge(&self, path: &Path, key: &Key) -> Result<bool> {
        let mut merged = Merged::new(self, CacheWriter::create(path)?);
        let mut line = 0;
        for (file, files) in self.files.iter().enumerate() {
            for shard in 0.. {
                let place = (file, shard);
                let report = self.shards.read::<ShardReport>(place, |items| {
                    merged.take(items, line, files.corpus, |error| {
                        self.shards.unreadable(place, error)
                    })
                })?;
                let Some(report) = report else { return Ok(false) };
                merged.count(&report, files.corpus);
                if report.is_last {
                    line = merged.pairs;
                    break;
                }
            }
        }
        if let Err(error) = self.part.text.still_holds() {
            // No other start is to take what was made of another text.
            self.shards.remove()?;
            return Err(error);
        }
        match merged.finish(key) {
            Ok(()) => Ok(true),
            Err(error) => {
                // What is wrong with the text is so for every start; a full disk is not.
                if !matches!(error, Error::Io { .. }) {
                    self.shards.remove()?;
                }
                Err(error)
            }
        }
    }
}

/// Passes over pairs; false if there are fewer.
fn skip(reader: &mut FileReader, pairs: &mut u64) -> Result<bool> {
    while *pairs > 0 {
        if !reader.skip_pair()? {
            return Ok(false);
        }
        *pairs -= 1;
    }
    Ok(true)
}

/// Cleans and tokenises pairs on their way to a shard.
struct Builder<'a> {
    of: &'a PairShards<'a>,
    writer: CacheWriter,
    cleaner: Cleaner,
    /// Pairs whose text is kept, to be tokenised together.
    chunk: Vec<RawPair>,
    chunk_bytes: usize,
    report: ShardReport,
    has_links: bool,
}

impl<'a> Builder<'a> {
    fn new(of: &'a PairShards<'a>, writer: CacheWriter) -> Self {
        Self {
            of,
            writer,
            cleaner: Cleaner::new(&of.config.cleaning),
            chunk: Vec::with_capacity(CHUNK),
            chunk_bytes: 0,
            report: ShardReport::default(),
            has_links: of.part.has_links(),
        }
    }

    /// Takes a pair in, unless its text is reason enough to drop it; whether there are enough to be
    /// tokenised.
    fn add(&mut self, pair: RawPair) -> Result<bool> {
        self.report.pairs += 1;
        if !self.of.held_out.is_empty() && self.of.held_out.contains(&fingerprint(&pair.source)) {
            self.report.held_out += 1;
        } else if let Err(reason) = self.cleaner.check_text(&pair.source, &pair.target) {
            self.report.dropped.count(reason);
        } else {
            self.chunk_bytes += pair.source.len() + pair.target.len();
            self.chunk.push(pair);
        }
        Ok(self.chunk.len() >= CHUNK || self.chunk_bytes >= CHUNK_BYTES)
    }

    /// Tokenises the pairs that were taken in, and writes those that are kept; the bytes of their
    /// text.
    fn tokenise(&mut self) -> Result<u64> {
        let bytes = std::mem::take(&mut self.chunk_bytes) as u64;
        let mut chunk = std::mem::take(&mut self.chunk);
        let tokenizers = self.of.tokenizers;
        let sources: Vec<&str> = chunk.iter().map(|pair| pair.source.as_str()).collect();
        let targets: Vec<&str> = chunk.iter().map(|pair| pair.target.as_str()).collect();
        let sources = tokenizers.source().encode_batch(&sources)?;
        let targets = tokenizers.target().encode_batch(&targets)?;
        for ((source, target), pair) in sources.iter().zip(&targets).zip(&chunk) {
            let checked = self.cleaner.check_tokens(source.len(), target.len());
            let links = match self.has_links && checked.is_ok() {
                true => Some(self.links(pair)?),
                false => None,
            };
            let own = |links| record(source, target, pair.line, links);
            let bytes = match checked {
                _ if self.of.drops_duplicates => {
                    let mut bytes = Vec::new();
                    // No text holds a line break, so that two sides cannot be taken for two others.
                    let text = format!("{}\n{}", pair.source, pair.target);
                    bytes.extend(fingerprint(&text).to_le_bytes());
                    bytes.push(checked.err().map_or(0, code));
                    if checked.is_ok() {
                        bytes.extend(own(links.as_ref()));
                    }
                    bytes
                }
                Ok(()) => own(links.as_ref()),
                Err(reason) => {
                    self.report.dropped.count(reason);
                    continue;
                }
            };
            self.writer.push(1, &bytes)?;
        }
        // Its room is used again.
        chunk.clear();
        self.chunk = chunk;
        Ok(bytes)
    }

    /// The word links of a pair.
    fn links(&self, pair: &RawPair) -> Result<PairLinks> {
        let tokenizers = self.of.tokenizers;
        let (_, source_words) = tokenizers.source().encode_words(&pair.source)?;
        let (_, target_words) = tokenizers.target().encode_words(&pair.target)?;
        let links = pair.links.iter().map(|link| (link.source, link.target)).collect();
        Ok(PairLinks::new(source_words, target_words, links))
    }
}

/// Reasons that are known from tokens, by the byte that stands for them in a shard, from 1.
const REASONS: [DropReason; 5] = [
    DropReason::EmptySource,
    DropReason::EmptyTarget,
    DropReason::TooShort,
    DropReason::TooLong,
    DropReason::Ratio,
];

fn code(reason: DropReason) -> u8 {
    REASONS.iter().position(|&one| one == reason).map_or(0, |place| place as u8 + 1)
}

/// The cache as it is put together.
struct Merged<'a> {
    of: &'a PairShards<'a>,
    writer: CacheWriter,
    /// Pairs in the files so far.
    pairs: u64,
    kept: u64,
    held_out: u64,
    dropped: Dropped,
    /// The pairs that were seen, where the same pair is not to come again.
    seen: HashSet<u128>,
    corpora: Vec<CorpusReport>,
    sides: [SideCounter; 2],
    is_byte: [Vec<bool>; 2],
    has_links: bool,
}

impl<'a> Merged<'a> {
    fn new(of: &'a PairShards<'a>, writer: CacheWriter) -> Self {
        let report = |corpus: &Corpus| CorpusReport {
            name: corpus.name(),
            weight: corpus.weight,
            tag: corpus.tag.clone(),
            ..CorpusReport::default()
        };
        Self {
            of,
            writer,
            pairs: 0,
            kept: 0,
            held_out: 0,
            dropped: Dropped::default(),
            seen: HashSet::new(),
            corpora: of.part.split.iter().map(report).collect(),
            sides: Default::default(),
            is_byte: [of.tokenizers.source().byte_ids(), of.tokenizers.target().byte_ids()],
            has_links: of.part.has_links(),
        }
    }

    /// Takes the next pair of a shard in, whose files begin behind so many `lines`.
    fn take(
        &mut self,
        items: &mut Items<'_>,
        lines: u64,
        corpus: usize,
        unreadable: impl Fn(std::io::Error) -> Error,
    ) -> Result<()> {
        if self.of.drops_duplicates {
            let mut head = [0; 17];
            items.read(&mut head).map_err(&unreadable)?;
            let mut pair = [0; 16];
            pair.copy_from_slice(&head[..16]);
            let reason = usize::from(head[16]).checked_sub(1).and_then(|place| REASONS.get(place));
            let is_new = self.seen.insert(u128::from_le_bytes(pair));
            let dropped = if is_new { reason.copied() } else { Some(DropReason::Duplicate) };
            if let Some(dropped) = dropped {
                self.dropped.count(dropped);
                if reason.is_none() {
                    Record::read(items, self.has_links).map_err(&unreadable)?;
                }
                return Ok(());
            }
        }
        let pair = Record::read(items, self.has_links).map_err(&unreadable)?.moved(lines);
        self.kept += 1;
        self.corpora[corpus].pairs_kept += 1;
        self.sides[0].add(&pair.source, &self.is_byte[0]);
        self.sides[1].add(&pair.target, &self.is_byte[1]);
        self.writer.push(1, &pair.bytes)
    }

    /// Counts what a shard was made of.
    fn count(&mut self, report: &ShardReport, corpus: usize) {
        self.pairs += report.pairs;
        self.held_out += report.held_out;
        self.dropped.add(&report.dropped);
        self.corpora[corpus].pairs_read += report.pairs - report.held_out;
    }

    fn finish(self, key: &Key) -> Result<()> {
        let (config, split) = (self.of.config, self.of.part.split.name());
        let read = self.pairs - self.held_out;
        if read == 0 {
            return Err(empty_corpus(config, self.of.part.split));
        }
        if self.kept == 0 {
            let reasons = self.dropped.to_string();
            return Err(Error::AllDropped { split, read, reasons });
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
            pairs_read: read,
            pairs_kept: self.kept,
            dropped: self.dropped,
            held_out: self.held_out,
            corpora: self.corpora,
            source: source.finish(config.language(Side::Source)),
            target: target.finish(config.language(Side::Target)),
            // Filled in when the cache is opened, from the settings of the day.
            batching: BatchingReport::default(),
            text_hash: self.of.part.text.text_hash.clone(),
            tokenizer_hash: self.of.tokenizers.hash(),
        };
        self.writer.finish(key, &report)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::*;
    use crate::tasks::pairs::prepare::{begin, prepare_pairs, tokenise_share};
    use crate::{Corpora, hold_out};

    /// Pairs in files of several shards, of exactly two, and of none, with what is dropped for every
    /// reason, in two corpora.
    fn corpus(folder: &Path) -> DataConfig {
        let nouns = ["dog", "house", "bird", "sea", "friend", "red cat"];
        let mut number = 0;
        for (name, pairs) in [("a.0", 53), ("a.1", 2 * PAIRS), ("a.2", 0), ("a.3", 1), ("b", 40)] {
            let (mut source, mut target) = (String::new(), String::new());
            for _ in 0..pairs {
                number += 1;
                let noun = |step: u64| nouns[(number * step % 6) as usize];
                let (one, other) = (noun(5), noun(number % 7));
                let (one, other) = match number % 13 {
                    3 => (String::new(), other.to_owned()),
                    5 => (format!("the {one}"), " ".to_owned()),
                    8 => (format!("the {one} ").repeat(40), format!("the {other} ").repeat(40)),
                    9 => (one.to_owned(), format!("{other} and {one} ").repeat(9)),
                    _ => (format!("the {one} {number}"), format!("{other} {}", number % 17)),
                };
                // Some pairs stand there twice.
                let repeated = ("the dog".to_owned(), "dog and bird".to_owned());
                let (one, other) = if number % 11 == 0 { repeated } else { (one, other) };
                source += &format!("{one}\n");
                target += &format!("{other}\n");
            }
            fs::write(folder.join(format!("{name}.en")), source).expect("written");
            fs::write(folder.join(format!("{name}.de")), target).expect("written");
        }
        let split = serde_json::json!([
            { "source": folder.join("a.?.en"), "target": folder.join("a.?.de"), "tag": "<a>" },
            { "source": folder.join("b.en"), "target": folder.join("b.de"), "weight": 2.0 }
        ]);
        let mut config = DataConfig {
            train: serde_json::from_value(split).expect("corpora"),
            validation: Corpora::default(),
            hold_out: 4,
            ..DataConfig::default()
        };
        crate::Task::Translation.expand(&mut config).expect("files");
        assert_eq!(config.train[0].source.len(), 4);
        config.tokenizer.vocabulary_size = 300;
        (config.cleaning.max_tokens, config.cleaning.max_ratio) = (30, 4.0);
        config
    }

    fn prepared(config: &DataConfig, run: &Path) -> (Vec<u8>, DataReport) {
        let report = prepare_pairs(config, run).expect("prepared").train.report().clone();
        let cache = format!("cache/{}.bin", config.train.name());
        assert!(!run.join(cache.replace(".bin", ".shards")).exists(), "shards are left");
        (fs::read(run.join(cache)).expect("a cache"), report)
    }

    fn shards_in(run: &Path, config: &DataConfig) -> Vec<PathBuf> {
        let folder = run.join(format!("cache/{}.shards", config.train.name()));
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        paths.sort();
        paths
    }

    #[test]
    fn however_many_processes_tokenise_the_cache_is_the_same() {
        let folder = tempfile::tempdir().expect("folder");
        for drop_duplicates in [false, true] {
            let mut plain = corpus(folder.path());
            plain.cleaning.drop_duplicates = drop_duplicates;
            let run = |name: &str| folder.path().join(format!("{name}-{drop_duplicates}"));
            let whole = run("whole");
            let config = hold_out(&plain, 7, &whole).expect("drawn");
            let one = prepared(&config, &whole);
            assert_eq!(one.1.pairs_read + one.1.held_out, 53 + 2 * PAIRS + 1 + 40);
            let dropped = one.1.dropped;
            assert!(
                [dropped.empty_source, dropped.empty_target, dropped.too_long, dropped.ratio]
                    .iter()
                    .all(|&count| count > 0)
            );
            assert_eq!(dropped.duplicate > 0, drop_duplicates);
            assert!(one.1.held_out >= 4 && one.1.corpora[1].pairs_kept > 0);
            for of in [2, 3, 4] {
                let run = run(&of.to_string());
                let config = hold_out(&plain, 7, &run).expect("drawn");
                assert!(begin(&config, &run).expect("text"));
                for place in (0..of).rev() {
                    let share = Share { place, of };
                    tokenise_share(&config, &run, share, &mut |_| ()).expect("tokenised");
                }
                // Shards of 53, 32, 0, 1 and 40 pairs: the last of exactly two is empty.
                assert_eq!(shards_in(&run, &config).len(), 4 + 3 + 1 + 1 + 3);
                assert!(prepared(&config, &run) == one, "{of} processes");
                assert!(!begin(&config, &run).expect("text"), "nothing is left to tokenise");
            }
        }
    }

    #[test]
    fn what_was_tokenised_before_a_process_was_killed_is_used() {
        let folder = tempfile::tempdir().expect("folder");
        let (whole, run) = (folder.path().join("whole"), folder.path().join("run"));
        let config = DataConfig { hold_out: 0, ..corpus(folder.path()) };
        let one = prepared(&config, &whole);
        begin(&config, &run).expect("text");
        let share = Share { place: 1, of: 3 };
        tokenise_share(&config, &run, share, &mut |_| ()).expect("tokenised");
        let made = shards_in(&run, &config);
        assert_eq!(made.len(), 3);
        let times = || -> Vec<_> {
            let of = |path: &PathBuf| fs::metadata(path).and_then(|file| file.modified());
            made.iter().map(|path| of(path).expect("there")).collect()
        };
        let before = times();
        fs::write(made[0].with_extension("bin.1.partial"), "half").expect("written");
        for place in 0..2 {
            let share = Share { place, of: 2 };
            tokenise_share(&config, &run, share, &mut |_| ()).expect("tokenised");
        }
        assert_eq!(times(), before, "shards were made again");
        // One of them is damaged, and one is gone.
        let mut bytes = fs::read(&made[1]).expect("there");
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&made[1], bytes).expect("written");
        fs::remove_file(&made[2]).expect("removed");
        assert!(prepared(&config, &run) == one);
    }

    #[test]
    fn shards_of_another_text_are_not_used() {
        let folder = tempfile::tempdir().expect("folder");
        let run = folder.path().join("run");
        let config = DataConfig { hold_out: 0, ..corpus(folder.path()) };
        begin(&config, &run).expect("text");
        tokenise_share(&config, &run, Share::WHOLE, &mut |_| ()).expect("tokenised");
        let path = folder.path().join("b.en");
        let text = fs::read_to_string(&path).expect("text").replace("house", "horse");
        fs::write(&path, text).expect("written");
        let (cache, report) = prepared(&config, &run);
        let fresh = folder.path().join("fresh");
        fs::create_dir(&fresh).expect("folder");
        fs::copy(run.join("tokenizer.json"), fresh.join("tokenizer.json")).expect("copied");
        assert!((cache, report) == prepared(&config, &fresh));
    }
}
