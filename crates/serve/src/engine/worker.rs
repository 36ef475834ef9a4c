//! The thread of a run: gathers what waits into batches and answers it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use taper_data::Task;
use taper_run::{LoadSettings, RunFolder};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::mpsc::error::TryRecvError;

use super::generation::Generates;
use super::labels::{LabelsImages, LabelsTexts};
use super::translation::Translates;
use super::work::{Answer, Job, Work};
use super::{Load, RunInfo};
use crate::error::{Refusal, refusal};
use crate::metrics::Metrics;
use crate::settings::Limits;

/// How long a worker that gathers looks away from its queue.
const BREATH: Duration = Duration::from_micros(200);

/// What a task does with requests.
pub(super) trait Service {
    /// Refuses what is too much, or is for another task.
    ///
    /// # Errors
    /// With what the client is told.
    fn check(&self, work: &Work) -> Result<(), Refusal>;

    /// Whether the two can be answered in one pass.
    fn goes_with(&self, one: &Work, other: &Work) -> bool;

    /// Answers works that go with each other, in their order. Each answer is what the work would
    /// get alone.
    ///
    /// # Errors
    /// When one of them cannot be answered.
    fn answer(&mut self, works: &[&Work]) -> Result<Vec<Answer>>;
}

/// What a worker needs beside its run.
pub(super) struct Worker {
    pub(super) name: String,
    pub(super) limits: Limits,
    pub(super) load: Arc<Load>,
    pub(super) metrics: Arc<Metrics>,
}

impl Worker {
    /// Loads the run, tells `ready`, and works until the queue is closed and empty.
    pub(super) fn work(
        self,
        root: &Path,
        load: &LoadSettings,
        ready: Sender<Result<RunInfo>>,
        jobs: UnboundedReceiver<Job>,
    ) {
        if let Err(error) = self.load_and_serve(root, load, &ready, jobs) {
            // Nobody listens any more where the run had been loaded.
            let _ = ready.send(Err(error));
        }
    }

    fn load_and_serve(
        &self,
        root: &Path,
        load: &LoadSettings,
        ready: &Sender<Result<RunInfo>>,
        jobs: UnboundedReceiver<Job>,
    ) -> Result<()> {
        let task = RunFolder::open(root)?.load_config(&load.overrides)?.task;
        let serve = |service: &mut dyn Service, info: RunInfo| {
            // The receiver is there until it has been told.
            let _ = ready.send(Ok(info));
            self.serve(service, jobs);
        };
        match task {
            Task::Translation => Translates::open(root, load, &self.name, self.limits, serve),
            Task::LanguageModel => Generates::open(root, load, &self.name, self.limits, serve),
            Task::Classification => LabelsTexts::open(root, load, &self.name, self.limits, serve),
            Task::ImageClassification => LabelsImages::open(root, load, &self.name, serve),
            Task::MaskedLanguageModel => bail!(
                "{}: a masked language model answers nobody; serve a classifier that begins with it",
                root.display()
            ),
            task @ (Task::Captions | Task::ImageText | Task::Tagging | Task::QuestionAnswering) => {
                bail!(
                    "{}: a run of the task {task} is not served; `taper predict` uses it",
                    root.display()
                )
            }
            task @ Task::InContextRegression => bail!(
                "{}: a run of the task {task} is not served; `taper evaluate` measures it",
                root.display()
            ),
        }
    }

    fn serve(&self, service: &mut dyn Service, mut jobs: UnboundedReceiver<Job>) {
        let (mut last_lines, mut last_time) = (0, Duration::ZERO);
        loop {
            let idle_since = Instant::now();
            let Some(first) = jobs.blocking_recv() else { return };
            // Whoever asks after a pause is not one of those that were answered together.
            let wait =
                if idle_since.elapsed() < last_time { last_time / 8 } else { Duration::ZERO };
            let wanted = last_lines.min(self.limits.batch);
            let begun = Instant::now();
            let mut lines = first.work.lines();
            let mut batch = vec![first];
            while lines < self.limits.batch {
                match jobs.try_recv() {
                    Ok(job) => {
                        lines += job.work.lines();
                        batch.push(job);
                    }
                    Err(TryRecvError::Empty) if lines < wanted && begun.elapsed() < wait => {
                        std::thread::sleep(BREATH);
                    }
                    Err(_) => break,
                }
            }
            let begun = Instant::now();
            self.answer(service, batch);
            (last_lines, last_time) = (lines, begun.elapsed());
        }
    }

    /// Answers jobs, those together that go with each other.
    fn answer(&self, service: &mut dyn Service, jobs: Vec<Job>) {
        let mut rest: Vec<Job> = Vec::with_capacity(jobs.len());
        for job in self.wanted(jobs) {
            match service.check(&job.work) {
                Ok(()) => rest.push(job),
                Err(refusal) => reply(job, Err(refusal)),
            }
        }
        while !rest.is_empty() {
            let leader = rest.remove(0);
            let (mut group, others): (Vec<Job>, Vec<Job>) =
                rest.into_iter().partition(|job| service.goes_with(&leader.work, &job.work));
            group.insert(0, leader);
            rest = others;
            self.answer_group(service, group);
        }
    }

    /// Jobs whose client is still there.
    fn wanted(&self, mut jobs: Vec<Job>) -> Vec<Job> {
        jobs.retain(|job| {
            let is_abandoned = job.is_abandoned();
            if is_abandoned {
                self.metrics.abandoned(&self.name);
            }
            !is_abandoned
        });
        jobs
    }

    fn answer_group(&self, service: &mut dyn Service, group: Vec<Job>) {
        // Some may have left while others were answered.
        let group = self.wanted(group);
        if group.is_empty() {
            return;
        }
        let begun = Instant::now();
        for job in &group {
            self.metrics.waited(&self.name, begun - job.since);
        }
        let lines = group.iter().map(|job| job.work.lines()).sum();
        let works: Vec<&Work> = group.iter().map(|job| &job.work).collect();
        match self.attempt(service, &works) {
            Ok(answers) => {
                let time = begun.elapsed();
                self.load.done(lines, time);
                self.metrics.computed(&self.name, lines, time);
                group.into_iter().zip(answers).for_each(|(job, answer)| reply(job, Ok(answer)));
            }
            // What is wrong with one of them must not be the others' loss.
            Err(_) if group.len() > 1 => {
                for job in group {
                    self.answer_group(service, vec![job]);
                }
            }
            Err(refusal) => {
                group.into_iter().for_each(|job| reply(job, Err(refusal.clone())));
            }
        }
    }

    fn attempt(&self, service: &mut dyn Service, works: &[&Work]) -> Result<Vec<Answer>, Refusal> {
        match catch_unwind(AssertUnwindSafe(|| service.answer(works))) {
            Ok(Ok(answers)) => Ok(answers),
            Ok(Err(error)) => Err(refusal(&error)),
            Err(_) => {
                self.metrics.panicked(&self.name);
                Err(Refusal::Failed("the computation failed; the server goes on".to_owned()))
            }
        }
    }
}

/// Sends an answer, unless nobody waits for it.
fn reply(job: Job, answer: Result<Answer, Refusal>) {
    let Job { reply, waiting, .. } = job;
    drop(waiting);
    let _ = reply.send(answer);
}
