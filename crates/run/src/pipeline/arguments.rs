//! Steps as commands of the program.

use std::path::Path;

use anyhow::{Context, Result};
use taper_data::Corpora;

use super::file::{Graph, absolute};
use super::steps::{Train, Verb};
use crate::config::RunConfig;

impl Graph<'_> {
    /// Folder of a step or a run.
    fn folder_of(&self, name: &str) -> Result<String> {
        match self.steps.contains_key(name) {
            true => Ok(self.folder.join(name).display().to_string()),
            false => Ok(absolute(&self.base.join(name))?.display().to_string()),
        }
    }

    /// Arguments of the program for a step.
    pub(super) fn arguments(&self, verb: &Verb, folder: &Path) -> Result<Vec<String>> {
        let mut all: Vec<String> = Vec::new();
        let file = |path: &Path| -> Result<String> {
            Ok(absolute(&self.base.join(path))?.display().to_string())
        };
        let folders = |names: &[String]| -> Result<Vec<String>> {
            names.iter().map(|name| self.folder_of(name)).collect()
        };
        let add = |all: &mut Vec<String>, key: &str, value: String| {
            all.extend([key.to_owned(), value]);
        };
        let shown = folder.display().to_string();
        let cache = self.folder.join("cache").display().to_string();
        let makes_text = !matches!(verb, Verb::Train(_) | Verb::Evaluate(_));
        match verb {
            Verb::Train(train) => {
                all.extend(["train".to_owned(), file(&train.recipe)?, "--resume".to_owned()]);
                add(&mut all, "--run", shown.clone());
                for set in &train.set {
                    add(&mut all, "--set", set.clone());
                }
                if !train.text.is_empty() {
                    for set in self.data_of(train)? {
                        add(&mut all, "--set", set);
                    }
                }
                if let Some(from) = &train.from {
                    add(&mut all, "--from", self.folder_of(from)?);
                }
            }
            Verb::Backtranslate(step) => {
                all.extend(["backtranslate".to_owned(), self.folder_of(&step.run)?]);
                all.push(file(&step.text)?);
                if let Some(method) = &step.method {
                    add(&mut all, "--method", method.clone());
                }
                if let Some(seed) = step.seed {
                    add(&mut all, "--seed", seed.to_string());
                }
            }
            Verb::Distill(step) => {
                all.push("distill".to_owned());
                all.extend(folders(&step.runs)?);
                if step.interpolate {
                    all.push("--interpolate".to_owned());
                }
                if let Some(beam) = step.beam {
                    add(&mut all, "--beam", beam.to_string());
                }
            }
            Verb::Diversify(step) => {
                all.extend(["diversify".to_owned(), "--forward".to_owned()]);
                all.extend(folders(&step.forward)?);
                if !step.backward.is_empty() {
                    all.push("--backward".to_owned());
                    all.extend(folders(&step.backward)?);
                }
                if let Some(beam) = step.beam {
                    add(&mut all, "--beam", beam.to_string());
                }
            }
            Verb::Evaluate(step) => {
                all.extend(["evaluate".to_owned(), self.folder_of(&step.run)?]);
                for set in &step.set {
                    add(&mut all, "--set", set.clone());
                }
                for split in &step.splits {
                    add(&mut all, "--split", split.clone());
                }
            }
        }
        if makes_text {
            add(&mut all, "--output", shown);
            add(&mut all, "--cache", cache);
        }
        Ok(all)
    }

    /// Overrides of `[data]` with which a recipe reads the text of other steps, and its own
    /// validation and test sets.
    fn data_of(&self, train: &Train) -> Result<Vec<String>> {
        let config = RunConfig::load(&self.base.join(&train.recipe), &train.set)?;
        let data = &config.data;
        let written = |corpora: &Corpora| -> Result<Vec<String>> {
            let corpora = toml::Value::try_from(corpora).context("the corpora are not TOML")?;
            let all = match corpora {
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
            let file = |language: &str| {
                let path = self.folder.join(name).join(format!("train.{language}"));
                toml::Value::String(path.display().to_string()).to_string()
            };
            let tag = match self.steps.get(name) {
                Some(Verb::Backtranslate(_)) => ", tag = \"<BT>\"",
                _ => "",
            };
            let [source, target] =
                [&data.source_language, &data.target_language].map(|one| file(one));
            corpora.push(format!("{{ source = {source}, target = {target}{tag} }}"));
        }
        // Without their names they would not be looked for beside files that are named.
        let mut sets = vec![format!("data.train=[{}]", corpora.join(", "))];
        for (key, split) in [("validation", &data.validation), ("test", &data.test)] {
            let split = written(split)?;
            if !split.is_empty() {
                sets.push(format!("data.{key}=[{}]", split.join(", ")));
            }
        }
        Ok(sets)
    }
}
