//! Writing of a recipe (TOML file with the settings of a training) for the further training
//! (fine-tuning) of a trained model.

mod examples;
mod parent;
mod proposal;
mod recipe_text;

use std::path::PathBuf;

use anyhow::{Result, anyhow, bail};
use taper_data::Task;

use super::recipe_text::describe;
use super::{Machine, Usage, name_of, read_back};
use crate::advice::{Action, Advice, Train};
use crate::config::RunConfig;
use crate::folder::files::write_atomically;
use crate::tasks::{Examples, entry};

pub use examples::ExampleCounts;
pub use parent::run_of;

/// Settings of a recipe for the further training of a model.
#[derive(Debug, Clone)]
pub struct FineTuneSettings {
    /// Parent: the folder of a run (trained model) or checkpoint that gives the new run its first
    /// weights.
    pub parent: PathBuf,
    /// Task of the new run; `None` for the task of the parent.
    pub task: Option<Task>,
    /// Files of examples: for sentence pairs, two files of text or one table; otherwise one or
    /// several files.
    pub files: Vec<PathBuf>,
    /// Columns or fields of tables. For pairs: source, target. For labelled texts: label, text and,
    /// if there is one, a second text. For running text: text. If empty, the usual names apply.
    pub columns: Vec<String>,
    /// Files of text like the parent's training text, which are mixed with the examples so that the
    /// model forgets less; can be empty.
    pub home: Vec<PathBuf>,
    /// File of the recipe, which must not exist. If it is `None`, the recipe is written to
    /// `PARENT-EXAMPLES.toml` in the current folder; the two parts of this name are the names of
    /// the parent and of the first file of examples.
    pub recipe: Option<PathBuf>,
    /// Folder for the training, validation and test sets into which the examples are divided;
    /// `None` for a folder in `data` with the recipe's name.
    pub divided: Option<PathBuf>,
    /// Limit of the memory for training, in bytes; `None` for the free memory of the machine.
    pub memory: Option<u64>,
    /// Function that returns lines on how to use the recipe, for a comment at its beginning.
    pub usage: Usage,
}

/// Recipe that was written.
#[derive(Debug, Clone)]
pub struct FineTuning {
    /// Path of the recipe.
    pub recipe: PathBuf,
    /// Configuration of the recipe, with the model of the parent.
    pub config: RunConfig,
    /// Number of examples, and number of their tokens.
    pub counts: ExampleCounts,
    /// Description of the machine for which the recipe was written.
    pub machine: String,
    /// Folder of the divided examples, if they had to be divided.
    pub divided: Option<PathBuf>,
}

/// Reads the examples, and writes a recipe with comments for the further training of the parent on
/// `machine`. The learning rate follows from the width of the model, and the number of updates from
/// the size of the text. Whether all weights are trained, or only LoRA adapters, depends on the
/// memory.
///
/// If no validation set lies next to the examples, some examples are held out for validation. If
/// the recipe is made again, the same examples are held out.
///
/// # Errors
/// If the parent or an example cannot be read, or there are too few examples. If the task cannot be
/// fine-tuned (see [`TaskEntry::learns_from`](crate::tasks::TaskEntry::learns_from)), or its models
/// cannot begin with the weights of the parent. If a file to be written exists already or cannot be
/// written, or the name of the recipe's file is not UTF-8.
pub fn fine_tune(settings: &FineTuneSettings, machine: &Machine) -> Result<FineTuning> {
    let parent = parent::Parent::read(&settings.parent)?;
    let task = settings.task.unwrap_or(parent.config.task);
    let Some(kind) = entry(task).learns_from else {
        let train = Train { from: Some(settings.parent.clone()), ..Train::default() };
        let error = anyhow!("no recipe is written for the fine-tuning of the task {task}");
        let effect = "trains by a recipe of your own";
        return Err(Advice::new(Action::Train(train), effect).about(error));
    };
    if task != parent.config.task && !entry(task).begins_with.contains(&parent.config.task) {
        bail!(
            "{}: its task is {}; a model of the task {task} does not begin with such weights",
            settings.parent.display(),
            parent.config.task
        );
    }
    let corpus_name = examples::name(&settings.files);
    let default = || PathBuf::from(format!("{}-{corpus_name}.toml", parent.name()));
    let recipe = settings.recipe.clone().unwrap_or_else(default);
    if recipe.exists() {
        let error = anyhow!(
            "{} exists already and is left as it is: name another file for the recipe",
            recipe.display()
        );
        let (recipe, from) = (Some(recipe), Some(settings.parent.clone()));
        let train = Action::Train(Train { recipe, from, ..Train::default() });
        return Err(Advice::new(train, "trains by it").about(error));
    }
    let name = name_of(&recipe)?;
    let read = match kind {
        Examples::Pairs => examples::pairs,
        Examples::Texts => examples::texts,
        Examples::LabelledTexts => examples::labelled_texts,
    };
    let read = read(settings, &parent, task, &recipe)?;
    let machine = Machine { memory: settings.memory.or(machine.memory), ..*machine };
    let proposal = proposal::propose(name, (&parent, task, kind), &read, &machine);
    let text = recipe_text::text(&proposal, &parent, &read, &describe(&machine), settings.usage)?;
    write_atomically(&recipe, text.as_bytes())?;
    let config = RunConfig::load_beginning_as(&recipe, &[], &parent.config.model);
    let config = read_back(&recipe, config)?;
    let machine = describe(&machine);
    let divided = read.divided.keep();
    Ok(FineTuning { recipe, config, counts: read.counts, machine, divided })
}
