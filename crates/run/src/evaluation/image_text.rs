//! Scores of captions that a model writes, and of retrieval of texts by images and of images by
//! texts.

use anyhow::{Context, Result};
use taper_data::{CaptionUse, ImageFormat};
use taper_model::{ContrastiveModel, ImageCaptioner};
use taper_trainer::evaluate;

use super::{CaptionedTestSet, MatchedTestSet, Recall, Split, TextScores};
use crate::event::RunObserver;
use crate::image_text::{Placed, PlacedLabels, caption_search, describe, recalls};
use crate::numbers::highest;

impl CaptionedTestSet {
    /// Lets `model` describe the images of a split, and scores these captions.
    ///
    /// # Errors
    /// When the split cannot be read, or the model cannot be run on it.
    pub(crate) fn evaluate(
        split: Split<'_>,
        model: &ImageCaptioner,
        observer: &mut dyn RunObserver,
    ) -> Result<Self> {
        let Split { config, tokenizers, .. } = split;
        let images = split.captioned_images(CaptionUse::Written)?;
        let total = images.len();
        let read = |places: &[usize]| Ok(images.values(places)?);
        let captioned = split.observed(total, observer, |progress, control| {
            let search = caption_search(config);
            describe(model, tokenizers, &search, (total, read), control, progress)
        })?;
        let truncated = captioned.iter().filter(|caption| caption.truncated).count();
        let captions: Vec<String> = captioned.into_iter().map(|caption| caption.text).collect();
        let (texts, references) = images.captions();
        // References are normalised, because the model has learned to write normalised text only.
        let normal = |text: &String| split.tokenizer().normalize(text);
        let texts: Vec<String> = texts.iter().map(normal).collect::<Result<_, _>>()?;
        let is_own = |(caption, references): (&String, &&[u32])| {
            references.iter().any(|&at| texts[at as usize] == *caption)
        };
        let exact = captions.iter().zip(&references).filter(|&one| is_own(one)).count();
        let most = references.iter().map(|references| references.len()).max().unwrap_or(1);
        // All images must have the same number of references. An image with fewer captions than
        // others repeats them, which changes no score.
        let reference = |rank: usize| -> Vec<String> {
            references
                .iter()
                .map(|references| texts[references[rank % references.len()] as usize].clone())
                .collect()
        };
        let references: Vec<Vec<String>> = (0..most).map(reference).collect();
        let scores = TextScores::of_several(&captions, &references, &config.scoring())
            .with_context(|| format!("split `{}`", split.name))?;
        Ok(Self {
            split: split.name.to_owned(),
            images: total,
            exact_match: exact as f64 / total as f64,
            truncated,
            scores,
            references: references.into_iter().next().unwrap_or_default(),
            captions,
        })
    }
}

impl MatchedTestSet {
    /// Embeds the images and captions of a split with `model`, and scores how well images find
    /// their captions, and captions their images.
    ///
    /// # Errors
    /// When the split cannot be read, or the model cannot be run on it.
    pub(crate) fn evaluate(
        split: Split<'_>,
        model: &ContrastiveModel,
        observer: &mut dyn RunObserver,
    ) -> Result<Self> {
        let (config, target) = (split.config, split.tokenizer());
        let images = split.captioned_images(CaptionUse::Compared)?;
        let total = images.len();
        let placed = split.observed(total, observer, |progress, control| {
            let read = |places: &[usize]| Ok(images.values(places)?);
            Placed::images(model, (total, read), control, progress)
        })?;
        let (texts, texts_of) = images.captions();
        let of_texts = Placed::texts(model, target, texts)?;
        let texts_of: Vec<Vec<u32>> = texts_of.into_iter().map(<[u32]>::to_vec).collect();
        let mut images_of = vec![Vec::new(); texts.len()];
        for (image, texts_of_image) in texts_of.iter().enumerate() {
            texts_of_image.iter().for_each(|&text| images_of[text as usize].push(image as u32));
        }
        let zero_shot_accuracy = if config.data.images.format == ImageFormat::Table {
            None
        } else {
            let labels = PlacedLabels::embed(model, target, config)?;
            let predicted = labels.probabilities(&placed, model.scale()?)?;
            let right = predicted.iter().zip(images.classes());
            let right =
                right.filter(|(predicted, class)| highest(predicted) == *class as usize).count();
            Some(right as f64 / total as f64)
        };
        let ranks = [1, 5];
        let image_to_text =
            Recall::new(texts.len(), recalls(&placed, &of_texts, &texts_of, ranks)?);
        let text_to_image = Recall::new(total, recalls(&of_texts, &placed, &images_of, ranks)?);
        let measured = evaluate(model, split.in_order(images), 0.0)?;
        Ok(Self {
            split: split.name.to_owned(),
            images: total,
            loss: measured.nll,
            zero_shot_accuracy,
            image_to_text,
            text_to_image,
        })
    }
}
