//! Batches of tokenised texts, with a class for each text, a class for each word, or the positions
//! of answers.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::tasks::labelled::reader::{Labelled, files, read, texts, train_tokenizer};
use crate::tasks::labelled::rows::{Row, rows_of, rows_of_words};
use crate::tasks::labelled::tagged::{self, Tagged};
use crate::tasks::questions::{squad, windows};
use crate::text::fingerprint::Fingerprint;
use crate::{
    Batch, BatchingConfig, BatchingReport, Corpora, DataConfig, Dataset, Epoch, EpochPlan, Error,
    Prepared, Report, Result, Stream, TextReport, Tokenizer, TokenizerPair,
};

/// Purpose number of the random draws that put texts in order (see [`crate::Draws::new`]).
const PURPOSE: u64 = 8;

/// Refuses settings that are impossible for texts with labels.
///
/// # Errors
///
/// [`Error::Config`], with the offending key, if a setting is impossible.
pub(crate) fn validate(label_of: LabelOf, config: &DataConfig) -> Result<()> {
    crate::tasks::running_text::prepare::validate(config)?;
    let wrong = |key, message: &str| Err(Error::Config { key, message: message.to_owned() });
    if config.text.hold_out > 0.0 {
        return wrong("data.text.hold_out", "is for running text: name a split in data.validation");
    }
    if label_of == LabelOf::Question {
        return Ok(());
    }
    let labels = &config.labelled.labels;
    if labels.len() < 2 {
        return wrong("data.labelled.labels", "must list at least two labels");
    }
    if (1..labels.len()).any(|at| labels[..at].contains(&labels[at])) {
        return wrong("data.labelled.labels", "lists a label twice");
    }
    Ok(())
}

/// Texts with labels, in memory.
#[derive(Debug)]
pub struct LabelledDataset {
    rows: Vec<Row>,
    /// Correct answers of each row, one for each of its predictions: a class, or a position in the
    /// row.
    classes: Vec<Vec<u32>>,
    label_of: LabelOf,
    longest: usize,
    report: TextReport,
}

/// Unit of text that has a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LabelOf {
    /// Text, or pair of texts.
    Text,
    /// Word.
    Word,
    /// Question about a text; its label is the start and the end of the answer in the text.
    Question,
}

impl LabelOf {
    /// The files of a split.
    ///
    /// # Errors
    ///
    /// [`Error::Missing`], with the names that were tried, if there is no such file.
    pub(crate) fn files(self, config: &DataConfig, split: &Corpora) -> Result<Vec<PathBuf>> {
        match self {
            Self::Text => files(config, split),
            Self::Word => tagged::files(config, split),
            Self::Question => squad::files(config, split),
        }
    }

    /// Tokenizer with `<cls>`, `<sep>` and `<mask>`: the configured one, or one trained on the
    /// texts.
    ///
    /// # Errors
    ///
    /// If a text cannot be read, or the tokenizer cannot be trained or loaded.
    pub(crate) fn train_tokenizer(self, config: &DataConfig) -> Result<TokenizerPair> {
        match self {
            Self::Text => train_tokenizer(config, || texts(config)),
            Self::Word => train_tokenizer(config, || {
                let sentences = tagged::read(config, &config.train)?;
                Ok(sentences.into_iter().map(|sentence| sentence.words.join(" ")).collect())
            }),
            Self::Question => train_tokenizer(config, || windows::texts(config, &config.train)),
        }
    }

    /// Largest number of tokens of a row.
    fn longest(self, config: &DataConfig) -> usize {
        match self {
            Self::Text | Self::Word => config.labelled.max_tokens,
            Self::Question => config.questions.max_tokens,
        }
    }

    /// Indices of the tokens at which a model makes predictions, in each row of
    /// [`Dataset::largest_batch`]. The rows of that batch have no words, so a tagger makes only one
    /// prediction.
    fn asked(self) -> &'static [u32] {
        match self {
            Self::Text | Self::Word => &[0],
            // Once for the start of the answer, and once for its end.
            Self::Question => &[0, 0],
        }
    }
}

/// Prepares the training and validation texts of a run.
///
/// # Errors
///
/// Any fault of configuration, text, tokenizer or disk, see [`Error`].
pub fn prepare_labelled(
    label_of: LabelOf,
    config: &DataConfig,
    run: &Path,
) -> Result<Prepared<LabelledDataset>> {
    config.validate()?;
    validate(label_of, config)?;
    let fingerprint =
        |split: &Corpora| Fingerprint::obtain(&label_of.files(config, split)?, &split.name(), run);
    let train = fingerprint(&config.train)?;
    let validation = match config.validation.is_empty() {
        true => None,
        false => Some(fingerprint(&config.validation)?),
    };
    let tokenizers = TokenizerPair::load_or_train(run, || label_of.train_tokenizer(config))?;
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
    /// If a file is missing, or if a line does not have a label and a text (for a tagger: a word
    /// and a tag). For questions, also if no question of the split has an answer.
    pub fn read(
        label_of: LabelOf,
        config: &DataConfig,
        tokenizer: &Tokenizer,
        split: &Corpora,
    ) -> Result<Self> {
        let mut report = TextReport {
            split: split.name(),
            tokenizer_hash: tokenizer.hash().to_owned(),
            ..TextReport::default()
        };
        let mut count = |text: &str| {
            report.documents += 1;
            report.count_text(text);
        };
        let (rows, classes) = match label_of {
            LabelOf::Text => {
                let Labelled { texts, classes } = read(config, split)?;
                texts.iter().for_each(|text| count(text));
                let rows = rows_of(tokenizer, &texts, &config.labelled)?;
                (rows, classes.into_iter().map(|class| vec![class]).collect())
            }
            LabelOf::Word => {
                let sentences = tagged::read(config, split)?;
                let words: Vec<&[String]> =
                    sentences.iter().map(|sentence| &*sentence.words).collect();
                words.iter().for_each(|words| count(&words.join(" ")));
                let rows = rows_of_words(tokenizer, &words, &config.labelled)?;
                // No tag is predicted for words that were cut off.
                let asked = |(sentence, row): (&Tagged, &Row)| -> Vec<u32> {
                    row.words.iter().map(|&word| sentence.tags[word]).collect()
                };
                let classes = sentences.iter().zip(&rows).map(asked).collect();
                (rows, classes)
            }
            LabelOf::Question => windows::rows_of_split(config, tokenizer, split, &mut report)?,
        };
        for row in &rows {
            report.tokens += row.ids.len() as u64;
            report.unknown += row.ids.iter().filter(|&&id| tokenizer.is_unknown(id)).count() as u64;
        }
        let most = label_of.longest(config);
        let mut dataset = Self { rows, classes, label_of, longest: most, report };
        dataset.report.batching = dataset.batching_report(&config.batching);
        Ok(dataset)
    }

    /// Sizes of the batches if texts are taken in the order of the files.
    fn batching_report(&self, batching: &BatchingConfig) -> BatchingReport {
        let batches = self.batches((0..self.rows.len()).collect(), batching);
        let tokens = |rows: &Vec<usize>| rows.iter().map(|&row| self.rows[row].ids.len()).sum();
        BatchingReport {
            batches: batches.len(),
            largest_target_tokens: batches.iter().map(tokens).max().unwrap_or(0),
            largest_sentences: batches.iter().map(Vec::len).max().unwrap_or(0),
            longest_target: self.rows.iter().map(|row| row.ids.len()).max().unwrap_or(0),
            ..BatchingReport::default()
        }
    }

    /// The number of texts.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// True if there is no text.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Class of each text, or of each predicted word, text after text. For questions, the positions
    /// of the start and the end of each answer.
    pub fn classes(&self) -> Vec<u32> {
        self.classes.concat()
    }

    /// Divides texts into batches. `order` has the indices of the texts.
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

impl Dataset for LabelledDataset {
    fn plan(self: Arc<Self>, batching: &BatchingConfig, epoch: Epoch) -> Box<dyn EpochPlan> {
        let mut order: Vec<usize> = (0..self.rows.len()).collect();
        if batching.shuffle {
            epoch.draws(PURPOSE).shuffle(&mut order);
        }
        let batches = self.batches(order, batching);
        Box::new(Plan { data: self, batches })
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
            let start = text.ids.len() as u32;
            asked.extend(self.label_of.asked().iter().map(|at| start + at));
            segments.push(std::iter::repeat_n(0, self.longest));
            text.push(std::iter::repeat_n(crate::END, self.longest));
        }
        let (answers, indices) = (vec![0; asked.len()], vec![0; text.lengths.len()]);
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

    fn cost(&self, batch: usize) -> u64 {
        self.batches[batch].iter().map(|&row| self.data.rows[row].ids.len() as u64).sum()
    }

    fn batch(&self, batch: usize) -> Result<Batch> {
        Ok(self.data.batch(&self.batches[batch]))
    }
}
