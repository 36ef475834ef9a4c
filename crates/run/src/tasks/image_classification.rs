//! Task of image classification: an encoder predicts a label for each image, and is scored by how
//! many of the predicted labels are correct.

use std::path::Path;

use anyhow::Result;
use serde_json::Value;
use taper_data::{ImageDataset, ImageFormat, ImagesConfig, Task};
use taper_model::{Builder, ImageClassifier, ImageShape, LayerCost};

use super::{
    ImportedFolder, ItemPrediction, Items, ModelResult, OnProgress, Predictions, TaskModel,
    Vocabularies,
};
use crate::LoadedRun;
use crate::attention::{Journey, draw_attention};
use crate::config::RunConfig;
use crate::evaluation::{Batches, ClassifiedTestSet, Split, TestSetResult};
use crate::event::RunObserver;
use crate::prediction::{Prediction, predict_images};

/// Shape of the images, as a model expects it, from the settings `images` of a training. The model
/// always divides pixel values by 255, so if the settings have another factor, mean and deviation
/// are scaled accordingly.
pub(super) fn image_shape(images: &ImagesConfig) -> ImageShape {
    let factor = 255.0 * images.rescale;
    let scaled = |numbers: &[f64]| numbers.iter().map(|number| number / factor).collect();
    ImageShape {
        size: images.size,
        channels: images.channels,
        patch: images.patch,
        mean: scaled(&images.mean),
        deviation: scaled(&images.deviation),
    }
}

/// Names and descriptions of the model's inputs: images and, if the model also reads texts,
/// vocabulary.
pub(super) fn image_inputs(
    images: &ImagesConfig,
    vocabulary: usize,
) -> Vec<(&'static str, String)> {
    let ImagesConfig { size, channels, patch, .. } = images;
    let shape =
        format!("{size} x {size} pixels in {channels} channel(s), patches of {patch} x {patch}");
    let text = (vocabulary > 0).then(|| ("vocabulary", vocabulary.to_string()));
    [("images", shape)].into_iter().chain(text).collect()
}

impl TaskModel for ImageClassifier {
    const TASK: Task = Task::ImageClassification;

    fn layer_cost(config: &RunConfig, layer: usize) -> LayerCost {
        Self::layer_cost_of(&config.model, &image_shape(&config.data.images), layer)
    }

    fn build(config: &RunConfig, _: Vocabularies, builder: Builder) -> ModelResult<Self> {
        let images = &config.data.images;
        Self::new(&config.model, &image_shape(images), images.labels.len(), builder)
    }

    /// Returns `None`: there is no limit, because the model has a position for each token of an
    /// image.
    fn most_positions(_config: &RunConfig) -> Option<(usize, &'static str)> {
        None
    }

    fn usual_tokens(config: &RunConfig) -> usize {
        config.data.images.tokens()
    }

    fn inputs(config: &RunConfig, (_, target): Vocabularies) -> Vec<(&'static str, String)> {
        image_inputs(&config.data.images, target)
    }

    fn labels(config: &RunConfig) -> Option<(&[String], &'static str)> {
        Some((&config.data.images.labels, "labels"))
    }

    fn predict_each(run: &LoadedRun<Self>, items: &Items<'_>, done: OnProgress<'_>) -> Predictions {
        ItemPrediction::each(predict_images(run, items.images, done)?, Prediction::to_text)
    }

    fn journey(run: &LoadedRun<Self>, image: &str) -> Result<Journey> {
        Journey::of_image(run, Path::new(image))
    }

    fn draw_attention(run: &LoadedRun<Self>, image: &Path, to: &Path) -> Result<()> {
        draw_attention(run, image, to)
    }

    fn describe_import(recipe: &mut RunConfig, folder: &dyn ImportedFolder) -> Result<()> {
        let labels = folder.labels(recipe, "classes.weight")?;
        let images = &mut recipe.data.images;
        images.format = ImageFormat::Folders;
        images.labels = labels;
        folder.describe_images(images)?;
        Ok(())
    }

    fn shorter_rows(_positions: usize) -> String {
        "a larger data.images.patch".to_owned()
    }

    fn measured_by(config: &RunConfig) -> Value {
        serde_json::json!({ "size": config.data.images.size })
    }

    fn batches(split: Split<'_>) -> Result<Batches<'_>> {
        Ok(split.in_order(ImageDataset::read(&split.config.data, &split.corpora())?))
    }

    fn test(&self, split: Split<'_>, _observer: &mut dyn RunObserver) -> Result<TestSetResult> {
        Ok(TestSetResult::Classified(ClassifiedTestSet::of_images(split, self)?))
    }
}
