//! Answers requests of clients to translation models.

mod line_answer;
mod sentences;

use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use taper_data::{Direction, EncodedText, Tokenizer, TokenizerPair};
use taper_decoding::{AlignedAttention, Control, Renumbered};
use taper_model::TranslationModel;
use taper_run::attention::AttentionMap;
use taper_run::translation::{
    LineNumbers, LineTranslator, Terms, TranslationDetail, TranslationSettings,
};
use taper_run::{LoadSettings, LoadedRun};

pub(crate) use line_answer::{LineAnswer, rounded};
pub(crate) use sentences::TranslateSentences;

use line_answer::line_answer;

use super::attention::{Attend, AttendPair};
use super::handlers::{Answers, Handlers, Opening, Serve, Service};
use super::limits::{encoded, encoded_text};
use super::work::{Fit, Verb, weight_of, weight_of_all};
use crate::error::{Refusal, refusal};
use crate::run_info::{RunInfo, TranslationInfo};
use crate::settings::Limits;

/// Options of a client for translation.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TranslateOptions {
    /// Source and target language; `None` for a run that has only one direction.
    pub(crate) direction: Option<Direction>,
    /// Number of translations of each line, best first.
    pub(crate) alternatives: usize,
    /// Number of hypotheses of the search; `None` for the number of the run.
    pub(crate) beam: Option<usize>,
    /// Exponent of the length penalty; `None` for the exponent of the run.
    pub(crate) length_penalty: Option<f64>,
    /// Whether to align tokens.
    pub(crate) alignment: bool,
    /// Text with which the translation must begin; empty for no requirement. Only a request with a
    /// single line may have such a prefix.
    pub(crate) prefix: String,
    /// Terms with their translations. Each line has a term, a tab and the translation of the term.
    pub(crate) terms: String,
}

impl Default for TranslateOptions {
    /// Options for the best translation by the run's own search.
    fn default() -> Self {
        let (prefix, terms) = (String::new(), String::new());
        let (direction, beam, length_penalty) = (None, None, None);
        Self { direction, alternatives: 1, beam, length_penalty, alignment: false, prefix, terms }
    }
}

/// Request to translate lines.
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
        // Lines whose translations lack a term are searched again.
        let searches = if self.options.terms.is_empty() { 1 } else { 2 };
        weight_of_all(&self.lines) * hypotheses.div_ceil(beam.max(1)) * searches
    }
}

/// Request to measure how well a text fits the vocabulary of the source language.
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

/// Service that translates with a loaded model.
pub(super) struct Translates<'a> {
    run: &'a LoadedRun,
    /// Tokenizers of each direction, for a run of several directions; otherwise empty.
    spoken: Vec<(Direction, TokenizerPair)>,
    translator: LineTranslator<'a>,
    settings: TranslationSettings,
    limits: Limits,
    aligns: bool,
}

impl Service for Translates<'_> {
    type Model = TranslationModel;

    fn open(opening: &Opening<'_>, serve: Serve<'_>) -> Result<()> {
        let every = LoadSettings { every_direction: true, ..opening.load.clone() };
        let run: LoadedRun = LoadedRun::open(opening.root, &every)?;
        let is_one = opening.load.from.is_some() || opening.load.to.is_some();
        let mut service = Translates::new(&run, opening.limits)?;
        if run.config.data.is_multilingual() && !is_one {
            service.speak()?;
        }
        let info = RunInfo {
            translation: Some(TranslationInfo {
                source: service.first().from,
                target: service.first().to,
                directions: service.spoken.iter().map(|(direction, _)| direction.clone()).collect(),
                aligns: service.aligns,
                beam: service.settings.decoding.beam_size,
            }),
            ..RunInfo::from_run(&run, opening.name)
        };
        serve(service.handlers(), info);
        Ok(())
    }
}

impl<'a> Translates<'a> {
    /// Makes a service that uses the model of `run`.
    ///
    /// # Errors
    /// When a member of the run's ensemble cannot be loaded.
    pub(super) fn new(run: &'a LoadedRun, limits: Limits) -> Result<Self> {
        let settings = TranslationSettings::from_config(&run.config);
        let translator = LineTranslator::new(run, &settings)?;
        let aligns = AlignedAttention::check(settings.aligned_by, &run.model).is_ok();
        Ok(Self { run, spoken: Vec::new(), translator, settings, limits, aligns })
    }

    /// Prepares tokenizers for requests in every direction of the run.
    ///
    /// # Errors
    /// When the vocabulary lacks a language.
    fn speak(&mut self) -> Result<()> {
        for direction in self.run.config.data.directions() {
            let (_, tokenizers) = self.run.in_direction(&direction)?;
            self.spoken.push((direction, tokenizers));
        }
        Ok(())
    }

    /// Returns the first direction of the run, or its only direction.
    fn first(&self) -> Direction {
        let data = &self.run.config.data;
        let first = self.spoken.first().map(|(direction, _)| direction.clone());
        first.unwrap_or_else(|| Direction::new(&data.source_language, &data.target_language))
    }

    /// Returns the tokenizers for a request in `direction`; refuses a direction that the run does
    /// not have.
    fn tokenizers(&self, direction: Option<&Direction>) -> Result<&TokenizerPair, Refusal> {
        let tokenizers_for = |direction: &Direction| {
            self.spoken.iter().find(|(known, _)| known == direction).map(|(_, own)| own)
        };
        match (direction, self.spoken.as_slice()) {
            (None, []) => Ok(&self.run.tokenizers),
            (Some(asked), []) if *asked == self.first() => Ok(&self.run.tokenizers),
            (Some(asked), _) if tokenizers_for(asked).is_some() => {
                Ok(tokenizers_for(asked).unwrap_or(&self.run.tokenizers))
            }
            (asked, _) => {
                let known: Vec<String> = match self.spoken.as_slice() {
                    [] => vec![self.first().to_string()],
                    spoken => spoken.iter().map(|(one, _)| one.to_string()).collect(),
                };
                let asked = asked.map_or("no direction".to_owned(), Direction::to_string);
                Err(Refusal::Unfit(format!(
                    "the run translates {}, but the request names {asked}: choose one with \
                     \"from\" and \"to\"",
                    known.join(", ")
                )))
            }
        }
    }

    /// Returns the handlers of all requests to a translation model.
    pub(super) fn handlers(&self) -> Handlers<'_> {
        let handlers = Handlers::new("translates").with::<Translate>(self).with::<Measure>(self);
        let handlers = handlers.with::<TranslateSentences>(self);
        handlers.with::<Attend>(self).with::<AttendPair>(self)
    }
}

impl Translates<'_> {
    /// Returns the run's settings of the search, changed by a client's `options`.
    fn settings(&self, options: &TranslateOptions) -> Result<TranslationSettings> {
        let mut settings = self.settings.clone();
        let decoding = &mut settings.decoding;
        if let Some(beam) = options.beam {
            decoding.beam_size = beam;
        }
        decoding.n_best = options.alternatives;
        if !decoding.sampling.is_active() {
            decoding.beam_size = decoding.beam_size.max(options.alternatives);
        }
        if let Some(penalty) = options.length_penalty {
            decoding.length_penalty = penalty;
        }
        decoding.validate()?;
        settings.detail = TranslationDetail {
            all: true,
            alignments: options.alignment,
            weights: options.alignment,
        };
        let tokenizers = self.tokenizers(options.direction.as_ref());
        let tokenizers = tokenizers.map_err(|refusal| anyhow!("{refusal:?}"))?;
        settings.terms = Terms::parse(&options.terms, "", tokenizers)?.map(Arc::new);
        Ok(settings)
    }
}

impl Answers<Translate> for Translates<'_> {
    /// Tokens of each line.
    type Encoded = Vec<EncodedText>;

    fn check(&self, request: &Translate) -> Result<Vec<EncodedText>, Refusal> {
        if request.options.alignment && !self.aligns {
            return Err(Refusal::Unfit(
                "the model has no attention to the source, so there is no alignment".to_owned(),
            ));
        }
        let TranslateOptions { direction, prefix, terms, .. } = &request.options;
        let tokenizers = self.tokenizers(direction.as_ref())?;
        Terms::parse(terms, "terms, ", tokenizers).map_err(|error| refusal(&error))?;
        let translator = self.translator.with_tokenizers(tokenizers);
        translator.check_prefix(prefix).map_err(|error| refusal(&error))?;
        encoded(tokenizers.source(), &request.lines, self.limits.tokens)
    }

    fn goes_with(&self, one: &Translate, other: &Translate) -> bool {
        // Sampled translations are not combined: random draws depend on the number of a line within
        // its request.
        one.options == other.options && !self.settings.decoding.sampling.is_active()
    }

    fn answer(
        &self,
        requests: &[(&Translate, &Vec<EncodedText>)],
        control: &dyn Control,
    ) -> Result<Vec<Vec<LineAnswer>>> {
        let Some((Translate { options, .. }, _)) = requests.first() else { return Ok(Vec::new()) };
        let lines: Vec<&EncodedText> = requests.iter().flat_map(|(_, lines)| *lines).collect();
        let numbers = requests.iter().enumerate();
        let numbers = numbers.flat_map(|(number, (_, lines))| lines.iter().map(move |_| number));
        let numbers: Vec<usize> = numbers.collect();
        let control = Renumbered::new(control, &numbers);
        let tokenizers = self.tokenizers(options.direction.as_ref());
        let tokenizers = tokenizers.map_err(|refusal| anyhow!("{refusal:?}"))?;
        let spoken = self.translator.with_tokenizers(tokenizers);
        let translator = spoken.under(&self.settings(options)?, &control);
        let prefixes = vec![options.prefix.clone(); lines.len()];
        let mut translated =
            translator.translate_encoded(&lines, &prefixes, LineNumbers::From(1), |_| {})?;
        let mut answers = Vec::with_capacity(requests.len());
        for (_, lines) in requests {
            let mut answer = Vec::new();
            for line in *lines {
                let translated = translated.next().context("a line has no translation")??;
                answer.push(line_answer(tokenizers, line, translated)?);
            }
            answers.push(answer);
        }
        Ok(answers)
    }
}

impl Answers<Attend> for Translates<'_> {
    type Encoded = EncodedText;

    fn check(&self, Attend { text }: &Attend) -> Result<EncodedText, Refusal> {
        self.attended(self.run.tokenizers.source(), text)
    }

    fn goes_with(&self, _: &Attend, _: &Attend) -> bool {
        false
    }

    fn answer(
        &self,
        requests: &[(&Attend, &EncodedText)],
        control: &dyn Control,
    ) -> Result<Vec<AttentionMap>> {
        let map = |&(_, text): &(&Attend, &EncodedText)| {
            let target = self.run.tokenizers.target().encode_text(&self.best(text, control)?)?;
            AttentionMap::of_encoded(self.run, text, &target)
        };
        requests.iter().map(map).collect()
    }
}

impl Answers<AttendPair> for Translates<'_> {
    type Encoded = [EncodedText; 2];

    fn check(&self, AttendPair { text, target }: &AttendPair) -> Result<[EncodedText; 2], Refusal> {
        let text = self.attended(self.run.tokenizers.source(), text)?;
        Ok([text, self.attended(self.run.tokenizers.target(), target)?])
    }

    fn goes_with(&self, _: &AttendPair, _: &AttendPair) -> bool {
        false
    }

    fn answer(
        &self,
        requests: &[(&AttendPair, &[EncodedText; 2])],
        _: &dyn Control,
    ) -> Result<Vec<AttentionMap>> {
        let map = |&(_, [text, target]): &(&AttendPair, &[EncodedText; 2])| {
            AttentionMap::of_encoded(self.run, text, target)
        };
        requests.iter().map(map).collect()
    }
}

impl Translates<'_> {
    /// Tokenises a text whose attention is requested.
    fn attended(&self, tokenizer: &Tokenizer, text: &str) -> Result<EncodedText, Refusal> {
        // This call refuses a run of several directions. When such a run translates, its input
        // includes a token that names a language, and a request for attention names no language.
        self.tokenizers(None)?;
        encoded_text(tokenizer, text, self.limits.attention_tokens)
    }

    /// Returns the best translation of a line by the run's own search.
    fn best(&self, line: &EncodedText, control: &dyn Control) -> Result<String> {
        let options = TranslateOptions::default();
        let translator = self.translator.under(&self.settings(&options)?, control);
        let translated =
            translator.translate_encoded(&[line], &[], LineNumbers::From(1), |_| {})?.next();
        let best = translated.context("no translation")??.translations.into_iter().next();
        Ok(best.context("no translation")?.text)
    }
}

impl Answers<Measure> for Translates<'_> {
    type Encoded = ();

    fn check(&self, _: &Measure) -> Result<(), Refusal> {
        Ok(())
    }

    fn goes_with(&self, _: &Measure, _: &Measure) -> bool {
        false
    }

    fn answer(&self, requests: &[(&Measure, &())], _: &dyn Control) -> Result<Vec<Fit>> {
        let tokenizer = self.run.tokenizers.source();
        requests.iter().map(|(one, ())| Ok(Fit::measure(tokenizer, &one.text)?)).collect()
    }
}
