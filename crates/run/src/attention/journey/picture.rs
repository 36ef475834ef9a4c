//! Journey of an image through a Vision Transformer: the values that the model computes on the way
//! to its answer.

use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;
use taper_data::{ImagesConfig, Pixels};
use taper_model::{ImageClassifier, Model, Sequences};
use taper_ops::threads::in_pool;

use super::reading::{journey_of, pieces};
use super::{Answer, Choice, Journey};
use crate::LoadedRun;
use crate::attention::map::layers;

/// Image whose patches are the tokens of a journey.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Picture {
    /// Height, and also width, of the image in pixels.
    pub size: usize,
    /// Height, and also width, of a patch in pixels.
    pub patch: usize,
    /// Number of channels: 1 or 3.
    pub channels: usize,
    /// Number of tokens, such as the class token, that come before the tokens of the patches.
    pub before: usize,
    /// Values of the pixels: channel by channel, and row by row in each channel.
    pub pixels: Vec<u8>,
}

impl Picture {
    /// Image with the values `pixels`, for an encoder that reads `tokens` tokens. The last of these
    /// tokens are the patches.
    pub(super) fn new(settings: &ImagesConfig, pixels: Vec<u8>, tokens: usize) -> Self {
        let ImagesConfig { size, patch, channels, .. } = *settings;
        let before = tokens.saturating_sub((size / patch).pow(2));
        Self { size, patch, channels, before, pixels }
    }

    /// Names of the tokens: `class`, or the row and column of a patch, counted from 1.
    pub(super) fn tokens(&self) -> Vec<String> {
        let side = self.size / self.patch;
        let patch = |number: usize| format!("{},{}", number / side + 1, number % side + 1);
        let before = std::iter::repeat_n("class".to_owned(), self.before);
        before.chain((0..side * side).map(patch)).collect()
    }
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
        let tokens = records.attention.first().map(|layer| layer.weights.dim(3)).transpose()?;
        let tokens = tokens.unwrap_or(run.model.shape().patches());
        let picture = Picture::new(settings, pixels, tokens);
        let names = picture.tokens();
        let attention =
            layers(std::mem::take(&mut records.attention), |_| (names.clone(), names.clone()))?;
        let ids: Vec<u32> = (0..names.len() as u32).collect();
        let text = path.file_name().context("the image has no name")?.to_string_lossy();
        Ok(Self {
            answer: Answer::Label,
            normalized: text.to_string(),
            pieces: pieces(&names, &ids),
            choices: Choice::from_logits(&logits, [None], |id| {
                settings.labels[id as usize].clone()
            })?,
            picture: Some(picture),
            ..journey_of((&run.config, &text), &records, attention, &[("encoder", &names)])?
        })
    }
}
