//! Handlers of a run (a trained model): a service for each kind of request that the model answers.
//!
//! **Decision.** Requests of all kinds wait in one queue, so they are boxed there. A [`Verb`] is a
//! type of requests, and names the type of their answers. A service implements [`Answers`] only for
//! the verbs that its model can answer. So a service never sees a request of another type, and
//! clients never get an answer of another type. A request that a run does not answer is refused
//! [before it is queued](super::Engine::submit).

use std::any::{Any, TypeId};
use std::marker::PhantomData;
use std::path::Path;

use anyhow::Result;
use rayon::ThreadPool;
use taper_decoding::Control;
use taper_run::LoadSettings;
use taper_run::tasks::TaskModel;

use super::verbs::Verbs;
use super::work::{Answer, Encoded, Job, Request, Verb};
use crate::error::Refusal;
use crate::run_info::RunInfo;
use crate::settings::Limits;

/// A run that is to be loaded.
#[derive(Debug)]
pub(super) struct Opening<'o> {
    pub(super) root: &'o Path,
    pub(super) load: &'o LoadSettings,
    pub(super) name: &'o str,
    pub(super) limits: Limits,
}

/// Function that receives the handlers of a loaded run, and answers requests until the server stops
/// or the run fails.
pub(super) type Serve<'s> = &'s mut dyn FnMut(Handlers<'_>, RunInfo);

/// Service for runs of one task.
pub(super) trait Service {
    /// Model of the task.
    type Model: TaskModel;

    /// Loads the run, and calls `serve`.
    ///
    /// # Errors
    /// When the run cannot be loaded.
    fn open(opening: &Opening<'_>, serve: Serve<'_>) -> Result<()>;
}

/// Handling of requests of one kind.
pub(super) trait Answers<V: Verb>: Sync {
    /// Tokens of a request's texts, computed once for the check and for the answer.
    type Encoded: Send + Sync + 'static;

    /// Tokenises a request. Refuses a request that exceeds limits or that the model cannot answer.
    ///
    /// # Errors
    /// When the request is refused; the error has the message for the client.
    fn check(&self, request: &V) -> Result<Self::Encoded, Refusal>;

    /// Whether both requests can be answered in one pass.
    fn goes_with(&self, _one: &V, _other: &V) -> bool {
        true
    }

    /// Answers requests that go together according to [`goes_with`](Self::goes_with), in their
    /// order. Each answer is the same as if the request were answered alone. `control` is consulted
    /// between the steps of a computation. It addresses requests by index, and may cancel some of
    /// them; the answer to a cancelled request is ignored.
    ///
    /// # Errors
    /// When one of the requests cannot be answered.
    fn answer(
        &self,
        requests: &[(&V, &Self::Encoded)],
        control: &dyn Control,
    ) -> Result<Vec<V::Answer>>;
}

/// Handling of boxed requests of one kind, by a service that implements [`Answers`].
trait Handler: Sync {
    fn kind(&self) -> TypeId;
    fn check(&self, request: &dyn Request) -> Result<Encoded, Refusal>;
    fn goes_with(&self, one: &dyn Request, other: &dyn Request) -> bool;
    fn answer(&self, jobs: &[Job], control: &dyn Control) -> Result<Vec<Answer>>;
}

struct Typed<'s, V, S> {
    service: &'s S,
    verb: PhantomData<fn(V)>,
}

impl<V: Verb, S: Answers<V>> Handler for Typed<'_, V, S> {
    fn kind(&self) -> TypeId {
        TypeId::of::<V>()
    }

    fn check(&self, request: &dyn Request) -> Result<Encoded, Refusal> {
        Ok(Box::new(self.service.check(typed(request))?))
    }

    fn goes_with(&self, one: &dyn Request, other: &dyn Request) -> bool {
        self.service.goes_with(typed(one), typed(other))
    }

    fn answer(&self, jobs: &[Job], control: &dyn Control) -> Result<Vec<Answer>> {
        let requests = jobs.iter().map(|job| {
            let encoded = job.encoded.as_ref().and_then(|encoded| encoded.downcast_ref());
            (typed(&*job.request), encoded.expect("a checked request"))
        });
        let requests: Vec<(&V, &S::Encoded)> = requests.collect();
        let answers = self.service.answer(&requests, control)?;
        Ok(answers.into_iter().map(|answer| Box::new(answer) as Answer).collect())
    }
}

/// Returns a boxed request as a reference to its type `V`.
fn typed<V: Verb>(request: &dyn Request) -> &V {
    let request: &dyn Any = request;
    request.downcast_ref().expect("handlers are chosen by type")
}

/// Handlers of a run, by the kinds of requests that they answer.
pub(super) struct Handlers<'s> {
    /// Action of the model in messages: a verb phrase in the third person, such as `translates`.
    does: &'static str,
    handlers: Vec<Box<dyn Handler + 's>>,
    /// Threads that compute for this run alone; `None` if the run uses the threads of the process.
    pub(super) pool: Option<ThreadPool>,
}

impl<'s> Handlers<'s> {
    /// Makes an empty set of handlers. `does` is the action of the model in messages: a verb phrase
    /// in the third person, such as `translates`.
    pub(super) fn new(does: &'static str) -> Self {
        Self { does, handlers: Vec::new(), pool: None }
    }

    /// Adds `service` as the handler of a kind of requests.
    pub(super) fn with<V: Verb>(mut self, service: &'s impl Answers<V>) -> Self {
        self.handlers.push(Box::new(Typed { service, verb: PhantomData }));
        self
    }

    /// Kinds of requests that these handlers answer.
    pub(super) fn verbs(&self) -> Verbs {
        Verbs::new(self.does, self.handlers.iter().map(|handler| handler.kind()).collect())
    }

    fn for_job(&self, job: &Job) -> &dyn Handler {
        let kind = job.kind();
        let handler = self.handlers.iter().find(|handler| handler.kind() == kind);
        &**handler.expect("other requests are refused before they are queued")
    }

    /// Tokenises a job. Refuses a request that exceeds limits or that the model cannot answer.
    ///
    /// # Errors
    /// When the request is refused; the error has the message for the client.
    pub(super) fn check(&self, job: &mut Job) -> Result<(), Refusal> {
        job.encoded = Some(self.for_job(job).check(&*job.request)?);
        Ok(())
    }

    /// Whether two checked jobs can be answered in one pass.
    pub(super) fn go_together(&self, one: &Job, other: &Job) -> bool {
        one.kind() == other.kind() && self.for_job(one).goes_with(&*one.request, &*other.request)
    }

    /// Answers checked jobs that can be answered in one pass. Answers are in the order of the jobs.
    ///
    /// # Errors
    /// When one of the jobs cannot be answered.
    pub(super) fn answer(&self, jobs: &[Job], control: &dyn Control) -> Result<Vec<Answer>> {
        let Some(handler) = jobs.first().map(|job| self.for_job(job)) else {
            return Ok(Vec::new());
        };
        // A search pauses between two steps so that lighter work is answered, and then a thread of
        // the search calls this method. The work stays on the threads of the search, because a
        // thread of the run's pool may be waiting for the search. Work that needs every thread of
        // the pool would then never end. Nor would the search, which waits for this work.
        let is_in_pause = rayon::current_thread_index().is_some();
        match self.pool.as_ref().filter(|_| !is_in_pause) {
            Some(pool) => pool.install(|| handler.answer(jobs, control)),
            None => handler.answer(jobs, control),
        }
    }
}
