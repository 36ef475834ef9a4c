//! Task of in-context regression: a causal model reads points of a function and predicts further
//! values, and is scored by its errors.

use anyhow::Result;
use serde_json::Value;
use taper_data::{RegressionConfig, RegressionDataset, Task};
use taper_model::{Builder, InContextRegressor};

use super::{ModelResult, TaskModel, Vocabularies};
use crate::config::RunConfig;
use crate::evaluation::{Batches, RegressedTestSet, Split, TestSetResult};
use crate::event::RunObserver;

impl TaskModel for InContextRegressor {
    const TASK: Task = Task::InContextRegression;

    fn build(config: &RunConfig, _: Vocabularies, builder: Builder) -> ModelResult<Self> {
        Self::new(&config.model, config.data.regression.dimensions, builder)
    }

    fn most_positions(config: &RunConfig) -> Option<(usize, &'static str)> {
        config.model.longest_sequence().map(|most| (most, "model.max_positions"))
    }

    fn usual_tokens(config: &RunConfig) -> usize {
        config.data.regression.tokens()
    }

    fn inputs(config: &RunConfig, _: Vocabularies) -> Vec<(&'static str, String)> {
        let RegressionConfig { dimensions, points, .. } = config.data.regression;
        vec![("functions", format!("of {dimensions} dimensions, by {points} points"))]
    }

    fn shorter_rows(positions: usize) -> String {
        // Each point has a token for x and a token for y, but the last point has none for y.
        format!("data.regression.points = {}", positions.div_ceil(2))
    }

    fn measured_by(config: &RunConfig) -> Value {
        serde_json::json!({ "regression": config.data.regression })
    }

    /// Accepts any name of a split, because the functions of a split are random, and its name is
    /// the seed of the draws.
    fn require_test_set(_config: &RunConfig, _split: &str) -> Result<()> {
        Ok(())
    }

    fn batches(split: Split<'_>) -> Result<Batches<'_>> {
        Ok(split.in_order(RegressionDataset::of_split(&split.config.data, split.name)))
    }

    fn test(&self, split: Split<'_>, _observer: &mut dyn RunObserver) -> Result<TestSetResult> {
        Ok(TestSetResult::Regressed(RegressedTestSet::evaluate(split, self)?))
    }
}
