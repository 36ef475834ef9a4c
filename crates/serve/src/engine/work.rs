//! What a run is asked, and what it answers.

use std::time::Instant;

use taper_run::attention::AttentionMap;
use taper_run::generation::GeneratedText;
use taper_run::prediction::Prediction;
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
}

/// A text to go on with.
#[derive(Debug, Clone)]
pub(crate) struct PromptText {
    /// The text; none for the beginning of a document.
    pub(crate) text: Option<String>,
    /// What tells its draws from those of others.
    pub(crate) number: u64,
}

/// A piece of text that a language model has added.
#[derive(Debug, Clone)]
pub(crate) struct Piece {
    /// Which of a prompt's texts, counted from 0. Streams are of one prompt.
    pub(crate) sample: usize,
    pub(crate) text: String,
}

/// What a run answers.
#[derive(Debug)]
pub(crate) enum Answer {
    Translated(Vec<LineAnswer>),
    Attention(Box<AttentionMap>),
    /// The texts of each prompt, and how many tokens the prompts have.
    Generated(Vec<Vec<GeneratedText>>, usize),
    Labelled(Vec<Prediction>),
}

impl Work {
    /// How much it is, in lines.
    pub(crate) fn lines(&self) -> usize {
        match self {
            Self::Translate { lines, .. } => lines.len(),
            Self::Generate { prompts, options, .. } => prompts.len() * options.samples,
            Self::LabelTexts { texts } => texts.len(),
            Self::Attend { .. } | Self::LabelImage { .. } => 1,
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
                let text = |prompt: &PromptText| prompt.text.as_ref().map_or(0, String::len);
                let added = options.max_tokens.saturating_mul(TOKEN_BYTES);
                let weight = |prompt| of(added.saturating_add(text(prompt)));
                prompts.iter().map(weight).sum::<usize>().saturating_mul(options.samples)
            }
            Self::LabelTexts { texts } => texts.iter().map(|text| of(text.len())).sum(),
            Self::Attend { text, target } => {
                of(text.len() + target.as_ref().map_or(0, String::len))
            }
            Self::LabelImage { .. } => 1,
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
