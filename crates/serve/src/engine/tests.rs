//! Tests of a worker, with a service that fails on request.

mod restarts;

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

use anyhow::Result;
use taper_decoding::Control;
use taper_run::prediction::Prediction;
use taper_run::{LoadSettings, LoadedRun};
use tokio::sync::oneshot::{Receiver, channel};

use super::attention::{Attend, AttendPair};
use super::handlers::{Answers, Handlers};
use super::labels::LabelTexts;
use super::queue::{LANES, Queue};
use super::translation::{Translate, TranslateOptions, Translates};
use super::work::{Job, Verb};
use super::worker::{MOST_PANICS, Worker, is_sound};
use super::{Load, Waiting};
use crate::error::Refusal;
use crate::event::ServeEvent;
use crate::metrics::Metrics;
use crate::settings::Limits;

/// Service that gives texts no labels; for some texts it panics, in its check or in its answer.
#[derive(Default)]
struct Failing {
    answered: AtomicUsize,
    /// Clients that leave while the next batch is answered.
    leavers: Mutex<Vec<Receiver<Labelled>>>,
}

fn has(request: &LabelTexts, wanted: &str) -> bool {
    request.texts.iter().any(|text| text == wanted)
}

impl Answers<LabelTexts> for Failing {
    type Encoded = ();

    fn check(&self, request: &LabelTexts) -> Result<(), Refusal> {
        assert!(!has(request, "panics when it is checked"));
        Ok(())
    }

    fn answer(
        &self,
        requests: &[(&LabelTexts, &())],
        control: &dyn Control,
    ) -> Result<Vec<Vec<Prediction>>> {
        control.between_steps();
        self.leavers.lock().expect("leavers").clear();
        let wanted = (0..requests.len()).filter(|&request| !control.is_cancelled(request)).count();
        assert!(!requests.iter().any(|(one, ())| has(one, "panics when it is answered")));
        self.answered.fetch_add(wanted, Ordering::Relaxed);
        Ok(requests.iter().map(|_| Vec::new()).collect())
    }
}

fn handlers(service: &Failing) -> Handlers<'_> {
    Handlers::new("labels texts").with::<LabelTexts>(service)
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

type Labelled = Result<Vec<Prediction>, Refusal>;

fn ask(queue: &Queue, load: &Arc<Load>, text: &str) -> Receiver<Labelled> {
    submit(queue, load, LabelTexts { texts: vec![text.to_owned()] })
}

fn submit<V: Verb>(
    queue: &Queue,
    load: &Arc<Load>,
    request: V,
) -> Receiver<Result<V::Answer, Refusal>> {
    let (reply, answer) = channel();
    let waiting = Waiting::new(&request, 1, load);
    let (request, reply) = (Box::new(request), Box::new(reply));
    let job = Job { request, encoded: None, reply, waiting, since: Instant::now() };
    assert!(queue.push(job));
    answer
}

fn answered(mut answer: Receiver<Labelled>) -> bool {
    match answer.try_recv().expect("an answer") {
        Ok(_) => true,
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
    worker.serve(&handlers(&service));
    assert_eq!(answers.map(answered), [true, false, true, false, true]);
    assert_eq!(worker.panics.load(Ordering::Relaxed), 0, "the last one was answered");
    // If a batch fails, each of its texts is answered alone, but its waiting time is recorded only
    // once.
    let counts = worker.metrics.text(std::iter::empty());
    assert!(counts.contains("taper_queue_seconds_count{run=\"run\"} 4\n"), "{counts}");
}

#[test]
fn one_of_several_large_requests_at_the_same_time_is_accepted() {
    let request = LabelTexts { texts: vec![String::new(); 100] };
    for round in 0..200 {
        let (load, start) = (Arc::<Load>::default(), Barrier::new(4));
        let accepts = || {
            start.wait();
            Waiting::accept(&request, 1, &load, 50).ok()
        };
        let accepted = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(accepts)).collect();
            threads.into_iter().filter_map(|thread| thread.join().expect("no panic")).count()
        });
        assert!(accepted >= 1, "round {round}");
    }
    let load = Arc::<Load>::default();
    let first = Waiting::accept(&request, 1, &load, 50).expect("no other work waits");
    load.done(1, Duration::from_secs(2));
    let wait = Waiting::accept(&request, 1, &load, 50).expect_err("the queue is full");
    assert_eq!(wait, Duration::from_secs(200));
    drop(first);
    assert!(Waiting::accept(&request, 1, &load, 50).is_ok());
}

#[test]
fn the_average_pace_follows_small_times() {
    let load = Arc::<Load>::default();
    let _waiting = Waiting::new(&LabelTexts { texts: vec![String::new(); 100] }, 1, &load);
    load.done(1, Duration::from_micros(7));
    (0..200).for_each(|_| load.done(1, Duration::from_micros(1)));
    let wait = load.wait(LANES - 1);
    assert!(wait.abs_diff(Duration::from_micros(100)) < Duration::from_micros(2), "{wait:?}");
}

#[test]
fn only_the_time_after_loading_shows_that_a_run_is_sound() {
    let ago = |seconds| Instant::now().checked_sub(Duration::from_secs(seconds));
    assert!(!is_sound(None), "it could not be loaded");
    assert!(!is_sound(Some(Instant::now())), "it was loaded just now, in whatever time");
    assert!(is_sound(Some(ago(61).expect("a machine that runs for a minute"))));
}

#[test]
fn a_client_that_leaves_a_batch_takes_no_answer_along_even_if_the_observer_panics() {
    let observer = |event: &ServeEvent<'_>| panic!("the observer fails at {event:?}");
    let worker = Worker { observer: Arc::new(observer), ..worker() };
    let service = Failing::default();
    let [left_before, leaves, stays] =
        ["a", "b", "c"].map(|text| ask(&worker.queue, &worker.load, text));
    drop(left_before);
    service.leavers.lock().expect("leavers").push(leaves);
    worker.queue.close();
    worker.serve(&handlers(&service));
    assert!(answered(stays));
    assert_eq!(service.answered.load(Ordering::Relaxed), 1);
    assert_eq!((worker.panics.load(Ordering::Relaxed), worker.load.weight(0)), (0, 0));
}

#[test]
fn a_run_is_given_up_after_panics_in_a_row() {
    let (worker, service) = (worker(), Failing::default());
    for _ in 0..MOST_PANICS {
        let answer = ask(&worker.queue, &worker.load, "panics when it is answered");
        let batch = worker.queue.take(0, 1);
        worker.answer(&handlers(&service), 0, batch);
        assert!(!answered(answer));
    }
    let mut waits = ask(&worker.queue, &worker.load, "a");
    worker.serve(&handlers(&service));
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
    worker.answer(&handlers(&service), 4, batch);
    assert!(answered(light) && answered(heavy));
    assert_eq!(worker.load.weight(4), 0);
}

#[test]
fn requests_of_other_kinds_are_refused_by_type() {
    let service = Failing::default();
    let verbs = handlers(&service).verbs();
    assert_eq!(verbs.require::<LabelTexts>(), Ok(()));
    let refused = verbs.require::<Translate>().expect_err("another kind");
    assert_eq!(refused.status(), 422);
    assert_eq!(refused.message(), "the run labels texts, and nothing else: see /api/runs");
}

#[test]
fn each_text_of_a_request_is_tokenised_once() {
    let run = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/tests/frozen/format-1");
    let run: LoadedRun = LoadedRun::open(&run, &LoadSettings::default()).expect("loaded");
    let limits = Limits { attention_tokens: 16_384, ..Limits::default() };
    let service = Translates::new(&run, limits).expect("a service");
    let encodings = || run.tokenizers.source().encodings();
    let (worker, begun) = (worker(), encodings());
    let lines = ["run cat", "", "big sees"].map(str::to_owned).to_vec();
    let translate = |alignment| {
        let lines = lines.clone();
        let options =
            TranslateOptions { alternatives: 2, alignment, ..TranslateOptions::default() };
        submit(&worker.queue, &worker.load, Translate { lines, options })
    };
    // The jobs without alignment are searched together, and the job with alignment is searched
    // alone. Each of the three jobs has three lines.
    let mut translated = [translate(false), translate(false), translate(true)];
    worker.queue.close();
    worker.serve(&service.handlers());
    for answer in &mut translated {
        let answer = answer.try_recv().expect("an answer").expect("translations");
        assert_eq!(
            answer.iter().map(|line| &line.source).collect::<Vec<_>>(),
            lines.iter().collect::<Vec<_>>()
        );
    }
    assert_eq!(encodings() - begun, 9);

    let (worker, begun) = (self::worker(), encodings());
    let (text, target) = (|| "run cat".to_owned(), || "big sees".to_owned());
    let mut pair =
        submit(&worker.queue, &worker.load, AttendPair { text: text(), target: target() });
    let mut alone = submit(&worker.queue, &worker.load, Attend { text: text() });
    worker.queue.close();
    worker.serve(&service.handlers());
    for answer in [&mut pair, &mut alone] {
        assert!(!answer.try_recv().expect("an answer").expect("a map").layers.is_empty());
    }
    // The pair has two texts. The single text is encoded together with the run's translation of it.
    assert_eq!(encodings() - begun, 4);
}
