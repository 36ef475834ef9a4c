//! State shared by all requests: the runs, the settings, the counters.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};
use taper_data::Task;

use crate::engine::{Answer, Engine, Work};
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
    /// Number that distinguishes the random draws of a request from those of all others.
    pub(crate) draws: AtomicU64,
}

impl App {
    pub(crate) fn limits(&self) -> &Limits {
        &self.settings.limits
    }

    /// Run of this name, or without a name the only one of the task.
    ///
    /// # Errors
    /// When there is none, or several without a name to choose by.
    pub(crate) fn engine(&self, name: Option<&str>, task: Task) -> Result<&Engine, Refusal> {
        let task = task.to_string();
        let names = || {
            let own = self.engines.iter().filter(|engine| engine.info.task == task);
            own.map(|engine| engine.info.name.as_str()).collect::<Vec<_>>().join(", ")
        };
        if let Some(name) = name {
            let found = self.engines.iter().find(|engine| engine.info.name == name);
            return found.ok_or_else(|| Refusal::Missing(format!("no run is named {name:?}")));
        }
        let mut own = self.engines.iter().filter(|engine| engine.info.task == task);
        match (own.next(), own.next()) {
            (Some(only), None) => Ok(only),
            (Some(_), Some(_)) => Err(Refusal::Malformed(format!(
                "several runs do that: name one as `run`: {}",
                names()
            ))),
            (None, _) => Err(Refusal::Missing(format!("no run of the task {task} is served"))),
        }
    }

    /// Has `engine` do `work`, within the time limit of an answer.
    ///
    /// # Errors
    /// When too much is waiting, it takes too long, or the run refuses.
    pub(crate) async fn ask(&self, engine: &Engine, work: Work) -> Result<Answer, Refusal> {
        let answer = engine.submit(work)?;
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

    /// Refuses a request of more lines than the limit.
    ///
    /// # Errors
    /// When it has more.
    pub(crate) fn check_lines(&self, lines: usize) -> Result<(), Refusal> {
        let most = self.limits().lines;
        if lines > most {
            return Err(Refusal::Large(format!("{lines} lines: at most {most} are taken at once")));
        }
        Ok(())
    }
}

/// Refusal for an engine's answer to another kind of work; it never occurs.
pub(crate) fn wrong_answer() -> Refusal {
    Refusal::Failed("the run has answered something else".to_owned())
}
