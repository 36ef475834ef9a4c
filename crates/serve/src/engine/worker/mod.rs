//! Thread of a run (a trained model): it gathers waiting work into batches, answers it, and loads
//! the run again after a failure.

mod turn;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use rayon::{ThreadPool, ThreadPoolBuilder};
use taper_run::{LoadSettings, RunFolder};

use self::turn::{Pauses, Turn};
use super::Load;
use super::handlers::{Handlers, Opening};
use super::queue::Queue;
use super::services::open;
use super::work::{Answer, Job};
use crate::error::{Refusal, one_line, refusal};
use crate::event::{Observer, ServeEvent, tell};
use crate::metrics::Metrics;
use crate::run_info::RunInfo;
use crate::settings::Limits;

/// Interval at which a worker that waits for further requests checks its queue.
const BREATH: Duration = Duration::from_micros(200);

/// Number of successive computations that must panic before the run is loaded again. It is loaded
/// again because panics may have damaged its memory.
pub(super) const MOST_PANICS: usize = 3;

/// Pause before a run that has failed twice in succession is loaded again; each further pause is
/// twice as long.
const PAUSE: Duration = Duration::from_secs(1);

/// Longest pause before a run is loaded again.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Time for which a run must answer before its earlier failures no longer count. If it fails later
/// than this, it is loaded again without a pause, as after its first failure. The time is counted
/// from the end of loading, because a large run may take longer than this to load.
const SOUND: Duration = Duration::from_secs(60);

/// Everything that a worker needs in addition to its run.
pub(super) struct Worker {
    pub(super) name: String,
    pub(super) limits: Limits,
    pub(super) queue: Arc<Queue>,
    pub(super) load: Arc<Load>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) observer: Observer,
    /// Whether other runs are served too.
    pub(super) has_others: bool,
    /// Number of successive computations that have panicked.
    pub(super) panics: AtomicUsize,
}

impl Worker {
    /// Loads the run, reports to `ready`, and works until the queue is closed and empty. If the run
    /// fails later, it is loaded again, and all requests are refused until it is loaded.
    pub(super) fn work(self, root: &Path, load: &LoadSettings, ready: Sender<Result<RunInfo>>) {
        let mut first = Some(ready);
        let (mut known, mut pause) = (None, Duration::ZERO);
        loop {
            let mut loaded = None;
            let served = || self.load_and_serve(root, load, &mut first, &mut known, &mut loaded);
            let reason = match catch_unwind(AssertUnwindSafe(served)) {
                Ok(Ok(())) if self.panics.swap(0, Ordering::Relaxed) < MOST_PANICS => return,
                Ok(Ok(())) => anyhow!("its computations failed in the program"),
                Ok(Err(error)) => match first.take() {
                    None => error,
                    Some(ready) => {
                        // Sending fails only if the server has ended. Then nobody needs the
                        // message.
                        let _ = ready.send(Err(error));
                        return;
                    }
                },
                // The sender of `first` is dropped, so `Engine::start` gets an error.
                Err(_) if first.is_some() => return,
                Err(_) => anyhow!("its thread failed in the program"),
            };
            if is_sound(loaded) {
                pause = Duration::ZERO;
            }
            self.goes_down(&reason, pause);
            if self.queue.sleep(pause) {
                return self.refuse_all(pause);
            }
            pause = (2 * pause).clamp(PAUSE, LONGEST_PAUSE);
        }
    }

    /// Reports that the run does not answer, and refuses waiting work.
    fn goes_down(&self, reason: &anyhow::Error, pause: Duration) {
        if self.load.set_down(Some(one_line(reason))) {
            self.metrics.is_up(&self.name, false);
        }
        self.refuse_all(pause);
        tell(&self.observer, &ServeEvent::Down { run: &self.name, reason });
    }

    fn refuse_all(&self, pause: Duration) {
        for job in self.queue.drain() {
            reply(job, Err(Refusal::Down(self.name.clone(), pause)));
        }
    }

    /// Loads the run, sets `loaded` to the time at which it is loaded, and answers work.
    fn load_and_serve(
        &self,
        root: &Path,
        load: &LoadSettings,
        first: &mut Option<Sender<Result<RunInfo>>>,
        known: &mut Option<RunInfo>,
        loaded: &mut Option<Instant>,
    ) -> Result<()> {
        let task = RunFolder::open(root)?.load_config(&load.overrides)?.task;
        let begun = Instant::now();
        let mut outcome = Ok(());
        let mut serve = |mut handlers: Handlers<'_>, info: RunInfo| {
            let seconds = begun.elapsed().as_secs_f64();
            let info = RunInfo { verbs: handlers.verbs(), ..info };
            outcome = self.enter(first, known, info, seconds).and_then(|info| {
                handlers.pool = self.pool(info)?;
                *loaded = Some(Instant::now());
                self.serve(&handlers);
                Ok(())
            });
        };
        open(task, &Opening { root, load, name: &self.name, limits: self.limits }, &mut serve)?;
        outcome
    }

    /// Records that the run is loaded, with its description `info`, in place of the earlier
    /// description `known`.
    ///
    /// # Errors
    /// When the folder contains a different run than before.
    fn enter<'k>(
        &self,
        first: &mut Option<Sender<Result<RunInfo>>>,
        known: &'k mut Option<RunInfo>,
        info: RunInfo,
        seconds: f64,
    ) -> Result<&'k RunInfo> {
        // A different run is refused, because clients already know the labels and languages of the
        // earlier run.
        if known.as_ref().is_some_and(|known| !known.is_same(&info)) {
            bail!("{}: the folder has another run now: start the server again", self.name);
        }
        let info = known.insert(info);
        self.load.set_down(None);
        self.metrics.is_up(&self.name, true);
        if let Some(ready) = first.take() {
            // `Engine::start` waits for this message.
            let _ = ready.send(Ok(info.clone()));
        } else {
            tell(&self.observer, &ServeEvent::Loaded { run: info, seconds });
        }
        Ok(info)
    }

    /// Makes a pool of threads for this run alone, if other runs are served too and this run
    /// computes on the CPU. In a common pool, a thread that waits for a part of a step could take
    /// up a search of another run, and continue its own step only after the end of that search.
    fn pool(&self, info: &RunInfo) -> Result<Option<ThreadPool>> {
        if !self.has_others || !info.is_on_cpu {
            return Ok(None);
        }
        let threads = rayon::current_num_threads();
        let pool = ThreadPoolBuilder::new().num_threads(threads).build();
        pool.map(Some).context("cannot start threads; is memory limited?")
    }

    /// Answers work until the queue is closed and empty, or [`MOST_PANICS`] computations have
    /// panicked in succession. The heaviest work is begun first, because lighter work can be
    /// answered between its steps.
    pub(super) fn serve(&self, handlers: &Handlers<'_>) {
        let (mut last_weight, mut last_time) = (0, Duration::ZERO);
        while self.panics.load(Ordering::Relaxed) < MOST_PANICS {
            let idle_since = Instant::now();
            if !self.queue.wait() {
                return;
            }
            // Waits for further requests only if the idle time before this request was shorter than
            // the computation of the last batch. A request after a longer pause is probably not
            // from a client of that batch, so it does not wait for the other clients of the batch.
            let wait =
                if idle_since.elapsed() < last_time { last_time / 8 } else { Duration::ZERO };
            let begun = Instant::now();
            while self.queue.heaviest() == Some(0)
                && self.queue.weight(0) < last_weight
                && begun.elapsed() < wait
            {
                std::thread::sleep(BREATH);
            }
            let Some(lane) = self.queue.heaviest() else { continue };
            let batch = self.queue.take(lane, self.limits.batch);
            let weight: usize = batch.iter().map(|job| job.waiting.weight).sum();
            let begun = Instant::now();
            self.answer(handlers, lane, batch);
            (last_weight, last_time) = match lane {
                0 => (weight.min(self.limits.batch), begun.elapsed()),
                _ => (0, Duration::ZERO),
            };
        }
    }

    /// Answers jobs of a lane (a part of the queue with work of similar cost). Compatible jobs are
    /// answered together.
    pub(super) fn answer(&self, handlers: &Handlers<'_>, lane: usize, jobs: Vec<Job>) {
        let pauses = Pauses::new(self, handlers, lane);
        let mut rest: Vec<Job> = Vec::with_capacity(jobs.len());
        for mut job in self.wanted(jobs) {
            pauses.pause();
            match self.guarded(|| handlers.check(&mut job)) {
                Ok(Ok(())) => rest.push(job),
                Ok(Err(refusal)) | Err(refusal) => reply(job, Err(refusal)),
            }
        }
        while !rest.is_empty() {
            let leader = rest.remove(0);
            let (mut group, others): (Vec<Job>, Vec<Job>) =
                rest.into_iter().partition(|job| handlers.go_together(&leader, job));
            group.insert(0, leader);
            rest = others;
            self.answer_group(handlers, &pauses, group);
        }
    }

    /// Returns the jobs whose client still waits, and reports the other jobs as abandoned.
    fn wanted(&self, mut jobs: Vec<Job>) -> Vec<Job> {
        jobs.retain(|job| {
            let is_abandoned = job.is_abandoned();
            if is_abandoned {
                self.abandoned(job, false);
            }
            !is_abandoned
        });
        jobs
    }

    fn abandoned(&self, job: &Job, begun: bool) {
        self.metrics.abandoned(&self.name, begun);
        let lines = job.request.lines();
        tell(&self.observer, &ServeEvent::Abandoned { run: &self.name, lines, begun });
    }

    fn answer_group(&self, handlers: &Handlers<'_>, pauses: &Pauses<'_>, group: Vec<Job>) {
        // Some clients may have left while others were answered.
        let group = self.wanted(group);
        if group.is_empty() {
            return;
        }
        let begun = Instant::now();
        for job in &group {
            self.metrics.waited(&self.name, begun - job.since);
        }
        self.compute(handlers, pauses, group);
    }

    /// Answers jobs that go together. The caller has already recorded their waiting times.
    fn compute(&self, handlers: &Handlers<'_>, pauses: &Pauses<'_>, group: Vec<Job>) {
        let begun = Instant::now();
        let given = pauses.given();
        let turn = Turn::new(pauses, &group);
        let result = self.guarded(|| handlers.answer(&group, &turn));
        let dropped = turn.dropped();
        match result {
            Ok(Ok(answers)) => {
                self.panics.store(0, Ordering::Relaxed);
                let time = begun.elapsed().saturating_sub(pauses.given() - given);
                let done = group.iter().zip(&dropped).filter(|(_, dropped)| !**dropped);
                let weight = done.clone().map(|(job, _)| job.waiting.weight).sum();
                let lines = done.map(|(job, _)| job.request.lines()).sum();
                if lines > 0 {
                    self.load.done(weight, time);
                    self.metrics.computed(&self.name, lines, time);
                }
                for ((job, answer), dropped) in group.into_iter().zip(answers).zip(dropped) {
                    if dropped { self.abandoned(&job, true) } else { reply(job, Ok(answer)) }
                }
            }
            // An error in one job must not affect other jobs, so each job is answered alone.
            _ if group.len() > 1 => {
                for job in group {
                    // Clients may have left while other jobs were answered.
                    let alone = self.wanted(vec![job]);
                    if !alone.is_empty() {
                        self.compute(handlers, pauses, alone);
                    }
                }
            }
            Ok(Err(error)) => group.into_iter().for_each(|job| reply(job, Err(refusal(&error)))),
            Err(refusal) => group.into_iter().for_each(|job| reply(job, Err(refusal.clone()))),
        }
    }

    /// Returns the result of `work`, or a refusal if `work` panics.
    fn guarded<T>(&self, work: impl FnOnce() -> T) -> Result<T, Refusal> {
        catch_unwind(AssertUnwindSafe(work)).map_err(|_| {
            self.panics.fetch_add(1, Ordering::Relaxed);
            self.metrics.panicked(&self.name);
            Refusal::Failed("the computation failed; the server goes on".to_owned())
        })
    }
}

/// Whether a run that was loaded at the time `loaded` has answered for longer than [`SOUND`].
/// `loaded` is `None` if the run could not be loaded.
pub(super) fn is_sound(loaded: Option<Instant>) -> bool {
    loaded.is_some_and(|loaded| loaded.elapsed() > SOUND)
}

/// Sends an answer, unless nobody waits for it.
fn reply(job: Job, answer: Result<Answer, Refusal>) {
    let Job { reply, waiting, .. } = job;
    drop(waiting);
    reply.send(answer);
}
