//! Task of captions: a model writes captions of images, and is scored by comparison with
//! references.

use std::path::Path;

use anyhow::Result;
use serde_json::Value;
use taper_data::{CaptionUse, Task};
use taper_model::{Builder, ImageCaptioner};

use super::image_classification::{image_inputs, image_shape};
use super::{ItemPrediction, Items, ModelResult, OnProgress, Predictions, TaskModel, Vocabularies};
use crate::LoadedRun;
use crate::attention::Journey;
use crate::config::RunConfig;
use crate::evaluation::{Batches, CaptionedTestSet, Split, TestSetResult};
use crate::event::RunObserver;
use crate::image_text::{caption_search, describe_images};

impl TaskModel for ImageCaptioner {
    const TASK: Task = Task::Captions;
    const DECODES: bool = true;

    fn build(
        config: &RunConfig,
        (_, vocabulary): Vocabularies,
        builder: Builder,
    ) -> ModelResult<Self> {
        Self::new(&config.model, &image_shape(&config.data.images), vocabulary, builder)
    }

    /// Limit of the length of captions. Images have no limit, because the model has a position for
    /// each of their tokens.
    fn most_positions(config: &RunConfig) -> Option<(usize, &'static str)> {
        config.model.longest_sequence().map(|most| (most, "model.max_positions"))
    }

    fn usual_tokens(config: &RunConfig) -> usize {
        config.data.captions.max_tokens
    }

    fn inputs(config: &RunConfig, (_, target): Vocabularies) -> Vec<(&'static str, String)> {
        image_inputs(&config.data.images, target)
    }

    fn predict_each(run: &LoadedRun<Self>, items: &Items<'_>, done: OnProgress<'_>) -> Predictions {
        let captions = describe_images(run, items.images, done)?;
        ItemPrediction::each(captions, |caption| caption.text.clone())
    }

    fn journey(run: &LoadedRun<Self>, image: &str) -> Result<Journey> {
        Journey::of_captioned(run, Path::new(image))
    }

    fn shorter_rows(positions: usize) -> String {
        // The start token `<s>` needs a position, too.
        format!("data.captions.max_tokens = {}", positions.saturating_sub(1))
    }

    fn measured_by(config: &RunConfig) -> Value {
        let search = caption_search(config);
        serde_json::json!({
            "beam_size": (!search.sampling.is_active()).then_some(search.beam_size),
            "length_penalty": search.length_penalty,
            "decoding": search,
            "captions": config.data.captions,
        })
    }

    fn round_to_int8(&mut self) -> Result<()> {
        Ok(Self::round_to_int8(self)?)
    }

    fn batches(split: Split<'_>) -> Result<Batches<'_>> {
        captioned(CaptionUse::Written, split)
    }

    fn test(&self, split: Split<'_>, observer: &mut dyn RunObserver) -> Result<TestSetResult> {
        let result = CaptionedTestSet::evaluate(split, self, observer)?;
        Ok(TestSetResult::Captioned(Box::new(result)))
    }
}

/// Batches of a split of images with captions, for models that write captions or compare them with
/// images (`usage`).
pub(super) fn captioned(usage: CaptionUse, split: Split<'_>) -> Result<Batches<'_>> {
    Ok(split.in_order(split.captioned_images(usage)?))
}
