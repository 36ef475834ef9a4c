//! Runs all computations of the process on one thread.
//!
//! This thread makes the computations one after the other: each computation uses every core anyway,
//! and only the thread that opened a GPU can use it. Python's threads wait for results without
//! holding Python's lock, and check for Ctrl-C in the meantime.

use std::cell::OnceCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use anyhow::Result;
use pyo3::prelude::*;
use taper_decoding::Control;

use crate::error::{TaperError, exception};

/// Interval at which a waiting thread checks for Ctrl-C.
const LOOK: Duration = Duration::from_millis(50);

type Job = Box<dyn FnOnce() + Send>;

/// Queue of the computing thread, and the id of the process in which this thread runs. After a
/// fork, the child process has a copy of this value, but not the thread.
struct Engine {
    jobs: Sender<Job>,
    process: u32,
}

static ENGINE: OnceLock<Engine> = OnceLock::new();

thread_local! {
    /// Queue from which the computing thread takes its jobs. On every other thread, this cell is
    /// empty.
    static JOBS: OnceCell<Receiver<Job>> = const { OnceCell::new() };
}

/// Flag that is set when the result of a job is no longer wanted.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cancelled(Arc<AtomicBool>);

impl Cancelled {
    /// Declares that the result is no longer wanted.
    pub(crate) fn cancel(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// Returns the flag itself.
    pub(crate) fn flag(&self) -> &AtomicBool {
        &self.0
    }

    /// Whether the result is no longer wanted.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

impl Control for Cancelled {
    fn is_cancelled(&self, _sentence: usize) -> bool {
        self.is_cancelled()
    }
}

fn engine() -> PyResult<&'static Engine> {
    let engine = ENGINE.get_or_init(|| {
        let (jobs, queue) = channel::<Job>();
        let serve = move || {
            JOBS.with(|jobs| {
                let queue = jobs.get_or_init(|| queue);
                while let Ok(job) = queue.recv() {
                    run(job);
                }
            });
        };
        // If the thread cannot be started, the queue is closed, and the first job cannot be sent.
        let _ = std::thread::Builder::new().name("taper".to_owned()).spawn(serve);
        Engine { jobs, process: std::process::id() }
    });
    if engine.process != std::process::id() {
        return Err(TaperError::new_err(
            "this process is a fork of one that had used taper, whose threads it lacks: start \
             processes by multiprocessing.get_context(\"spawn\"), or use taper in them alone",
        ));
    }
    Ok(engine)
}

/// Runs a job. A panic ends only this job; the panic hook has already printed its message.
fn run(job: Job) {
    let _ = catch_unwind(AssertUnwindSafe(job));
}

/// Handle of a job that runs on the computing thread and sends messages.
pub(crate) struct Work<M> {
    messages: Mutex<Receiver<M>>,
    cancelled: Cancelled,
}

impl<M: Send + 'static> Work<M> {
    /// Queues a job.
    ///
    /// # Errors
    /// When this process is a fork of the process that has the computing thread.
    pub(crate) fn start(
        job: impl FnOnce(Sender<M>, &Cancelled) + Send + 'static,
    ) -> PyResult<Self> {
        let (sender, messages) = channel();
        let cancelled = Cancelled::default();
        let shared = cancelled.clone();
        let job = Box::new(move || {
            if !shared.is_cancelled() {
                job(sender, &shared);
            }
        });
        // If the queue is closed, the job is dropped with its sender, and `next` returns `None`.
        let _ = engine()?.jobs.send(job);
        Ok(Self { messages: Mutex::new(messages), cancelled })
    }

    /// Waits for the next message; `None` if the job has ended.
    ///
    /// # Errors
    /// The exception of a signal handler, such as `KeyboardInterrupt`; the job continues.
    pub(crate) fn next(&self, py: Python<'_>) -> PyResult<Option<M>> {
        loop {
            let wait = || {
                let messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
                messages.recv_timeout(LOOK)
            };
            match py.allow_threads(wait) {
                Ok(message) => return Ok(Some(message)),
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            }
        }
    }

    /// Declares that no more messages are wanted.
    pub(crate) fn cancel(&self) {
        self.cancelled.cancel();
    }

    /// Whether no more messages are wanted.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.is_cancelled()
    }
}

impl<M> Drop for Work<M> {
    fn drop(&mut self) {
        self.cancelled.cancel();
    }
}

/// Runs a computation and waits for its result.
///
/// # Errors
/// Errors of `job`, and the exception that Ctrl-C raises.
pub(crate) fn compute<T: Send + 'static>(
    py: Python<'_>,
    job: impl FnOnce(&Cancelled) -> Result<T> + Send + 'static,
) -> PyResult<T> {
    let work = Work::start(|results: Sender<Result<T>>, cancelled: &Cancelled| {
        let _ = results.send(job(cancelled));
    })?;
    match work.next(py)? {
        Some(result) => result.map_err(|error| exception(&error)),
        None => Err(broken()),
    }
}

/// Makes the error of a job that ended without a result.
pub(crate) fn broken() -> PyErr {
    TaperError::new_err("the computation failed; standard error says where: please report it")
}

/// A permission to continue, for a job that waits until another thread allows it to continue. The
/// other thread gives the permission by dropping this value.
pub(crate) struct GoOn(Option<Sender<()>>);

impl GoOn {
    /// Makes a permission, and the receiver on which the job waits.
    pub(crate) fn new() -> (Self, Receiver<()>) {
        let (sender, receiver) = channel();
        (Self(Some(sender)), receiver)
    }
}

impl Drop for GoOn {
    fn drop(&mut self) {
        self.0 = None;
        wake();
    }
}

/// Lets [`wait_for`] check again whether it must wait.
pub(crate) fn wake() {
    if let Some(engine) = ENGINE.get() {
        let _ = engine.jobs.send(Box::new(|| ()));
    }
}

/// Waits, on the computing thread, until a permission is dropped or the result of the waiting job
/// is no longer wanted. Other jobs run in the meantime, because the thread that holds the
/// permission may need the result of another job before it drops the permission.
pub(crate) fn wait_for(permission: &Receiver<()>, cancelled: &Cancelled) {
    JOBS.with(|jobs| {
        while !cancelled.is_cancelled() && permission.try_recv() == Err(TryRecvError::Empty) {
            match jobs.get().map(Receiver::recv) {
                Some(Ok(job)) => run(job),
                _ => return,
            }
        }
    });
}
