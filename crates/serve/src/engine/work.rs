//! Requests to a run, and its answers.

use std::any::{Any, TypeId};
use std::fmt::Debug;
use std::time::Instant;

use taper_data::Tokenizer;
use taper_model::{
    ContrastiveModel, ImageCaptioner, ImageClassifier, LanguageModel, SpanExtractor,
    TextClassifier, TokenTagger, TranslationModel,
};
use taper_run::attention::AttentionMap;
use taper_run::generation::{GeneratedText, Prompt, PromptContent, TokenScore};
use taper_run::prediction::{Prediction, QuestionInContext, SpanAnswer, TaggedText};
use taper_run::tasks::TaskModel;
use taper_run::translation::Translation;
use tokio::sync::{mpsc, oneshot};

use super::{GenerateOptions, LineAnswer, TranslateOptions, Waiting};
use crate::error::Refusal;

/// Bytes of text that count as one line: about 32 tokens.
const LINE_BYTES: usize = 128;

/// Approximate number of bytes of a token.
const TOKEN_BYTES: usize = 4;

/// Kind of request to a run.
pub(crate) trait Verb: Debug + Send + Sync + 'static {
    /// Model that answers it, if a client does not name a run.
    type Model: TaskModel;
    /// Type of its answers.
    type Answer: Debug + Send + 'static;

    /// Size of the request in lines.
    fn lines(&self) -> usize {
        1
    }

    /// Weight of the request: lines of about 32 tokens searched with `beam` hypotheses, the run's
    /// own number. It is estimated from bytes, since nothing is tokenised before its turn.
    fn weight(&self, _beam: usize) -> usize {
        1
    }

    /// Whether somebody listens to what is sent before the answer.
    fn has_listener(&self) -> bool {
        true
    }
}

/// Weight of a text of so many bytes.
fn weight_of(bytes: usize) -> usize {
    bytes.div_ceil(LINE_BYTES).max(1)
}

fn weight_of_all(texts: &[String]) -> usize {
    texts.iter().map(|text| weight_of(text.len())).sum()
}

/// Translate lines.
#[derive(Debug)]
pub(crate) struct Translate {
    pub(crate) lines: Vec<String>,
    pub(crate) options: TranslateOptions,
}

impl Verb for Translate {
    type Model = TranslationModel;
    type Answer = Vec<LineAnswer>;

    fn lines(&self) -> usize {
        self.lines.len()
    }

    fn weight(&self, beam: usize) -> usize {
        let hypotheses = self.options.beam.unwrap_or(beam).max(self.options.alternatives);
        weight_of_all(&self.lines) * hypotheses.div_ceil(beam.max(1))
    }
}

/// Measure how well a text fits the vocabulary of the source language.
#[derive(Debug)]
pub(crate) struct Measure {
    pub(crate) text: String,
}

impl Verb for Measure {
    type Model = TranslationModel;
    type Answer = Fit;

    fn weight(&self, _beam: usize) -> usize {
        weight_of(self.text.len())
    }
}

/// Compute the attention of every layer and head on a text, and on its translation.
#[derive(Debug)]
pub(crate) struct Attend {
    pub(crate) text: String,
    pub(crate) target: Option<String>,
}

impl Verb for Attend {
    type Model = TranslationModel;
    type Answer = AttentionMap;

    fn weight(&self, _beam: usize) -> usize {
        weight_of(self.text.len() + self.target.as_ref().map_or(0, String::len))
    }
}

/// Generate text after prompts.
#[derive(Debug)]
pub(crate) struct Generate {
    pub(crate) prompts: Vec<PromptText>,
    pub(crate) options: GenerateOptions,
    /// Receiver of pieces of text as they come.
    pub(crate) pieces: Option<mpsc::UnboundedSender<Piece>>,
}

impl Verb for Generate {
    type Model = LanguageModel;
    /// Result for each prompt.
    type Answer = Vec<Continued>;

    fn lines(&self) -> usize {
        self.prompts.len() * self.options.samples
    }

    fn weight(&self, _beam: usize) -> usize {
        let text = |prompt: &PromptText| match &prompt.content {
            OwnPrompt::Beginning => 0,
            OwnPrompt::Text(text) | OwnPrompt::Marked { text, .. } => text.len(),
            OwnPrompt::Tokens(ids) => ids.len().saturating_mul(TOKEN_BYTES),
        };
        let added = self.options.max_tokens.saturating_mul(TOKEN_BYTES);
        let weight = |prompt| weight_of(added.saturating_add(text(prompt)));
        let passes = if self.options.scoring.is_some() { 2 } else { 1 };
        let samples = self.options.samples.saturating_mul(passes);
        self.prompts.iter().map(weight).sum::<usize>().saturating_mul(samples)
    }

    fn has_listener(&self) -> bool {
        self.pieces.as_ref().is_none_or(|pieces| !pieces.is_closed())
    }
}

/// Label texts.
#[derive(Debug)]
pub(crate) struct LabelTexts {
    pub(crate) texts: Vec<String>,
}

impl Verb for LabelTexts {
    type Model = TextClassifier;
    type Answer = Vec<Prediction>;

    fn lines(&self) -> usize {
        self.texts.len()
    }

    fn weight(&self, _beam: usize) -> usize {
        weight_of_all(&self.texts)
    }
}

/// Label a picture: a PNG or JPEG file.
#[derive(Debug)]
pub(crate) struct LabelImage {
    pub(crate) file: Vec<u8>,
}

impl Verb for LabelImage {
    type Model = ImageClassifier;
    type Answer = Prediction;
}

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

/// Write the caption of a picture: a PNG or JPEG file.
#[derive(Debug)]
pub(crate) struct Describe {
    pub(crate) file: Vec<u8>,
}

impl Verb for Describe {
    type Model = ImageCaptioner;
    type Answer = Translation;
}

/// Find the best of some texts for a picture, or without texts the best of the run's labels.
#[derive(Debug)]
pub(crate) struct Match {
    pub(crate) file: Vec<u8>,
    pub(crate) texts: Vec<String>,
}

impl Verb for Match {
    type Model = ContrastiveModel;
    type Answer = Prediction;

    fn weight(&self, _beam: usize) -> usize {
        weight_of_all(&self.texts)
    }
}

/// Prompt of a generated text.
#[derive(Debug, Clone)]
pub(crate) struct PromptText {
    /// Content of the prompt.
    pub(crate) content: OwnPrompt,
    /// Number that distinguishes its random draws from those of others.
    pub(crate) number: u64,
}

/// Content of a prompt; see [`PromptContent`] for the variants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OwnPrompt {
    Beginning,
    Text(String),
    /// Result of a chat template, with its source.
    Marked {
        text: String,
        messages: Vec<String>,
    },
    Tokens(Vec<u32>),
}

impl PromptText {
    /// Borrows the prompt for generators.
    pub(crate) fn prompt(&self) -> Prompt<'_> {
        let content = match &self.content {
            OwnPrompt::Beginning => PromptContent::Beginning,
            OwnPrompt::Text(text) => PromptContent::Text(text),
            OwnPrompt::Marked { text, .. } => PromptContent::Marked(text),
            OwnPrompt::Tokens(ids) => PromptContent::Tokens(ids),
        };
        Prompt { content, number: self.number }
    }
}

/// Result for a prompt.
#[derive(Debug, Clone)]
pub(crate) struct Continued {
    /// Generated texts, best first.
    pub(crate) texts: Vec<GeneratedText>,
    /// Scores of the tokens of each text, if requested; with those of the prompt, if requested too.
    pub(crate) scores: Vec<Vec<TokenScore>>,
    /// Text of the prompt.
    pub(crate) prompt: String,
    /// Number of the prompt's tokens.
    pub(crate) prompt_tokens: usize,
}

/// Piece of text added by a language model.
#[derive(Debug, Clone)]
pub(crate) struct Piece {
    /// Index of the text among those of the prompt. Streams have a single prompt.
    pub(crate) sample: usize,
    pub(crate) text: String,
}

/// Fit of a text to a vocabulary.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Fit {
    /// Negative log-probability of the text in nats, if all tokens are equally likely; an unknown
    /// character costs as much as one of all characters.
    pub(crate) cost: f64,
    /// Share of known characters.
    pub(crate) known: f64,
}

impl Fit {
    /// Fit of a text to the vocabulary of `tokenizer`.
    ///
    /// # Errors
    /// When the tokenizer refuses the text.
    pub(crate) fn of(tokenizer: &Tokenizer, text: &str) -> taper_data::Result<Self> {
        let (ids, bytes) = tokenizer.encode_bytes(text)?;
        let (mut tokens, mut unknown) = (0_usize, 0_usize);
        for (id, bytes) in ids.into_iter().zip(bytes) {
            match tokenizer.is_unknown(id) {
                true => unknown += text[bytes].chars().count(),
                false => tokens += 1,
            }
        }
        let all = text.chars().count().max(1);
        let unknown = unknown.min(all) as f64;
        let vocabulary = tokenizer.vocabulary_size().max(2) as f64;
        let cost = tokens as f64 * vocabulary.ln() + unknown * f64::from(u32::from(char::MAX)).ln();
        Ok(Self { cost, known: 1.0 - unknown / all as f64 })
    }
}

/// Boxed [`Verb`].
pub(super) trait Request: Any + Debug + Send + Sync {
    fn lines(&self) -> usize;
    fn weight(&self, beam: usize) -> usize;
    fn has_listener(&self) -> bool;
}

impl<V: Verb> Request for V {
    fn lines(&self) -> usize {
        Verb::lines(self).max(1)
    }

    fn weight(&self, beam: usize) -> usize {
        Verb::weight(self, beam).max(1)
    }

    fn has_listener(&self) -> bool {
        Verb::has_listener(self)
    }
}

/// Boxed answer to a request, of the type that its verb names.
pub(super) type Answer = Box<dyn Any + Send>;

/// Channel for the answer to a request.
pub(super) trait Reply: Debug + Send + Sync {
    /// Whether nobody waits for the answer any more.
    fn is_closed(&self) -> bool;

    /// Sends the answer, unless nobody waits for it.
    fn send(self: Box<Self>, answer: Result<Answer, Refusal>);
}

impl<A: Debug + Send + 'static> Reply for oneshot::Sender<Result<A, Refusal>> {
    fn is_closed(&self) -> bool {
        Self::is_closed(self)
    }

    fn send(self: Box<Self>, answer: Result<Answer, Refusal>) {
        let typed = |answer: Answer| *answer.downcast().expect("a verb has one type of answers");
        let _ = (*self).send(answer.map(typed));
    }
}

/// Work in the queue.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) request: Box<dyn Request>,
    pub(super) reply: Box<dyn Reply>,
    pub(super) waiting: Waiting,
    pub(super) since: Instant,
}

impl Job {
    /// Type of the request.
    pub(super) fn kind(&self) -> TypeId {
        (*self.request).type_id()
    }

    /// Whether nobody waits for the answer any more.
    pub(super) fn is_abandoned(&self) -> bool {
        self.reply.is_closed() || !self.request.has_listener()
    }
}
