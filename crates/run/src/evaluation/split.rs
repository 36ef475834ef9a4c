//! Split that a model is measured on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;
use taper_data::{
    CaptionUse, CaptionedDataset, Corpora, Dataset, LabelOf, LabelledDataset, Tokenizer,
    TokenizerPair,
};
use taper_decoding::Control;
use taper_model::Batch;
use taper_trainer::BoxError;

use crate::config::RunConfig;
use crate::event::{RunEvent, RunObserver};
use crate::shortlist::RunShortlist;
use crate::training::in_order;

/// Batches of a split, one after the other.
pub type Batches<'a> = Box<dyn Iterator<Item = Result<Batch, BoxError>> + 'a>;

/// Split that a model is measured on, with the recipe (configuration) and the tokenizers that are
/// needed to read it.
#[derive(Debug, Clone, Copy)]
pub struct Split<'a> {
    /// Name of the split.
    pub name: &'a str,
    /// Recipe of the run.
    pub config: &'a RunConfig,
    /// Tokenizers of the run.
    pub tokenizers: &'a TokenizerPair,
    /// Shortlist of the run; `None` during training.
    pub shortlist: Option<&'a RunShortlist>,
    /// Whether the results are written to the run's folder, together with the details of each
    /// example that a report shows.
    pub is_kept: bool,
}

impl<'a> Split<'a> {
    /// Corpora of the split. For a run of several directions of translation, only those in the
    /// recipe's direction, or all of them if none has this direction.
    pub(crate) fn corpora(self) -> Corpora {
        let all = self.config.data.split(self.name);
        self.config.data.in_own_direction(all.clone()).unwrap_or(all)
    }

    /// Tokenizer of target texts. For tasks other than translation, it is the only tokenizer.
    pub(crate) fn tokenizer(self) -> &'a Tokenizer {
        self.tokenizers.target()
    }

    /// Reads the texts of the split with their labels.
    pub(crate) fn labelled(self, label_of: LabelOf) -> Result<LabelledDataset> {
        let data = &self.config.data;
        Ok(LabelledDataset::read(label_of, data, self.tokenizer(), &self.corpora())?)
    }

    /// Reads the images of the split with their captions; `usage` is what the captions are used
    /// for.
    pub(crate) fn captioned_images(self, usage: CaptionUse) -> Result<CaptionedDataset> {
        let data = &self.config.data;
        Ok(CaptionedDataset::read(usage, data, self.tokenizer(), &self.corpora())?)
    }

    /// Batches of `dataset`, which has the examples of the split, in order.
    pub(crate) fn in_order(self, dataset: impl Dataset + 'static) -> Batches<'a> {
        let dataset: Arc<dyn Dataset> = Arc::new(dataset);
        Box::new(in_order(&dataset, &self.config.data.batching))
    }

    /// Runs `work`, which processes the sentences or images of the split and reports how many it
    /// has finished. Each report is passed to the observer. If the observer fails, the control that
    /// `work` gets cancels all sentences or images that are left. `total` is the number of all
    /// sentences or images.
    ///
    /// # Errors
    /// When `work` or the observer fails.
    pub(crate) fn observed<T>(
        self,
        total: usize,
        observer: &mut dyn RunObserver,
        work: impl FnOnce(&mut dyn FnMut(usize), &dyn Control) -> Result<T>,
    ) -> Result<T> {
        let (split, stopped) = (self.name, Stopped::default());
        observer.observe(&RunEvent::Decoding { split, done: 0, total })?;
        let mut observed = Ok(());
        let mut progress = |done| {
            if observed.is_ok() {
                observed = observer.observe(&RunEvent::Decoding { split, done, total });
                stopped.set(observed.is_err());
            }
        };
        let result = work(&mut progress, &stopped);
        let ended = observer.observe(&RunEvent::Decoded);
        // If the observer failed, the work may have failed because it was cancelled.
        observed?;
        ended?;
        result
    }
}

/// Control that cancels everything from a certain time on.
#[derive(Debug, Default)]
pub(super) struct Stopped(AtomicBool);

impl Stopped {
    pub(super) fn set(&self, is_stopped: bool) {
        self.0.store(is_stopped, Ordering::Relaxed);
    }
}

impl Control for Stopped {
    fn is_cancelled(&self, _: usize) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_observer_that_fails_stops_the_work() {
        let config = RunConfig::default();
        let tokenizers = TokenizerPair::none();
        let split = Split {
            name: "test",
            config: &config,
            tokenizers: &tokenizers,
            shortlist: None,
            is_kept: false,
        };
        let mut ended = false;
        let mut observer = |event: &RunEvent<'_>| -> Result<()> {
            ended |= matches!(event, RunEvent::Decoded);
            match event {
                RunEvent::Decoding { done: 3, .. } => anyhow::bail!("the disk is full"),
                _ => Ok(()),
            }
        };
        let mut made = 0;
        let result = split.observed(9, &mut observer, |progress, control| {
            for done in 1..=9 {
                anyhow::ensure!(!control.is_cancelled(done), "cancelled");
                made = done;
                progress(done);
            }
            Ok(())
        });
        assert_eq!(result.expect_err("refused").to_string(), "the disk is full");
        assert!(ended && made == 3, "{made}");
    }
}
