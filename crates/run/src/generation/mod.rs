//! Going on with texts with a trained language model.

mod pieces;

use anyhow::{Context, Result, bail};
use serde::Serialize;
use taper_data::{Documents, END, Tokenizer, UNKNOWN};
use taper_decoding::{DecodingConfig, Sentence, generate};
use taper_model::{LanguageModel, TextInference};

use crate::LoadedRun;
use crate::config::RunConfig;
use crate::translation::by_line;
use pieces::Pieces;

/// How texts are gone on with.
#[derive(Debug, Clone)]
pub struct GenerationSettings {
    /// Sampling, control of repetition, and how many texts of each prompt (`n_best`).
    pub decoding: DecodingConfig,
    /// The most tokens that are added to a prompt.
    pub max_tokens: usize,
    /// The most tokens that a prediction looks back on.
    pub context: usize,
}

impl GenerationSettings {
    /// Those of a recipe: a context as long as the blocks of training.
    #[must_use]
    pub fn of(config: &RunConfig) -> Self {
        let decoding = config.decoding.clone();
        let max_tokens = decoding.max_length;
        Self { decoding, max_tokens, context: config.data.text.block_length }
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
    /// The natural logarithm of its probability after the prompt, the end included.
    pub log_probability: f64,
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

/// Goes on with prompts.
#[derive(Debug)]
pub struct Generator<'a> {
    model: TextInference,
    tokenizer: &'a Tokenizer,
    documents: Documents,
    decoding: DecodingConfig,
}

impl<'a> Generator<'a> {
    /// A generator with the model of a run.
    ///
    /// # Errors
    /// For settings that cannot work.
    pub fn new(run: &'a LoadedRun<LanguageModel>, settings: &GenerationSettings) -> Result<Self> {
        if settings.context == 0 || settings.max_tokens == 0 {
            bail!("the context and the number of tokens to add must be at least 1");
        }
        let decoding = settings.decoding();
        decoding.validate()?;
        Ok(Self {
            model: run.model.inference(settings.context),
            tokenizer: run.tokenizers.target(),
            documents: run.config.data.text.documents,
            decoding,
        })
    }

    /// Goes on with each prompt, and tells `on_piece` of the text as it comes. Without prompts
    /// there is one, the beginning of a document or of a line.
    ///
    /// # Errors
    /// For an empty prompt, one with characters that the vocabulary cannot spell, and when the
    /// model or the tokenizer fails.
    pub fn generate(
        &self,
        prompts: &[String],
        mut on_piece: impl FnMut(NewPiece<'_>),
    ) -> Result<Vec<Vec<GeneratedText>>> {
        let ids: Vec<Vec<u32>> = match prompts {
            [] => vec![self.beginning()?],
            prompts => prompts
                .iter()
                .enumerate()
                .map(|(index, prompt)| {
                    self.encode(prompt).with_context(|| format!("prompt {}", index + 1))
                })
                .collect::<Result<_>>()?,
        };
        let samples = if self.decoding.sampling.is_active() { self.decoding.n_best } else { 1 };
        let mut pieces: Vec<Vec<Pieces>> =
            ids.iter().map(|prompt| vec![Pieces::after(prompt); samples]).collect();
        let mut failed = None;
        let outputs = generate(&self.model, &Sentence::plain(&ids), &self.decoding, |new| {
            let (prompt, sample) = (new.sentence, new.copy);
            match pieces[prompt][sample].push(new.token, self.tokenizer) {
                Ok(text) if text.is_empty() => {}
                Ok(text) => on_piece(NewPiece { prompt, sample, text: &text }),
                Err(error) => failed = Some(error),
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
                let text = |output: taper_decoding::Hypothesis| {
                    Ok(GeneratedText {
                        text: pieces::continuation(prompt, &output.tokens, self.tokenizer)?,
                        tokens: output.tokens.len(),
                        log_probability: output.log_probability,
                    })
                };
                outputs.into_iter().map(text).collect()
            })
            .collect()
    }

    /// Where a text begins: after the end of a document, or of a line where the text is one
    /// document, whose end was never seen.
    fn beginning(&self) -> Result<Vec<u32>> {
        match self.documents {
            Documents::Lines => Ok(vec![END]),
            Documents::Files => self.encode("\n").context("give a prompt"),
        }
    }

    /// Refuses a prompt that cannot be gone on with.
    ///
    /// # Errors
    /// For an empty one, and one with characters that the vocabulary cannot spell.
    pub fn require(&self, prompt: &str) -> Result<()> {
        self.encode(prompt).context("the prompt").map(|_| ())
    }

    fn encode(&self, prompt: &str) -> Result<Vec<u32>> {
        let ids = self.tokenizer.encode(prompt)?;
        if ids.is_empty() {
            bail!("is empty: begin with at least one character");
        }
        if ids.contains(&UNKNOWN) {
            let mut unknown: Vec<char> = prompt.chars().collect();
            unknown.retain(|character| {
                self.tokenizer
                    .encode(&character.to_string())
                    .is_ok_and(|ids| ids.contains(&UNKNOWN))
            });
            unknown.dedup();
            bail!(
                "has characters that the model has never seen: {}; leave them out",
                unknown
                    .iter()
                    .map(|character| format!("{character:?}"))
                    .collect::<Vec<_>>()
                    .join(", ")
            );
        }
        Ok(ids)
    }
}
