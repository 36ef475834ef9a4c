//! `taper train`: trains a new run from a recipe. A recipe is a TOML file with all settings of a
//! training, and a run is the folder that the training writes.

use std::path::{Component, Path};

use anyhow::{Result, bail, ensure};
use taper_model::ModelConfig;
use taper_run::checks::choose_threads;
use taper_run::{RunConfig, RunFolder, training};

use crate::arguments::Train;
use crate::estimate::estimate;
use crate::processes::Processes;
use crate::text::{print_line, quoted};

/// Runs the command. `threads` is the number of threads that the user requested.
pub(crate) fn run(arguments: &Train, threads: Option<usize>) -> Result<()> {
    let (recipe, set) = (&arguments.config, &arguments.overrides.set);
    let root = match &arguments.run {
        Some(root) => root.clone(),
        None => Path::new("runs").join(plain(&RunConfig::name_of(recipe, set)?)?),
    };
    let mut config = match model_of_parent(arguments, &root)? {
        Some(model) => RunConfig::load_beginning_as(recipe, set, &model)?,
        None => RunConfig::load(recipe, set)?,
    };
    config.training.freeze.extend_from_slice(&arguments.freeze);
    let config = config;
    let folder = RunFolder::new(&root);
    let mut settings = arguments.output.settings(arguments.from.as_deref());
    settings.only.clone_from(&arguments.only);
    settings.own_tokenizer = arguments.own_tokenizer;
    if arguments.dry_run {
        threads.map_or(Ok(()), choose_threads)?;
        estimate(&folder, &config, &settings, arguments.output.json)?;
        if !arguments.output.json {
            print_line("nothing was kept; without --dry-run the training begins")?;
        }
        return Ok(());
    }
    let output = &arguments.output;
    let processes = Processes::join(output, threads, config.threads)?;
    processes.count_in(&mut settings);
    if !processes.is_first() {
        return processes.train(output, |exchange, observer, stop| {
            training::follow(exchange, &folder, Some(&config), &settings, observer, stop)
        });
    }
    if !folder.exists() {
        return processes.train(output, |exchange, observer, stop| {
            training::start_among(exchange, &folder, &config, &settings, observer, stop)
        });
    }
    ensure!(
        arguments.resume,
        "{} exists already and is left as it is: continue it with `taper resume {}`, or \
             train a new run with --run DIR",
        root.display(),
        quoted(&root)
    );
    let folder = RunFolder::open(&root)?;
    processes.train(output, |exchange, observer, stop| {
        let recipes = (&config, Some(&config));
        training::resume_among(exchange, &folder, recipes, &settings, None, observer, stop)
    })
}

/// Returns the `[model]` section of the recipe of the run that `--from` names, from which the new
/// run gets its first weights; `None` without `--from`. If the new run already exists in the folder
/// `root` and is resumed, returns the `[model]` section of its own recipe.
fn model_of_parent(arguments: &Train, root: &Path) -> Result<Option<ModelConfig>> {
    let Some(from) = &arguments.from else { return Ok(None) };
    let resumed = arguments.resume.then(|| RunFolder::new(root));
    match resumed.filter(|folder| folder.config().is_file()) {
        Some(folder) => folder.load_config(&[]).map(|config| Some(config.model)),
        None => training::model_of(from).map(Some),
    }
}

/// Returns `name` if it is allowed as the name of a folder.
///
/// # Errors
/// When the name would lead out of the folder `runs`.
fn plain(name: &str) -> Result<&str> {
    let mut parts = Path::new(name).components();
    match (parts.next(), parts.next()) {
        (Some(Component::Normal(_)), None) if !name.contains(['/', '\\', '\0']) => Ok(name),
        _ => bail!(
            "key `name` = {name:?}: the run would not lie in runs/: use a name without folders, \
             or say where with --run DIR"
        ),
    }
}
