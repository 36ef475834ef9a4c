//! What a run is asked, and what it answers.

use std::time::Instant;

use taper_data::Tokenizer;
use taper_run::attention::AttentionMap;
use taper_run::generation::{GeneratedText, Prompt, PromptContent, TokenScore};
use taper_run::prediction::{Prediction, QuestionInContext, SpanAnswer, TaggedText};
use taper_run::translation::Translation;
use tokio::sync::{mpsc, oneshot};

use super::{GenerateOptions, LineAnswer, TranslateOptions, Waiting};
use crate::error::Refusal;

/// Bytes of a text that count as one line: about 32 tokens.
const LINE_BYTES: usize = 128;

/// Bytes of a token, about.
const TOKEN_BYTES: usize = 4;

/// What a run is asked.
#[derive(Debug)]
pub(crate) enum Work {
    /// Translations of lines.
    Translate { lines: Vec<String>, options: TranslateOptions },
    /// How well a text fits the vocabulary of the language that is translated.
    Measure { text: String },
    /// The attention of every layer and head on a text, and on its translation.
    Attend { text: String, target: Option<String> },
    /// What follows prompts.
    Generate {
        prompts: Vec<PromptText>,
        options: GenerateOptions,
        /// Where pieces of text go as they come.
        pieces: Option<mpsc::UnboundedSender<Piece>>,
    },
    /// Labels of texts.
    LabelTexts { texts: Vec<String> },
    /// The label of a picture: a PNG or JPEG file.
    LabelImage { file: Vec<u8> },
    /// A tag for each word of texts.
    Tag { texts: Vec<String> },
    /// Answers to questions about texts.
    Answer { questions: Vec<QuestionInContext> },
    /// The caption of a picture: a PNG or JPEG file.
    Describe { file: Vec<u8> },
    /// Which of some texts belongs to a picture, or which of the run's labels where there are none.
    Match { file: Vec<u8>, texts: Vec<String> },
}

/// A text to go on with.
#[derive(Debug, Clone)]
pub(crate) struct PromptText {
    /// What is gone on with.
    pub(crate) content: OwnPrompt,
    /// What tells its draws from those of others.
    pub(crate) number: u64,
}

/// What is gone on with; [`PromptContent`] says what each is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OwnPrompt {
    Beginning,
    Text(String),
    /// What a chat template made, and of what.
    Marked {
        text: String,
        messages: Vec<String>,
    },
    Tokens(Vec<u32>),
}

impl PromptText {
    /// As generators take it.
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

/// What a prompt has become.
#[derive(Debug, Clone)]
pub(crate) struct Continued {
    /// Its texts, best first.
    pub(crate) texts: Vec<GeneratedText>,
    /// The scores of the tokens of each, where they were asked for: of the prompt's too, where these
    /// were.
    pub(crate) scores: Vec<Vec<TokenScore>>,
    /// The text of the prompt.
    pub(crate) prompt: String,
    /// How many tokens the prompt has.
    pub(crate) prompt_tokens: usize,
}

/// A piece of text that a language model has added.
#[derive(Debug, Clone)]
pub(crate) struct Piece {
    /// Which of a prompt's texts, counted from 0. Streams are of one prompt.
    pub(crate) sample: usize,
    pub(crate) text: String,
}

/// How well a text fits a vocabulary.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Fit {
    /// Its negative log-probability in nats, where all tokens are equally likely; a character that
    /// is not known costs as much as one of all characters.
    pub(crate) cost: f64,
    /// The share of its characters that are known.
    pub(crate) known: f64,
}

impl Fit {
    /// Of a text.
    ///
    /// # Errors
    /// When the tokenizer refuses it.
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

/// What a run answers.
#[derive(Debug)]
pub(crate) enum Answer {
    Translated(Vec<LineAnswer>),
    Measured(Fit),
    Attention(Box<AttentionMap>),
    /// What each prompt has become.
    Generated(Vec<Continued>),
    Labelled(Vec<Prediction>),
    Tagged(Vec<TaggedText>),
    Answered(Vec<SpanAnswer>),
    Described(Box<Translation>),
}

impl Work {
    /// How much it is, in lines.
    pub(crate) fn lines(&self) -> usize {
        match self {
            Self::Translate { lines, .. } => lines.len(),
            Self::Generate { prompts, options, .. } => prompts.len() * options.samples,
            Self::LabelTexts { texts } | Self::Tag { texts } => texts.len(),
            Self::Answer { questions } => questions.len(),
            Self::Measure { .. }
            | Self::Attend { .. }
            | Self::LabelImage { .. }
            | Self::Describe { .. }
            | Self::Match { .. } => 1,
        }
        .max(1)
    }

    /// How much it is to compute, in lines of about 32 tokens that are searched with `beam`
    /// hypotheses, the run's own number. It is told from bytes, since nothing is tokenised before
    /// the turn of the work has come.
    pub(super) fn weight(&self, beam: usize) -> usize {
        let of = |bytes: usize| bytes.div_ceil(LINE_BYTES).max(1);
        match self {
            Self::Translate { lines, options } => {
                let hypotheses = options.beam.unwrap_or(beam).max(options.alternatives);
                let weight: usize = lines.iter().map(|line| of(line.len())).sum();
                weight * hypotheses.div_ceil(beam.max(1))
            }
            Self::Generate { prompts, options, .. } => {
                let text = |prompt: &PromptText| match &prompt.content {
                    OwnPrompt::Beginning => 0,
                    OwnPrompt::Text(text) | OwnPrompt::Marked { text, .. } => text.len(),
                    OwnPrompt::Tokens(ids) => ids.len().saturating_mul(TOKEN_BYTES),
                };
                let added = options.max_tokens.saturating_mul(TOKEN_BYTES);
                let weight = |prompt| of(added.saturating_add(text(prompt)));
                let passes = if options.scoring.is_some() { 2 } else { 1 };
                let samples = options.samples.saturating_mul(passes);
                prompts.iter().map(weight).sum::<usize>().saturating_mul(samples)
            }
            Self::LabelTexts { texts } | Self::Tag { texts } | Self::Match { texts, .. } => {
                texts.iter().map(|text| of(text.len())).sum()
            }
            Self::Answer { questions } => {
                questions.iter().map(|one| of(one.question.len() + one.context.len())).sum()
            }
            Self::Measure { text } => of(text.len()),
            Self::Attend { text, target } => {
                of(text.len() + target.as_ref().map_or(0, String::len))
            }
            Self::LabelImage { .. } | Self::Describe { .. } => 1,
        }
        .max(1)
    }
}

/// Work in the queue.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) work: Work,
    pub(crate) reply: oneshot::Sender<Result<Answer, Refusal>>,
    pub(crate) waiting: Waiting,
    pub(crate) since: Instant,
}

impl Job {
    /// Whether nobody waits for the answer any more.
    pub(crate) fn is_abandoned(&self) -> bool {
        let has_listener = match &self.work {
            Work::Generate { pieces: Some(pieces), .. } => !pieces.is_closed(),
            _ => true,
        };
        self.reply.is_closed() || !has_listener
    }
}
