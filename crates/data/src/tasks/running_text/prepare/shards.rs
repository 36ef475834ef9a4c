//! Stores running text in [shards](crate::text::shards). Each shard is a file with the ids of a
//! part of the text, so that several processes can tokenise a text together. This part consists of
//! successive passages, which may come from several files and together have about a fixed number of
//! bytes. A passage is a piece of text that is tokenised on its own.
//!
//! A passage is encoded as one byte, which is 1 if the passage begins a document and otherwise 0,
//! then the number of its ids (u32), and then the ids (u32 each). `</s>` is inserted between
//! documents when shards are joined, because only then is it known which document is the first.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::tasks::running_text::prepare::{Split, empty};
use crate::tasks::running_text::reader::{Passage, Portion, TextReader};
use crate::text::cache::{CacheWriter, ID_BYTES, Items, Key};
use crate::text::shards::Shards;
use crate::{DataConfig, Error, Result, Share, TextReport, TokenisingProgress, Tokenizer};

/// Number of bytes of text at which a shard ends: a few seconds of work. A version of the program
/// with another number cannot use the shards that a run of this version left behind.
const BYTES: u64 = if cfg!(test) { 100 } else { 1 << 24 };

/// Number of passages that are collected before they are tokenised in parallel.
const CHUNK: usize = 16_384;
/// Number of bytes of text after which the collected passages are tokenised even if they are fewer
/// than [`CHUNK`].
const CHUNK_BYTES: usize = 1 << 22;

/// Bytes before the ids of a passage.
const HEAD_BYTES: usize = 1 + ID_BYTES;

/// Counts of a shard.
#[derive(Debug, Default, Serialize, Deserialize)]
struct ShardReport {
    words: u64,
    characters: u64,
    bytes: u64,
    unknown: u64,
    /// True if the shard is the last shard of the text.
    is_last: bool,
}

/// Function that finds out which portion of the files is tokenised. It may read the files to do so.
type FindPortion<'a> = Box<dyn Fn() -> Result<Portion> + 'a>;

/// Shards of a text.
pub(crate) struct TextShards<'a> {
    split: &'a Split,
    config: &'a DataConfig,
    tokenizer: &'a Tokenizer,
    portion: FindPortion<'a>,
    shards: Shards,
}

impl<'a> TextShards<'a> {
    /// Describes the shards of a portion of the text of `split`. The files of the shards are in the
    /// folder of `shards`.
    pub(crate) fn new(
        split: &'a Split,
        config: &'a DataConfig,
        tokenizer: &'a Tokenizer,
        portion: FindPortion<'a>,
        shards: Shards,
    ) -> Self {
        Self { split, config, tokenizer, portion, shards }
    }

    /// Makes the missing shards of a process's share.
    ///
    /// # Errors
    ///
    /// If the text cannot be read or has changed, or the disk is full.
    pub(crate) fn make(
        &self,
        share: Share,
        observe: &mut dyn FnMut(&TokenisingProgress),
    ) -> Result<()> {
        if self.are_there()? {
            return Ok(());
        }
        let size = |path: &std::path::PathBuf| {
            std::fs::metadata(path).map(|file| file.len()).map_err(|error| Error::io(path, error))
        };
        let all: u64 = self.split.files.iter().map(size).sum::<Result<u64>>()?;
        // The beginning of a portion is known only after all text before it has been read, so every
        // process reads all files.
        let owners = share.owners(&[all]);
        let mut reader = TextReader::new(&self.split.files, self.config, (self.portion)()?);
        let mut tokenised = 0;
        let mut tell = |reader: &TextReader, text: u64| {
            tokenised += text;
            observe(&TokenisingProgress {
                split: self.split.name.clone(),
                done: reader.bytes_read() as f64 / all.max(1) as f64,
                bytes: tokenised,
                processes: share.of,
            });
        };
        let mut is_last = false;
        for shard in 0.. {
            if is_last {
                break;
            }
            let is_made =
                owners.makes(0, shard) && self.shards.report::<ShardReport>(0, shard)?.is_none();
            let mut builder = match is_made {
                true => Some(Builder::new(self.tokenizer, self.shards.writer(0, shard)?)),
                false => None,
            };
            let mut bytes = 0;
            while bytes < BYTES {
                let Some(passage) = reader.next().transpose()? else {
                    is_last = true;
                    break;
                };
                bytes += passage.text.len() as u64;
                if let Some(builder) = &mut builder
                    && let Some(text) = builder.add(passage)?
                {
                    tell(&reader, text);
                }
            }
            if let Some(mut builder) = builder {
                let text = builder.tokenise()?;
                tell(&reader, text);
                self.split.text.seems_to_hold()?;
                builder.report.is_last = is_last;
                self.shards.finish((0, shard), builder.writer, &builder.report)?;
            }
        }
        Ok(())
    }

    /// True if all shards exist.
    fn are_there(&self) -> Result<bool> {
        for shard in 0.. {
            match self.shards.report::<ShardReport>(0, shard)? {
                Some(report) if report.is_last => break,
                Some(_) => {}
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Joins the shards into the cache at `path`. Returns `false` if a shard is missing.
    ///
    /// # Errors
    ///
    /// If there is no text, or it has changed, or the disk is full.
    pub(crate) fn merge(&self, path: &Path, key: &Key) -> Result<bool> {
        let mut writer = CacheWriter::create(path)?;
        let mut all = TextReport {
            split: self.split.name.clone(),
            text_hash: self.split.text.text_hash.clone(),
            tokenizer_hash: self.tokenizer.hash().to_owned(),
            ..TextReport::default()
        };
        for shard in 0.. {
            let report = self.shards.read::<ShardReport>((0, shard), |items| {
                let passage = next(items);
                let (begins_document, ids) =
                    passage.map_err(|error| self.shards.unreadable((0, shard), error))?;
                if begins_document && all.tokens > 0 {
                    all.tokens += 1;
                    writer.push(1, &self.tokenizer.end().to_le_bytes())?;
                }
                let tokens = (ids.len() / ID_BYTES) as u64;
                all.documents += u64::from(begins_document || all.documents == 0);
                all.tokens += tokens;
                writer.push(tokens, &ids)
            })?;
            let Some(report) = report else { return Ok(false) };
            all.words += report.words;
            all.characters += report.characters;
            all.bytes += report.bytes;
            all.unknown += report.unknown;
            if report.is_last {
                break;
            }
        }
        if let Err(error) = self.split.text.still_holds() {
            // A later start must not use shards of a text that has changed.
            self.shards.remove()?;
            return Err(error);
        }
        // A single token leaves nothing to predict.
        if all.tokens < 2 {
            self.shards.remove()?;
            return Err(empty(self.split.name.clone(), &self.split.files));
        }
        writer.finish(key, &all)?;
        Ok(true)
    }
}

/// Reads the next passage of a shard. Returns true if a document begins with it, and the bytes of
/// its ids. Even for a damaged passage, no more memory is allocated than the file has bytes.
fn next(items: &mut Items<'_>) -> std::io::Result<(bool, Vec<u8>)> {
    let mut head = [0; HEAD_BYTES];
    items.read(&mut head)?;
    let [begins, length @ ..] = head;
    let bytes = u64::from(u32::from_le_bytes(length)) * ID_BYTES as u64;
    if bytes > items.end.saturating_sub(items.at) {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    let mut ids = vec![0; bytes as usize];
    items.read(&mut ids)?;
    Ok((begins != 0, ids))
}

/// Tokenises and counts the passages of a shard.
struct Builder<'a> {
    tokenizer: &'a Tokenizer,
    writer: CacheWriter,
    /// Passages to be tokenised together.
    chunk: Vec<Passage>,
    chunk_bytes: usize,
    report: ShardReport,
}

impl<'a> Builder<'a> {
    fn new(tokenizer: &'a Tokenizer, writer: CacheWriter) -> Self {
        let report = ShardReport::default();
        Self { tokenizer, writer, chunk: Vec::new(), chunk_bytes: 0, report }
    }

    /// Adds a passage. If there are enough passages, tokenises them, and returns the number of
    /// bytes of their text.
    fn add(&mut self, passage: Passage) -> Result<Option<u64>> {
        self.chunk_bytes += passage.text.len();
        self.chunk.push(passage);
        if self.chunk.len() < CHUNK && self.chunk_bytes < CHUNK_BYTES {
            return Ok(None);
        }
        self.tokenise().map(Some)
    }

    /// Tokenises and writes the collected passages. Returns the number of bytes of their text.
    fn tokenise(&mut self) -> Result<u64> {
        let bytes = std::mem::take(&mut self.chunk_bytes) as u64;
        let chunk = std::mem::take(&mut self.chunk);
        let texts: Vec<&str> = chunk.iter().map(|passage| passage.text.as_str()).collect();
        for (ids, passage) in self.tokenizer.encode_batch(&texts)?.iter().zip(&chunk) {
            let report = &mut self.report;
            report.words += passage.text.split_whitespace().count() as u64;
            report.characters += passage.text.chars().count() as u64;
            report.bytes += passage.text.len() as u64;
            let unknown = ids.iter().filter(|&&id| self.tokenizer.is_unknown(id));
            report.unknown += unknown.count() as u64;
            let mut bytes = Vec::with_capacity(HEAD_BYTES + ids.len() * ID_BYTES);
            bytes.push(u8::from(passage.begins_document));
            bytes.extend((ids.len() as u32).to_le_bytes());
            bytes.extend(ids.iter().flat_map(|id| id.to_le_bytes()));
            self.writer.push(1, &bytes)?;
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::{Documents, Task};

    #[test]
    fn however_many_processes_tokenise_the_cache_is_the_same() {
        let folder = tempfile::tempdir().expect("folder");
        for number in 0..3 {
            let line = |line| format!("Line {line} of {number}, which says a bit.\n\n");
            let text: String = (0..40 * number).map(line).collect();
            fs::write(folder.path().join(format!("t.{number}.txt")), text).expect("written");
        }
        for (documents, hold_out) in [(Documents::Files, 0.0), (Documents::Lines, 0.3)] {
            let mut config = DataConfig {
                dir: folder.path().to_owned(),
                train: "t.*".into(),
                validation: if hold_out > 0.0 { "".into() } else { "t.1".into() },
                test: "".into(),
                ..DataConfig::default()
            };
            (config.text.documents, config.text.hold_out) = (documents, hold_out);
            (config.text.block_length, config.tokenizer.vocabulary_size) = (16, 300);
            let task = Task::LanguageModel;
            task.expand(&mut config).expect("files");
            assert_eq!(config.train[0].file.len(), 3);
            let run = |name: &str| folder.path().join(format!("{name}-{hold_out}"));
            let caches = |run: &Path| -> Vec<Vec<u8>> {
                let prepared = task.prepare(&config, run).expect("prepared");
                drop(prepared);
                let held_out = if hold_out > 0.0 { "t.held-out.bin" } else { "t.1.bin" };
                ["t.bin", held_out]
                    .map(|name| fs::read(run.join("cache").join(name)).expect(name))
                    .into()
            };
            let whole = caches(&run("whole"));
            for of in [2, 3] {
                let run = run(&of.to_string());
                assert!(task.begin_tokenising(&config, &run).expect("text"));
                for place in 0..of {
                    let share = Share { place, of };
                    let mut told = Vec::new();
                    let mut observe = |progress: &TokenisingProgress| told.push(progress.done);
                    task.tokenise_share(&config, &run, share, &mut observe).expect("tokenised");
                    assert!(told.is_sorted_by(|one, other| one <= other || *other < 0.1));
                }
                let shards = fs::read_dir(run.join("cache/t.shards")).expect("shards").count();
                assert!(shards > if documents == Documents::Lines { 10 } else { 2 }, "{shards}");
                assert!(caches(&run) == whole, "{of} processes");
                assert!(!run.join("cache/t.shards").exists(), "shards are left");
                assert!(!task.begin_tokenising(&config, &run).expect("text"));
            }
        }
    }
}
