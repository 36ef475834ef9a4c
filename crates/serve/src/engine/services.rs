//! Table of the tasks whose models can be served, and loading of a run by its task.

use anyhow::{Result, anyhow, bail};
use taper_data::Task;
use taper_run::advice::advised;
use taper_run::tasks::{TaskModel, entry};

use super::generation::Generates;
use super::handlers::{Opening, Serve, Service};
use super::labels::{LabelsImages, LabelsTexts};
use super::pictures::{DescribesImages, MatchesImages};
use super::translation::Translates;
use super::words::{AnswersQuestions, TagsWords};

type Open = fn(&Opening<'_>, Serve<'_>) -> Result<()>;

const fn service<S: Service>() -> (Task, Open) {
    (S::Model::TASK, S::open)
}

/// Tasks that can be served. Each has a function that loads a run of the task.
const SERVICES: &[(Task, Open)] = &[
    service::<Translates<'_>>(),
    service::<Generates<'_>>(),
    service::<LabelsTexts<'_>>(),
    service::<LabelsImages<'_>>(),
    service::<TagsWords<'_>>(),
    service::<AnswersQuestions<'_>>(),
    service::<DescribesImages<'_>>(),
    service::<MatchesImages<'_>>(),
];

/// Loads the run of `opening`, whose task is `task`, and calls `serve` with its handlers.
///
/// # Errors
/// When the run cannot be loaded, or the task is not served.
pub(super) fn open(task: Task, opening: &Opening<'_>, serve: Serve<'_>) -> Result<()> {
    if let Some((_, open)) = SERVICES.iter().find(|(service_task, _)| *service_task == task) {
        return open(opening, serve);
    }
    let root = opening.root.display();
    match entry(task).not_served {
        Some(reason) => Err(advised(anyhow!("{root}: {reason}"), entry(task).advice())),
        None => bail!("{root}: a run of the task {task} is not served"),
    }
}
