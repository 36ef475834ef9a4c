//! The words that get vectors, their counts, and the share of each word's occurrences that
//! subsampling keeps.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use ahash::AHashMap;
use taper_data::write_whole;

use super::corpus::{Sentences, hash_of};
use super::{Event, TrainingSettings};
use crate::{Error, Result};

/// Number of bytes that a word takes while words are counted, in addition to its letters.
const COUNTED: u64 = 48;

/// Result of counting the words of a text.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) struct Counted {
    /// Number of words of the text, including those that are too rare.
    pub(super) words: u64,
    /// SHA-256 of the text.
    pub(super) sha256: String,
}

/// Words that get vectors, from the most frequent to the rarest.
#[derive(Debug)]
pub(super) struct Vocabulary {
    pub(super) words: Vec<String>,
    pub(super) counts: Vec<u64>,
    ids: AHashMap<String, u32>,
}

impl Vocabulary {
    /// Counts the words of `files`. Counting takes about `memory` bytes at most. Whenever more
    /// would be needed, the words that are rarest so far are forgotten.
    ///
    /// # Errors
    /// When a file cannot be read, or no word is frequent enough.
    pub(super) fn count(
        files: &[PathBuf],
        settings: &TrainingSettings,
        memory: Option<u64>,
        observe: &mut dyn FnMut(&Event),
    ) -> Result<(Self, Counted)> {
        let mut sentences = Sentences::hashed(files, settings.lowercase)?;
        let mut counts: AHashMap<Box<str>, u64> = AHashMap::new();
        let (mut words, mut bytes, mut forgotten) = (0, 0, 0);
        loop {
            let more = sentences.next(|word| {
                words += 1;
                match counts.get_mut(word) {
                    Some(count) => *count += 1,
                    None => {
                        bytes += COUNTED + word.len() as u64;
                        counts.insert(word.into(), 1);
                    }
                }
            })?;
            if !more {
                break;
            }
            while memory.is_some_and(|memory| bytes > memory) {
                forgotten += 1;
                counts.retain(|_, count| *count > forgotten);
                bytes = counts.keys().map(|word| COUNTED + word.len() as u64).sum();
                observe(&Event::Forgotten { most: forgotten });
            }
        }
        let counted = Counted { words, sha256: sentences.hash() };
        let mut kept: Vec<(Box<str>, u64)> =
            counts.into_iter().filter(|(_, count)| *count >= settings.min_count).collect();
        kept.sort_unstable_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        kept.truncate(settings.max_words.unwrap_or(usize::MAX));
        if kept.len() < 2 {
            let message = format!(
                "{} of {words} words come at least {} times, and two different ones are needed: \
                 give more text, or a smaller --min-count",
                kept.len(),
                settings.min_count
            );
            return Err(Error::Text { message });
        }
        let (words, counts) = kept.into_iter().map(|(word, count)| (word.into(), count)).unzip();
        Ok((Self::new(words, counts), counted))
    }

    fn new(words: Vec<String>, counts: Vec<u64>) -> Self {
        let ids = words.iter().cloned().zip(0..).collect();
        Self { words, counts, ids }
    }

    /// Returns the id of a word; `None` if it gets no vector.
    pub(super) fn id(&self, word: &str) -> Option<u32> {
        self.ids.get(word).copied()
    }

    /// Writes a word and its count on each line, as gensim and word2vec do.
    pub(super) fn write(&self, path: &Path) -> Result<()> {
        Ok(write_whole(path, |out| {
            let mut rows = self.words.iter().zip(&self.counts);
            rows.try_for_each(|(word, count)| writeln!(out, "{word} {count}"))
        })?)
    }

    /// Reads a file that [`Vocabulary::write`] has written, whose SHA-256 must be `sha256`.
    ///
    /// # Errors
    /// When the file has another hash, or cannot be read.
    pub(super) fn read(path: &Path, sha256: &str) -> Result<Self> {
        if hash_file(path)? != sha256 {
            let message = "it is not the file that training wrote; training cannot go on with it";
            return Err(Error::malformed(path, "", message));
        }
        // A `LineReader` would drop a byte-order mark with which the first word begins.
        let lines = BufReader::new(File::open(path).map_err(Error::io(path))?).lines();
        let (mut words, mut counts) = (Vec::new(), Vec::new());
        for (number, line) in (1..).zip(lines) {
            let line = line.map_err(Error::io(path))?;
            let row = line
                .rsplit_once(' ')
                .and_then(|(word, count)| Some((word.to_owned(), count.parse::<u64>().ok()?)));
            let Some((word, count)) = row else {
                let place = format!(", line {number}");
                return Err(Error::malformed(path, &place, "a word and its count are expected"));
            };
            words.push(word);
            counts.push(count);
        }
        Ok(Self::new(words, counts))
    }

    /// Returns, for each word, the share of its occurrences that is kept in training, in units of
    /// 2⁻³².
    ///
    /// Let f be the word's share of all occurrences of words that get a vector, and t the
    /// threshold. The share √(t/f) + t/f of the word's occurrences is kept, or all if this is above
    /// 1, as in word2vec's program. Mikolov et al. 2013, "Distributed representations of words and
    /// phrases and their compositionality", equation 5, keep √(t/f).
    pub(super) fn kept(&self, threshold: f64) -> Vec<u64> {
        let all: u64 = self.counts.iter().sum();
        let part = |&count: &u64| {
            let ratio = threshold * all as f64 / count as f64;
            let kept = if threshold == 0.0 { 1.0 } else { (ratio.sqrt() + ratio).min(1.0) };
            (kept * (1_u64 << 32) as f64) as u64
        };
        self.counts.iter().map(part).collect()
    }
}

/// Computes the SHA-256 of a file.
pub(super) fn hash_file(path: &Path) -> Result<String> {
    File::open(path).and_then(hash_of).map_err(Error::io(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_as_they_were_written() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("vocabulary");
        let words = ["\u{feff}the", "the", "\u{85}", "a\u{a0}b", "\u{feff}"].map(str::to_owned);
        let written = Vocabulary::new(words.to_vec(), vec![9, 5, 5, 2, 1]);
        written.write(&path).expect("written");
        let read = Vocabulary::read(&path, &hash_file(&path).expect("a hash")).expect("read");
        assert_eq!((read.words, read.counts), (written.words, written.counts));
    }
}
