//! Cache of translations on disk. The key of an entry is a hash of weights, settings and text.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use taper_decoding::ForcedScore;

use crate::folder::files::{is_at, put_in_place, with_suffix, write_atomically};
use crate::translation::order::hex;
use crate::translation::{LineTranslator, Order, Translation, TranslationSettings, score_pairs};
use crate::{BadItem, LoadedRun};

/// Number of lines in the first window, and largest number of lines in a window. A window is a
/// range of lines that are translated and stored together. Each window is twice as long as the
/// window before it, up to the largest number. An interruption loses the work on at most one
/// window.
const WINDOW: (usize, usize) = (128, 1024);

pub(super) type Lines = Box<dyn Iterator<Item = Result<String>>>;

/// Text that can be read repeatedly, line by line.
pub(super) struct Text<'a> {
    /// Opens the text at its beginning.
    pub(super) open: &'a dyn Fn() -> Result<Lines>,
    /// Name for messages.
    pub(super) name: String,
}

/// Progress of a translation into the cache.
#[derive(Debug, Clone, Copy)]
pub struct CacheProgress<'a> {
    /// Name of the text.
    pub text: &'a str,
    /// Number of lines that are translated so far.
    pub done: usize,
    /// Number of lines of the text.
    pub lines: usize,
}

/// Cache of translations in a folder.
#[derive(Debug, Clone)]
pub struct TranslationCache(pub PathBuf);

/// A translation of a line with its score: one that a model has made, or one that was given and
/// scored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    /// The text.
    pub text: String,
    /// Score by which the translations of the line are sorted, the best first.
    pub score: f64,
}

/// Function that returns the choices for each line of a window. Arguments: the lines of the window;
/// the line number, in the whole text and counted from 1, of the first of them; and a function that
/// receives the number of sentences of the window that are translated so far.
type Answers<'a> =
    Box<dyn FnMut(&[String], usize, &mut dyn FnMut(usize)) -> Result<Vec<Vec<Choice>>> + 'a>;

/// Line of an entry's file.
#[derive(Debug, Serialize, Deserialize)]
struct Line {
    line: usize,
    /// Translations, the best first; empty for a line that cannot be translated.
    translations: Vec<Choice>,
}

/// Description of a complete entry, stored next to it.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    order: Order,
    lines: usize,
    sha256: String,
}

/// Complete entry: translations or scores of the lines of a text.
#[derive(Debug)]
pub(super) struct Entry {
    path: PathBuf,
    /// Key that identifies the entry.
    pub(super) key: String,
}

impl TranslationCache {
    /// Translates `text` with `run` and the settings `settings`, or returns the translation that
    /// the cache already has.
    ///
    /// # Errors
    /// If the text cannot be read or translated, an entry is damaged or is being written by another
    /// process, or writing fails.
    pub(super) fn translated(
        &self,
        run: &LoadedRun,
        settings: &TranslationSettings,
        text: &Text<'_>,
        observe: &mut dyn FnMut(CacheProgress<'_>),
    ) -> Result<Entry> {
        let (lines, hash) = measured(text)?;
        let order = Order::new(run, settings, "cached", &[hash])?;
        let begin = || -> Result<Answers<'_>> {
            let translator = LineTranslator::new(run, settings)?;
            Ok(Box::new(move |window, first, progress| {
                let choice = |one: Translation| Choice { text: one.text, score: one.score };
                let translations = translator.translate(window, &[], first, progress)?;
                let choices = translations.map(|translated| match translated {
                    Err(error) if error.downcast_ref().is_some_and(is_skipped) => Ok(Vec::new()),
                    translated => Ok(translated?.translations.into_iter().map(choice).collect()),
                });
                choices.collect()
            }))
        };
        self.entry(order, text, lines, &begin, observe)
    }

    /// Scores each line of `targets` as the translation of the same line of `sources`, or returns
    /// the scores that the cache already has. A score is the mean log-probability of a token. For a
    /// line that cannot be scored, for example because it is too long, the entry has an empty list.
    ///
    /// # Errors
    /// See [`TranslationCache::translated`].
    pub(super) fn scored(
        &self,
        run: &LoadedRun,
        [sources, targets]: [&Text<'_>; 2],
        observe: &mut dyn FnMut(CacheProgress<'_>),
    ) -> Result<Entry> {
        let (lines, hash) = measured(sources)?;
        let settings = TranslationSettings::from_config(&run.config);
        let order = Order::new(run, &settings, "scored", &[hash, measured(targets)?.1])?;
        let begin = || -> Result<Answers<'_>> {
            let mut rest = None;
            Ok(Box::new(move |window, first, progress| {
                if rest.is_none() {
                    rest = Some((targets.open)()?.skip(first - 1));
                }
                let existing: Vec<String> =
                    rest.iter_mut().flatten().take(window.len()).collect::<Result<_>>()?;
                let place = |_, index: usize| format!("line {}", first + index);
                let scores = score_pairs(run, window, &existing, None, place, progress)?;
                // An error of a single pair means that the pair has no score; other errors have
                // already been returned.
                let choice = |(score, text): (Result<ForcedScore>, String)| match score {
                    Ok(score) => {
                        let score = score.log_probability / score.length.max(1) as f64;
                        vec![Choice { text, score }]
                    }
                    Err(_) => Vec::new(),
                };
                Ok(scores.into_iter().zip(existing).map(choice).collect())
            }))
        };
        self.entry(order, sources, lines, &begin, observe)
    }

    /// Returns the entry for `order`, which describes the wanted translation: its weights, settings
    /// and texts. If the cache does not have the entry, it is made with the function that `begin`
    /// returns, from the `lines` lines of `text`.
    fn entry<'a>(
        &self,
        order: Order,
        text: &Text<'_>,
        lines: usize,
        begin: &dyn Fn() -> Result<Answers<'a>>,
        observe: &mut dyn FnMut(CacheProgress<'_>),
    ) -> Result<Entry> {
        let key = order.key()[..32].to_owned();
        let folder = &self.0;
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let path = folder.join(format!("{key}.jsonl"));
        let record = folder.join(format!("{key}.json"));
        let partial = with_suffix(&path, ".part");
        let Some(mut file) = opened(&partial, &record)? else {
            check(&record, &path, &order)?;
            observe(CacheProgress { text: &text.name, done: lines, lines });
            return Ok(Entry { path, key });
        };
        let done = whole_lines(&mut file, &partial)?;
        let written = write(&mut begin()?, text, (done, lines), &mut file, observe);
        written.with_context(|| format!("{} keeps the lines so far", partial.display()))?;
        put_in_place(&file, &partial, &path)
            .with_context(|| format!("cannot write {}", path.display()))?;
        let record_of = Record { order, lines, sha256: checksum(&path)? };
        write_atomically(&record, &serde_json::to_vec_pretty(&record_of)?)?;
        Ok(Entry { path, key })
    }
}

impl Entry {
    /// Translations of each line, best first.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub(super) fn translations(&self) -> Result<impl Iterator<Item = Result<Vec<Choice>>>> {
        let shown = self.path.display().to_string();
        let file = File::open(&self.path).with_context(|| shown.clone())?;
        Ok(BufReader::new(file).lines().map(move |line| {
            let line = line.with_context(|| shown.clone())?;
            let line: Line = serde_json::from_str(&line).with_context(|| damaged(&shown))?;
            Ok(line.translations)
        }))
    }
}

/// Number of lines of a text, and the SHA-256 of all lines.
pub(super) fn measured(text: &Text<'_>) -> Result<(usize, String)> {
    let (mut lines, mut hash) = (0, Sha256::new());
    for line in (text.open)()? {
        hash.update(line?.as_bytes());
        hash.update(b"\n");
        lines += 1;
    }
    Ok((lines, hex(&hash.finalize())))
}

/// Opens the incomplete file of an entry; `None` if the entry is complete, so that its `record`
/// exists. Returns an error if another process is writing the file.
fn opened(partial: &Path, record: &Path) -> Result<Option<File>> {
    let shown = partial.display();
    while !record.exists() {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(partial)
            .with_context(|| format!("cannot write {shown}"))?;
        // On a file system without locks, this cannot be checked.
        if matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
            bail!("{shown}: another process is translating the same text; wait for it");
        }
        if let Some(file) = unfinished(file, partial, record) {
            return Ok(Some(file));
        }
    }
    Ok(None)
}

/// Returns the locked `file`, unless another process has completed the entry between the checks
/// and the lock: the file has then been renamed, or is a new one that is not needed.
fn unfinished(file: File, partial: &Path, record: &Path) -> Option<File> {
    match (is_at(&file, partial), record.exists()) {
        (true, false) => Some(file),
        (true, true) => {
            // If it cannot be removed, it stays in the cache's folder with no other effect.
            let _ = fs::remove_file(partial);
            None
        }
        (false, _) => None,
    }
}

/// Counts the complete lines in the incomplete file of an entry, and removes what follows them.
fn whole_lines(file: &mut File, partial: &Path) -> Result<usize> {
    let mut measure = || -> Result<usize> {
        file.seek(SeekFrom::Start(0))?;
        let (mut count, mut bytes, mut line) = (0, 0, Vec::new());
        let mut reader = BufReader::new(&mut *file);
        while reader.read_until(b'\n', &mut line)? > 0 && line.ends_with(b"\n") {
            // If a crash of the system has damaged a line, it and all later lines are translated
            // again.
            match serde_json::from_slice::<Line>(&line) {
                Ok(read) if read.line == count + 1 => count += 1,
                _ => break,
            }
            bytes += line.len() as u64;
            line.clear();
        }
        file.set_len(bytes)?;
        file.seek(SeekFrom::Start(bytes))?;
        Ok(count)
    };
    measure().with_context(|| format!("cannot read {}", partial.display()))
}

/// Makes the choices for the lines of `text` after the first `done` lines, and appends them to
/// `file`.
fn write(
    answers: &mut Answers<'_>,
    text: &Text<'_>,
    (mut done, lines): (usize, usize),
    file: &mut File,
    observe: &mut dyn FnMut(CacheProgress<'_>),
) -> Result<()> {
    let name = text.name.as_str();
    let mut rest = (text.open)()?.skip(done);
    let mut most = WINDOW.0;
    observe(CacheProgress { text: name, done, lines });
    loop {
        let window: Vec<String> = rest.by_ref().take(most).collect::<Result<_>>()?;
        if window.is_empty() {
            break;
        }
        let count = window.len();
        // Long lines are divided for translation, so `part` can exceed the number of lines.
        let mut progress = |part: usize| {
            observe(CacheProgress { text: name, done: done + part.min(count), lines });
        };
        let answered = answers(&window, done + 1, &mut progress)?;
        let mut to = BufWriter::new(&mut *file);
        for (line, translations) in (done + 1..).zip(answered) {
            serde_json::to_writer(&mut to, &Line { line, translations })?;
            to.write_all(b"\n")?;
        }
        to.flush()?;
        drop(to);
        done += count;
        most = (2 * most).min(WINDOW.1);
    }
    if done != lines {
        bail!("{name} had {lines} lines and now has {done}: it changed while it was read");
    }
    Ok(())
}

/// Returns an error if the entry is of another translation than `order` describes, or was changed
/// after it was written.
fn check(record: &Path, path: &Path, order: &Order) -> Result<()> {
    let text = taper_data::read_regular(record, 1 << 20)?;
    let known: Record =
        serde_json::from_slice(&text).with_context(|| damaged(&record.display().to_string()))?;
    ensure!(
        known.order == *order,
        "{} describes another translation than its name says: remove it, and it is made again",
        record.display()
    );
    let is_same = checksum(path).is_ok_and(|sum| sum == known.sha256);
    ensure!(
        is_same,
        "{} does not have the checksum that {} says: remove both, and they are made again",
        path.display(),
        record.display()
    );
    Ok(())
}

/// True if a line without an answer is left out. A model whose values are not finite is an error,
/// because it may have no answer for any line.
fn is_skipped(fault: &BadItem) -> bool {
    !fault.is_not_finite()
}

fn damaged(path: &str) -> String {
    format!("{path} is damaged: remove it, and it is made again")
}

/// SHA-256 of a file.
pub(crate) fn checksum(path: &Path) -> Result<String> {
    let mut file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    let (mut hash, mut block) = (Sha256::new(), vec![0; 1 << 16]);
    loop {
        match file.read(&mut block)? {
            0 => return Ok(hex(&hash.finalize())),
            count => hash.update(&block[..count]),
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn an_entry_that_another_process_completes_is_not_written_again() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let [path, partial, record] =
            ["a.jsonl", "a.jsonl.part", "a.json"].map(|name| folder.path().join(name));
        // Two processes open the file; the first completes the entry, then the second locks it.
        let [first, second] = [opened(&partial, &record)?, Some(File::open(&partial)?)];
        put_in_place(&first.expect("incomplete"), &partial, &path)?;
        assert!(unfinished(second.expect("open"), &partial, &record).is_none());
        // If the first process was killed before it wrote the record, the entry is made again.
        assert!(opened(&partial, &record)?.is_some());
        fs::write(&record, "{}")?;
        assert!(unfinished(File::open(&partial)?, &partial, &record).is_none());
        assert!(!partial.exists());
        assert!(opened(&partial, &record)?.is_none());
        Ok(())
    }
}
