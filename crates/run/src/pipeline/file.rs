//! Reading and checking of a pipeline's file, and the order of its steps.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use taper_trainer::read_state;

use super::steps::{Need, Status, Step, Train, Verb};
use crate::config::{RunConfig, nearest};
use crate::folder::RunFolder;
use crate::folder::files::write_atomically;
use crate::made_text::checksum;
use crate::translation::order::hex;

/// Content of a pipeline's file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// Folder of the results, relative to the folder of the file.
    #[serde(default)]
    folder: Option<PathBuf>,
    /// Steps by name.
    steps: BTreeMap<String, Verb>,
}

/// Content of the file that marks a step as finished.
#[derive(Debug, Serialize, Deserialize)]
struct Mark {
    identity: String,
    seconds: f64,
}

/// Steps, in an order in which each step comes after the steps whose results it reads.
#[derive(Debug)]
pub struct Pipeline {
    /// Folder of the results.
    pub folder: PathBuf,
    /// Steps in order.
    pub steps: Vec<Step>,
}

impl Pipeline {
    /// Reads and checks the file at `path`. The results go to `folder`. If `folder` is `None`, they
    /// go to the folder that the file names. If it names none, they go to a folder in `pipelines/`
    /// with the name of the file.
    ///
    /// # Errors
    /// If the file cannot be parsed, or names unknown steps, steps that need each other in a
    /// circle, missing files, or invalid recipes (configurations of trainings). The message has
    /// file, line and key.
    pub fn load(path: &Path, folder: Option<&Path>) -> Result<Self> {
        let shown = path.display();
        let text = taper_data::read_regular(path, 1 << 20)?;
        let text = String::from_utf8(text).with_context(|| format!("{shown} is not UTF-8"))?;
        let file: File = toml::from_str(&text).with_context(|| {
            format!(
                "{shown}: not a pipeline: its steps are tables [steps.NAME.VERB], where VERB is \
                 train, backtranslate, distill, diversify, filter, evaluate, shortlist \
                 or page"
            )
        })?;
        let base = path.parent().unwrap_or(Path::new("")).to_owned();
        let folder = match (folder, &file.folder) {
            (Some(folder), _) => folder.to_owned(),
            (None, Some(own)) => base.join(own),
            (None, None) => {
                let name = path.file_stem().unwrap_or_default();
                Path::new("pipelines").join(name)
            }
        };
        let graph =
            Graph { text: &text, path, base, folder: absolute(&folder)?, steps: file.steps };
        graph.check()?;
        let mut steps = Vec::new();
        for name in graph.in_order()? {
            let step = graph.step(&name, &steps)?;
            steps.push(step);
        }
        Ok(Self { folder: graph.folder, steps })
    }

    /// Makes the folder of the results.
    ///
    /// # Errors
    /// If the folder cannot be made.
    pub fn make_folder(&self) -> Result<()> {
        fs::create_dir_all(&self.folder)
            .with_context(|| format!("cannot make {}", self.folder.display()))
    }

    /// State of a step.
    ///
    /// # Errors
    /// If the step was finished with another definition, or its mark cannot be read.
    pub fn status(&self, step: &Step) -> Result<Status> {
        let path = self.mark(step);
        if !path.exists() {
            return Ok(Status::Open);
        }
        let text = taper_data::read_regular(&path, 1 << 16)?;
        let mark: Mark = serde_json::from_slice(&text).with_context(|| {
            format!("{} is damaged: remove it to check the step again", path.display())
        })?;
        ensure!(
            mark.identity == step.identity,
            "step {}: it was finished with another definition, recipe, run, text or step before \
                 it: remove {} and {} to make it again, or name another folder",
            step.name,
            step.output.display(),
            path.display()
        );
        Ok(Status::Done(mark.seconds))
    }

    /// Marks a step that took `seconds` seconds as finished.
    ///
    /// # Errors
    /// If the mark cannot be written.
    pub fn finish(&self, step: &Step, seconds: f64) -> Result<()> {
        let mark = Mark { identity: step.identity.clone(), seconds };
        write_atomically(&self.mark(step), &serde_json::to_vec_pretty(&mark)?)
    }

    fn mark(&self, step: &Step) -> PathBuf {
        self.folder.join(format!("{}.done.json", step.name))
    }
}

/// Steps as they stand in the file, not yet in order.
pub(super) struct Graph<'a> {
    text: &'a str,
    path: &'a Path,
    /// Folder of the file, to which its paths are relative.
    pub(super) base: PathBuf,
    /// Folder of the results.
    pub(super) folder: PathBuf,
    pub(super) steps: BTreeMap<String, Verb>,
}

impl Graph<'_> {
    /// Position of a step's key, for messages: file, line and key.
    fn place(&self, step: &str, key: &str) -> String {
        let header = format!("[steps.{step}.");
        let lines = || self.text.lines().enumerate();
        let begin = lines().find(|(_, line)| line.trim_start().starts_with(&header));
        let begin = begin.map_or(0, |(number, _)| number);
        let is_key = |line: &str| {
            let line = line.trim_start();
            line.strip_prefix(key).is_some_and(|rest| rest.trim_start().starts_with('='))
        };
        let of_key = lines().skip(begin).find(|(_, line)| is_key(line));
        let line = of_key.map_or(begin, |(number, _)| number) + 1;
        format!("{}, line {line}, steps.{step}, {key}", self.path.display())
    }

    /// Checks names and files.
    fn check(&self) -> Result<()> {
        ensure!(!self.steps.is_empty(), "{}: there are no steps", self.path.display());
        for (name, verb) in &self.steps {
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
            ensure!(
                !name.is_empty() && name.bytes().all(is_plain),
                "{}: step {name:?}: a name has letters, digits, - and _",
                self.path.display()
            );
            // Translations are in the folder `cache`, and the comparison of the runs is in the page
            // `report`.
            let is = |taken: &str| name.eq_ignore_ascii_case(taken);
            ensure!(
                !(is("cache") || is("report") && matches!(verb, Verb::Page(_))),
                "{}: step {name:?}: the pipeline itself writes {name} in the folder of its \
                 results: give the step another name",
                self.path.display()
            );
            for (key, needed, need) in verb.needs() {
                self.check_need(name, key, needed, need)?;
            }
            for (key, file) in verb.files() {
                let file = self.base.join(file);
                if !file.is_file() {
                    bail!("{}: there is no {}", self.place(name, key), file.display());
                }
            }
            if let Verb::Train(train) = verb {
                self.check_recipe(name, train)?;
            }
            if let Verb::Distill(step) = verb
                && step.runs.is_empty()
            {
                bail!("{}: name the run that translates", self.place(name, "runs"));
            }
            if let Verb::Diversify(step) = verb
                && step.forward.is_empty()
            {
                bail!(
                    "{}: name a run that translates in the direction of the corpus",
                    self.place(name, "forward")
                );
            }
        }
        Ok(())
    }

    /// Checks the recipe of the step `name`, also with the text of the steps that it reads.
    fn check_recipe(&self, name: &str, train: &Train) -> Result<()> {
        let recipe = self.base.join(&train.recipe);
        let config =
            RunConfig::load(&recipe, &train.set).with_context(|| self.place(name, "recipe"))?;
        if train.text.is_empty() {
            return Ok(());
        }
        let is_selected = |step: &String| matches!(self.steps.get(step), Some(Verb::Filter(_)));
        let is_drawn = !config.data.validation.is_empty();
        if config.data.hold_out > 0 {
            ensure!(
                is_drawn || train.text.iter().all(is_selected),
                "{}: data.hold_out would draw the validation set from the text that models make: \
                 name a validation set in data.validation, without data.hold_out",
                self.place(name, "recipe")
            );
            ensure!(
                !(is_drawn && train.own_text),
                "{}: the recipe's own training text has the validation set that data.hold_out drew \
                 from it: leave out own_text, or name another set in data.validation, without \
                 data.hold_out",
                self.place(name, "own_text")
            );
        }
        let all = [&train.set[..], &self.data_of(train)?].concat();
        RunConfig::load(&recipe, &all).with_context(|| self.place(name, "text"))?;
        Ok(())
    }

    /// Checks that `needed`, which the key `key` of the step `name` names, is a step or a run with
    /// a result of the kind `need`.
    fn check_need(&self, name: &str, key: &str, needed: &str, need: Need) -> Result<()> {
        let requirement = match need {
            Need::Model => "trains a model",
            Need::Text => "makes text",
        };
        match self.steps.get(needed) {
            Some(verb) if verb.gives() == Some(need) => Ok(()),
            Some(_) => {
                bail!("{}: the step {needed} is not one that {requirement}", self.place(name, key))
            }
            None if need == Need::Model && self.base.join(needed).join("config.toml").is_file() => {
                Ok(())
            }
            None => {
                let names: Vec<&str> = self.steps.keys().map(String::as_str).collect();
                let meant = nearest(needed, names.iter().copied())
                    .map_or_else(String::new, |meant| format!("; did you mean {meant}?"));
                let runs =
                    if need == Need::Model { ", and no run is in such a folder" } else { "" };
                bail!("{}: there is no step {needed}{runs}{meant}", self.place(name, key))
            }
        }
    }

    /// Names of the steps in an order in which each step comes after the steps that it needs. Steps
    /// that do not depend on each other are in alphabetical order.
    fn in_order(&self) -> Result<Vec<String>> {
        let mut order: Vec<String> = Vec::new();
        while order.len() < self.steps.len() {
            let is_ready = |verb: &Verb| {
                verb.needs().iter().all(|(_, needed, _)| {
                    !self.steps.contains_key(*needed) || order.iter().any(|done| done == needed)
                })
            };
            let is_open = |name: &String| !order.contains(name);
            let next = self.steps.iter().find(|(name, verb)| is_open(name) && is_ready(verb));
            match next {
                Some((name, _)) => order.push(name.clone()),
                None => {
                    let circle: Vec<&str> = self
                        .steps
                        .keys()
                        .filter(|name| is_open(name))
                        .map(String::as_str)
                        .collect();
                    let first = circle[0];
                    let key = self.steps[first].needs().first().map_or("run", |need| need.0);
                    bail!(
                        "{}: these steps need each other in a circle: {}",
                        self.place(first, key),
                        circle.join(", ")
                    );
                }
            }
        }
        Ok(order)
    }

    /// Output, arguments and identity of the step `name`. `before` has all steps that come before
    /// it.
    fn step(&self, name: &str, before: &[Step]) -> Result<Step> {
        let verb = &self.steps[name];
        let mut hash = Sha256::new();
        hash.update(serde_json::to_vec(verb)?);
        for (_, needed, _) in verb.needs() {
            match before.iter().find(|step| step.name == needed) {
                Some(step) => hash.update(&step.identity),
                None => {
                    hash.update(needed);
                    // A run without weights may get them before the step begins.
                    if let Ok((_, checkpoint)) = RunFolder::of_weights(&self.base.join(needed)) {
                        hash.update(read_state(&checkpoint)?.checksum);
                    }
                }
            }
        }
        if let Verb::Train(train) = verb {
            let recipe = RunConfig::load(&self.base.join(&train.recipe), &train.set)?;
            hash.update(serde_json::to_vec(&recipe)?);
        } else {
            for (_, file) in verb.files() {
                hash.update(checksum(&self.base.join(file))?);
            }
        }
        let output = match verb {
            Verb::Page(_) => self.folder.join(format!("{name}.html")),
            _ => self.folder.join(name),
        };
        let arguments = self.arguments(verb, &output)?;
        let trains = matches!(verb, Verb::Train(_));
        let identity = hex(&hash.finalize());
        Ok(Step { name: name.to_owned(), output, arguments, trains, identity })
    }
}

/// Absolute form of a path, which need not exist.
pub(crate) fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).with_context(|| format!("{}: no such path", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pipelines_of_configs_can_be_run() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs/pipelines");
        let mut count = 0;
        for entry in fs::read_dir(folder).expect("configs/pipelines") {
            let path = entry.expect("an entry").path();
            let pipeline = Pipeline::load(&path, Some(Path::new("results"))).expect("a pipeline");
            let last = pipeline.steps.last().expect("steps");
            assert!(last.trains && pipeline.folder.is_absolute(), "{pipeline:?}");
            count += 1;
        }
        assert!(count > 0);
    }
}
