//! Between the trainer and whoever observes the run: its record, `metrics.jsonl`.

use taper_trainer::{BoxError, Event, Observer};

use crate::event::{RunEvent, RunObserver};
use crate::folder::MetricsLog;

/// Writes the trainer's events into the record of the run and passes them on.
pub(crate) struct Recorder<'a> {
    /// The record, which process 0 keeps.
    pub(crate) log: Option<MetricsLog>,
    /// Who is told.
    pub(crate) observer: &'a mut dyn RunObserver,
}

impl Observer for Recorder<'_> {
    fn observe(&mut self, event: &Event) -> Result<(), BoxError> {
        if let Some(log) = self.log.as_mut().filter(|_| event.is_metric()) {
            log.append(event)?;
        }
        Ok(self.observer.observe(&RunEvent::Training(event))?)
    }

    fn updated(&mut self, step: u64, seconds: f64) -> Result<(), BoxError> {
        Ok(self.observer.observe(&RunEvent::Updated { step, seconds })?)
    }

    fn flush(&mut self) -> Result<(), BoxError> {
        Ok(self.log.as_mut().map_or(Ok(()), MetricsLog::flush)?)
    }
}
