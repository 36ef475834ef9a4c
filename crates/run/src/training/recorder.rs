//! Between the trainer and whoever observes the run: its record, `metrics.jsonl`.

use anyhow::Result;
use taper_trainer::{BoxError, Event, Observer};

use crate::event::{Notice, RunEvent, RunObserver};
use crate::folder::{KeptFiles, MetricsLog};
use crate::training::tensorboard::TensorBoard;

/// Writes the trainer's events into the record of the run and passes them on.
pub(crate) struct Recorder<'a> {
    /// The record, which process 0 keeps.
    pub(crate) log: Option<MetricsLog>,
    /// The other files of the run, which process 0 keeps too.
    pub(crate) files: Option<KeptFiles>,
    /// The record for TensorBoard, where there is one.
    pub(crate) events: Option<TensorBoard>,
    /// Who is told.
    pub(crate) observer: &'a mut dyn RunObserver,
}

impl Recorder<'_> {
    /// Writes files of the run again that are gone, and says so.
    ///
    /// # Errors
    /// When the disk refuses.
    pub(crate) fn restore(&mut self) -> Result<()> {
        let (Some(files), Some(log)) = (&self.files, &mut self.log) else { return Ok(()) };
        let mut names = files.restore()?;
        if log.restore()? {
            names.push("metrics.jsonl".to_owned());
        }
        if names.is_empty() {
            return Ok(());
        }
        let folder = files.root().to_owned();
        self.observer.observe(&RunEvent::Notice(Notice::WrittenAgain { folder, names }))
    }
}

impl Observer for Recorder<'_> {
    fn observe(&mut self, event: &Event) -> Result<(), BoxError> {
        if event.is_metric() {
            if let Some(log) = &mut self.log {
                log.append(event)?;
            }
            if let Some(events) = &self.events {
                events.record(event);
            }
        }
        Ok(self.observer.observe(&RunEvent::Training(event))?)
    }

    fn updated(&mut self, step: u64, seconds: f64) -> Result<(), BoxError> {
        Ok(self.observer.observe(&RunEvent::Updated { step, seconds })?)
    }

    fn flush(&mut self) -> Result<(), BoxError> {
        self.restore()?;
        self.log.as_mut().map_or(Ok(()), MetricsLog::flush)?;
        Ok(self.events.as_ref().map_or(Ok(()), TensorBoard::flush)?)
    }
}
