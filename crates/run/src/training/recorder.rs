//! Between the trainer and whoever observes the run: its record, `metrics.jsonl`.

use taper_trainer::{BoxError, Event, Observer};

use crate::event::{RunEvent, RunObserver};
use crate::folder::MetricsLog;
use crate::training::tensorboard::TensorBoard;

/// Writes the trainer's events into the record of the run and passes them on.
pub(crate) struct Recorder<'a> {
    /// The record, which process 0 keeps.
    pub(crate) log: Option<MetricsLog>,
    /// The record for TensorBoard, where there is one.
    pub(crate) events: Option<TensorBoard>,
    /// Who is told.
    pub(crate) observer: &'a mut dyn RunObserver,
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
        self.log.as_mut().map_or(Ok(()), MetricsLog::flush)?;
        Ok(self.events.as_ref().map_or(Ok(()), TensorBoard::flush)?)
    }
}
