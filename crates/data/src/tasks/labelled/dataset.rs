//! Tokenised texts with their classes, or with one for each word, and batches of them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rayon::prelude::*;

use crate::draws::Draws;
use crate::tasks::labelled::reader::{Labelled, files, read, texts, texts_of, train_tokenizer};
use crate::tasks::labelled::tagged::{self, Tagged};
use crate::text::fingerprint::Fingerprint;
use crate::text::special::Marks;
use crate::{
    Batch, BatchingConfig, BatchingReport, Corpora, DataConfig, Dataset, EpochPlan, Error,
    LabelledConfig, Prepared, Report, Result, Stream, TextReport, Tokenizer, TokenizerPair,
};

/// The key of the draws that order texts.
const PURPOSE: u64 = 8;

/// Refuses what cannot work for classification.
///
/// # Errors
///
/// [`Error::Config`] with the offending key.
pub(crate) fn validate(config: &DataConfig) -> Result<()> {
    crate::tasks::running_text::prepare::validate(config)?;
    let wrong = |key, message: &str| Err(Error::Config { key, message: message.to_owned() });
    let labels = &config.labelled.labels;
    if labels.len() < 2 {
        return wrong("data.labelled.labels", "must list at least two labels");
    }
    if (1..labels.len()).any(|at| labels[..at].contains(&labels[at])) {
        return wrong("data.labelled.labels", "lists a label twice");
    }
    if config.text.hold_out > 0.0 {
        return wrong("data.text.hold_out", "is for running text: name a split in data.validation");
    }
    Ok(())
}

/// Texts with classes, in memory.
#[derive(Debug)]
pub struct LabelledDataset {
    rows: Vec<Row>,
    /// Of each text, the class of each token that is asked.
    classes: Vec<Vec<u32>>,
    longest: usize,
    report: TextReport,
}

/// What has a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LabelOf {
    /// A text, or two.
    Text,
    /// A word.
    Word,
}

impl LabelOf {
    /// The files of a split.
    ///
    /// # Errors
    ///
    /// [`Error::Missing`] with the names that were tried.
    pub(crate) fn files(self, config: &DataConfig, split: &Corpora) -> Result<Vec<PathBuf>> {
        match self {
            Self::Text => files(config, split),
            Self::Word => tagged::files(config, split),
        }
    }

    /// A tokenizer with `<cls>`, `<sep>` and `<mask>`: the one that is named, or one trained on the
    /// texts.
    ///
    /// # Errors
    ///
    /// If a text cannot be read, or a tokenizer not be trained or loaded.
    pub(crate) fn train_tokenizer(self, config: &DataConfig) -> Result<TokenizerPair> {
        match self {
            Self::Text => train_tokenizer(config, || texts(config)),
            Self::Word => train_tokenizer(config, || {
                let sentences = tagged::read(config, &config.train)?;
                Ok(sentences.into_iter().map(|sentence| sentence.words.join(" ")).collect())
            }),
        }
    }
}

/// Readies the training and validation texts of a run.
///
/// # Errors
///
/// Whatever is wrong with configuration, text, tokenizer or disk, as [`Error`] lists it.
pub fn prepare_labelled(
    label_of: LabelOf,
    config: &DataConfig,
    run: &Path,
) -> Result<Prepared<LabelledDataset>> {
    config.validate()?;
    validate(config)?;
    let fingerprint =
        |split: &Corpora| Fingerprint::obtain(&label_of.files(config, split)?, &split.name(), run);
    let train = fingerprint(&config.train)?;
    let validation = match config.validation.is_empty() {
        true => None,
        false => Some(fingerprint(&config.validation)?),
    };
    let tokenizers = match TokenizerPair::exists(run) {
        true => TokenizerPair::load(run)?,
        false => {
            let trained = label_of.train_tokenizer(config)?;
            trained.save(run)?;
            trained
        }
    };
    let of = |split: &Corpora, text: &Fingerprint| -> Result<Arc<LabelledDataset>> {
        let mut dataset = LabelledDataset::read(label_of, config, tokenizers.target(), split)?;
        text.still_holds()?;
        dataset.report.text_hash.clone_from(&text.text_hash);
        Ok(Arc::new(dataset))
    };
    Ok(Prepared {
        train: of(&config.train, &train)?,
        validation: validation.map(|text| of(&config.validation, &text)).transpose()?,
        tokenizers,
    })
}

impl LabelledDataset {
    /// Reads and tokenises a split.
    ///
    /// # Errors
    ///
    /// If a file is missing, or a line is no label with a text, or no word with a tag.
    pub fn read(
        label_of: LabelOf,
        config: &DataConfig,
        tokenizer: &Tokenizer,
        split: &Corpora,
    ) -> Result<Self> {
        match label_of {
            LabelOf::Text => {
                let Labelled { texts, classes } = read(config, split)?;
                let rows = rows_of(tokenizer, &texts, &config.labelled)?;
                let classes = classes.into_iter().map(|class| vec![class]).collect();
                Ok(Self::of(config, tokenizer, split, &texts, (rows, classes)))
            }
            LabelOf::Word => {
                let sentences = tagged::read(config, split)?;
                let words: Vec<&[String]> =
                    sentences.iter().map(|sentence| &*sentence.words).collect();
                let rows = rows_of_words(tokenizer, &words, &config.labelled)?;
                // Words beyond the end are not asked.
                let asked = |(sentence, row): (&Tagged, &Row)| -> Vec<u32> {
                    row.words.iter().map(|&word| sentence.tags[word]).collect()
                };
                let classes = sentences.iter().zip(&rows).map(asked).collect();
                let texts: Vec<String> = words.iter().map(|words| words.join(" ")).collect();
                Ok(Self::of(config, tokenizer, split, &texts, (rows, classes)))
            }
        }
    }

    fn of(
        config: &DataConfig,
        tokenizer: &Tokenizer,
        split: &Corpora,
        texts: &[String],
        (rows, classes): (Vec<Row>, Vec<Vec<u32>>),
    ) -> Self {
        let most = config.labelled.max_tokens;
        let mut report = TextReport {
            split: split.name(),
            documents: texts.len() as u64,
            tokenizer_hash: tokenizer.hash().to_owned(),
            ..TextReport::default()
        };
        for (text, row) in texts.iter().zip(&rows) {
            report.words += text.split_whitespace().count() as u64;
            report.characters += text.chars().count() as u64;
            report.bytes += text.len() as u64;
            report.tokens += row.ids.len() as u64;
            report.unknown += row.ids.iter().filter(|&&id| tokenizer.is_unknown(id)).count() as u64;
        }
        let longest = rows.iter().map(|row| row.ids.len()).max().unwrap_or(0);
        let mut dataset = Self { rows, classes, longest: most, report };
        let batches = dataset.in_order(&config.batching);
        let largest = |count: fn(&[usize], &Self) -> usize| {
            batches.iter().map(|rows| count(rows, &dataset)).max()
        };
        let batching = BatchingReport {
            batches: batches.len(),
            largest_target_tokens: largest(|rows, data| {
                rows.iter().map(|&row| data.rows[row].ids.len()).sum()
            })
            .unwrap_or(0),
            largest_sentences: largest(|rows, _| rows.len()).unwrap_or(0),
            longest_target: longest,
            ..BatchingReport::default()
        };
        dataset.report.batching = batching;
        dataset
    }

    /// The number of texts.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is no text.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The class of each text, or of each word that is asked, text after text.
    pub fn classes(&self) -> Vec<u32> {
        self.classes.concat()
    }

    /// The texts of each batch, in the order of the files.
    fn in_order(&self, batching: &BatchingConfig) -> Vec<Vec<usize>> {
        self.batches((0..self.rows.len()).collect(), batching)
    }

    /// Fills batches with texts as they come.
    fn batches(&self, order: Vec<usize>, batching: &BatchingConfig) -> Vec<Vec<usize>> {
        let most_rows = match batching.max_sentences {
            0 => usize::MAX,
            limit => limit,
        };
        let (mut batches, mut tokens): (Vec<Vec<usize>>, usize) = (Vec::new(), 0);
        for row in order {
            tokens += self.rows[row].ids.len();
            match batches.last_mut() {
                Some(batch) if tokens <= batching.planned_tokens() && batch.len() < most_rows => {
                    batch.push(row)
                }
                _ => {
                    tokens = self.rows[row].ids.len();
                    batches.push(vec![row]);
                }
            }
        }
        batches
    }

    fn batch(&self, rows: &[usize]) -> Batch {
        let (mut segments, mut text) = (Stream::default(), Stream::default());
        let mut asked = Vec::with_capacity(rows.len());
        for row in rows.iter().map(|&row| &self.rows[row]) {
            let start = text.ids.len() as u32;
            asked.extend(row.asked.iter().map(|&at| start + at));
            segments.push(row.segments());
            text.push(row.ids.iter().copied());
        }
        Batch {
            streams: vec![segments, text],
            asked: Some(asked),
            answers: rows.iter().flat_map(|&row| &self.classes[row]).copied().collect(),
            indices: rows.iter().map(|row| row + 1).collect(),
            ..Batch::default()
        }
    }
}

/// What a classifier reads: `<cls> text <sep>`, or `<cls> first <sep> second <sep>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The tokens with their marks.
    pub ids: Vec<u32>,
    /// The number of the first token of the second text; that of all tokens where there is none.
    pub second: usize,
    /// The tokens that are asked for a class: the first, or that with which each word begins.
    pub asked: Vec<u32>,
    /// The word of each, where words are asked.
    pub words: Vec<usize>,
}

impl Row {
    /// The segment of each token: 1 of the second text and of the mark behind it, else 0.
    pub fn segments(&self) -> impl Iterator<Item = u32> + use<> {
        let second = self.second;
        (0..self.ids.len()).map(move |at| u32::from(at >= second))
    }
}

/// Lines as a classifier reads them: a text each, or two with a tab between them where
/// [`LabelledConfig::pairs`] says so.
///
/// # Errors
///
/// For a line that is not that, by its number from 1, and if the tokenizer has no marks or refuses a
/// text.
pub fn rows_of(
    tokenizer: &Tokenizer,
    lines: &[String],
    config: &LabelledConfig,
) -> Result<Vec<Row>> {
    let Marks { class, separator, .. } = tokenizer.marks()?;
    let row = |(index, line): (usize, &String)| -> Result<Row> {
        let (first, second) = texts_of(line, config.pairs)
            .map_err(|message| Error::Line { line: index as u64 + 1, message })?;
        let (mut ids, second) =
            (tokenizer.encode(first)?, second.map(|text| tokenizer.encode(text)).transpose()?);
        let Some(mut second) = second else {
            ids.truncate(config.max_tokens.saturating_sub(2));
            ids.insert(0, class);
            ids.push(separator);
            return Ok(Row { second: ids.len(), ids, asked: vec![0], words: Vec::new() });
        };
        let (of_first, of_second) =
            shares((ids.len(), second.len()), config.max_tokens.saturating_sub(3));
        ids.truncate(of_first);
        second.truncate(of_second);
        ids.insert(0, class);
        ids.push(separator);
        let start = ids.len();
        ids.append(&mut second);
        ids.push(separator);
        Ok(Row { ids, second: start, asked: vec![0], words: Vec::new() })
    };
    lines.par_iter().enumerate().map(row).collect()
}

/// Words as a tagger reads them: `<cls> words <sep>`, each word by itself, so that none of its tokens
/// reaches into another (Devlin et al. 2019, section 5.3). Words for which there is no room, and those
/// of which the tokenizer makes nothing, are not asked.
///
/// # Errors
///
/// If the tokenizer has no marks or refuses a word.
pub fn rows_of_words<S: AsRef<[String]> + Sync>(
    tokenizer: &Tokenizer,
    sentences: &[S],
    config: &LabelledConfig,
) -> Result<Vec<Row>> {
    let Marks { class, separator, .. } = tokenizer.marks()?;
    let room = config.max_tokens.saturating_sub(1);
    let row = |words: &S| -> Result<Row> {
        let (mut ids, mut asked, mut of) = (vec![class], Vec::new(), Vec::new());
        for (number, word) in words.as_ref().iter().enumerate() {
            let tokens = tokenizer.encode(word)?;
            if ids.len() >= room {
                break;
            }
            if !tokens.is_empty() {
                asked.push(ids.len() as u32);
                of.push(number);
            }
            ids.extend(tokens);
            ids.truncate(room);
        }
        ids.push(separator);
        Ok(Row { second: ids.len(), ids, asked, words: of })
    };
    sentences.par_iter().map(row).collect()
}

/// How much of two lengths has room: what is too much is taken off the longer.
fn shares((first, second): (usize, usize), room: usize) -> (usize, usize) {
    let half = room / 2;
    match (first + second <= room, first <= half, second <= half) {
        (true, ..) => (first, second),
        (_, true, _) => (first, room - first),
        (_, _, true) => (room - second, second),
        _ => (room - half, half),
    }
}

impl Dataset for LabelledDataset {
    fn plan(
        self: Arc<Self>,
        batching: &BatchingConfig,
        seed: u64,
        epoch: u64,
    ) -> Box<dyn EpochPlan> {
        let mut order: Vec<usize> = (0..self.rows.len()).collect();
        if batching.shuffle {
            Draws::new(seed, epoch, PURPOSE).shuffle(&mut order);
        }
        let batches = self.batches(order, batching);
        Box::new(Plan { data: self, batches })
    }

    fn batching(&self) -> &BatchingReport {
        &self.report.batching
    }

    fn report(&self) -> Report<'_> {
        Report::Text(&self.report)
    }

    fn longest_row(&self) -> usize {
        self.longest
    }

    fn largest_batch(&self, tokens: usize) -> Batch {
        let (mut segments, mut text) = (Stream::default(), Stream::default());
        let mut asked = Vec::new();
        for _ in 0..(tokens / self.longest).max(1) {
            asked.push(text.ids.len() as u32);
            segments.push(std::iter::repeat_n(0, self.longest));
            text.push(std::iter::repeat_n(crate::END, self.longest));
        }
        let (answers, indices) = (vec![0; asked.len()], vec![0; asked.len()]);
        let streams = vec![segments, text];
        Batch { streams, asked: Some(asked), answers, indices, ..Batch::default() }
    }
}

/// The batches of one epoch.
struct Plan {
    data: Arc<LabelledDataset>,
    batches: Vec<Vec<usize>>,
}

impl EpochPlan for Plan {
    fn batches(&self) -> usize {
        self.batches.len()
    }

    fn batch(&self, batch: usize) -> Result<Batch> {
        Ok(self.data.batch(&self.batches[batch]))
    }
}
