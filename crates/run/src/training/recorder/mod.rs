//! Recorder of a training: writes the trainer's events to the file `metrics.jsonl` in the folder of
//! the training (the run), and passes them on to the observer of the run.

mod tensorboard;

use anyhow::Result;
use taper_trainer::{BoxError, Event, Observer, State};

use crate::config::RunConfig;
use crate::event::{FolderNotice, RunEvent, RunObserver};
use crate::folder::{KeptFiles, MetricsLog, RunFolder};
use crate::training::TrainSettings;
use tensorboard::TensorBoard;

pub(crate) use tensorboard::Watched;

/// Recorder that writes the trainer's events to the record of the run, and passes them on to the
/// observer.
pub(crate) struct Recorder<'a> {
    /// Record of the run; `None` in processes other than process 0.
    pub(crate) log: Option<MetricsLog>,
    /// Copies of other files of the run, which process 0 writes again if they are missing; `None`
    /// in other processes.
    pub(crate) files: Option<KeptFiles>,
    /// Event file for TensorBoard; `None` if it is not requested, or in processes other than
    /// process 0.
    pub(crate) events: Option<TensorBoard>,
    pub(crate) observer: &'a mut dyn RunObserver,
}

impl<'a> Recorder<'a> {
    /// Opens the records of process 0, and saves the recipe (settings of the training).
    ///
    /// # Errors
    /// If a file cannot be read or written.
    pub(crate) fn open(
        folder: &RunFolder,
        config: &RunConfig,
        settings: &TrainSettings,
        state: &State,
        observer: &'a mut dyn RunObserver,
    ) -> Result<Self> {
        // The recipe is saved only now, after the checkpoint has been loaded with it: a recipe that
        // does not fit the checkpoint must not replace one that does.
        folder.save_config(config)?;
        if let Some(command) = &settings.command {
            folder.note_command(command)?;
        }
        let log = Some(MetricsLog::open(&folder.metrics(), state, observer)?);
        let files = Some(KeptFiles::read(folder)?);
        let events = TensorBoard::open(folder.root(), config, state)?;
        Ok(Self { log, files, events, observer })
    }

    /// True if this is the recorder of process 0.
    pub(crate) fn is_of_first(&self) -> bool {
        self.log.is_some()
    }

    /// Writes again the files of the run that are missing, and reports their names.
    ///
    /// # Errors
    /// If a file cannot be written.
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
        self.observer.observe(&RunEvent::notice(FolderNotice::WrittenAgain { folder, names }))
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
