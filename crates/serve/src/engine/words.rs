//! Taggers of words, and question-answering models, for clients.

use anyhow::Result;
use taper_decoding::Control;
use taper_model::{SpanExtractor, TokenTagger};
use taper_run::LoadedRun;
use taper_run::prediction::{
    QuestionInContext, SpanAnswer, TaggedText, predict_answers, predict_tags,
};

use super::handlers::{Answers, Handlers, Opening, Serve, Service};
use super::limits::within;
use super::work::{Verb, weight_of, weight_of_all};
use crate::error::Refusal;
use crate::run_info::RunInfo;
use crate::settings::Limits;

/// Tag each word of texts.
#[derive(Debug)]
pub(crate) struct Tag {
    pub(crate) texts: Vec<String>,
}

impl Verb for Tag {
    type Model = TokenTagger;
    type Answer = Vec<TaggedText>;

    fn lines(&self) -> usize {
        self.texts.len()
    }

    fn weight(&self, _beam: usize) -> usize {
        weight_of_all(&self.texts)
    }
}

/// Answer questions about texts.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) questions: Vec<QuestionInContext>,
}

impl Verb for Question {
    type Model = SpanExtractor;
    type Answer = Vec<SpanAnswer>;

    fn lines(&self) -> usize {
        self.questions.len()
    }

    fn weight(&self, _beam: usize) -> usize {
        let weight = |one: &QuestionInContext| weight_of(one.question.len() + one.context.len());
        self.questions.iter().map(weight).sum()
    }
}

/// Tagger of words.
pub(super) struct TagsWords<'a> {
    run: &'a LoadedRun<TokenTagger>,
    limits: Limits,
}

impl Service for TagsWords<'_> {
    type Model = TokenTagger;

    fn open(opening: &Opening<'_>, serve: Serve<'_>) -> Result<()> {
        let run: LoadedRun<TokenTagger> = LoadedRun::open(opening.root, opening.load)?;
        let labels = run.config.data.labelled.labels.clone();
        let info = RunInfo { labels, ..RunInfo::of(&run, opening.name) };
        let own = TagsWords { run: &run, limits: opening.limits };
        serve(Handlers::new("tags words").with::<Tag>(&own), info);
        Ok(())
    }
}

impl Answers<Tag> for TagsWords<'_> {
    type Encoded = ();

    fn check(&self, request: &Tag) -> Result<(), Refusal> {
        within(self.run.tokenizers.target(), &request.texts, self.limits.tokens)
    }

    fn answer(
        &self,
        requests: &[(&Tag, &())],
        control: &dyn Control,
    ) -> Result<Vec<Vec<TaggedText>>> {
        let texts: Vec<String> =
            requests.iter().flat_map(|(one, ())| &one.texts).cloned().collect();
        let mut tagged = predict_tags(self.run, &texts, |_| control.between_steps())?.into_iter();
        let own = |&(one, ()): &(&Tag, &())| tagged.by_ref().take(one.texts.len()).collect();
        Ok(requests.iter().map(own).collect())
    }
}

/// Model that answers questions about texts.
pub(super) struct AnswersQuestions<'a> {
    run: &'a LoadedRun<SpanExtractor>,
    limits: Limits,
}

impl Service for AnswersQuestions<'_> {
    type Model = SpanExtractor;

    fn open(opening: &Opening<'_>, serve: Serve<'_>) -> Result<()> {
        let run: LoadedRun<SpanExtractor> = LoadedRun::open(opening.root, opening.load)?;
        let own = AnswersQuestions { run: &run, limits: opening.limits };
        let info = RunInfo::of(&run, opening.name);
        serve(Handlers::new("answers questions").with::<Question>(&own), info);
        Ok(())
    }
}

impl Answers<Question> for AnswersQuestions<'_> {
    type Encoded = ();

    fn check(&self, request: &Question) -> Result<(), Refusal> {
        let texts = request.questions.iter();
        let texts: Vec<String> =
            texts.flat_map(|one| [one.question.clone(), one.context.clone()]).collect();
        within(self.run.tokenizers.target(), &texts, self.limits.tokens)
    }

    fn answer(
        &self,
        requests: &[(&Question, &())],
        control: &dyn Control,
    ) -> Result<Vec<Vec<SpanAnswer>>> {
        let questions = requests.iter().flat_map(|(one, ())| &one.questions);
        let questions: Vec<QuestionInContext> = questions.cloned().collect();
        let answers = predict_answers(self.run, &questions, |_| control.between_steps())?;
        let mut answers = answers.into_iter();
        let own =
            |&(one, ()): &(&Question, &())| answers.by_ref().take(one.questions.len()).collect();
        Ok(requests.iter().map(own).collect())
    }
}
