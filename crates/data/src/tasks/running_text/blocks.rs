//! Reads a text in consecutive blocks, for measuring a model on it.

use crate::tasks::running_text::dataset::push_rows;
use crate::tasks::running_text::prepare::Portions;
use crate::tasks::running_text::reader::{Portion, TextReader, files};
use crate::{Batch, DataConfig, Error, Result, Stream, TextReport, Tokenizer};

/// Batches of consecutive blocks of a text, as in validation. Every token except the first is
/// predicted once.
pub struct TextBlocks<'a> {
    config: &'a DataConfig,
    tokenizer: &'a Tokenizer,
    passages: TextReader,
    /// Tokens that are not in a batch yet.
    pending: Vec<u32>,
    /// Index in the text of the first pending token.
    start: u64,
    report: TextReport,
    failed: bool,
}

impl<'a> TextBlocks<'a> {
    /// Opens a split. If `split` is `None`, opens the part of the training text that
    /// `data.text.hold_out` reserves.
    ///
    /// # Errors
    ///
    /// If a file is missing or cannot be opened.
    pub fn open(
        config: &'a DataConfig,
        tokenizer: &'a Tokenizer,
        split: Option<&str>,
    ) -> Result<Self> {
        let files = match split {
            Some(split) => files(config, &config.split(split))?,
            None => files(config, &config.train)?,
        };
        let (portion, name) = match split {
            Some(split) => (Portion::WHOLE, split.to_owned()),
            None => {
                let portion = Portions::new(config, &files).get()?.1;
                (portion, format!("{}, held out", config.train.name()))
            }
        };
        let passages = TextReader::new(&files, config, portion);
        let report = TextReport { split: name, ..TextReport::default() };
        let pending = Vec::new();
        Ok(Self { config, tokenizer, passages, pending, start: 0, report, failed: false })
    }

    /// Report on the text that has been read so far. After the last batch, it covers the whole
    /// text.
    pub fn report(&self) -> &TextReport {
        &self.report
    }

    fn next_batch(&mut self) -> Result<Option<Batch>> {
        let length = self.config.text.block_length;
        let rows = self.config.batching.rows_of(length);
        // One token more than the blocks is needed, because the last token of a block predicts the
        // token after the block.
        while self.pending.len() <= rows * length
            && let Some(passage) = self.passages.next().transpose()?
        {
            if passage.begins_document && self.report.tokens > 0 {
                self.pending.push(self.tokenizer.end());
                self.report.tokens += 1;
            }
            let ids = self.tokenizer.encode(&passage.text)?;
            self.report.count(&passage, &ids, self.tokenizer);
            self.pending.extend(ids);
        }
        let asked = self.pending.len().saturating_sub(1).min(rows * length);
        if asked == 0 {
            return Ok(None);
        }
        let (mut text, mut indices) = (Stream::default(), Vec::new());
        let barrier = self.config.text.barrier.then(|| self.tokenizer.end());
        for row in self.pending[..asked].chunks(length) {
            let start = self.start as usize + text.ids.len();
            push_rows(row, start, barrier, &mut text, &mut indices);
        }
        let answers = self.pending[1..=asked].to_vec();
        self.pending.drain(..asked);
        self.start += asked as u64;
        Ok(Some(Batch { streams: vec![text], asked: None, answers, indices, ..Batch::default() }))
    }

    /// Refuses a text of fewer than two tokens, which has no token to predict.
    ///
    /// # Errors
    ///
    /// [`Error::EmptyText`] if the text is too short.
    pub fn require_text(&self) -> Result<()> {
        if self.report.tokens > 1 {
            return Ok(());
        }
        let split = self.report.split.clone();
        Err(Error::EmptyText { files: "its files".to_owned(), split })
    }
}

impl Iterator for TextBlocks<'_> {
    type Item = Result<Batch>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let item = self.next_batch().transpose();
        self.failed = matches!(item, Some(Err(_)));
        item
    }
}
