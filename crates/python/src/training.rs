//! Training that pauses after each event, until Python requests the next event.

use std::path::PathBuf;
use std::sync::mpsc::Sender;
use std::sync::{Mutex, PoisonError};

use anyhow::{Result, bail, ensure};
use pyo3::prelude::*;
use serde::Deserialize;
use serde_json::{Value, json};
use taper_run::training::{self, Outcome};
use taper_run::{RunConfig, RunEvent, RunFolder, TrainSettings};

use crate::engine::{Cancelled, GoOn, Work, wait_for, wake};
use crate::error::{exception, options};

/// Message from the computing thread about the training.
enum Message {
    /// An event; training then waits for the permission to continue.
    Event(String, GoOn),
    /// The end of training, as an event.
    End(Result<String>),
}

/// A training in progress. After each event, it pauses until the next event is requested.
#[pyclass(frozen, module = "taper._native")]
pub(crate) struct Training {
    work: Work<Message>,
    permission: Mutex<Option<GoOn>>,
}

#[pymethods]
impl Training {
    /// Returns the next event as JSON; `None` after the last one, whose name is `outcome`.
    fn next(&self, py: Python<'_>) -> PyResult<Option<String>> {
        let keep = |permission: Option<GoOn>| {
            *self.permission.lock().unwrap_or_else(PoisonError::into_inner) = permission;
        };
        keep(None);
        match self.work.next(py)? {
            Some(Message::Event(event, permission)) => {
                keep(Some(permission));
                Ok(Some(event))
            }
            Some(Message::End(end)) => end.map(Some).map_err(|error| exception(&error)),
            None => Ok(None),
        }
    }

    /// Asks training to end with a checkpoint as soon as possible. From then on, training does not
    /// pause, so that it also ends if no more events are requested.
    fn stop(&self) {
        self.work.cancel();
        wake();
    }
}

/// Settings of a training.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TrainOptions {
    /// Changed keys of the recipe (the TOML file with all settings of a training), as `key=value`.
    overrides: Vec<String>,
    device: Option<String>,
    /// Run or checkpoint that gives the new run its first weights.
    start_from: Option<PathBuf>,
}

impl TrainOptions {
    fn settings(&self) -> TrainSettings {
        let (device, from) = (self.device.clone(), self.start_from.clone());
        TrainSettings { device, from, ..TrainSettings::default() }
    }
}

/// Begins a run in the folder `root` from the recipe in the file at `path`. If `text` is not
/// `None`, it is the text of the recipe, and the file is not read.
#[pyfunction]
pub(crate) fn train(
    path: PathBuf,
    text: Option<String>,
    root: PathBuf,
    settings: &str,
) -> PyResult<Training> {
    let settings: TrainOptions = options(settings)?;
    Training::start(move |observer, stop| {
        let (overrides, from) = (&settings.overrides, settings.start_from.as_deref());
        let model = from.map(training::model_of).transpose()?;
        let config = match text {
            Some(text) => RunConfig::parse(&text, &path, overrides, model.as_ref())?,
            None => match &model {
                Some(model) => RunConfig::load_beginning_as(&path, overrides, model)?,
                None => RunConfig::load(&path, overrides)?,
            },
        };
        let folder = RunFolder::new(&root);
        ensure!(!folder.exists(), "{} exists already and is left as it is", root.display());
        training::start(&folder, &config, &settings.settings(), observer, stop.flag())
    })
}

/// Continues the run in the folder `root`, from its last checkpoint or the one called
/// `checkpoint`.
#[pyfunction]
pub(crate) fn resume(
    root: PathBuf,
    checkpoint: Option<String>,
    settings: &str,
) -> PyResult<Training> {
    let settings: TrainOptions = options(settings)?;
    Training::start(move |observer, stop| {
        let folder = RunFolder::open(&root)?;
        let config = folder.load_config(&settings.overrides)?;
        let (from, settings) = (checkpoint.as_deref(), settings.settings());
        training::resume(&folder, &config, &settings, from, observer, stop.flag())
    })
}

type Observe<'a> = &'a mut dyn FnMut(&RunEvent<'_>) -> Result<()>;

impl Training {
    fn start(
        train: impl FnOnce(&mut dyn taper_run::RunObserver, &Cancelled) -> Result<Outcome>
        + Send
        + 'static,
    ) -> PyResult<Self> {
        let work = Work::start(move |messages: Sender<Message>, stop: &Cancelled| {
            let mut trains = false;
            let mut observe = |event: &RunEvent<'_>| -> Result<()> {
                match event {
                    RunEvent::Begins { .. } => trains = true,
                    RunEvent::Trained { .. } => trains = false,
                    _ => {}
                }
                // While a model trains, the training loop itself checks `stop`, and saves a
                // checkpoint before it ends.
                if !trains && stop.is_cancelled() {
                    bail!("stopped");
                }
                if let Some(record) = record(event)? {
                    let (permission, wanted) = GoOn::new();
                    if messages.send(Message::Event(record.to_string(), permission)).is_ok() {
                        wait_for(&wanted, stop);
                    }
                }
                Ok(())
            };
            let observer: Observe<'_> = &mut observe;
            let mut observer = |event: &RunEvent<'_>| observer(event);
            let end = train(&mut observer, stop).and_then(|outcome| {
                let outcome = outcome_record(&outcome)?;
                Ok(outcome.to_string())
            });
            let _ = messages.send(Message::End(end));
        })?;
        Ok(Self { work, permission: Mutex::default() })
    }
}

/// Converts an event to a record; `None` for events that only update a display of progress.
fn record(event: &RunEvent<'_>) -> Result<Option<Value>> {
    Ok(Some(match event {
        RunEvent::Notice(notice) => json!({ "event": "notice", "text": notice.to_string() }),
        RunEvent::Files { corpus, files } => {
            json!({ "event": "files", "corpus": corpus, "files": files })
        }
        RunEvent::WarmStart { started, replaced, .. } => {
            json!({ "event": "warm_start", "replaced": replaced, "weights": started })
        }
        RunEvent::WordVectors(taken) => json!({ "event": "embeddings", "tables": taken }),
        RunEvent::Prepared { data, .. } => {
            let mut record = serde_json::to_value(data)?;
            record["event"] = "data".into();
            record
        }
        RunEvent::Begins { folder, task, step, dtype, .. } => json!({
            "event": "begins", "run": folder, "task": task.to_string(), "step": step,
            "dtype": dtype,
        }),
        RunEvent::Training(event) => serde_json::to_value(event)?,
        RunEvent::Interrupted { step, .. } => json!({ "event": "interrupted", "step": step }),
        RunEvent::Trained { reason, step, seconds, .. } => json!({
            "event": "trained", "reason": reason, "step": step, "seconds": seconds,
        }),
        RunEvent::Tested { checkpoint, step, results, .. } => json!({
            "event": "test", "checkpoint": checkpoint, "step": step, "results": results,
        }),
        _ => return Ok(None),
    }))
}

fn outcome_record(outcome: &Outcome) -> Result<Value> {
    Ok(match outcome {
        Outcome::Interrupted { step } => {
            json!({ "event": "outcome", "reason": "interrupted", "step": step, "results": [] })
        }
        Outcome::Complete { reason, step, results } => json!({
            "event": "outcome", "reason": reason, "step": step, "results": results,
        }),
    })
}
