//! Taggers of words, and question-answering models, for clients.

use std::path::Path;

use anyhow::Result;
use taper_decoding::Control;
use taper_model::{SpanExtractor, TokenTagger};
use taper_run::prediction::{QuestionInContext, predict_answers, predict_tags};
use taper_run::{LoadSettings, LoadedRun};

use super::RunInfo;
use super::translation::{within, wrong_task};
use super::work::{Answer, Work};
use super::worker::Service;
use crate::error::Refusal;
use crate::settings::Limits;

/// Tagger of words.
pub(super) struct TagsWords<'a> {
    run: &'a LoadedRun<TokenTagger>,
    limits: Limits,
}

impl TagsWords<'_> {
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
        let run: LoadedRun<TokenTagger> = LoadedRun::open(root, load)?;
        let labels = run.config.data.labelled.labels.clone();
        let info = RunInfo { labels, ..RunInfo::of(&run, name) };
        serve(&TagsWords { run: &run, limits }, info);
        Ok(())
    }
}

impl Service for TagsWords<'_> {
    fn check(&self, work: &Work) -> Result<(), Refusal> {
        match work {
            Work::Tag { texts } => within(self.run.tokenizers.target(), texts, self.limits.tokens),
            _ => Err(wrong_task("tags words")),
        }
    }

    fn goes_with(&self, one: &Work, other: &Work) -> bool {
        matches!((one, other), (Work::Tag { .. }, Work::Tag { .. }))
    }

    fn answer(&self, works: &[&Work], control: &dyn Control) -> Result<Vec<Answer>> {
        let texts_of = |work: &&Work| match work {
            Work::Tag { texts } => texts.clone(),
            _ => Vec::new(),
        };
        let texts: Vec<Vec<String>> = works.iter().map(texts_of).collect();
        let mut found =
            predict_tags(self.run, &texts.concat(), |_| control.between_steps())?.into_iter();
        let of_work = |own: &Vec<String>| Answer::Tagged(found.by_ref().take(own.len()).collect());
        Ok(texts.iter().map(of_work).collect())
    }
}

/// Model that answers questions about texts.
pub(super) struct AnswersQuestions<'a> {
    run: &'a LoadedRun<SpanExtractor>,
    limits: Limits,
}

impl AnswersQuestions<'_> {
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
        let run: LoadedRun<SpanExtractor> = LoadedRun::open(root, load)?;
        let info = RunInfo::of(&run, name);
        serve(&AnswersQuestions { run: &run, limits }, info);
        Ok(())
    }
}

impl Service for AnswersQuestions<'_> {
    fn check(&self, work: &Work) -> Result<(), Refusal> {
        match work {
            Work::Answer { questions } => {
                let texts: Vec<String> = questions
                    .iter()
                    .flat_map(|one| [one.question.clone(), one.context.clone()])
                    .collect();
                within(self.run.tokenizers.target(), &texts, self.limits.tokens)
            }
            _ => Err(wrong_task("answers questions")),
        }
    }

    fn goes_with(&self, one: &Work, other: &Work) -> bool {
        matches!((one, other), (Work::Answer { .. }, Work::Answer { .. }))
    }

    fn answer(&self, works: &[&Work], control: &dyn Control) -> Result<Vec<Answer>> {
        let questions_of = |work: &&Work| match work {
            Work::Answer { questions } => questions.clone(),
            _ => Vec::new(),
        };
        let questions: Vec<Vec<QuestionInContext>> = works.iter().map(questions_of).collect();
        let mut found =
            predict_answers(self.run, &questions.concat(), |_| control.between_steps())?
                .into_iter();
        let of_work = |own: &Vec<QuestionInContext>| {
            Answer::Answered(found.by_ref().take(own.len()).collect())
        };
        Ok(questions.iter().map(of_work).collect())
    }
}
