//! Journey of an image through a Vision Transformer.

use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;
use taper_data::Pixels;
use taper_model::{ImageClassifier, Model, Sequences};
use taper_ops::threads::in_pool;

use super::reading::{journey_of, pieces};
use super::{Answer, Choice, Journey};
use crate::LoadedRun;
use crate::attention::map::layers;

/// Image whose patches are the tokens of a journey.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Picture {
    /// Height and width in pixels.
    pub size: usize,
    /// Height and width of a patch in pixels.
    pub patch: usize,
    /// Number of channels: 1 or 3.
    pub channels: usize,
    /// Number of tokens before those of the patches.
    pub before: usize,
    /// Pixels, channel by channel, row by row.
    pub pixels: Vec<u8>,
}

impl Journey {
    /// Traces the journey of the image file at `path` through a classifier, to its label.
    ///
    /// # Errors
    /// When the image cannot be read, or the model has no attention weights.
    pub fn of_image(run: &LoadedRun<ImageClassifier>, path: &Path) -> Result<Self> {
        let settings = &run.config.data.images;
        let pixels = Pixels::of_file(path, settings)?.0;
        let values: Vec<u32> = pixels.iter().map(|&value| u32::from(value)).collect();
        let images = Sequences::pack(&[values]);
        let (mut records, logits) = in_pool(run.model.device(), || run.model.traced(&images))?;
        let (patches, side) = (run.model.shape().patches(), settings.size / settings.patch);
        let tokens = records.attention.first().map(|layer| layer.weights.dim(3)).transpose()?;
        let before = tokens.unwrap_or(patches).saturating_sub(patches);
        let patch = |number: usize| format!("{},{}", number / side + 1, number % side + 1);
        let names: Vec<String> = std::iter::repeat_n("class".to_owned(), before)
            .chain((0..patches).map(patch))
            .collect();
        let attention =
            layers(std::mem::take(&mut records.attention), |_| (names.clone(), names.clone()))?;
        let ids: Vec<u32> = (0..names.len() as u32).collect();
        let text = path.file_name().context("the image has no name")?.to_string_lossy();
        let (size, patch, channels) = (settings.size, settings.patch, settings.channels);
        Ok(Self {
            answer: Answer::Label,
            normalized: text.to_string(),
            pieces: pieces(&names, &ids),
            choices: Choice::of(&logits, [None], |id| settings.labels[id as usize].clone())?,
            picture: Some(Picture { size, patch, channels, before, pixels }),
            ..journey_of((&run.config, &text), &records, attention, &[("encoder", &names)])?
        })
    }
}
