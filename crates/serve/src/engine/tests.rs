//! Tests of a worker, with a service that fails on request.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::Result;
use taper_decoding::Control;
use tokio::sync::oneshot::{Receiver, channel};

use super::queue::Queue;
use super::work::{Answer, Job, Work};
use super::worker::{MOST_PANICS, Service, Worker};
use super::{Load, Waiting};
use crate::error::Refusal;
use crate::metrics::Metrics;
use crate::settings::Limits;

/// Labels texts with nothing; panics for some, in its check or in its answer.
#[derive(Default)]
struct Failing {
    answered: AtomicUsize,
}

fn has(work: &Work, wanted: &str) -> bool {
    matches!(work, Work::LabelTexts { texts } if texts.iter().any(|text| text == wanted))
}

impl Service for Failing {
    fn check(&self, work: &Work) -> Result<(), Refusal> {
        assert!(!has(work, "panics when it is checked"));
        Ok(())
    }

    fn goes_with(&self, _: &Work, _: &Work) -> bool {
        true
    }

    fn answer(&self, works: &[&Work], control: &dyn Control) -> Result<Vec<Answer>> {
        control.between_steps();
        assert!(!works.iter().any(|work| has(work, "panics when it is answered")));
        self.answered.fetch_add(works.len(), Ordering::Relaxed);
        Ok(works.iter().map(|_| Answer::Labelled(Vec::new())).collect())
    }
}

fn worker() -> Worker {
    Worker {
        name: "run".to_owned(),
        limits: Limits::default(),
        queue: Arc::default(),
        load: Arc::default(),
        metrics: Arc::new(Metrics::new()),
        observer: Arc::new(|_| {}),
        has_others: false,
        panics: AtomicUsize::new(0),
    }
}

fn ask(queue: &Queue, load: &Arc<Load>, text: &str) -> Receiver<Result<Answer, Refusal>> {
    let work = Work::LabelTexts { texts: vec![text.to_owned()] };
    let (reply, answer) = channel();
    let waiting = Waiting::new(&work, 1, load);
    assert!(queue.push(Job { work, reply, waiting, since: Instant::now() }));
    answer
}

fn answered(mut answer: Receiver<Result<Answer, Refusal>>) -> bool {
    match answer.try_recv().expect("an answer") {
        Ok(Answer::Labelled(_)) => true,
        Err(Refusal::Failed(_)) => false,
        other => unreachable!("{other:?}"),
    }
}

#[test]
fn a_panic_is_the_failure_of_its_own_request() {
    let (worker, service) = (worker(), Failing::default());
    let texts = ["a", "panics when it is checked", "b", "panics when it is answered", "c"];
    let answers = texts.map(|text| ask(&worker.queue, &worker.load, text));
    worker.queue.close();
    worker.serve(&service, None);
    assert_eq!(answers.map(answered), [true, false, true, false, true]);
    assert_eq!(worker.panics.load(Ordering::Relaxed), 0, "the last one was answered");
}

#[test]
fn a_run_is_given_up_after_panics_in_a_row() {
    let (worker, service) = (worker(), Failing::default());
    for _ in 0..MOST_PANICS {
        let answer = ask(&worker.queue, &worker.load, "panics when it is answered");
        let batch = worker.queue.take(0, 1);
        worker.answer(&service, 0, batch);
        assert!(!answered(answer));
    }
    let mut waits = ask(&worker.queue, &worker.load, "a");
    worker.serve(&service, None);
    assert!(waits.try_recv().is_err(), "it waits for the run to be loaded again");
    assert_eq!(service.answered.load(Ordering::Relaxed), 0);
}

#[test]
fn lighter_work_is_answered_in_the_pauses_of_heavier_work() {
    let (worker, service) = (worker(), Failing::default());
    let heavy = ask(&worker.queue, &worker.load, &"long ".repeat(10_000));
    let batch = worker.queue.take(4, 1);
    assert_eq!(batch.len(), 1);
    let light = ask(&worker.queue, &worker.load, "a");
    worker.answer(&service, 4, batch);
    assert!(answered(light) && answered(heavy));
    assert_eq!(worker.load.weight(4), 0);
}
