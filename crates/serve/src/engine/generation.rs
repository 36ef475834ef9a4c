//! Answers requests of clients for texts that a language model generates.

use std::ops::ControlFlow;
use std::sync::Arc;

use anyhow::{Context, Result};
use taper_data::{EncodedText, SpelledSpecial, Tokenizer};
use taper_decoding::{Control, Renumbered};
use taper_model::LanguageModel;
use taper_run::LoadedRun;
use taper_run::attention::AttentionMap;
use taper_run::generation::{GeneratedText, GenerationSettings, Generator, Prompt, PromptContent};

use super::attention::Attend;
use super::chat::ChatTemplate;
use super::handlers::{Answers, Handlers, Opening, Serve, Service};
use super::limits::{encoded_text, within_limit};
use super::pieces::{PieceSender, Teller};
use super::work::{Continued, OwnPrompt, PromptText, TOKEN_BYTES, Verb, weight_of};
use crate::error::{Refusal, refusal};
use crate::run_info::RunInfo;
use crate::settings::Limits;

/// Options of a client for generation.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct GenerateOptions {
    /// Largest number of added tokens.
    pub(crate) max_tokens: usize,
    /// Temperature; 0 takes the likeliest token. `None` for the temperature of the run.
    pub(crate) temperature: Option<f64>,
    /// Number of likeliest tokens to sample from; `None` for the number of the run.
    pub(crate) top_k: Option<usize>,
    /// Probability mass to sample from; `None` for the probability mass of the run.
    pub(crate) top_p: Option<f64>,
    /// Repetition penalty; `None` for the penalty of the run.
    pub(crate) repetition_penalty: Option<f64>,
    /// Penalty on the logits of tokens that the text already contains.
    pub(crate) presence_penalty: f64,
    /// Penalty on the logits of tokens that the text already contains, once for each occurrence.
    pub(crate) frequency_penalty: f64,
    /// Seed; `None` for the seed of the run.
    pub(crate) seed: Option<u64>,
    /// Number of texts for each prompt.
    pub(crate) samples: usize,
    /// Stop texts: a text ends before the first occurrence of a stop text.
    pub(crate) stop: Vec<String>,
    /// Treatment of special tokens that are spelled out in a prompt.
    pub(crate) special_tokens: SpelledSpecial,
    /// Tokens whose probabilities are requested; `None` if no probabilities are requested.
    pub(crate) scoring: Option<Scoring>,
}

/// Tokens whose probabilities are requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Scoring {
    /// Number of likeliest alternatives for each token.
    pub(crate) likeliest: usize,
    /// Whether tokens of the prompt are included.
    pub(crate) whole: bool,
}

/// Request to generate text after prompts.
#[derive(Debug)]
pub(crate) struct Generate {
    pub(crate) prompts: Vec<PromptText>,
    pub(crate) options: GenerateOptions,
    /// Channel to which pieces of text are sent as they are generated; `None` if only the whole
    /// texts are sent.
    pub(crate) pieces: Option<PieceSender>,
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

/// Service that generates texts with a loaded language model.
pub(super) struct Generates<'a> {
    run: &'a LoadedRun<LanguageModel>,
    generator: Generator<'a>,
    settings: GenerationSettings,
    limits: Limits,
}

impl Service for Generates<'_> {
    type Model = LanguageModel;

    fn open(opening: &Opening<'_>, serve: Serve<'_>) -> Result<()> {
        let run: LoadedRun<LanguageModel> = LoadedRun::open(opening.root, opening.load)?;
        let settings = GenerationSettings::from_config(&run.config);
        let generator = Generator::new(&run, &settings)?;
        let info = RunInfo {
            context: Some(settings.context),
            chat: ChatTemplate::of_run(opening.root, run.tokenizers.target())
                .transpose()
                .map(|template| template.map(Arc::new)),
            ..RunInfo::from_run(&run, opening.name)
        };
        let service = Generates { run: &run, generator, settings, limits: opening.limits };
        let handlers = Handlers::new("goes on with texts");
        serve(handlers.with::<Generate>(&service).with::<Attend>(&service), info);
        Ok(())
    }
}

impl Generates<'_> {
    /// Returns the run's settings of generation, changed by a client's `options`.
    fn settings(&self, options: &GenerateOptions) -> Result<GenerationSettings> {
        let mut settings = self.settings.clone();
        settings.max_tokens = options.max_tokens;
        settings.special_tokens = options.special_tokens;
        let decoding = &mut settings.decoding;
        let sampling = &mut decoding.sampling;
        sampling.temperature = options.temperature.unwrap_or(sampling.temperature);
        sampling.top_k = options.top_k.unwrap_or(sampling.top_k);
        sampling.top_p = options.top_p.unwrap_or(sampling.top_p);
        sampling.seed = options.seed.unwrap_or(sampling.seed);
        decoding.repetition_penalty =
            options.repetition_penalty.unwrap_or(decoding.repetition_penalty);
        decoding.presence_penalty = options.presence_penalty;
        decoding.frequency_penalty = options.frequency_penalty;
        decoding.n_best = options.samples;
        if !decoding.sampling.is_active() && options.samples > 1 {
            anyhow::bail!(
                "several texts of one prompt would be the same without sampling: request one, or \
                 a temperature above 0"
            );
        }
        Ok(settings)
    }

    /// Makes the result for `prompt`, whose tokens are `ids`, from the generated `texts`. The
    /// prompt belongs to the request that `control` knows by the index `request`.
    fn continued(
        &self,
        (control, request): (&dyn Control, usize),
        (prompt, ids): (&PromptText, &[u32]),
        mut texts: Vec<GeneratedText>,
        options: &GenerateOptions,
    ) -> Result<Continued> {
        texts.iter_mut().for_each(|text| cut(text, &options.stop));
        let scores = match options.scoring {
            None => Vec::new(),
            Some(Scoring { likeliest, whole }) => {
                let rows: Vec<(&[u32], &[u32])> =
                    texts.iter().map(|text| (ids, text.ids.as_slice())).collect();
                let requests = vec![request; rows.len()];
                let control = Renumbered::new(control, &requests);
                let generator = self.generator.under(&self.settings(options)?, &control)?;
                generator.token_scores(&rows, whole, likeliest)?
            }
        };
        let text = match &prompt.content {
            OwnPrompt::Beginning => String::new(),
            OwnPrompt::Text(text) | OwnPrompt::Marked { text, .. } => text.clone(),
            OwnPrompt::Tokens(ids) => self.run.tokenizers.target().decode(ids)?,
        };
        Ok(Continued { texts, scores, prompt: text, prompt_tokens: ids.len() })
    }

    /// Whether tokens are sampled under `options`.
    fn settings_draw(&self, options: &GenerateOptions) -> bool {
        options.temperature.unwrap_or(self.settings.decoding.sampling.temperature) > 0.0
    }
}

/// Refuses messages that spell tokens reserved for the template, such as the end of a turn: a
/// client could use them to speak for another participant.
fn plain_messages(tokenizer: &Tokenizer, messages: &[[String; 2]]) -> Result<(), Refusal> {
    for (number, message) in (1..).zip(messages) {
        if let Some(token) = message.iter().find_map(|part| tokenizer.spelled(part)) {
            return Err(Refusal::Unfit(format!(
                "message {number} has the special token {token:?}: leave it out"
            )));
        }
    }
    Ok(())
}

/// Cuts a text before the first occurrence of a stop text.
fn cut(output: &mut GeneratedText, stop: &[String]) {
    let stops = stop.iter().filter_map(|stop| Some((output.text.find(stop)?, stop)));
    if let Some((at, stop)) = stops.min_by_key(|(at, _)| *at) {
        output.stop_at(at, stop);
    }
}

impl Answers<Generate> for Generates<'_> {
    /// Tokens that the model reads for each prompt.
    type Encoded = Vec<Vec<u32>>;

    fn check(&self, request: &Generate) -> Result<Vec<Vec<u32>>, Refusal> {
        let read = || -> Result<Vec<Vec<u32>>> {
            let generator = self.generator.under(&self.settings(&request.options)?, &())?;
            let read = |(index, prompt): (usize, &PromptText)| {
                generator.read(prompt.content()).with_context(|| format!("prompt {}", index + 1))
            };
            request.prompts.iter().enumerate().map(read).collect()
        };
        for prompt in &request.prompts {
            if let OwnPrompt::Marked { messages, .. } = &prompt.content {
                plain_messages(self.run.tokenizers.target(), messages)?;
            }
        }
        let prompts = read().map_err(|error| refusal(&error))?;
        within_limit(prompts.iter().map(Vec::len).sum(), self.limits.tokens)?;
        Ok(prompts)
    }

    fn goes_with(&self, one: &Generate, other: &Generate) -> bool {
        // Options other than the stop texts must be equal: each text is cut at its own stop texts.
        let same = GenerateOptions { stop: one.options.stop.clone(), ..other.options.clone() };
        one.options == same
    }

    fn answer(
        &self,
        requests: &[(&Generate, &Vec<Vec<u32>>)],
        control: &dyn Control,
    ) -> Result<Vec<Vec<Continued>>> {
        let Some((Generate { options, .. }, _)) = requests.first() else { return Ok(Vec::new()) };
        let samples = if self.settings_draw(options) { options.samples } else { 1 };
        let (mut prompts, mut numbers) = (Vec::new(), Vec::new());
        let mut tellers: Vec<Vec<Teller<'_>>> = Vec::new();
        for (number, (Generate { prompts: own_prompts, options, pieces }, ids)) in
            requests.iter().enumerate()
        {
            for (PromptText { number: draws, .. }, ids) in own_prompts.iter().zip(*ids) {
                prompts.push(Prompt { content: PromptContent::Tokens(ids), number: *draws });
                numbers.push(number);
                let teller = |sample| Teller::new(sample, &options.stop, pieces.as_ref());
                tellers.push((0..samples).map(teller).collect());
            }
        }
        let of_prompts = Renumbered::new(control, &numbers);
        let generator = self.generator.under(&self.settings(options)?, &of_prompts)?;
        let generated = generator.generate_until(&prompts, |new| {
            let teller =
                tellers.get_mut(new.prompt).and_then(|samples| samples.get_mut(new.sample));
            teller.map_or(ControlFlow::Break(()), |teller| teller.push(new.text))
        })?;
        let mut generated = generated.into_iter().zip(tellers);
        let mut answers = Vec::with_capacity(requests.len());
        for (request, (Generate { prompts, options, .. }, ids)) in requests.iter().enumerate() {
            let mut continued = Vec::with_capacity(prompts.len());
            let prompts = prompts.iter().zip(ids.iter().map(Vec::as_slice));
            for (prompt, (texts, tellers)) in prompts.zip(generated.by_ref()) {
                tellers.into_iter().for_each(Teller::finish);
                let place = (control, request);
                continued.push(self.continued(place, prompt, texts, options)?);
            }
            answers.push(continued);
        }
        Ok(answers)
    }
}

impl Answers<Attend> for Generates<'_> {
    type Encoded = EncodedText;

    fn check(&self, Attend { text }: &Attend) -> Result<EncodedText, Refusal> {
        encoded_text(self.run.tokenizers.target(), text, self.limits.attention_tokens)
    }

    fn goes_with(&self, _: &Attend, _: &Attend) -> bool {
        false
    }

    fn answer(
        &self,
        requests: &[(&Attend, &EncodedText)],
        _: &dyn Control,
    ) -> Result<Vec<AttentionMap>> {
        requests.iter().map(|(_, text)| AttentionMap::of_text(self.run, text)).collect()
    }
}
