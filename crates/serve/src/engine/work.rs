//! Requests to a run (a trained model), and its answers.

use std::any::{Any, TypeId};
use std::fmt::Debug;
use std::time::Instant;

use taper_data::Tokenizer;
use taper_run::generation::{GeneratedText, PromptContent, TokenScore};
use taper_run::tasks::TaskModel;
use tokio::sync::oneshot;

use super::Waiting;
use crate::error::Refusal;

/// Number of bytes of text that count as one line. They are about 32 tokens.
const LINE_BYTES: usize = 128;

/// Approximate number of bytes of a token.
pub(super) const TOKEN_BYTES: usize = 4;

/// Kind of request to a run.
pub(crate) trait Verb: Debug + Send + Sync + 'static {
    /// Model that answers requests of this kind. A request that names no run goes to a run of this
    /// model.
    type Model: TaskModel;
    /// Type of the answers.
    type Answer: Debug + Send + 'static;

    /// Size of the request in lines.
    fn lines(&self) -> usize {
        1
    }

    /// Weight of the request, which is its estimated cost. The unit is the cost of a line of about
    /// 32 tokens that is searched with the run's default number of hypotheses, `_beam`. The weight
    /// is estimated from the number of bytes, because a request is tokenised only when its turn
    /// comes.
    fn weight(&self, _beam: usize) -> usize {
        1
    }

    /// Whether the client still reads the parts of the answer that are streamed before its end;
    /// `true` if the answer is not streamed.
    fn has_listener(&self) -> bool {
        true
    }
}

/// Returns the weight of a text of `bytes` bytes.
pub(super) fn weight_of(bytes: usize) -> usize {
    bytes.div_ceil(LINE_BYTES).max(1)
}

pub(super) fn weight_of_all(texts: &[String]) -> usize {
    texts.iter().map(|text| weight_of(text.len())).sum()
}

/// Prompt of a generated text.
#[derive(Debug, Clone)]
pub(crate) struct PromptText {
    /// Content of the prompt.
    pub(crate) content: OwnPrompt,
    /// Number of the prompt, which determines its stream of random numbers.
    pub(crate) number: u64,
}

/// Content of a prompt; see [`PromptContent`] for the variants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OwnPrompt {
    Beginning,
    Text(String),
    /// Text that a chat template has made, with the roles and contents of the messages of the
    /// conversation.
    Marked {
        text: String,
        messages: Vec<[String; 2]>,
    },
    Tokens(Vec<u32>),
}

impl PromptText {
    /// Returns the content in the form that generators take.
    pub(crate) fn content(&self) -> PromptContent<'_> {
        match &self.content {
            OwnPrompt::Beginning => PromptContent::Beginning,
            OwnPrompt::Text(text) => PromptContent::Text(text),
            OwnPrompt::Marked { text, .. } => PromptContent::Marked(text),
            OwnPrompt::Tokens(ids) => PromptContent::Tokens(ids),
        }
    }
}

/// Result for a prompt.
#[derive(Debug, Clone)]
pub(crate) struct Continued {
    /// Generated texts, best first.
    pub(crate) texts: Vec<GeneratedText>,
    /// Scores of the tokens of each text; empty if no scores are requested. If the request includes
    /// the prompt, each list begins with the scores of the prompt's tokens.
    pub(crate) scores: Vec<Vec<TokenScore>>,
    /// Text of the prompt.
    pub(crate) prompt: String,
    /// Number of the prompt's tokens.
    pub(crate) prompt_tokens: usize,
}

/// Measure of how well a vocabulary suits a text.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Fit {
    /// Negative log-probability of the text in nats if all tokens are equally likely. An unknown
    /// character costs as much as a choice among all characters of Unicode.
    pub(crate) cost: f64,
    /// Share of the text's characters that the vocabulary can represent, from 0 to 1.
    pub(crate) known: f64,
}

impl Fit {
    /// Measures the fit of a text to the vocabulary of `tokenizer`.
    ///
    /// # Errors
    /// When the tokenizer refuses the text.
    pub(crate) fn measure(tokenizer: &Tokenizer, text: &str) -> taper_data::Result<Self> {
        let encoded = tokenizer.encode_text(text)?;
        let (mut tokens, mut unknown) = (0_usize, 0_usize);
        for (&id, bytes) in encoded.ids().iter().zip(encoded.bytes()) {
            match tokenizer.is_unknown(id) {
                true => unknown += text[bytes.clone()].chars().count(),
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

/// Object-safe form of [`Verb`]: the queue stores requests of all kinds as `dyn Request`.
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

/// Boxed tokens of a request's texts. The service that answers the request determines their type.
pub(super) type Encoded = Box<dyn Any + Send + Sync>;

/// Boxed answer to a request. The [`Verb`] of the request determines its type.
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
    /// Tokens of the request's texts, once it is checked.
    pub(super) encoded: Option<Encoded>,
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
