//! Requests to a run, and its answers.

use std::time::Instant;

use taper_data::Tokenizer;
use taper_run::attention::AttentionMap;
use taper_run::generation::{GeneratedText, Prompt, PromptContent, TokenScore};
use taper_run::prediction::{Prediction, QuestionInContext, SpanAnswer, TaggedText};
use taper_run::translation::Translation;
use tokio::sync::{mpsc, oneshot};

use super::{GenerateOptions, LineAnswer, TranslateOptions, Waiting};
use crate::error::Refusal;

/// Bytes of text that count as one line: about 32 tokens.
const LINE_BYTES: usize = 128;

/// Approximate number of bytes of a token.
const TOKEN_BYTES: usize = 4;

/// Request to a run.
#[derive(Debug)]
pub(crate) enum Work {
    /// Translate lines.
    Translate { lines: Vec<String>, options: TranslateOptions },
    /// Measure how well a text fits the vocabulary of the source language.
    Measure { text: String },
    /// Compute the attention of every layer and head on a text, and on its translation.
    Attend { text: String, target: Option<String> },
    /// Generate text after prompts.
    Generate {
        prompts: Vec<PromptText>,
        options: GenerateOptions,
        /// Receiver of pieces of text as they come.
        pieces: Option<mpsc::UnboundedSender<Piece>>,
    },
    /// Label texts.
    LabelTexts { texts: Vec<String> },
    /// Label a picture: a PNG or JPEG file.
    LabelImage { file: Vec<u8> },
    /// Tag each word of texts.
    Tag { texts: Vec<String> },
    /// Answer questions about texts.
    Answer { questions: Vec<QuestionInContext> },
    /// Write the caption of a picture: a PNG or JPEG file.
    Describe { file: Vec<u8> },
    /// Find the best of some texts for a picture, or without texts the best of the run's labels.
    Match { file: Vec<u8>, texts: Vec<String> },
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

/// Answer of a run.
#[derive(Debug)]
pub(crate) enum Answer {
    Translated(Vec<LineAnswer>),
    Measured(Fit),
    Attention(Box<AttentionMap>),
    /// Result for each prompt.
    Generated(Vec<Continued>),
    Labelled(Vec<Prediction>),
    Tagged(Vec<TaggedText>),
    Answered(Vec<SpanAnswer>),
    Described(Box<Translation>),
}

impl Work {
    /// Size of the work in lines.
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

    /// Weight of the work: lines of about 32 tokens searched with `beam` hypotheses, the run's own
    /// number. It is estimated from bytes, since nothing is tokenised before the work's turn.
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
