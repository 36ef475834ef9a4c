//! Handlers of a run: for each kind of request that its model answers, the service that does.
//!
//! **Decision.** Requests wait in one queue, whatever their kind, so there they are boxed. A
//! [`Verb`] names the type of its answers, and a service implements [`Answers`] for its own verbs
//! alone: it never sees another request, and clients never get another answer.

use std::any::{Any, TypeId};
use std::marker::PhantomData;
use std::path::Path;

use anyhow::Result;
use rayon::ThreadPool;
use taper_decoding::Control;
use taper_run::LoadSettings;
use taper_run::tasks::TaskModel;

use super::work::{Answer, Job, Request, Verb};
use crate::error::Refusal;
use crate::run_info::RunInfo;
use crate::settings::Limits;

/// Run to load for its clients.
#[derive(Debug)]
pub(super) struct Opening<'o> {
    pub(super) root: &'o Path,
    pub(super) load: &'o LoadSettings,
    pub(super) name: &'o str,
    pub(super) limits: Limits,
}

/// Function that is given the handlers of a loaded run, and works until the server stops.
pub(super) type Serve<'s> = &'s mut dyn FnMut(Handlers<'_>, RunInfo);

/// Service of the runs of a task.
pub(super) trait Service {
    /// Model of the task.
    type Model: TaskModel;

    /// Loads the run, and calls `serve`.
    ///
    /// # Errors
    /// When it cannot be loaded.
    fn open(opening: &Opening<'_>, serve: Serve<'_>) -> Result<()>;
}

/// Handling of requests of one kind.
pub(super) trait Answers<V: Verb>: Sync {
    /// Refuses requests that exceed limits, or that the model cannot answer.
    ///
    /// # Errors
    /// With the message for the client.
    fn check(&self, request: &V) -> Result<(), Refusal>;

    /// Whether both can be answered in one pass.
    fn goes_with(&self, _one: &V, _other: &V) -> bool {
        true
    }

    /// Answers compatible requests in order. Each answer equals that to the request alone.
    /// `control`, which addresses requests by index, is checked between steps; the answer to a
    /// cancelled request does not matter.
    ///
    /// # Errors
    /// When one of them cannot be answered.
    fn answer(&self, requests: &[&V], control: &dyn Control) -> Result<Vec<V::Answer>>;
}

/// [`Answers`] for boxed requests of one kind.
trait Handler: Sync {
    fn kind(&self) -> TypeId;
    fn check(&self, request: &dyn Request) -> Result<(), Refusal>;
    fn goes_with(&self, one: &dyn Request, other: &dyn Request) -> bool;
    fn answer(&self, requests: &[&dyn Request], control: &dyn Control) -> Result<Vec<Answer>>;
}

struct Typed<'s, V, S> {
    service: &'s S,
    verb: PhantomData<fn(V)>,
}

impl<V: Verb, S: Answers<V>> Handler for Typed<'_, V, S> {
    fn kind(&self) -> TypeId {
        TypeId::of::<V>()
    }

    fn check(&self, request: &dyn Request) -> Result<(), Refusal> {
        self.service.check(typed(request))
    }

    fn goes_with(&self, one: &dyn Request, other: &dyn Request) -> bool {
        self.service.goes_with(typed(one), typed(other))
    }

    fn answer(&self, requests: &[&dyn Request], control: &dyn Control) -> Result<Vec<Answer>> {
        let requests: Vec<&V> = requests.iter().map(|request| typed(*request)).collect();
        let answers = self.service.answer(&requests, control)?;
        Ok(answers.into_iter().map(|answer| Box::new(answer) as Answer).collect())
    }
}

/// Request of a kind that was looked up by its type.
fn typed<V: Verb>(request: &dyn Request) -> &V {
    let request: &dyn Any = request;
    request.downcast_ref().expect("handlers are chosen by type")
}

/// Handlers of a run, by the kinds of requests that they answer.
pub(super) struct Handlers<'s> {
    /// Verb phrase for the model, in the third person.
    does: &'static str,
    handlers: Vec<Box<dyn Handler + 's>>,
    /// Threads that compute, if the run has its own.
    pub(super) pool: Option<ThreadPool>,
}

impl<'s> Handlers<'s> {
    /// Makes handlers of nothing, for a model that `does` something, in the third person.
    pub(super) fn new(does: &'static str) -> Self {
        Self { does, handlers: Vec::new(), pool: None }
    }

    /// Adds requests that `service` answers.
    pub(super) fn with<V: Verb>(mut self, service: &'s impl Answers<V>) -> Self {
        self.handlers.push(Box::new(Typed { service, verb: PhantomData }));
        self
    }

    fn of(&self, job: &Job) -> Option<&dyn Handler> {
        let kind = job.kind();
        self.handlers.iter().find(|handler| handler.kind() == kind).map(|handler| &**handler)
    }

    /// Refuses a job that exceeds limits, or is for another task.
    ///
    /// # Errors
    /// With the message for the client.
    pub(super) fn check(&self, job: &Job) -> Result<(), Refusal> {
        let handler = self.of(job).ok_or_else(|| nothing_else(self.does))?;
        handler.check(&*job.request)
    }

    /// Whether both jobs, which were checked, can be done in one pass.
    pub(super) fn go_together(&self, one: &Job, other: &Job) -> bool {
        one.kind() == other.kind()
            && self.of(one).is_some_and(|it| it.goes_with(&*one.request, &*other.request))
    }

    /// Answers jobs that go together, in order.
    ///
    /// # Errors
    /// When one of them cannot be answered.
    pub(super) fn answer(&self, jobs: &[Job], control: &dyn Control) -> Result<Vec<Answer>> {
        let Some(handler) = jobs.first().and_then(|job| self.of(job)) else {
            return Ok(Vec::new());
        };
        let requests: Vec<&dyn Request> = jobs.iter().map(|job| &*job.request).collect();
        match &self.pool {
            Some(pool) => pool.install(|| handler.answer(&requests, control)),
            None => handler.answer(&requests, control),
        }
    }
}

/// Refusal for clients that request something else from a run.
pub(super) fn nothing_else(does: &str) -> Refusal {
    Refusal::Unfit(format!("the run {does}, and nothing else: see /api/runs"))
}
