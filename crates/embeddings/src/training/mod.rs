//! Training of word vectors by skip-gram and CBOW with negative sampling.
//!
//! The loss is equation 4 of Mikolov et al. 2013, "Distributed representations of words and phrases
//! and their compositionality", with the opposite sign. For each word w and each of its context
//! words c, it is
//!
//! ```text
//! −ln σ(v·u) − Σ ln σ(−v·uₙ)
//! ```
//!
//! where v is the input vector of c, u is the output vector of w, and uₙ is the output vector of
//! the negative sample n.
//!
//! The text is read in chunks. The memory contains the two matrices, the vocabulary, and two chunks
//! of the text: while one chunk is learned from, the next is read. Windows and negative samples are
//! functions of the seed, the epoch, the chunk and the place in the chunk. So random numbers have
//! no state, and a training that was interrupted and resumed gives exactly the same vectors as an
//! uninterrupted one.

mod blocks;
mod cbow;
mod checkpoint;
mod chunk;
mod corpus;
mod negatives;
mod settings;
mod skip_gram;
mod vocabulary;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use taper_data::{Draws, write_whole};

use crate::lanes::numbers;
use crate::word2vec::{write_head, write_row};
use crate::{Error, Format, Result};
use blocks::Blocks;
use checkpoint::{CHECKPOINT, FORMAT, Position, RECORD, Record, VOCABULARY};
use chunk::{Chunk, Chunks, Sampling};
use corpus::Sentences;
use negatives::Negatives;
use vocabulary::{Vocabulary, hash_file};

pub use settings::{Architecture, Limits, TrainingSettings};

/// Part of the key of the random draws for the initial vectors, which makes them independent of all
/// other draws.
const FIRST: u64 = 3;

/// Event of a training.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// Memory ran short while words were counted. Words with at most `most` occurrences so far were
    /// forgotten. If such a word occurs again, its count begins at 1, so it is too low.
    Forgotten {
        /// Largest number of occurrences of a forgotten word.
        most: u64,
    },
    /// The words of the text have been counted, and training begins.
    Counted {
        /// Number of words of the text.
        words: u64,
        /// Number of words that get a vector.
        vocabulary: usize,
        /// Number of occurrences, in the text, of words that get a vector.
        covered: u64,
    },
    /// A chunk of the text was learned from.
    Progress {
        /// Index of the pass over the text, from 0.
        epoch: u64,
        /// Number of words read so far, in all passes together.
        done: u64,
        /// Number of words in all passes together.
        total: u64,
        /// Words per second since this process began to train.
        rate: f64,
        /// Mean loss of a positive pair together with its negative samples, over a part of the
        /// chunk.
        loss: f64,
        /// The learning rate.
        learning_rate: f64,
    },
    /// A checkpoint was written.
    Saved {
        /// The file.
        path: PathBuf,
    },
}

/// Outcome of a training.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The vectors are in this file.
    Complete(PathBuf),
    /// A checkpoint was saved, from which [`resume`] continues.
    Interrupted,
}

/// Trains vectors for the words of `files` in a new folder. If `stop` is set, training saves a
/// checkpoint and ends.
///
/// # Errors
/// When a file cannot be read or written, a setting is invalid, memory does not suffice, or the
/// folder already has a training, or the checkpoint or vectors of one.
pub fn start(
    files: &[PathBuf],
    folder: &Path,
    settings: &TrainingSettings,
    limits: &Limits,
    observe: &mut dyn FnMut(&Event),
    stop: &AtomicBool,
) -> Result<Outcome> {
    settings.check()?;
    if files.is_empty() {
        return Err(Error::Text { message: "name at least one file of text".to_owned() });
    }
    if folder.join(RECORD).exists() {
        let message =
            "it has a training already: go on with it by resume, or choose another folder";
        return Err(Error::malformed(folder, "", message));
    }
    // Without the record, nobody knows which text and settings these files are from.
    let formats = [Format::Binary, Format::Text].map(Format::file_name);
    let stale = [CHECKPOINT].into_iter().chain(formats).find(|name| folder.join(name).exists());
    if let Some(name) = stale {
        let message = format!(
            "it has {name} of another training, without {RECORD}: remove it, or choose another \
             folder"
        );
        return Err(Error::malformed(folder, "", message));
    }
    // Counting may take only a quarter of the memory, because the table of words doubles its size
    // when it is full.
    let counting = limits.memory.map(|memory| memory / 4);
    let (vocabulary, text) = Vocabulary::count(files, settings, counting, observe)?;
    settings.check_memory(vocabulary.words.len(), limits.memory)?;
    std::fs::create_dir_all(folder).map_err(Error::io(folder))?;
    let path = folder.join(VOCABULARY);
    vocabulary.write(&path)?;
    let record = Record {
        format: FORMAT,
        settings: settings.clone(),
        files: files.iter().map(absolute).collect::<Result<_>>()?,
        text,
        vocabulary: hash_file(&path)?,
        output: limits.format,
    };
    record.write(folder)?;
    Training { folder, record, vocabulary, limits }.run(observe, stop)
}

/// Continues an interrupted training. The vectors are the same as without an interruption.
///
/// # Errors
/// When the folder has no training, the text, vocabulary or checkpoint has changed, or memory does
/// not suffice.
pub fn resume(
    folder: &Path,
    limits: &Limits,
    observe: &mut dyn FnMut(&Event),
    stop: &AtomicBool,
) -> Result<Outcome> {
    let record = Record::read(folder)?;
    let path = folder.join(record.output.file_name());
    if path.exists() {
        return Ok(Outcome::Complete(path));
    }
    let vocabulary = Vocabulary::read(&folder.join(VOCABULARY), &record.vocabulary)?;
    record.settings.check_memory(vocabulary.words.len(), limits.memory)?;
    let mut sentences = Sentences::hashed(&record.files, false)?;
    while sentences.next(|_| {})? {}
    if sentences.hash() != record.text.sha256 {
        let message = "the text has changed since training began, so training cannot be resumed \
                       exactly: begin again in another folder";
        return Err(Error::malformed(&record.files[0], "", message));
    }
    Training { folder, record, vocabulary, limits }.run(observe, stop)
}

/// Makes a path independent of the current folder.
fn absolute(path: &PathBuf) -> Result<PathBuf> {
    std::path::absolute(path).map_err(Error::io(path))
}

struct Training<'a> {
    folder: &'a Path,
    record: Record,
    vocabulary: Vocabulary,
    limits: &'a Limits,
}

/// Method that learns from a chunk.
enum Learner {
    SkipGram(skip_gram::SkipGram),
    Cbow(cbow::Cbow),
}

impl Learner {
    fn new(architecture: Architecture) -> Self {
        match architecture {
            Architecture::SkipGram => Self::SkipGram(skip_gram::SkipGram::new()),
            Architecture::Cbow => Self::Cbow(cbow::Cbow::new()),
        }
    }

    fn learn(
        &mut self,
        chunk: &Chunk,
        sampling: &Sampling<'_>,
        [inputs, outputs]: [&mut Blocks; 2],
        rate: f32,
    ) -> (f64, u64) {
        match self {
            Self::SkipGram(learner) => learner.learn(chunk, sampling, inputs, outputs, rate),
            Self::Cbow(learner) => learner.learn(chunk, sampling, inputs, outputs, rate),
        }
    }
}

impl Training<'_> {
    fn run(&self, observe: &mut dyn FnMut(&Event), stop: &AtomicBool) -> Result<Outcome> {
        let Self { folder, record, vocabulary, limits } = self;
        let (settings, counts) = (&record.settings, &vocabulary.counts);
        observe(&Event::Counted {
            words: record.text.words,
            vocabulary: vocabulary.words.len(),
            covered: counts.iter().sum(),
        });
        let path = folder.join(CHECKPOINT);
        let (mut inputs, mut outputs, mut position) = self.beginning(&path)?;
        let (negatives, kept) = (Negatives::new(counts), vocabulary.kept(settings.subsampling));
        let mut learner = Learner::new(settings.architecture);
        let (mut chunk, mut next) = (Chunk::default(), Chunk::default());
        let words = record.text.words;
        let total = words * settings.epochs;
        let done = |position: &Position| position.epoch * words + position.words;
        let (began, first) = (Instant::now(), done(&position));
        let mut saved = Instant::now();
        while position.epoch < settings.epochs {
            let (epoch, place) = (position.epoch, (position.place, position.words));
            let files = &record.files;
            let mut chunks = Chunks::open(files, vocabulary, &kept, settings, epoch, place)?;
            let mut has_chunk = chunks.read(&mut chunk)?;
            while has_chunk {
                let learning_rate = settings.rate(done(&position) as f64 / total as f64);
                let sampling = Sampling::new(&negatives, settings, epoch, position.chunk);
                let matrices = [&mut inputs, &mut outputs];
                let (read, (loss, count)) = rayon::join(
                    || chunks.read(&mut next),
                    || learner.learn(&chunk, &sampling, matrices, learning_rate as f32),
                );
                has_chunk = read?;
                position.chunk += 1;
                position.words += chunk.read;
                position.place = chunk.next;
                let done = done(&position);
                let rate = (done - first) as f64 / began.elapsed().as_secs_f64();
                let loss = loss / count.max(1) as f64 * (1 + settings.negatives) as f64;
                observe(&Event::Progress { epoch, done, total, rate, loss, learning_rate });
                let stops = stop.load(Ordering::SeqCst);
                if stops || saved.elapsed() >= limits.save_every {
                    checkpoint::save(&path, [&inputs, &outputs], position)?;
                    observe(&Event::Saved { path: path.clone() });
                    saved = Instant::now();
                }
                if stops {
                    return Ok(Outcome::Interrupted);
                }
                std::mem::swap(&mut chunk, &mut next);
            }
            position = Position { epoch: epoch + 1, ..Position::default() };
        }
        let vectors = self.write(&inputs)?;
        if path.exists() {
            std::fs::remove_file(&path).map_err(Error::io(&path))?;
        }
        Ok(Outcome::Complete(vectors))
    }

    /// Reads the vectors and the position from the checkpoint at `path`. If there is no checkpoint,
    /// makes the initial vectors, with the position at the beginning of the text.
    fn beginning(&self, path: &Path) -> Result<(Blocks, Blocks, Position)> {
        let (mut inputs, mut outputs) = self.first_vectors();
        let position = match path.exists() {
            true => checkpoint::load(path, [&mut inputs, &mut outputs])?,
            false => Position::default(),
        };
        Ok((inputs, outputs, position))
    }

    /// Makes the initial vectors, with the same distribution as in word2vec and gensim. The values
    /// of input vectors are uniform from −1/(2d) to 1/(2d) for d dimensions, and those of output
    /// vectors are 0.
    fn first_vectors(&self) -> (Blocks, Blocks) {
        let TrainingSettings { dimensions, seed, .. } = self.record.settings;
        let words = self.vocabulary.words.len();
        let draws = Draws::new(seed, 0, FIRST);
        let inputs = Blocks::new(words, dimensions, |row, column| {
            let unit = draws.unit((row * dimensions + column) as u64);
            ((unit - 0.5) / dimensions as f64) as f32
        });
        (inputs, Blocks::new(words, dimensions, |_, _| 0.0))
    }

    /// Writes the vectors to the folder row by row, so that memory never has a second copy of them.
    fn write(&self, inputs: &Blocks) -> Result<PathBuf> {
        let Record { settings, output, .. } = &self.record;
        let path = self.folder.join(output.file_name());
        write_whole(&path, |out| {
            write_head(out, self.vocabulary.words.len(), settings.dimensions)?;
            for (word, row) in self.vocabulary.words.iter().zip(0..) {
                write_row(out, word, numbers(inputs.row(row), settings.dimensions), *output)?;
            }
            Ok(())
        })?;
        Ok(path)
    }
}

impl TrainingSettings {
    /// Returns the learning rate after the share `done` of the training, from 0 to 1.
    fn rate(&self, done: f64) -> f64 {
        self.learning_rate - (self.learning_rate - self.last_learning_rate) * done.clamp(0.0, 1.0)
    }
}
