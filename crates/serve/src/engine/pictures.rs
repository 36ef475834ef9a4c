//! Caption models, and models that match texts and pictures, for clients.

use std::path::Path;

use anyhow::Result;
use taper_data::{ImageFormat, Pixels};
use taper_decoding::Control;
use taper_model::{ContrastiveModel, ImageCaptioner};
use taper_run::image_text::{describe_pixels, match_pixels};
use taper_run::{LoadSettings, LoadedRun};

use super::RunInfo;
use super::translation::{within, wrong_task};
use super::work::{Answer, Work};
use super::worker::Service;
use crate::error::Refusal;
use crate::settings::Limits;

/// Model that describes pictures.
pub(super) struct DescribesImages<'a> {
    run: &'a LoadedRun<ImageCaptioner>,
}

impl DescribesImages<'_> {
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
        let run: LoadedRun<ImageCaptioner> = LoadedRun::open(root, load)?;
        let info = RunInfo::of(&run, name);
        serve(&DescribesImages { run: &run }, info);
        Ok(())
    }
}

impl Service for DescribesImages<'_> {
    fn check(&self, work: &Work) -> Result<(), Refusal> {
        match work {
            Work::Describe { .. } => Ok(()),
            _ => Err(wrong_task("describes images")),
        }
    }

    fn goes_with(&self, one: &Work, other: &Work) -> bool {
        matches!((one, other), (Work::Describe { .. }, Work::Describe { .. }))
    }

    fn answer(&self, works: &[&Work], _: &dyn Control) -> Result<Vec<Answer>> {
        let read = |work: &&Work| match work {
            Work::Describe { file } => Pixels::of_bytes(file, &self.run.config.data.images),
            _ => Pixels::of_bytes(&[], &self.run.config.data.images),
        };
        let images = works.iter().map(read).collect::<Result<Vec<_>, _>>()?;
        let found = describe_pixels(self.run, images)?;
        Ok(found.into_iter().map(|caption| Answer::Described(Box::new(caption))).collect())
    }
}

/// Model that finds the text for a picture.
pub(super) struct MatchesImages<'a> {
    run: &'a LoadedRun<ContrastiveModel>,
    limits: Limits,
}

impl MatchesImages<'_> {
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
        let run: LoadedRun<ContrastiveModel> = LoadedRun::open(root, load)?;
        let images = &run.config.data.images;
        // Images of a table have captions instead of labels.
        let labels = match images.format {
            ImageFormat::Table => Vec::new(),
            _ => images.labels.clone(),
        };
        let info = RunInfo { labels, ..RunInfo::of(&run, name) };
        serve(&MatchesImages { run: &run, limits }, info);
        Ok(())
    }
}

impl Service for MatchesImages<'_> {
    fn check(&self, work: &Work) -> Result<(), Refusal> {
        match work {
            Work::Match { texts, .. } => {
                if texts.is_empty() && self.run.config.data.images.format == ImageFormat::Table {
                    let message = "the run has no labels: name the texts to choose from as `text`";
                    return Err(Refusal::Unfit(message.to_owned()));
                }
                within(self.run.tokenizers.target(), texts, self.limits.tokens)
            }
            _ => Err(wrong_task("tells which text belongs to an image")),
        }
    }

    fn goes_with(&self, one: &Work, other: &Work) -> bool {
        match (one, other) {
            (Work::Match { texts, .. }, Work::Match { texts: others, .. }) => texts == others,
            _ => false,
        }
    }

    fn answer(&self, works: &[&Work], _: &dyn Control) -> Result<Vec<Answer>> {
        let mut images = Vec::with_capacity(works.len());
        let mut choice: &[String] = &[];
        for work in works {
            let Work::Match { file, texts } = work else { continue };
            images.push(Pixels::of_bytes(file, &self.run.config.data.images)?);
            choice = texts;
        }
        let found = match_pixels(self.run, images, choice)?;
        Ok(found.into_iter().map(|one| Answer::Labelled(vec![one])).collect())
    }
}
