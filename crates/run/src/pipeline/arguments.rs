//! Command-line arguments of the program for the steps of a pipeline.

use std::path::Path;

use anyhow::{Context, Result};
use taper_data::Corpora;

use super::file::{Graph, absolute};
use super::steps::{Need, Train, Verb};
use crate::config::{RunConfig, text};
use crate::made_text::file_names;

/// Arguments of a command, in order.
#[derive(Default)]
struct Line(Vec<String>);

impl Line {
    fn words(&mut self, words: impl IntoIterator<Item: ToString>) {
        self.0.extend(words.into_iter().map(|word| word.to_string()));
    }

    /// Adds the option `key` once for each of `values`.
    fn option(&mut self, key: &str, values: impl IntoIterator<Item: ToString>) {
        for value in values {
            self.0.extend([key.to_owned(), value.to_string()]);
        }
    }
}

impl Graph<'_> {
    /// Path of the folder of the step called `name`. If there is no such step, `name` is the path
    /// of a run (folder of a trained model), which is returned. A step that makes a shortlist (a
    /// file in a run) has no folder of its own; its folder is the run that gets the shortlist.
    fn folder_of(&self, name: &str) -> Result<String> {
        match self.steps.get(name) {
            Some(Verb::Shortlist(step)) => self.folder_of(&step.run),
            Some(_) => Ok(self.folder.join(name).display().to_string()),
            None => Ok(absolute(&self.base.join(name))?.display().to_string()),
        }
    }

    /// Arguments of the program for a step. `output` is the folder of the step's results, or the
    /// file of its page.
    pub(super) fn arguments(&self, verb: &Verb, output: &Path) -> Result<Vec<String>> {
        let mut line = Line::default();
        let file = |path: &Path| -> Result<String> {
            Ok(absolute(&self.base.join(path))?.display().to_string())
        };
        let folders = |names: &[String]| -> Result<Vec<String>> {
            names.iter().map(|name| self.folder_of(name)).collect()
        };
        match verb {
            Verb::Train(step) => {
                line.words(["train", &file(&step.recipe)?, "--resume"]);
                line.option("--run", [output.display()]);
                line.option("--set", &step.set);
                if !step.text.is_empty() {
                    line.option("--set", self.data_of(step)?);
                }
                let parent = step.from.as_ref().map(|parent| self.folder_of(parent));
                line.option("--from", parent.transpose()?);
            }
            Verb::Backtranslate(step) => {
                line.words(["backtranslate", &self.folder_of(&step.run)?, &file(&step.text)?]);
                line.option("--method", &step.method);
                line.option("--seed", step.seed);
            }
            Verb::Distill(step) => {
                line.words(["distill"]);
                line.words(folders(&step.runs)?);
                line.words(step.interpolate.then_some("--interpolate"));
                line.option("--beam", step.beam);
            }
            Verb::Diversify(step) => {
                line.words(["diversify", "--forward"]);
                line.words(folders(&step.forward)?);
                if !step.backward.is_empty() {
                    line.words(["--backward"]);
                    line.words(folders(&step.backward)?);
                }
                line.option("--beam", step.beam);
            }
            Verb::Filter(step) => {
                line.words(["filter", "--forward", &self.folder_of(&step.forward)?]);
                line.words(["--backward", &self.folder_of(&step.backward)?]);
                line.option("--keep", step.keep);
            }
            Verb::Evaluate(step) => {
                line.words(["evaluate", &self.folder_of(&step.run)?]);
                line.option("--set", &step.set);
                line.option("--split", &step.splits);
            }
            Verb::Shortlist(step) => line.words(["shortlist", &self.folder_of(&step.run)?]),
            Verb::Page(step) => {
                line.words(["page", &self.folder_of(&step.run)?, &output.display().to_string()]);
                // If a pipeline was killed, a page can exist although its step is not marked as
                // finished.
                line.words(["--replace"]);
                line.option("--module", step.module.as_deref().map(file).transpose()?);
                line.option("--language", &step.language);
            }
        }
        if verb.gives() == Some(Need::Text) {
            line.option("--output", [output.display()]);
            line.option("--cache", [self.folder.join("cache").display()]);
        }
        Ok(line.0)
    }

    /// Overrides of keys in the section `[data]` of a recipe (configuration of a training). With
    /// these, the training reads the text that other steps make, and the validation and test sets
    /// of the recipe.
    pub(super) fn data_of(&self, train: &Train) -> Result<Vec<String>> {
        let config = RunConfig::load(&self.base.join(&train.recipe), &train.set)?;
        let data = &config.data;
        let written = |corpora: &Corpora| -> Result<Vec<String>> {
            let json = serde_json::to_value(corpora).context("the corpora are not JSON")?;
            let all = match text::of_json(json)? {
                toml::Value::Array(all) => all,
                one => vec![one],
            };
            let table = |corpus: toml::Value| match corpus {
                toml::Value::String(stem) if stem.is_empty() => None,
                toml::Value::String(_) => Some(format!("{{ stem = {corpus} }}")),
                corpus => Some(corpus.to_string()),
            };
            Ok(all.into_iter().filter_map(table).collect())
        };
        let mut corpora = if train.own_text { written(&data.train)? } else { Vec::new() };
        for name in &train.text {
            let file = |name_of_file: String| {
                let path = self.folder.join(name).join(name_of_file);
                toml::Value::String(path.display().to_string()).to_string()
            };
            let tag = match self.steps.get(name) {
                Some(Verb::Backtranslate(_)) => ", tag = \"<BT>\"",
                _ => "",
            };
            let [source, target] =
                file_names([&data.source_language, &data.target_language]).map(file);
            corpora.push(format!("{{ source = {source}, target = {target}{tag} }}"));
        }
        // If the recipe belongs to a run that has drawn its validation set from its training text,
        // this set is read. No second set is drawn from the text of the steps.
        let is_drawn = data.hold_out > 0 && !data.validation.is_empty();
        // Validation and test sets must be named, because a recipe that names files of text does
        // not look for sets with the usual file names.
        let mut sets = vec![format!("data.train=[{}]", corpora.join(", "))];
        for (key, split) in [("validation", &data.validation), ("test", &data.test)] {
            let split = written(split)?;
            if !split.is_empty() {
                sets.push(format!("data.{key}=[{}]", split.join(", ")));
            }
        }
        sets.extend(is_drawn.then(|| "data.hold_out=0".to_owned()));
        Ok(sets)
    }
}
