//! State shared by all requests: the runs (trained models), the settings, the counters.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};
use taper_run::tasks::TaskModel;
use tokio::sync::Semaphore;

use crate::engine::{Engine, Verb};
use crate::error::Refusal;
use crate::event::Observer;
use crate::files::Files;
use crate::metrics::Metrics;
use crate::page::Pages;
use crate::settings::{Limits, ServeSettings};

/// State shared by all requests.
pub(crate) struct App {
    pub(crate) settings: ServeSettings,
    /// The served runs.
    pub(crate) engines: Vec<Engine>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) observer: Observer,
    pub(crate) pages: Pages,
    pub(crate) files: Files,
    /// Permits for translating documents. Their number is the largest number of documents that are
    /// translated at the same time.
    pub(crate) documents: Arc<Semaphore>,
    /// Next number that [`Self::draws()`] gives to a prompt. The number determines the prompt's
    /// stream of random numbers.
    pub(crate) draws: AtomicU64,
}

impl App {
    pub(crate) fn limits(&self) -> &Limits {
        &self.settings.limits
    }

    /// Returns the runs whose task answers requests of kind `V`.
    pub(crate) fn engines_for<V: Verb>(&self) -> impl Iterator<Item = &Engine> {
        self.engines.iter().filter(|engine| engine.is_for::<V>())
    }

    /// Returns the run called `name`; if `name` is `None`, the only run whose task answers requests
    /// of kind `V`.
    ///
    /// # Errors
    /// When there is no such run, or when `name` is `None` and there are several such runs.
    pub(crate) fn engine<V: Verb>(&self, name: Option<&str>) -> Result<&Engine, Refusal> {
        if let Some(name) = name {
            let named = self.engines.iter().find(|engine| engine.info.name == name);
            return named.ok_or_else(|| Refusal::Missing(format!("no run is named {name:?}")));
        }
        let engines: Vec<&Engine> = self.engines_for::<V>().collect();
        match engines[..] {
            [only] => Ok(only),
            [] => {
                let task = V::Model::TASK;
                Err(Refusal::Missing(format!("no run of the task {task} is served")))
            }
            _ => {
                let names: Vec<&str> =
                    engines.iter().map(|engine| engine.info.name.as_str()).collect();
                Err(Refusal::Malformed(format!(
                    "several runs do that: name one as `run`: {}",
                    names.join(", ")
                )))
            }
        }
    }

    /// Returns the answer of `engine` to `request`, if it comes within the time limit.
    ///
    /// # Errors
    /// When too much work is waiting, the answer takes too long, or the run refuses.
    pub(crate) async fn ask<V: Verb>(
        &self,
        engine: &Engine,
        request: V,
    ) -> Result<V::Answer, Refusal> {
        let answer = engine.submit(request)?;
        match tokio::time::timeout(self.limits().answer, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(engine.is_loaded_again()),
            Err(_) => Err(Refusal::Late),
        }
    }

    /// Returns the health of the server: an HTTP status, and a JSON body that lists the runs that
    /// do not answer.
    pub(crate) fn health(&self) -> (u16, Value) {
        let down = |engine: &Engine| {
            engine.down().map(|reason| json!({ "run": engine.info.name, "reason": reason }))
        };
        let down: Vec<Value> = self.engines.iter().filter_map(down).collect();
        match down.is_empty() {
            true => (200, json!({ "status": "ok" })),
            false => (503, json!({ "status": "down", "down": down })),
        }
    }

    /// Returns as many new numbers as there are prompts. The number of a prompt determines its
    /// stream of random numbers, so no other prompt of this server gets the same number.
    pub(crate) fn draws(&self, prompts: usize) -> std::ops::Range<u64> {
        let first = self.draws.fetch_add(prompts as u64, Ordering::Relaxed);
        first..first + prompts as u64
    }

    /// Refuses a request with more lines than the limit.
    ///
    /// # Errors
    /// When `lines` exceeds the limit.
    pub(crate) fn check_lines(&self, lines: usize) -> Result<(), Refusal> {
        let most = self.limits().lines;
        if lines > most {
            return Err(Refusal::Large(format!(
                "{lines} lines: a request must have at most {most}"
            )));
        }
        Ok(())
    }
}
