//! State shared by all requests: the runs, the settings, the counters.

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
    pub(crate) engines: Vec<Engine>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) observer: Observer,
    pub(crate) pages: Pages,
    pub(crate) files: Files,
    /// Places for documents in work.
    pub(crate) documents: Arc<Semaphore>,
    /// Number that distinguishes the random draws of a request from those of all other requests.
    pub(crate) draws: AtomicU64,
}

impl App {
    pub(crate) fn limits(&self) -> &Limits {
        &self.settings.limits
    }

    /// Runs that can receive requests of this kind.
    pub(crate) fn engines_for<V: Verb>(&self) -> impl Iterator<Item = &Engine> {
        self.engines.iter().filter(|engine| engine.is_for::<V>())
    }

    /// Run of this name or, without a name, the only run for requests of this kind.
    ///
    /// # Errors
    /// When there is none, or several and no name is given.
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

    /// Answer of `engine` to a request, within the time limit.
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

    /// Status of the server, with the runs that do not answer.
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

    /// Numbers for the draws of `prompts` prompts, which no other request has.
    pub(crate) fn draws(&self, prompts: usize) -> std::ops::Range<u64> {
        let first = self.draws.fetch_add(prompts as u64, Ordering::Relaxed);
        first..first + prompts as u64
    }

    /// Refuses a request with more lines than the limit.
    ///
    /// # Errors
    /// When it has more lines.
    pub(crate) fn check_lines(&self, lines: usize) -> Result<(), Refusal> {
        let most = self.limits().lines;
        if lines > most {
            return Err(Refusal::Large(format!("{lines} lines: at most {most} are taken at once")));
        }
        Ok(())
    }
}
