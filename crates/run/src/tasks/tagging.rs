//! Task of tagging: an encoder predicts a tag for each word, and is scored by the entities that the
//! tags mark.

use anyhow::{Context, Result};
use serde_json::Value;
use taper_data::{LabelOf, Task};
use taper_model::{Builder, TokenTagger};

use super::{
    ImportedFolder, ItemPrediction, Items, ModelResult, OnProgress, Predictions, TaskModel,
    Vocabularies,
};
use crate::attention::Journey;
use crate::config::RunConfig;
use crate::evaluation::{Batches, Split, TaggedTestSet, TestSetResult};
use crate::event::RunObserver;
use crate::prediction::predict_tags;
use crate::{LoadedRun, answer_each};

impl TaskModel for TokenTagger {
    const TASK: Task = Task::Tagging;

    fn build(
        config: &RunConfig,
        (_, vocabulary): Vocabularies,
        builder: Builder,
    ) -> ModelResult<Self> {
        Self::new(&config.model, vocabulary, config.data.labelled.labels.len(), builder)
    }

    fn usual_tokens(config: &RunConfig) -> usize {
        config.data.labelled.max_tokens
    }

    fn labels(config: &RunConfig) -> Option<(&[String], &'static str)> {
        Some((&config.data.labelled.labels, "tags"))
    }

    fn journey(run: &LoadedRun<Self>, text: &str) -> Result<Journey> {
        Journey::of_tagged(run, text)
    }

    fn predict_each(run: &LoadedRun<Self>, items: &Items<'_>, done: OnProgress<'_>) -> Predictions {
        let tokenizer = run.tokenizers.target();
        let fit = |(index, text): (usize, &String)| {
            tokenizer
                .check_spelled(text)
                .with_context(|| format!("line {}", items.before + index + 1))?;
            Ok(text.clone())
        };
        let tagged = answer_each(items.lines.iter().enumerate().map(fit), |texts| {
            predict_tags(run, &texts, done)
        })?;
        ItemPrediction::each(tagged, |text| {
            let line = |(word, tag): (&String, &String)| format!("{word}\t{tag}\n");
            text.words.iter().zip(&text.tags).map(line).collect()
        })
    }

    fn describe_import(recipe: &mut RunConfig, folder: &dyn ImportedFolder) -> Result<()> {
        recipe.data.labelled.labels = folder.labels(recipe, "tags.weight")?;
        recipe.data.labelled.max_tokens = recipe.model.max_positions;
        Ok(())
    }

    fn shorter_rows(positions: usize) -> String {
        format!("data.labelled.max_tokens = {positions}")
    }

    fn measured_by(config: &RunConfig) -> Value {
        serde_json::json!({ "max_tokens": config.data.labelled.max_tokens })
    }

    fn batches(split: Split<'_>) -> Result<Batches<'_>> {
        Ok(split.in_order(split.labelled(LabelOf::Word)?))
    }

    fn test(&self, split: Split<'_>, _observer: &mut dyn RunObserver) -> Result<TestSetResult> {
        Ok(TestSetResult::Tagged(TaggedTestSet::evaluate(split, self)?))
    }
}
