//! Generation of text with a trained language model, and scores of given texts.

mod pieces;
mod scoring;
mod token_scores;
mod vocabulary;

use std::ops::ControlFlow;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;
use taper_data::{Documents, SpelledSpecial, Tokenizer};
use taper_decoding::{CachePrecision, Control, DecodingConfig, Hypothesis, Sentence, generate};
use taper_model::LanguageModel;

use crate::LoadedRun;
use crate::config::RunConfig;
use crate::translation::by_line;
use pieces::Pieces;
pub use pieces::pieces_of;
pub use scoring::{ChoiceScore, TextScore, TextScorer};
pub use token_scores::TokenScore;
use vocabulary::WithTokens;

/// Settings of generation.
#[derive(Debug, Clone)]
pub struct GenerationSettings {
    /// Settings of sampling, control of repetition, and the number of texts for each prompt
    /// (`n_best`).
    pub decoding: DecodingConfig,
    /// Largest number of tokens added to a prompt.
    pub max_tokens: usize,
    /// Largest number of preceding tokens from which the model predicts the next token.
    pub context: usize,
    /// Treatment of special tokens whose names a prompt contains.
    pub special_tokens: SpelledSpecial,
}

impl GenerationSettings {
    /// Settings for a model with the configuration `config`. The context has
    /// `data.text.block_length` tokens, as in training.
    #[must_use]
    pub fn from_config(config: &RunConfig) -> Self {
        let decoding = config.decoding.clone();
        let max_tokens = decoding.max_length;
        let (context, special_tokens) = (config.data.text.block_length, SpelledSpecial::default());
        Self { decoding, max_tokens, context, special_tokens }
    }

    /// Settings of the search, which limit each text to `max_tokens` tokens.
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

/// Text generated after a prompt.
#[derive(Debug, Clone, Serialize)]
pub struct GeneratedText {
    /// Generated text, without the prompt.
    pub text: String,
    /// Number of generated tokens.
    pub tokens: usize,
    /// Natural logarithm of the probability of the text after the prompt. It includes the
    /// probability of the end token if the model ended the text; a text that was cut has no end
    /// token.
    pub log_probability: f64,
    /// True if the text ends because it reached the maximum number of tokens.
    pub truncated: bool,
    /// Reason why the text ends.
    pub finish_reason: FinishReason,
    /// Stop text at which the text was cut; `None` if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<String>,
    /// Natural logarithm of the probability of each token, given its predecessors. If the model
    /// ended the text, the last value is for the end token.
    #[serde(skip)]
    pub token_log_probabilities: Vec<f64>,
    /// Ids of the tokens.
    #[serde(skip)]
    pub ids: Vec<u32>,
    /// For each token, the byte offset in `text` at which the text of the token ends.
    #[serde(skip)]
    pub token_ends: Vec<usize>,
}

/// Reason why a text ends. The serialised names are `stop` and `length`, which other servers of
/// language models use, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FinishReason {
    /// The model ended the text, or a stop text appeared.
    Stop,
    /// The text reached the maximum number of tokens, and was cut.
    Length,
}

impl GeneratedText {
    /// Cuts the text before the stop text `stop`, which begins at byte `at`. Tokens that begin
    /// before this byte remain, and the log-probability becomes the sum over these tokens.
    pub fn stop_at(&mut self, at: usize, stop: &str) {
        self.text.truncate(at);
        let ends = &self.token_ends;
        let begins = std::iter::once(0).chain(ends.iter().copied()).take(ends.len());
        self.tokens = begins.take_while(|&begin| begin < at).count();
        self.token_ends.truncate(self.tokens);
        self.ids.truncate(self.tokens);
        self.token_log_probabilities.truncate(self.tokens);
        self.log_probability = self.token_log_probabilities.iter().sum();
        (self.truncated, self.finish_reason) = (false, FinishReason::Stop);
        self.stop_reason = Some(stop.to_owned());
    }
}

/// Part of a text that has just been generated.
#[derive(Debug, Clone, Copy)]
pub struct NewPiece<'a> {
    /// Index of the prompt.
    pub prompt: usize,
    /// Index of the text among the texts for this prompt.
    pub sample: usize,
    /// The new part of the text.
    pub text: &'a str,
}

/// Prompt of a generated text.
#[derive(Debug, Clone, Copy)]
pub struct Prompt<'a> {
    /// Content of the prompt.
    pub content: PromptContent<'a>,
    /// Number that determines the random draws of this prompt, together with the seed. Prompts with
    /// different numbers have different draws.
    pub number: u64,
}

/// Content of a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromptContent<'a> {
    /// Beginning of a document or of a line.
    Beginning,
    /// Text. Names of special tokens in it are treated according to
    /// [`GenerationSettings::special_tokens`].
    Text(&'a str),
    /// Text with markup, such as the result of a chat template: names of special tokens in it are
    /// read as special tokens.
    Marked(&'a str),
    /// Ids of tokens in the vocabulary.
    Tokens(&'a [u32]),
}

/// Generator of text after prompts.
#[derive(Debug)]
pub struct Generator<'a> {
    run: &'a LoadedRun<LanguageModel>,
    model: Arc<WithTokens>,
    context: usize,
    cache_type: CachePrecision,
    tokenizer: &'a Tokenizer,
    /// `tokenizer` with the chosen treatment of names of special tokens, for prompts.
    of_prompts: Tokenizer,
    documents: Documents,
    decoding: DecodingConfig,
    control: &'a dyn Control,
}

impl<'a> Generator<'a> {
    /// Generator with the model of a loaded run (folder of a trained model).
    ///
    /// # Errors
    /// If the settings are not valid.
    pub fn new(run: &'a LoadedRun<LanguageModel>, settings: &GenerationSettings) -> Result<Self> {
        let decoding = checked(settings)?;
        let tokenizer = run.tokenizers.target();
        Ok(Self {
            run,
            model: prepared(run, settings)?,
            context: settings.context,
            cache_type: settings.decoding.cache,
            tokenizer,
            of_prompts: tokenizer.with_spelled(settings.special_tokens),
            documents: run.config.data.text.documents,
            decoding,
            control: &(),
        })
    }

    /// Generator with other settings and the same model. `control` can interrupt generation, or
    /// cancel single prompts, which it names by their indices in the call. The result has no texts
    /// for a cancelled prompt.
    ///
    /// # Errors
    /// If the settings are not valid.
    pub fn under<'s>(
        &'s self,
        settings: &GenerationSettings,
        control: &'s dyn Control,
    ) -> Result<Generator<'s>> {
        let (decoding, context) = (checked(settings)?, settings.context);
        let cache_type = decoding.cache;
        let model = match (self.context, self.cache_type) == (context, cache_type) {
            true => Arc::clone(&self.model),
            false => prepared(self.run, settings)?,
        };
        let of_prompts = self.tokenizer.with_spelled(settings.special_tokens);
        Ok(Generator { model, context, cache_type, of_prompts, decoding, control, ..*self })
    }

    /// Generates text after each prompt, and passes each new part of a text to `on_piece` as soon
    /// as it is generated. If there are no prompts, generates one text from the beginning of a
    /// document or of a line.
    ///
    /// # Errors
    /// If a prompt cannot be [read](Self::read), or the model or the tokenizer fails.
    pub fn generate(
        &self,
        prompts: &[String],
        mut on_piece: impl FnMut(NewPiece<'_>),
    ) -> Result<Vec<Vec<GeneratedText>>> {
        let whole: Vec<Prompt<'_>> = match prompts {
            [] => vec![Prompt { content: PromptContent::Beginning, number: 0 }],
            prompts => (0..)
                .zip(prompts)
                .map(|(number, prompt)| Prompt { content: PromptContent::Text(prompt), number })
                .collect(),
        };
        self.generate_until(&whole, |piece| {
            on_piece(piece);
            ControlFlow::Continue(())
        })
    }

    /// Generates text in the same way as [`Self::generate`], for prompts whose numbers and contents
    /// the caller chooses. If `on_piece` returns [`ControlFlow::Break`] for a part, the text ends
    /// with this part. Parts are never empty.
    ///
    /// # Errors
    /// See [`Self::generate`].
    pub fn generate_until(
        &self,
        prompts: &[Prompt<'_>],
        mut on_piece: impl FnMut(NewPiece<'_>) -> ControlFlow<()>,
    ) -> Result<Vec<Vec<GeneratedText>>> {
        let ids: Vec<Vec<u32>> = prompts
            .iter()
            .enumerate()
            .map(|(index, prompt)| {
                self.read(prompt.content).with_context(|| format!("prompt {}", index + 1))
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
        let outputs = generate(&*self.model, &sentences, &self.decoding, self.control, |new| {
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

    /// Converts the tokens generated after a prompt to text.
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
            ids: tokens,
            token_ends,
        })
    }

    /// Tokens of a prompt, as the model reads them.
    ///
    /// # Errors
    /// If the prompt is empty, has characters that the vocabulary cannot spell, names special
    /// tokens although the settings refuse them, or has ids beyond the vocabulary.
    pub fn read(&self, prompt: PromptContent<'_>) -> Result<Vec<u32>> {
        match prompt {
            PromptContent::Beginning => beginning(self.tokenizer, self.documents),
            PromptContent::Text(text) => self.encode(text),
            PromptContent::Marked(text) => {
                let ids = self.tokenizer.with_spelled(SpelledSpecial::Read).encode(text)?;
                if ids.is_empty() { bail!("is empty") } else { Ok(ids) }
            }
            PromptContent::Tokens([]) => bail!("is empty: begin with at least one token"),
            PromptContent::Tokens(ids) => {
                let size = self.tokenizer.vocabulary_size();
                match ids.iter().find(|&&id| id as usize >= size) {
                    Some(id) => bail!("has token {id}: the vocabulary has {size}, counted from 0"),
                    None => Ok(ids.to_vec()),
                }
            }
        }
    }

    /// Tokens that the model reads before every prompt.
    pub(crate) fn beginning(&self) -> Vec<u32> {
        before_prompts(self.tokenizer)
    }

    fn encode(&self, prompt: &str) -> Result<Vec<u32>> {
        encode(&self.of_prompts, prompt)
    }
}

/// Prepares the model of a run for generation.
fn prepared(
    run: &LoadedRun<LanguageModel>,
    settings: &GenerationSettings,
) -> Result<Arc<WithTokens>> {
    let inference = run.model.inference(settings.context);
    let inference = inference
        .with_cache(settings.decoding.cache.into())
        .context("decoding.cache: set it to \"exact\"; other types need the device \"cpu\"")?;
    Ok(Arc::new(WithTokens::new(inference, run.tokenizers.target())))
}

/// Checks the settings, and returns the settings of the search.
fn checked(settings: &GenerationSettings) -> Result<DecodingConfig> {
    if settings.context == 0 || settings.max_tokens == 0 {
        bail!("the context and the number of tokens to add must be at least 1");
    }
    let decoding = settings.decoding();
    decoding.validate()?;
    Ok(decoding)
}

/// Tokenises a prompt, and refuses one that is empty or that the vocabulary cannot spell.
fn encode(tokenizer: &Tokenizer, text: &str) -> Result<Vec<u32>> {
    let is_unknown = |ids: &[u32]| ids.iter().any(|&id| tokenizer.is_unknown(id));
    let ids = tokenizer.encode(text)?;
    ensure!(!ids.is_empty(), "is empty: begin with at least one character");
    if is_unknown(&ids) {
        let mut unknown: Vec<char> = text.chars().collect();
        unknown.retain(|character| {
            tokenizer.encode(&character.to_string()).is_ok_and(|ids| is_unknown(&ids))
        });
        unknown.dedup();
        if unknown.is_empty() {
            bail!("spells the token for text that the model has never seen; leave it out");
        }
        bail!(
            "has characters that the model has never seen: {}; leave them out",
            unknown.iter().map(|character| format!("{character:?}")).collect::<Vec<_>>().join(", ")
        );
    }
    Ok([before_prompts(tokenizer), ids].concat())
}

/// Tokens that the model reads before every prompt.
fn before_prompts(tokenizer: &Tokenizer) -> Vec<u32> {
    let special = tokenizer.special_tokens();
    special.start.filter(|_| special.starts_prompts).into_iter().collect()
}

/// Tokens from which the model predicts the first token of a document: the start token of an
/// imported model, or else the end token, which ends the preceding document. If each training file
/// is one document, the model has hardly ever seen text after an end token. In that case, a line
/// end is used instead, if the vocabulary was made by this program.
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
