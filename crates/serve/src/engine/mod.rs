//! A loaded run (the folder of a trained model), and the queue of all clients' requests to it.
//!
//! **Decision.** One thread owns a run and works through its queue. The queue has several
//! [lanes](queue), each with requests of similar weight (estimated cost). The thread takes requests
//! from one lane, up to a bound on their total weight, and computes compatible requests as one
//! batch. Requests that arrive meanwhile form the next batch, so batches grow with the load.
//!
//! Clients that were answered in the same batch often send their next requests at nearly the same
//! time. So after a batch of light requests, the first new request waits for more requests, until
//! they have the weight of that batch together. It waits at most for an eighth of the time that the
//! batch took. A request of a client that is alone does not wait. The result for a line does not
//! depend on the other lines of its batch, so clients cannot see with whom they shared a batch.
//!
//! Between two steps of a search, [lighter work goes first](turn), and work whose client has left
//! is dropped. A failure affects only one request. A run whose thread fails is loaded again.

mod attention;
mod chat;
mod generation;
mod handlers;
mod labels;
mod limits;
mod pictures;
mod pieces;
mod queue;
mod services;
#[cfg(test)]
mod tests;
mod translation;
mod verbs;
mod words;
mod work;
mod worker;

use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use taper_run::tasks::TaskModel;
use tokio::sync::oneshot;

use crate::error::Refusal;
use crate::event::Observer;
use crate::metrics::Metrics;
use crate::run_info::RunInfo;
use crate::settings::{Limits, ServeSettings};
pub(crate) use attention::{Attend, AttendPair};
pub(crate) use chat::ChatTemplate;
pub(crate) use generation::{Generate, GenerateOptions, Scoring};
pub(crate) use labels::{LabelImage, LabelTexts, Occlude};
pub(crate) use pictures::{Describe, Match};
pub(crate) use pieces::{Piece, PieceSender};
use queue::{LANES, Queue, lane_of};
pub(crate) use translation::{
    LineAnswer, Measure, Translate, TranslateOptions, TranslateSentences, rounded,
};
pub(crate) use verbs::Verbs;
pub(crate) use words::{Question, Tag};
pub(crate) use work::{Continued, Fit, OwnPrompt, PromptText, Verb};
use work::{Job, Request};

/// Loaded run with its worker, which is the thread that answers the requests to the run.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) info: RunInfo,
    limits: Limits,
    queue: Arc<Queue>,
    load: Arc<Load>,
    metrics: Arc<Metrics>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Amount and pace of an engine's work, and whether the run answers.
#[derive(Debug, Default)]
pub(crate) struct Load {
    /// Number of lines that wait or are being processed.
    lines: AtomicUsize,
    /// Weight of the work that waits or is being processed, by lane.
    weights: [AtomicUsize; LANES],
    /// Moving average of the time for a unit of weight, in nanoseconds; 0 before the first work.
    pace: AtomicU64,
    /// Locked while it is decided whether a request is accepted, so that two requests that come at
    /// the same time do not both count as waiting work for each other.
    acceptance: Mutex<()>,
    /// Reason why the run does not answer; `None` if it does.
    down: Mutex<Option<String>>,
}

impl Load {
    /// Records that work of this weight was done in `time`.
    fn done(&self, weight: usize, time: Duration) {
        let one = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX) / weight.max(1) as u64;
        let before = self.pace.load(Ordering::Relaxed);
        let pace = if before == 0 { one } else { before - before / 8 + one / 8 };
        self.pace.store(pace, Ordering::Relaxed);
    }

    /// Returns the total weight of the work in `lane` and in all lighter lanes.
    fn weight(&self, lane: usize) -> usize {
        self.weights[..=lane].iter().map(|weight| weight.load(Ordering::SeqCst)).sum()
    }

    /// Returns the expected time for the work in `lane` and in all lighter lanes.
    fn wait(&self, lane: usize) -> Duration {
        let pace = self.pace.load(Ordering::Relaxed);
        Duration::from_nanos((self.weight(lane) as u64).saturating_mul(pace))
    }

    /// Records the reason why the run does not answer, or `None` if it does. Returns whether the
    /// run answered before.
    fn set_down(&self, reason: Option<String>) -> bool {
        let mut down = self.down.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *down, reason).is_none()
    }
}

/// Lines and weight of one request. They are counted in [`Load`] until this value is dropped.
#[derive(Debug)]
pub(crate) struct Waiting {
    lines: usize,
    weight: usize,
    lane: usize,
    load: Arc<Load>,
}

impl Waiting {
    fn new(work: &dyn Request, beam: usize, load: &Arc<Load>) -> Self {
        let (lines, weight) = (work.lines(), work.weight(beam));
        let lane = lane_of(weight);
        load.lines.fetch_add(lines, Ordering::SeqCst);
        load.weights[lane].fetch_add(weight, Ordering::SeqCst);
        Self { lines, weight, lane, load: Arc::clone(load) }
    }

    /// Counts a request, unless the work of its lane and of lighter lanes would be heavier than
    /// `most` with it. A request that is larger than `most` is accepted if no such work waits.
    ///
    /// # Errors
    /// When the request is not accepted: the expected time for the work that waits before it.
    fn accept(
        work: &dyn Request,
        beam: usize,
        load: &Arc<Load>,
        most: usize,
    ) -> Result<Self, Duration> {
        let _one_at_a_time = load.acceptance.lock().unwrap_or_else(PoisonError::into_inner);
        let weight = work.weight(beam);
        let lane = lane_of(weight);
        let before = load.weight(lane);
        if before > 0 && before + weight > most {
            return Err(load.wait(lane));
        }
        Ok(Self::new(work, beam, load))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.load.lines.fetch_sub(self.lines, Ordering::SeqCst);
        self.load.weights[self.lane].fetch_sub(self.weight, Ordering::SeqCst);
    }
}

impl Engine {
    /// Starts the thread of a worker, and waits until the worker has loaded the run at `root` under
    /// the name `name`.
    ///
    /// # Errors
    /// When the run cannot be loaded, or its task is not served.
    pub(crate) fn start(
        root: &Path,
        name: &str,
        settings: &ServeSettings,
        metrics: &Arc<Metrics>,
        observer: &Observer,
    ) -> Result<Self> {
        let (ready, loaded) = std::sync::mpsc::channel();
        let (queue, shared) = (Arc::<Queue>::default(), Arc::<Load>::default());
        let worker = worker::Worker {
            name: name.to_owned(),
            limits: settings.limits,
            queue: Arc::clone(&queue),
            load: Arc::clone(&shared),
            metrics: Arc::clone(metrics),
            observer: Arc::clone(observer),
            has_others: settings.runs.len() > 1,
            panics: AtomicUsize::new(0),
        };
        let (root, load) = (root.to_owned(), settings.load.clone());
        let thread = std::thread::Builder::new()
            .name(format!("run {name}"))
            .spawn(move || worker.work(&root, &load, ready))
            .context("cannot start a thread; is memory limited?")?;
        let info = match loaded.recv() {
            Ok(info) => info?,
            Err(_) => return Err(anyhow!("{name}: the thread that was to load it has ended")),
        };
        Ok(Self {
            info,
            limits: settings.limits,
            queue,
            load: shared,
            metrics: Arc::clone(metrics),
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Whether the run's task answers requests of kind `V`, so that requests that name no run may
    /// go to this run.
    pub(crate) fn is_for<V: Verb>(&self) -> bool {
        self.info.task == V::Model::TASK.to_string()
    }

    /// Queues a request, and returns the receiver of its answer. If the receiver is dropped, the
    /// work is not begun, or ends before its next step.
    ///
    /// # Errors
    /// When the run does not answer such requests or has failed, the queue is full, or the server
    /// stops.
    pub(crate) fn submit<V: Verb>(
        &self,
        request: V,
    ) -> Result<oneshot::Receiver<Result<V::Answer, Refusal>>, Refusal> {
        if self.down().is_some() {
            return Err(self.is_loaded_again());
        }
        self.info.verbs.require::<V>()?;
        let beam = self.info.translation.as_ref().map_or(1, |info| info.beam);
        let busy = |wait: Duration| {
            self.metrics.refused(&self.info.name);
            Refusal::Busy(wait.max(Duration::from_secs(1)))
        };
        let most = self.limits.queue;
        let waiting = Waiting::accept(&request, beam, &self.load, most).map_err(busy)?;
        let lane = waiting.lane;
        let (reply, answer) = oneshot::channel();
        let (request, reply) = (Box::new(request), Box::new(reply));
        let job = Job { request, encoded: None, reply, waiting, since: Instant::now() };
        if self.queue.push(job) { Ok(answer) } else { Err(busy(self.load.wait(lane))) }
    }

    /// Number of lines that wait or are being processed.
    pub(crate) fn waiting(&self) -> usize {
        self.load.lines.load(Ordering::SeqCst)
    }

    /// Reason why the run does not answer; `None` if it does.
    pub(crate) fn down(&self) -> Option<String> {
        self.load.down.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the refusal for clients while the run is being loaded again.
    pub(crate) fn is_loaded_again(&self) -> Refusal {
        Refusal::Down(self.info.name.clone(), Duration::from_secs(1))
    }

    /// Accepts no more work, and waits until the accepted work is done.
    pub(crate) fn finish(&self) {
        self.queue.close();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // The result is ignored: a worker catches panics in its work.
            let _ = thread.join();
        }
    }
}
