//! Python class that returns a generated text piece by piece, while it is generated.

use std::sync::mpsc::Sender;
use std::sync::{Arc, OnceLock};

use anyhow::Result;
use pyo3::prelude::*;
use taper_run::tasks::AnyRun;

use crate::decoding::{GenerateOptions, generate};
use crate::engine::{Cancelled, Work, broken};
use crate::error::exception;

/// Message from the computing thread about the text that it generates.
enum Message {
    Piece(String),
    End(Result<String>),
}

/// Pieces of a text, in order, as they are generated. Generation ends when Python releases this
/// object.
#[pyclass(frozen, module = "taper._native")]
pub(crate) struct Stream {
    work: Work<Message>,
    record: OnceLock<String>,
}

impl Stream {
    pub(crate) fn start(
        run: Arc<dyn AnyRun>,
        prompt: Option<String>,
        settings: GenerateOptions,
    ) -> PyResult<Self> {
        let work = Work::start(move |messages: Sender<Message>, cancelled: &Cancelled| {
            let generated = run.with_model().and_then(|run| {
                generate(run, prompt.as_deref(), &settings, cancelled, |piece| {
                    let _ = messages.send(Message::Piece(piece.to_owned()));
                })
            });
            let _ = messages.send(Message::End(generated));
        })?;
        Ok(Self { work, record: OnceLock::new() })
    }
}

#[pymethods]
impl Stream {
    /// Returns the next piece; `None` after the last one.
    fn next(&self, py: Python<'_>) -> PyResult<Option<String>> {
        if self.record.get().is_some() {
            return Ok(None);
        }
        match self.work.next(py)? {
            Some(Message::Piece(piece)) => Ok(Some(piece)),
            Some(Message::End(Ok(record))) => {
                let _ = self.record.set(record);
                Ok(None)
            }
            Some(Message::End(Err(error))) => Err(exception(&error)),
            // A job that was cancelled before its turn does not run.
            None if self.work.is_cancelled() => Ok(None),
            None => Err(broken()),
        }
    }

    /// Returns the record of the text as JSON, after it has ended.
    #[getter]
    fn record(&self) -> Option<String> {
        self.record.get().cloned()
    }

    /// Ends the generation of the text.
    fn close(&self) {
        self.work.cancel();
    }
}
