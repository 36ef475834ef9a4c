//! Task of text classification: an encoder predicts a label for each text, and is scored by how
//! many of the predicted labels are correct.

use std::path::Path;

use anyhow::Result;
use serde_json::Value;
use taper_data::{LabelOf, Pairs, Task, first_with_tab};
use taper_model::{Builder, TextClassifier};

use super::{
    ImportedFolder, ItemPrediction, Items, ModelResult, OnProgress, Predictions, TaskModel,
    Vocabularies,
};
use crate::attention::{AttentionMap, Journey};
use crate::config::RunConfig;
use crate::evaluation::{Batches, ClassifiedTestSet, Split, TestSetResult};
use crate::event::RunObserver;
use crate::prediction::{Prediction, predict_after};
use crate::{LoadedRun, Notice, TextNotice};

impl TaskModel for TextClassifier {
    const TASK: Task = Task::Classification;

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
        Some((&config.data.labelled.labels, "labels"))
    }

    fn journey(run: &LoadedRun<Self>, text: &str) -> Result<Journey> {
        Journey::of_labelled(run, text)
    }

    fn attention(run: &LoadedRun<Self>, text: &str, _target: Option<&str>) -> Result<AttentionMap> {
        AttentionMap::of_labelled(run, text)
    }

    fn notice_on(config: &RunConfig, lines: &[String], path: &Path) -> Option<Notice> {
        let line = first_with_tab(lines, &config.data.labelled)? as u64 + 1;
        Some(TextNotice::TabInText { path: path.to_owned(), line }.into())
    }

    fn predict_each(run: &LoadedRun<Self>, items: &Items<'_>, done: OnProgress<'_>) -> Predictions {
        ItemPrediction::each(
            predict_after(items.before, run, items.lines, done)?,
            Prediction::to_text,
        )
    }

    fn describe_import(recipe: &mut RunConfig, folder: &dyn ImportedFolder) -> Result<()> {
        let labels = folder.labels(recipe, "classes.weight")?;
        let labelled = &mut recipe.data.labelled;
        labelled.labels = labels;
        labelled.max_tokens = recipe.model.max_positions;
        // No key of the folder tells whether the model was trained on pairs of texts.
        labelled.pairs = Pairs::Auto;
        Ok(())
    }

    fn shorter_rows(positions: usize) -> String {
        format!("data.labelled.max_tokens = {positions}")
    }

    fn measured_by(config: &RunConfig) -> Value {
        let labelled = &config.data.labelled;
        serde_json::json!({ "max_tokens": labelled.max_tokens, "pairs": labelled.pairs })
    }

    fn batches(split: Split<'_>) -> Result<Batches<'_>> {
        Ok(split.in_order(split.labelled(LabelOf::Text)?))
    }

    fn test(&self, split: Split<'_>, _observer: &mut dyn RunObserver) -> Result<TestSetResult> {
        Ok(TestSetResult::Classified(ClassifiedTestSet::of_texts(split, self)?))
    }
}
