//! Classifiers, for clients.

use std::path::Path;

use anyhow::Result;
use taper_data::{ImagesConfig, Pairs, Pixels};
use taper_decoding::Control;
use taper_model::{ImageClassifier, TextClassifier};
use taper_run::attention::AttentionMap;
use taper_run::prediction::{predict, predict_pixels};
use taper_run::{LoadSettings, LoadedRun};

use super::RunInfo;
use super::translation::{within, wrong_task};
use super::work::{Answer, Work};
use super::worker::Service;
use crate::error::Refusal;
use crate::settings::Limits;

/// Classifier of texts.
pub(super) struct LabelsTexts<'a> {
    run: &'a LoadedRun<TextClassifier>,
    limits: Limits,
}

impl LabelsTexts<'_> {
    /// Loads the run at `root`, and calls `serve`.
    ///
    /// # Errors
    /// When it cannot be loaded.
    pub(super) fn open(
        root: &Path,
        load: &LoadSettings,
        name: &str,
        limits: Limits,
        serve: impl FnOnce(&dyn Service, RunInfo),
    ) -> Result<()> {
        let run: LoadedRun<TextClassifier> = LoadedRun::open(root, load)?;
        let settings = &run.config.data.labelled;
        let info = RunInfo {
            labels: settings.labels.clone(),
            pairs: settings.pairs != Pairs::No,
            ..RunInfo::of(&run, name)
        };
        serve(&LabelsTexts { run: &run, limits }, info);
        Ok(())
    }
}

impl Service for LabelsTexts<'_> {
    fn check(&self, work: &Work) -> Result<(), Refusal> {
        let tokenizer = self.run.tokenizers.target();
        match work {
            Work::LabelTexts { texts } => within(tokenizer, texts, self.limits.tokens),
            Work::Attend { text, target: None } => {
                within(tokenizer, std::slice::from_ref(text), self.limits.attention_tokens)
            }
            _ => Err(wrong_task("labels texts")),
        }
    }

    fn goes_with(&self, one: &Work, other: &Work) -> bool {
        matches!((one, other), (Work::LabelTexts { .. }, Work::LabelTexts { .. }))
    }

    fn answer(&self, works: &[&Work], control: &dyn Control) -> Result<Vec<Answer>> {
        if let [Work::Attend { text, .. }] = works {
            let map = AttentionMap::of_labelled(self.run, text)?;
            return Ok(vec![Answer::Attention(Box::new(map))]);
        }
        let texts_of = |work: &Work| match work {
            Work::LabelTexts { texts } => texts.clone(),
            _ => Vec::new(),
        };
        let texts: Vec<Vec<String>> = works.iter().map(|work| texts_of(work)).collect();
        let mut found =
            predict(self.run, &texts.concat(), |_| control.between_steps())?.into_iter();
        let of_work = |own: &Vec<String>| {
            Ok(Answer::Labelled(found.by_ref().take(own.len()).collect::<Result<_>>()?))
        };
        texts.iter().map(of_work).collect()
    }
}

/// Classifier of images.
pub(super) struct LabelsImages<'a> {
    run: &'a LoadedRun<ImageClassifier>,
    settings: &'a ImagesConfig,
}

impl LabelsImages<'_> {
    /// Loads the run at `root`, and calls `serve`.
    ///
    /// # Errors
    /// When it cannot be loaded.
    pub(super) fn open(
        root: &Path,
        load: &LoadSettings,
        name: &str,
        serve: impl FnOnce(&dyn Service, RunInfo),
    ) -> Result<()> {
        let run: LoadedRun<ImageClassifier> = LoadedRun::open(root, load)?;
        let settings = &run.config.data.images;
        let info = RunInfo { labels: settings.labels.clone(), ..RunInfo::of(&run, name) };
        serve(&LabelsImages { run: &run, settings }, info);
        Ok(())
    }
}

impl Service for LabelsImages<'_> {
    fn check(&self, work: &Work) -> Result<(), Refusal> {
        match work {
            Work::LabelImage { .. } => Ok(()),
            _ => Err(wrong_task("labels images")),
        }
    }

    fn goes_with(&self, one: &Work, other: &Work) -> bool {
        matches!((one, other), (Work::LabelImage { .. }, Work::LabelImage { .. }))
    }

    fn answer(&self, works: &[&Work], _: &dyn Control) -> Result<Vec<Answer>> {
        let read = |work: &&Work| match work {
            Work::LabelImage { file } => Pixels::of_bytes(file, self.settings),
            _ => Pixels::of_bytes(&[], self.settings),
        };
        let images = works.iter().map(read).collect::<Result<Vec<_>, _>>()?;
        let found = predict_pixels(self.run, images)?;
        Ok(found.into_iter().map(|one| Answer::Labelled(vec![one])).collect())
    }
}
