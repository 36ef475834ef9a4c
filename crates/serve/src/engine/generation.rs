//! Generation with a language model, for clients.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use taper_data::{SpelledSpecial, Tokenizer};
use taper_decoding::{Control, Renumbered};
use taper_model::LanguageModel;
use taper_run::attention::AttentionMap;
use taper_run::generation::{GeneratedText, GenerationSettings, Generator};
use taper_run::{LoadSettings, LoadedRun};
use tokio::sync::mpsc::UnboundedSender;

use super::RunInfo;
use super::chat::ChatTemplate;
use super::translation::{count, within, within_limit, wrong_task};
use super::work::{Answer, Continued, OwnPrompt, Piece, PromptText, Work};
use super::worker::Service;
use crate::error::Refusal;
use crate::settings::Limits;

/// Options of a client for generation.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct GenerateOptions {
    /// Largest number of added tokens.
    pub(crate) max_tokens: usize,
    /// Temperature; 0 takes the likeliest token. `None`: the run's.
    pub(crate) temperature: Option<f64>,
    /// Number of likeliest tokens to sample from. `None`: the run's.
    pub(crate) top_k: Option<usize>,
    /// Probability mass to sample from. `None`: the run's.
    pub(crate) top_p: Option<f64>,
    /// Repetition penalty. `None`: the run's.
    pub(crate) repetition_penalty: Option<f64>,
    /// Penalty on the logits of tokens that the text already contains.
    pub(crate) presence_penalty: f64,
    /// Penalty on such a token for each of its occurrences.
    pub(crate) frequency_penalty: f64,
    /// Seed. `None`: the run's.
    pub(crate) seed: Option<u64>,
    /// Number of texts for each prompt.
    pub(crate) samples: usize,
    /// Stop texts: a text ends before the first of these.
    pub(crate) stop: Vec<String>,
    /// Treatment of special tokens that a prompt spells.
    pub(crate) special_tokens: SpelledSpecial,
    /// Requested probabilities of tokens; `None`: no probabilities.
    pub(crate) scoring: Option<Scoring>,
}

/// Tokens whose probabilities are requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Scoring {
    /// Number of likeliest alternatives for each.
    pub(crate) likeliest: usize,
    /// Whether tokens of the prompt are included.
    pub(crate) whole: bool,
}

/// Language model with its search.
pub(super) struct Generates<'a> {
    run: &'a LoadedRun<LanguageModel>,
    generator: Generator<'a>,
    settings: GenerationSettings,
    limits: Limits,
}

impl Generates<'_> {
    /// Loads the run at `root`, and calls `serve`.
    ///
    /// # Errors
    /// When it cannot be loaded.
    pub(super) fn open(
        root: &Path,
        load: &LoadSettings,
        name: &str,
        limits: Limits,
        serve: impl FnOnce(&dyn Service, RunInfo),
    ) -> Result<()> {
        let run: LoadedRun<LanguageModel> = LoadedRun::open(root, load)?;
        let settings = GenerationSettings::of(&run.config);
        let generator = Generator::new(&run, &settings)?;
        let info = RunInfo {
            context: Some(settings.context),
            chat: ChatTemplate::of_run(root, run.tokenizers.target())
                .transpose()
                .map(|found| found.map(Arc::new)),
            ..RunInfo::of(&run, name)
        };
        serve(&Generates { run: &run, generator, settings, limits }, info);
        Ok(())
    }

    /// Settings of the search for `options`.
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
                "several texts of one prompt would be the same where nothing is drawn: ask for \
                 one, or for a temperature above 0"
            );
        }
        Ok(settings)
    }

    fn generate(&self, works: &[&Work], control: &dyn Control) -> Result<Vec<Answer>> {
        let Some(Work::Generate { options, .. }) = works.first() else { return Ok(Vec::new()) };
        let samples = if self.settings_draw(options) { options.samples } else { 1 };
        let (mut prompts, mut numbers) = (Vec::new(), Vec::new());
        let mut tellers: Vec<Vec<Teller<'_>>> = Vec::new();
        for (number, work) in works.iter().enumerate() {
            let Work::Generate { prompts: own, options, pieces } = work else { continue };
            for prompt in own {
                prompts.push(prompt.prompt());
                numbers.push(number);
                let teller = |sample| Teller {
                    sample,
                    stop: &options.stop,
                    pieces: pieces.as_ref(),
                    text: String::new(),
                    told: 0,
                };
                tellers.push((0..samples).map(teller).collect());
            }
        }
        let control = Renumbered::new(control, &numbers);
        let generator = self.generator.under(&self.settings(options)?, &control)?;
        let found = generator.generate_until(&prompts, |new| {
            let teller = tellers.get_mut(new.prompt).and_then(|own| own.get_mut(new.sample));
            teller.map_or(ControlFlow::Break(()), |teller| teller.push(new.text))
        })?;
        let mut found = found.into_iter().zip(tellers);
        let mut answers = Vec::with_capacity(works.len());
        for work in works {
            let Work::Generate { prompts, options, .. } = work else { continue };
            let mut continued = Vec::with_capacity(prompts.len());
            for (prompt, (texts, tellers)) in prompts.iter().zip(found.by_ref()) {
                tellers.into_iter().for_each(Teller::finish);
                continued.push(self.continued(&generator, prompt, texts, options)?);
            }
            answers.push(Answer::Generated(continued));
        }
        Ok(answers)
    }

    /// Result for a prompt with these texts, as `generator` reads the prompt.
    fn continued(
        &self,
        generator: &Generator<'_>,
        prompt: &PromptText,
        mut texts: Vec<GeneratedText>,
        options: &GenerateOptions,
    ) -> Result<Continued> {
        let ids = generator.read(prompt.prompt().content)?;
        texts.iter_mut().for_each(|text| cut(text, &options.stop));
        let scores = match options.scoring {
            None => Vec::new(),
            Some(Scoring { likeliest, whole }) => {
                let rows: Vec<(&[u32], &[u32])> =
                    texts.iter().map(|text| (ids.as_slice(), text.ids.as_slice())).collect();
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
/// client could speak for another.
fn plain_messages(tokenizer: &Tokenizer, messages: &[String]) -> Result<(), Refusal> {
    for (index, message) in messages.iter().enumerate() {
        if let Some(token) = tokenizer.spelled(message) {
            return Err(Refusal::Unfit(format!(
                "message {} has the special token {token:?}: leave it out",
                index + 1
            )));
        }
    }
    Ok(())
}

/// Cuts a text before its stop text.
fn cut(output: &mut GeneratedText, stop: &[String]) {
    let found = stop.iter().filter_map(|stop| Some((output.text.find(stop)?, stop)));
    if let Some((at, stop)) = found.min_by_key(|(at, _)| *at) {
        output.stop_at(at, stop);
    }
}

/// Sends a text to a client as it grows, except an end that may be the beginning of a stop text.
struct Teller<'w> {
    sample: usize,
    stop: &'w [String],
    pieces: Option<&'w UnboundedSender<Piece>>,
    text: String,
    /// Bytes of the text that were sent.
    told: usize,
}

impl Teller<'_> {
    fn push(&mut self, piece: &str) -> ControlFlow<()> {
        self.text.push_str(piece);
        let stopped = self.stop.iter().filter_map(|stop| self.text.find(stop)).min();
        if let Some(at) = stopped {
            self.text.truncate(at);
            let _ = self.tell(at);
            return ControlFlow::Break(());
        }
        let may_begin = |from: &usize| {
            let end = &self.text[*from..];
            self.stop.iter().any(|stop| stop.starts_with(end))
        };
        let ends = self.text.char_indices().map(|(at, _)| at).filter(|&at| at >= self.told);
        let until = ends.into_iter().find(may_begin).unwrap_or(self.text.len());
        self.tell(until)
    }

    /// Sends the unsent text up to a place; breaks the text off if nobody listens.
    fn tell(&mut self, until: usize) -> ControlFlow<()> {
        let Some(pieces) = self.pieces else { return ControlFlow::Continue(()) };
        let text = self.text.get(self.told..until).unwrap_or_default().to_owned();
        self.told = self.told.max(until);
        let is_gone = match text.is_empty() {
            true => pieces.is_closed(),
            false => pieces.send(Piece { sample: self.sample, text }).is_err(),
        };
        if is_gone { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Sends the text that was held back.
    fn finish(mut self) {
        let _ = self.tell(self.text.len());
    }
}

impl Service for Generates<'_> {
    fn check(&self, work: &Work) -> Result<(), Refusal> {
        let tokenizer = self.run.tokenizers.target();
        match work {
            Work::Generate { prompts, .. } => {
                let mut tokens = 0;
                for prompt in prompts {
                    tokens += match &prompt.content {
                        OwnPrompt::Beginning => 0,
                        OwnPrompt::Text(text) => count(tokenizer, std::slice::from_ref(text))?,
                        OwnPrompt::Marked { text, messages } => {
                            plain_messages(tokenizer, messages)?;
                            count(tokenizer, std::slice::from_ref(text))?
                        }
                        OwnPrompt::Tokens(ids) => ids.len(),
                    };
                }
                within_limit(tokens, self.limits.tokens)
            }
            Work::Attend { text, target: None } => {
                within(tokenizer, std::slice::from_ref(text), self.limits.attention_tokens)
            }
            _ => Err(wrong_task("goes on with texts")),
        }
    }

    fn goes_with(&self, one: &Work, other: &Work) -> bool {
        match (one, other) {
            (Work::Generate { options, .. }, Work::Generate { options: others, .. }) => {
                // Each text is stopped on its own.
                let same = GenerateOptions { stop: options.stop.clone(), ..others.clone() };
                *options == same
            }
            _ => false,
        }
    }

    fn answer(&self, works: &[&Work], control: &dyn Control) -> Result<Vec<Answer>> {
        match works {
            [Work::Attend { text, .. }] => {
                let map = AttentionMap::of_text(self.run, text)?;
                Ok(vec![Answer::Attention(Box::new(map))])
            }
            works => self.generate(works, control),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_stop_a_text_is_held_back() {
        let stop = ["\n\n".to_owned(), "END".to_owned()];
        let (pieces, mut told) = tokio::sync::mpsc::unbounded_channel();
        let teller = |sample| Teller {
            sample,
            stop: &stop,
            pieces: Some(&pieces),
            text: String::new(),
            told: 0,
        };
        let mut all = || {
            let mut all = String::new();
            while let Ok(piece) = told.try_recv() {
                all += &piece.text;
            }
            all
        };
        let mut one = teller(0);
        for (piece, expected) in
            [("a\n", "a"), ("b", "\nb"), ("日E", "日"), ("N", ""), ("x", "ENx"), ("\n", "")]
        {
            assert!(one.push(piece).is_continue());
            assert_eq!(all(), expected, "{piece:?}");
        }
        assert!(one.push("\nrest").is_break());
        assert_eq!(all(), "");
        let mut two = teller(1);
        assert!(two.push("ab EN").is_continue());
        assert_eq!(all(), "ab ");
        two.finish();
        assert_eq!(all(), "EN");
        let mut three = teller(2);
        assert!(three.push("abENDc").is_break());
        assert_eq!(all(), "ab");
        told.close();
        assert!(teller(3).push("x").is_break(), "nobody listens");
    }
}
