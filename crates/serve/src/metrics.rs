//! Counters of a server, in the OpenMetrics text format, which Prometheus reads.

use std::sync::Mutex;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

/// Media type of [`Metrics::text`].
pub(crate) const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfRequest {
    route: String,
    status: u32,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfRoute {
    route: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RunLabel {
    run: String,
}

/// Counters of a server.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Mutex<Registry>,
    requests: Family<OfRequest, Counter>,
    seconds: Family<OfRoute, Histogram>,
    lines: Family<RunLabel, Counter>,
    batches: Family<RunLabel, Histogram>,
    computing: Family<RunLabel, Histogram>,
    waits: Family<RunLabel, Histogram>,
    waiting: Family<RunLabel, Gauge>,
    refused: Family<RunLabel, Counter>,
    abandoned: Family<RunLabel, Counter>,
    cut_short: Family<RunLabel, Counter>,
    panics: Family<RunLabel, Counter>,
    restarts: Family<RunLabel, Counter>,
    up: Family<RunLabel, Gauge>,
    connections: Gauge,
}

/// Makes a histogram of times, from a millisecond to a minute.
fn times() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, 17))
}

/// Makes a histogram of the number of lines of a batch, from 1 to 512.
fn sizes() -> Histogram {
    Histogram::new(exponential_buckets(1.0, 2.0, 10))
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let metrics = Self {
            registry: Mutex::new(Registry::with_prefix("taper")),
            requests: Family::default(),
            seconds: Family::new_with_constructor(times),
            lines: Family::default(),
            batches: Family::new_with_constructor(sizes),
            computing: Family::new_with_constructor(times),
            waits: Family::new_with_constructor(times),
            waiting: Family::default(),
            refused: Family::default(),
            abandoned: Family::default(),
            cut_short: Family::default(),
            panics: Family::default(),
            restarts: Family::default(),
            up: Family::default(),
            connections: Gauge::default(),
        };
        metrics.register();
        metrics
    }

    fn register(&self) {
        let mut registry = lock(&self.registry);
        let seconds = || Unit::Seconds;
        registry.register("requests", "Requests answered", self.requests.clone());
        let help = "Time to the head of an answer";
        registry.register_with_unit("request", help, seconds(), self.seconds.clone());
        registry.register("lines", "Lines and texts computed", self.lines.clone());
        registry.register("batch_lines", "Lines computed together", self.batches.clone());
        let help = "Time to compute a batch";
        registry.register_with_unit("batch", help, seconds(), self.computing.clone());
        let help = "Time that a request waited for its batch";
        registry.register_with_unit("queue", help, seconds(), self.waits.clone());
        registry.register("waiting_lines", "Lines that wait now", self.waiting.clone());
        let help = "Requests refused because too much waited";
        registry.register("refused", help, self.refused.clone());
        let help = "Requests dropped because their client had left or their time was over";
        registry.register("abandoned", help, self.abandoned.clone());
        let help = "Dropped requests that were being computed";
        registry.register("cut_short", help, self.cut_short.clone());
        let help = "Times that a run has failed and was loaded again";
        registry.register("restarts", help, self.restarts.clone());
        registry.register("up", "Whether a run answers", self.up.clone());
        registry.register("panics", "Batches that failed in the program", self.panics.clone());
        registry.register("connections", "Open connections", self.connections.clone());
    }

    pub(crate) fn answered(&self, route: &str, status: u16, time: Duration) {
        let route = route.to_owned();
        self.seconds.get_or_create(&OfRoute { route: route.clone() }).observe(time.as_secs_f64());
        self.requests.get_or_create(&OfRequest { route, status: status.into() }).inc();
    }

    pub(crate) fn waited(&self, run: &str, time: Duration) {
        self.waits.get_or_create(&run_label(run)).observe(time.as_secs_f64());
    }

    pub(crate) fn computed(&self, run: &str, lines: usize, time: Duration) {
        self.lines.get_or_create(&run_label(run)).inc_by(lines as u64);
        self.batches.get_or_create(&run_label(run)).observe(lines as f64);
        self.computing.get_or_create(&run_label(run)).observe(time.as_secs_f64());
    }

    pub(crate) fn refused(&self, run: &str) {
        self.refused.get_or_create(&run_label(run)).inc();
    }

    /// Counts a dropped request. `begun` is true if its computation had begun.
    pub(crate) fn abandoned(&self, run: &str, begun: bool) {
        self.abandoned.get_or_create(&run_label(run)).inc();
        self.cut_short.get_or_create(&run_label(run)).inc_by(u64::from(begun));
    }

    /// Records that a run starts or stops answering.
    pub(crate) fn is_up(&self, run: &str, is_up: bool) {
        self.up.get_or_create(&run_label(run)).set(i64::from(is_up));
        self.restarts.get_or_create(&run_label(run)).inc_by(u64::from(!is_up));
    }

    pub(crate) fn panicked(&self, run: &str) {
        self.panics.get_or_create(&run_label(run)).inc();
    }

    pub(crate) fn connected(&self) {
        self.connections.inc();
    }

    pub(crate) fn disconnected(&self) {
        self.connections.dec();
    }

    /// Returns all counters as text. `waiting` has, for each run, its name and its number of
    /// waiting lines.
    pub(crate) fn text<'r>(&self, waiting: impl Iterator<Item = (&'r str, usize)>) -> String {
        for (run, lines) in waiting {
            self.waiting.get_or_create(&run_label(run)).set(lines as i64);
        }
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = encode(&mut text, &lock(&self.registry));
        text
    }
}

fn run_label(run: &str) -> RunLabel {
    RunLabel { run: run.to_owned() }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
