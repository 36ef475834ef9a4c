//! Answers requests of clients to taggers of words, and to models that answer questions.

use anyhow::Result;
use taper_decoding::Control;
use taper_model::{SpanExtractor, TokenTagger};
use taper_run::LoadedRun;
use taper_run::prediction::{
    EncodedQuestion, EncodedWords, QuestionInContext, SpanAnswer, TaggedText, answer_encoded,
    tag_encoded,
};

use super::handlers::{Answers, Handlers, Opening, Serve, Service};
use super::limits::within_limit;
use super::work::{Verb, weight_of, weight_of_all};
use crate::error::{Refusal, refusal};
use crate::run_info::RunInfo;
use crate::settings::Limits;

/// Request to tag each word of texts.
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

/// Request to answer questions about texts.
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
        let info = RunInfo { labels, ..RunInfo::from_run(&run, opening.name) };
        let service = TagsWords { run: &run, limits: opening.limits };
        serve(Handlers::new("tags words").with::<Tag>(&service), info);
        Ok(())
    }
}

impl Answers<Tag> for TagsWords<'_> {
    type Encoded = Vec<EncodedWords>;

    fn check(&self, request: &Tag) -> Result<Vec<EncodedWords>, Refusal> {
        let texts = EncodedWords::encode(self.run, &request.texts);
        let texts = texts.map_err(|error| refusal(&error))?;
        within_limit(texts.iter().map(EncodedWords::tokens).sum(), self.limits.tokens)?;
        Ok(texts)
    }

    fn answer(
        &self,
        requests: &[(&Tag, &Vec<EncodedWords>)],
        control: &dyn Control,
    ) -> Result<Vec<Vec<TaggedText>>> {
        let texts: Vec<&EncodedWords> = requests.iter().flat_map(|&(_, texts)| texts).collect();
        let mut tagged = tag_encoded(self.run, &texts, |_| control.between_steps())?.into_iter();
        let tags_of_requests =
            requests.iter().map(|(_, texts)| tagged.by_ref().take(texts.len()).collect());
        Ok(tags_of_requests.collect())
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
        let service = AnswersQuestions { run: &run, limits: opening.limits };
        let info = RunInfo::from_run(&run, opening.name);
        serve(Handlers::new("answers questions").with::<Question>(&service), info);
        Ok(())
    }
}

impl Answers<Question> for AnswersQuestions<'_> {
    type Encoded = Vec<EncodedQuestion>;

    fn check(&self, request: &Question) -> Result<Vec<EncodedQuestion>, Refusal> {
        let questions = EncodedQuestion::encode(&request.questions, self.run.tokenizers.target());
        let questions = questions.map_err(|error| refusal(&error))?;
        within_limit(questions.iter().map(EncodedQuestion::tokens).sum(), self.limits.tokens)?;
        Ok(questions)
    }

    fn answer(
        &self,
        requests: &[(&Question, &Vec<EncodedQuestion>)],
        control: &dyn Control,
    ) -> Result<Vec<Vec<SpanAnswer>>> {
        let questions = requests.iter().flat_map(|&(one, all)| one.questions.iter().zip(all));
        let questions: Vec<(&QuestionInContext, &EncodedQuestion)> = questions.collect();
        let answers = answer_encoded(self.run, &questions, |_| control.between_steps())?;
        let mut answers = answers.into_iter();
        let answers_of_requests =
            requests.iter().map(|(_, all)| answers.by_ref().take(all.len()).collect());
        Ok(answers_of_requests.collect())
    }
}
