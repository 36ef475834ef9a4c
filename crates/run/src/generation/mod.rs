//! Going on with texts with a trained language model, and how likely it finds them.

mod pieces;
mod scoring;
mod vocabulary;

use std::ops::ControlFlow;

use anyhow::{Context, Result, bail};
use serde::Serialize;
use taper_data::{Documents, SpelledSpecial, Tokenizer};
use taper_decoding::{DecodingConfig, Hypothesis, Sentence, generate};
use taper_model::LanguageModel;

use crate::LoadedRun;
use crate::config::RunConfig;
use crate::translation::by_line;
use pieces::Pieces;
pub use pieces::pieces_of;
pub use scoring::{ChoiceScore, TextScore, TextScorer};
use vocabulary::WithTokens;

/// How texts are gone on with.
#[derive(Debug, Clone)]
pub struct GenerationSettings {
    /// Sampling, control of repetition, and how many texts of each prompt (`n_best`).
    pub decoding: DecodingConfig,
    /// The most tokens that are added to a prompt.
    pub max_tokens: usize,
    /// The most tokens that a prediction looks back on.
    pub context: usize,
    /// What becomes of special tokens that a prompt spells.
    pub special_tokens: SpelledSpecial,
}

impl GenerationSettings {
    /// Those of a recipe: a context as long as the blocks of training.
    #[must_use]
    pub fn of(config: &RunConfig) -> Self {
        let decoding = config.decoding.clone();
        let max_tokens = decoding.max_length;
        let (context, special_tokens) = (config.data.text.block_length, SpelledSpecial::default());
        Self { decoding, max_tokens, context, special_tokens }
    }

    /// As the search has them.
    fn decoding(&self) -> DecodingConfig {
        DecodingConfig {
            max_length: self.max_tokens,
            max_length_offset: self.max_tokens,
            max_length_ratio: 0.0,
            min_length: self.decoding.min_length.min(self.max_tokens),
            ..self.decoding.clone()
        }
    }
}

/// A text that the model has gone on with.
#[derive(Debug, Clone, Serialize)]
pub struct GeneratedText {
    /// What was added to the prompt.
    pub text: String,
    /// How many tokens that is.
    pub tokens: usize,
    /// The natural logarithm of its probability after the prompt: of its tokens, and of the end
    /// where the model ended it. What was cut or stopped has no end.
    pub log_probability: f64,
    /// Whether it ends because it had as many tokens as it may have.
    pub truncated: bool,
    /// Why it ends.
    pub finish_reason: FinishReason,
    /// The text that stopped it; none where the model ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<String>,
    /// The natural logarithm of the probability of each token after those before it; that of the
    /// end is the last where the model ended the text.
    #[serde(skip)]
    pub token_log_probabilities: Vec<f64>,
    /// Where the text of each token ends, in bytes of `text`.
    #[serde(skip)]
    pub token_ends: Vec<usize>,
}

/// Why a text ends, as other servers of language models name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FinishReason {
    /// The model ended it, or a text came that stops it.
    Stop,
    /// It had as many tokens as it may have, and was cut.
    Length,
}

impl GeneratedText {
    /// Stops the text before `stop`, which begins at this byte of it. What is left has the tokens
    /// that begin before there, and their probability.
    pub fn stop_at(&mut self, at: usize, stop: &str) {
        self.text.truncate(at);
        let ends = &self.token_ends;
        let begins = std::iter::once(0).chain(ends.iter().copied()).take(ends.len());
        self.tokens = begins.take_while(|&begin| begin < at).count();
        self.token_ends.truncate(self.tokens);
        self.token_log_probabilities.truncate(self.tokens);
        self.log_probability = self.token_log_probabilities.iter().sum();
        (self.truncated, self.finish_reason) = (false, FinishReason::Stop);
        self.stop_reason = Some(stop.to_owned());
    }
}

/// A piece of text that has just been added.
#[derive(Debug, Clone, Copy)]
pub struct NewPiece<'a> {
    /// Which prompt, counted from 0.
    pub prompt: usize,
    /// Which of its texts, counted from 0.
    pub sample: usize,
    /// The piece.
    pub text: &'a str,
}

/// A text to go on with.
#[derive(Debug, Clone, Copy)]
pub struct Prompt<'a> {
    /// The text; none for the beginning of a document or of a line.
    pub text: Option<&'a str>,
    /// What tells its draws from those of other prompts.
    pub number: u64,
}

/// Goes on with prompts.
#[derive(Debug)]
pub struct Generator<'a> {
    run: &'a LoadedRun<LanguageModel>,
    model: WithTokens,
    context: usize,
    tokenizer: &'a Tokenizer,
    /// The same, as it reads prompts.
    of_prompts: Tokenizer,
    documents: Documents,
    decoding: DecodingConfig,
}

impl<'a> Generator<'a> {
    /// A generator with the model of a run.
    ///
    /// # Errors
    /// For settings that cannot work.
    pub fn new(run: &'a LoadedRun<LanguageModel>, settings: &GenerationSettings) -> Result<Self> {
        let decoding = checked(settings)?;
        let tokenizer = run.tokenizers.target();
        Ok(Self {
            run,
            model: WithTokens::new(run.model.inference(settings.context), tokenizer),
            context: settings.context,
            tokenizer,
            of_prompts: tokenizer.with_spelled(settings.special_tokens),
            documents: run.config.data.text.documents,
            decoding,
        })
    }

    /// Goes on with other settings from now on, by the same model.
    ///
    /// # Errors
    /// For settings that cannot work.
    pub fn set(&mut self, settings: &GenerationSettings) -> Result<()> {
        self.decoding = checked(settings)?;
        self.of_prompts = self.tokenizer.with_spelled(settings.special_tokens);
        if self.context != settings.context {
            let inference = self.run.model.inference(settings.context);
            self.model = WithTokens::new(inference, self.tokenizer);
            self.context = settings.context;
        }
        Ok(())
    }

    /// Goes on with each prompt, and tells `on_piece` of the text as it comes. Without prompts
    /// there is one, the beginning of a document or of a line.
    ///
    /// # Errors
    /// For a prompt that is [refused](Self::require), and when the model or the tokenizer fails.
    pub fn generate(
        &self,
        prompts: &[String],
        mut on_piece: impl FnMut(NewPiece<'_>),
    ) -> Result<Vec<Vec<GeneratedText>>> {
        let whole: Vec<Prompt<'_>> = match prompts {
            [] => vec![Prompt { text: None, number: 0 }],
            prompts => (0..)
                .zip(prompts)
                .map(|(number, prompt)| Prompt { text: Some(prompt), number })
                .collect(),
        };
        self.generate_until(&whole, |piece| {
            on_piece(piece);
            ControlFlow::Continue(())
        })
    }

    /// As [`Self::generate`], for prompts with numbers of their own. A text ends with the piece
    /// at which `on_piece` breaks it off; no piece is empty.
    ///
    /// # Errors
    /// As [`Self::generate`].
    pub fn generate_until(
        &self,
        prompts: &[Prompt<'_>],
        mut on_piece: impl FnMut(NewPiece<'_>) -> ControlFlow<()>,
    ) -> Result<Vec<Vec<GeneratedText>>> {
        let ids: Vec<Vec<u32>> = prompts
            .iter()
            .enumerate()
            .map(|(index, prompt)| match prompt.text {
                None => beginning(self.tokenizer, self.documents),
                Some(text) => self.encode(text).with_context(|| format!("prompt {}", index + 1)),
            })
            .collect::<Result<_>>()?;
        let samples = if self.decoding.sampling.is_active() { self.decoding.n_best } else { 1 };
        let mut pieces: Vec<Vec<Pieces>> =
            ids.iter().map(|prompt| vec![Pieces::after(prompt); samples]).collect();
        let mut failed = None;
        let mut sentences = Sentence::plain(&ids);
        for (sentence, prompt) in sentences.iter_mut().zip(prompts) {
            sentence.number = prompt.number;
        }
        let outputs = generate(&self.model, &sentences, &self.decoding, |new| {
            let (prompt, sample) = (new.sentence, new.copy);
            let pieces = &mut pieces[prompt][sample];
            match pieces.push(new.token, new.is_last, self.tokenizer) {
                Ok(text) if text.is_empty() => ControlFlow::Continue(()),
                Ok(text) => on_piece(NewPiece { prompt, sample, text: &text }),
                Err(error) => {
                    failed = Some(error);
                    ControlFlow::Break(())
                }
            }
        })
        .map_err(|error| by_line(error, "generating", |prompt| prompt + 1))?;
        if let Some(error) = failed {
            return Err(error.into());
        }
        outputs
            .into_iter()
            .zip(&ids)
            .map(|(outputs, prompt)| {
                outputs.into_iter().map(|output| self.text_of(prompt, output)).collect()
            })
            .collect()
    }

    /// What was found to follow a prompt, as text.
    fn text_of(&self, prompt: &[u32], output: Hypothesis) -> Result<GeneratedText> {
        let Hypothesis { tokens, log_probability, token_log_probabilities, truncated, .. } = output;
        let (mut pieces, mut length) = (Pieces::after(prompt), 0);
        let mut end_of = |(index, &token): (usize, &u32)| -> Result<usize> {
            length += pieces.push(token, index + 1 == tokens.len(), self.tokenizer)?.len();
            Ok(length)
        };
        let token_ends = tokens.iter().enumerate().map(&mut end_of).collect::<Result<_>>()?;
        Ok(GeneratedText {
            text: pieces::continuation(prompt, &tokens, self.tokenizer)?,
            tokens: tokens.len(),
            log_probability,
            truncated,
            finish_reason: if truncated { FinishReason::Length } else { FinishReason::Stop },
            stop_reason: None,
            token_log_probabilities,
            token_ends,
        })
    }

    /// Refuses a prompt that cannot be gone on with.
    ///
    /// # Errors
    /// For an empty one, one with characters that the vocabulary cannot spell, and one with special
    /// tokens where they are refused.
    pub fn require(&self, prompt: &str) -> Result<()> {
        self.encode(prompt).map(|_| ())
    }

    /// How many tokens the model reads of a prompt.
    ///
    /// # Errors
    /// When the tokenizer fails.
    pub fn count(&self, prompt: Prompt<'_>) -> Result<usize> {
        Ok(match prompt.text {
            None => beginning(self.tokenizer, self.documents)?.len(),
            Some(text) => {
                before_prompts(self.tokenizer).len() + self.of_prompts.encode(text)?.len()
            }
        })
    }

    fn encode(&self, prompt: &str) -> Result<Vec<u32>> {
        encode(&self.of_prompts, prompt)
    }
}

/// The search of settings that can work.
fn checked(settings: &GenerationSettings) -> Result<DecodingConfig> {
    if settings.context == 0 || settings.max_tokens == 0 {
        bail!("the context and the number of tokens to add must be at least 1");
    }
    let decoding = settings.decoding();
    decoding.validate()?;
    Ok(decoding)
}

/// The tokens of a text that the model can read.
fn encode(tokenizer: &Tokenizer, text: &str) -> Result<Vec<u32>> {
    let is_unknown = |ids: &[u32]| ids.iter().any(|&id| tokenizer.is_unknown(id));
    let ids = tokenizer.encode(text)?;
    if ids.is_empty() {
        bail!("is empty: begin with at least one character");
    }
    if is_unknown(&ids) {
        let mut unknown: Vec<char> = text.chars().collect();
        unknown.retain(|character| {
            tokenizer.encode(&character.to_string()).is_ok_and(|ids| is_unknown(&ids))
        });
        unknown.dedup();
        if unknown.is_empty() {
            bail!("spells the token of what the model has never seen; leave it out");
        }
        bail!(
            "has characters that the model has never seen: {}; leave them out",
            unknown.iter().map(|character| format!("{character:?}")).collect::<Vec<_>>().join(", ")
        );
    }
    Ok([before_prompts(tokenizer), ids].concat())
}

/// What the model reads before every prompt.
fn before_prompts(tokenizer: &Tokenizer) -> Vec<u32> {
    let special = tokenizer.special_tokens();
    special.start.filter(|_| special.starts_prompts).into_iter().collect()
}

/// What a text begins after: what the folder of the model names for it, or else the end of a
/// document, or of a line where the text is one document, whose end was never seen.
pub(crate) fn beginning(tokenizer: &Tokenizer, documents: Documents) -> Result<Vec<u32>> {
    if let Some(start) = tokenizer.special_tokens().start {
        return Ok(vec![start]);
    }
    match documents {
        Documents::Files if tokenizer.has_special_tokens() => {
            encode(tokenizer, "\n").context("give a prompt")
        }
        Documents::Files | Documents::Lines => Ok(vec![tokenizer.end()]),
    }
}
