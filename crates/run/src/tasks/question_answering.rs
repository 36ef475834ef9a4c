//! Task of question answering: an encoder marks the answer to a question in a text, and is scored
//! by comparison with reference answers.

use anyhow::Result;
use serde_json::Value;
use taper_data::{LabelOf, Task};
use taper_model::{Builder, SpanExtractor};

use super::{
    ImportedFolder, ItemPrediction, Items, ModelResult, OnProgress, Predictions, TaskModel,
    Vocabularies,
};
use crate::config::RunConfig;
use crate::evaluation::{AnsweredTestSet, Batches, Split, TestSetResult};
use crate::event::RunObserver;
use crate::prediction::{QuestionInContext, predict_answers};
use crate::{LoadedRun, answer_each};

impl TaskModel for SpanExtractor {
    const TASK: Task = Task::QuestionAnswering;

    fn build(
        config: &RunConfig,
        (_, vocabulary): Vocabularies,
        builder: Builder,
    ) -> ModelResult<Self> {
        Self::new(&config.model, vocabulary, builder)
    }

    fn usual_tokens(config: &RunConfig) -> usize {
        config.data.questions.max_tokens
    }

    fn predict_each(run: &LoadedRun<Self>, items: &Items<'_>, done: OnProgress<'_>) -> Predictions {
        let tokenizer = run.tokenizers.target();
        let question = |(index, line): (usize, &String)| {
            QuestionInContext::from_line(items.before + index + 1, line, tokenizer)
        };
        let answers = answer_each(items.lines.iter().enumerate().map(question), |questions| {
            predict_answers(run, &questions, done)
        })?;
        ItemPrediction::each(answers, |one| format!("{}\t{:.4}", one.answer, one.probability))
    }

    fn describe_import(recipe: &mut RunConfig, _folder: &dyn ImportedFolder) -> Result<()> {
        let (positions, questions) = (recipe.model.max_positions, &mut recipe.data.questions);
        questions.max_tokens = questions.max_tokens.min(positions);
        // If there are few positions, a question is limited to a quarter of them.
        questions.max_question_tokens = questions.max_question_tokens.min(positions / 4).max(1);
        Ok(())
    }

    fn shorter_rows(positions: usize) -> String {
        format!("data.questions.max_tokens = {positions}")
    }

    fn measured_by(config: &RunConfig) -> Value {
        serde_json::json!({ "questions": config.data.questions })
    }

    fn batches(split: Split<'_>) -> Result<Batches<'_>> {
        Ok(split.in_order(split.labelled(LabelOf::Question)?))
    }

    fn test(&self, split: Split<'_>, _observer: &mut dyn RunObserver) -> Result<TestSetResult> {
        Ok(TestSetResult::Answered(AnsweredTestSet::evaluate(split, self)?))
    }
}
