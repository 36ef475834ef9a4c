//! A loaded run, and the requests of all clients that wait for it.
//!
//! **Decision.** One thread owns a run and works through its queue: it takes all that waits, up to
//! a bound, and gives what can be searched together to one search. While a batch is computed the
//! next one gathers, so that batches grow with the load. Clients that were answered together ask
//! again a moment after each other: the first of them waits for the others, up to an eighth of the
//! time of the batch before. A lone request waits for nobody. A row's result does not depend on the
//! rows beside it, so clients cannot tell with whom they shared a batch.

mod generation;
mod labels;
mod translation;
mod work;
mod worker;

use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow};
use serde::Serialize;
use taper_run::LoadedRun;
use taper_run::tasks::TaskModel;
use tokio::sync::{mpsc, oneshot};

use crate::error::Refusal;
use crate::metrics::Metrics;
use crate::settings::Limits;
pub(crate) use generation::GenerateOptions;
pub(crate) use translation::{LineAnswer, TranslateOptions, rounded};
use work::Job;
pub(crate) use work::{Answer, Piece, PromptText, Work};

/// What clients are told of a run.
#[derive(Debug, Clone, Serialize)]
pub struct RunInfo {
    /// Its name: that of its folder.
    pub name: String,
    /// Its task.
    pub task: String,
    /// Of a translation model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub translation: Option<TranslationInfo>,
    /// The labels of a classifier.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// Whether a classifier of texts labels pairs, with a tab between the two.
    pub pairs: bool,
    /// The most tokens that a language model looks back on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<usize>,
    /// Parameters of the model.
    pub parameters: usize,
    /// Seconds since 1970 at which its weights were saved.
    pub created: u64,
}

impl RunInfo {
    /// What every run has.
    fn of<M: TaskModel>(run: &LoadedRun<M>, name: &str) -> Self {
        let saved = run.checkpoint.metadata().and_then(|metadata| metadata.modified()).ok();
        let created = saved.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        Self {
            name: name.to_owned(),
            task: M::TASK.to_string(),
            translation: None,
            labels: Vec::new(),
            pairs: false,
            context: None,
            parameters: run.model.parameters().len(),
            created: created.map_or(0, |time| time.as_secs()),
        }
    }
}

/// What clients are told of a translation model.
#[derive(Debug, Clone, Serialize)]
pub struct TranslationInfo {
    /// The code of the language that it reads.
    pub source: String,
    /// The code of the language that it writes.
    pub target: String,
    /// Whether it says which words belong together.
    pub aligns: bool,
    /// Hypotheses of its search.
    pub beam: usize,
}

/// A loaded run with its worker.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) info: RunInfo,
    limits: Limits,
    /// Gone once no more is taken.
    queue: Mutex<Option<mpsc::UnboundedSender<Job>>>,
    load: Arc<Load>,
    metrics: Arc<Metrics>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// How much there is to do.
#[derive(Debug, Default)]
pub(crate) struct Load {
    /// Lines that wait or are worked on.
    waiting: AtomicUsize,
    /// Microseconds that a line has taken lately.
    pace: AtomicU64,
}

impl Load {
    /// Notes that `lines` were done in `time`.
    fn done(&self, lines: usize, time: Duration) {
        let one = u64::try_from(time.as_micros()).unwrap_or(u64::MAX) / lines.max(1) as u64;
        let before = self.pace.load(Ordering::Relaxed);
        let pace = if before == 0 { one } else { before - before / 8 + one / 8 };
        self.pace.store(pace, Ordering::Relaxed);
    }

    /// How long what waits will take.
    fn wait(&self) -> Duration {
        let lines = self.waiting.load(Ordering::Relaxed) as u64;
        Duration::from_micros(lines.saturating_mul(self.pace.load(Ordering::Relaxed)))
    }
}

/// Counts lines as waiting until it is dropped.
#[derive(Debug)]
pub(crate) struct Waiting {
    lines: usize,
    load: Arc<Load>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.load.waiting.fetch_sub(self.lines, Ordering::SeqCst);
    }
}

impl Engine {
    /// Loads the run at `root` under `name`, on the thread that will work with it.
    ///
    /// # Errors
    /// When the run cannot be loaded, or is of a task that answers nobody.
    pub(crate) fn start(
        root: &Path,
        name: &str,
        load: &taper_run::LoadSettings,
        limits: Limits,
        metrics: &Arc<Metrics>,
    ) -> Result<Self> {
        let (ready, loaded) = std::sync::mpsc::channel();
        let (queue, jobs) = mpsc::unbounded_channel();
        let shared = Arc::new(Load::default());
        let worker = worker::Worker {
            name: name.to_owned(),
            limits,
            load: Arc::clone(&shared),
            metrics: Arc::clone(metrics),
        };
        let (root, load) = (root.to_owned(), load.clone());
        let thread = std::thread::Builder::new()
            .name(format!("run {name}"))
            .spawn(move || worker.work(&root, &load, ready, jobs))
            .context("cannot start a thread; is memory limited?")?;
        let info = match loaded.recv() {
            Ok(info) => info?,
            Err(_) => return Err(anyhow!("{name}: the thread that was to load it has ended")),
        };
        Ok(Self {
            info,
            limits,
            queue: Mutex::new(Some(queue)),
            load: shared,
            metrics: Arc::clone(metrics),
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Queues `work`; the receiver gets its answer. Work whose receiver is gone before it is begun
    /// is never done.
    ///
    /// # Errors
    /// When as much waits as may, or the server stops.
    pub(crate) fn submit(
        &self,
        work: Work,
    ) -> Result<oneshot::Receiver<Result<Answer, Refusal>>, Refusal> {
        let lines = work.lines();
        let before = self.load.waiting.fetch_add(lines, Ordering::SeqCst);
        let waiting = Waiting { lines, load: Arc::clone(&self.load) };
        let busy = || {
            self.metrics.refused(&self.info.name);
            Refusal::Busy(self.load.wait().max(Duration::from_secs(1)))
        };
        // A request may be larger than the queue where nothing else waits.
        if before > 0 && before + lines > self.limits.queue {
            return Err(busy());
        }
        let (reply, answer) = oneshot::channel();
        let job = Job { work, reply, waiting, since: Instant::now() };
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let is_sent = queue.as_ref().is_some_and(|queue| queue.send(job).is_ok());
        if is_sent { Ok(answer) } else { Err(busy()) }
    }

    /// Lines that wait or are worked on.
    pub(crate) fn waiting(&self) -> usize {
        self.load.waiting.load(Ordering::SeqCst)
    }

    /// Takes no more, and waits until what was taken is done.
    pub(crate) fn finish(&self) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).take();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // A worker catches what panics in its work.
            let _ = thread.join();
        }
    }
}
