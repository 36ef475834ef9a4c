//! Translation models, for clients.

use anyhow::{Context, Result};
use serde::Serialize;
use taper_data::{Tokenizer, TokenizerPair};
use taper_decoding::{AlignedAttention, Control, Renumbered};
use taper_model::TranslationModel;
use taper_run::LoadedRun;
use taper_run::attention::AttentionMap;
use taper_run::generation::pieces_of;
use taper_run::translation::{
    AlignedTokens, Detail, LineTranslator, TranslatedLine, Translation, TranslationSettings,
    count_tokens,
};

use super::handlers::{Answers, Handlers, Opening, Serve, Service, nothing_else};
use super::work::{Fit, Verb, weight_of, weight_of_all};
use crate::error::{Refusal, refusal};
use crate::run_info::{RunInfo, TranslationInfo};
use crate::settings::Limits;

/// Options of a client for translation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct TranslateOptions {
    /// Number of translations of each line, best first.
    pub(crate) alternatives: usize,
    /// Hypotheses of the search. `None`: the run's.
    pub(crate) beam: Option<usize>,
    /// Exponent of the length penalty. `None`: the run's.
    pub(crate) length_penalty: Option<f64>,
    /// Whether to align tokens.
    pub(crate) alignment: bool,
}

/// Translations of one line.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct LineAnswer {
    /// Source line.
    pub(crate) source: String,
    /// Translations, best first.
    pub(crate) translations: Vec<OneTranslation>,
    /// Number of parts of a line that has more tokens than in training.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) parts: Option<usize>,
}

/// Single translation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct OneTranslation {
    pub(crate) text: String,
    pub(crate) score: f64,
    pub(crate) log_probability: f64,
    pub(crate) truncated: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) alignment: Option<AlignedText>,
}

/// Alignment of the parts of two texts.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct AlignedText {
    /// Text of each source token.
    pub(crate) source: Vec<String>,
    /// Text of each token of the translation.
    pub(crate) target: Vec<String>,
    /// Weight of each source token for each token of the translation; the rest to 1 belongs to the
    /// end of the line.
    pub(crate) weights: Vec<Vec<f64>>,
}

/// Translate lines.
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
        weight_of_all(&self.lines) * hypotheses.div_ceil(beam.max(1))
    }
}

/// Measure how well a text fits the vocabulary of the source language.
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

/// Compute the attention of every layer and head on a text, and on its translation.
#[derive(Debug)]
pub(crate) struct Attend {
    pub(crate) text: String,
    pub(crate) target: Option<String>,
}

impl Verb for Attend {
    type Model = TranslationModel;
    type Answer = AttentionMap;

    fn weight(&self, _beam: usize) -> usize {
        weight_of(self.text.len() + self.target.as_ref().map_or(0, String::len))
    }
}

/// Translation model with its search.
pub(super) struct Translates<'a> {
    run: &'a LoadedRun,
    translator: LineTranslator<'a>,
    settings: TranslationSettings,
    limits: Limits,
    aligns: bool,
}

impl Service for Translates<'_> {
    type Model = TranslationModel;

    fn open(opening: &Opening<'_>, serve: Serve<'_>) -> Result<()> {
        let run: LoadedRun = LoadedRun::open(opening.root, opening.load)?;
        let settings = TranslationSettings::of(&run.config);
        let translator = LineTranslator::new(&run, &settings)?;
        let aligns = AlignedAttention::check(settings.aligned_by, &run.model).is_ok();
        let beam = settings.decoding.beam_size;
        let info = RunInfo {
            translation: Some(TranslationInfo {
                source: run.config.data.source_language.clone(),
                target: run.config.data.target_language.clone(),
                aligns,
                beam,
            }),
            ..RunInfo::of(&run, opening.name)
        };
        let own = Translates { run: &run, translator, settings, limits: opening.limits, aligns };
        let handlers = Handlers::new("translates");
        let handlers = handlers.with::<Translate>(&own).with::<Attend>(&own).with::<Measure>(&own);
        serve(handlers, info);
        Ok(())
    }
}

impl Translates<'_> {
    /// Settings of the search for `options`.
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
        settings.detail =
            Detail { all: true, alignments: options.alignment, weights: options.alignment };
        Ok(settings)
    }
}

impl Answers<Translate> for Translates<'_> {
    fn check(&self, request: &Translate) -> Result<(), Refusal> {
        if request.options.alignment && !self.aligns {
            return Err(Refusal::Unfit(
                "the model has no attention to the source, so there is no alignment".to_owned(),
            ));
        }
        within(self.run.tokenizers.source(), &request.lines, self.limits.tokens)
    }

    fn goes_with(&self, one: &Translate, other: &Translate) -> bool {
        // Random draws depend on the number of the line within its request.
        one.options == other.options && !self.settings.decoding.sampling.is_active()
    }

    fn answer(
        &self,
        requests: &[&Translate],
        control: &dyn Control,
    ) -> Result<Vec<Vec<LineAnswer>>> {
        let Some(Translate { options, .. }) = requests.first() else { return Ok(Vec::new()) };
        let lines: Vec<String> = requests.iter().flat_map(|one| &one.lines).cloned().collect();
        let numbers = requests.iter().enumerate();
        let numbers = numbers.flat_map(|(number, one)| one.lines.iter().map(move |_| number));
        let numbers: Vec<usize> = numbers.collect();
        let control = Renumbered::new(control, &numbers);
        let translator = self.translator.under(&self.settings(options)?, &control);
        let mut translated = translator.translate(&lines, &[], 1, |_| {})?;
        let mut answers = Vec::with_capacity(requests.len());
        for Translate { lines, .. } in requests {
            let mut answer = Vec::new();
            for line in lines {
                let translated = translated.next().context("a line has no translation")??;
                answer.push(line_answer(&self.run.tokenizers, line, translated)?);
            }
            answers.push(answer);
        }
        Ok(answers)
    }
}

impl Answers<Attend> for Translates<'_> {
    fn check(&self, Attend { text, target }: &Attend) -> Result<(), Refusal> {
        let (tokenizers, most) = (&self.run.tokenizers, self.limits.attention_tokens);
        within(tokenizers.source(), std::slice::from_ref(text), most)?;
        within(tokenizers.target(), target.as_slice(), most)
    }

    fn goes_with(&self, _: &Attend, _: &Attend) -> bool {
        false
    }

    fn answer(&self, requests: &[&Attend], control: &dyn Control) -> Result<Vec<AttentionMap>> {
        let map = |Attend { text, target }: &&Attend| {
            let target = match target {
                Some(target) => target.to_owned(),
                None => self.best(text, control)?,
            };
            AttentionMap::of_translation(self.run, text, Some(&target))
        };
        requests.iter().map(map).collect()
    }
}

impl Translates<'_> {
    /// Best translation of a line by the run's own search.
    fn best(&self, line: &str, control: &dyn Control) -> Result<String> {
        let options = TranslateOptions {
            alternatives: 1,
            beam: None,
            length_penalty: None,
            alignment: false,
        };
        let translator = self.translator.under(&self.settings(&options)?, control);
        let translated = translator.translate(&[line.to_owned()], &[], 1, |_| {})?.next();
        let best = translated.context("no translation")??.translations.into_iter().next();
        Ok(best.context("no translation")?.text)
    }
}

impl Answers<Measure> for Translates<'_> {
    fn check(&self, _: &Measure) -> Result<(), Refusal> {
        Ok(())
    }

    fn goes_with(&self, _: &Measure, _: &Measure) -> bool {
        false
    }

    fn answer(&self, requests: &[&Measure], _: &dyn Control) -> Result<Vec<Fit>> {
        let tokenizer = self.run.tokenizers.source();
        requests.iter().map(|one| Ok(Fit::of(tokenizer, &one.text)?)).collect()
    }
}

/// Refuses texts with more than `most` tokens together.
pub(super) fn within(tokenizer: &Tokenizer, texts: &[String], most: usize) -> Result<(), Refusal> {
    within_limit(count(tokenizer, texts)?, most)
}

/// Refuses a request for attention of a model that `does` not translate: with a target, or a text
/// above the limit.
pub(super) fn attends(
    tokenizer: &Tokenizer,
    Attend { text, target }: &Attend,
    limits: &Limits,
    does: &str,
) -> Result<(), Refusal> {
    match target {
        Some(_) => Err(nothing_else(does)),
        None => within(tokenizer, std::slice::from_ref(text), limits.attention_tokens),
    }
}

/// Number of tokens of all texts together.
pub(super) fn count(tokenizer: &Tokenizer, texts: &[String]) -> Result<usize, Refusal> {
    let failed = |error: anyhow::Error| refusal(&error);
    texts.iter().try_fold(0, |sum, text| Ok(sum + count_tokens(tokenizer, text).map_err(failed)?))
}

/// Refuses more than `most` tokens.
pub(super) fn within_limit(tokens: usize, most: usize) -> Result<(), Refusal> {
    if tokens > most {
        return Err(Refusal::Large(format!("{tokens} tokens: at most {most} are taken at once")));
    }
    Ok(())
}

fn line_answer(
    tokenizers: &TokenizerPair,
    line: &str,
    translated: TranslatedLine,
) -> Result<LineAnswer> {
    let parts = translated.overlong.map(|overlong| overlong.parts);
    let translations = translated
        .translations
        .into_iter()
        .map(|one| {
            let alignment = one.alignment.as_ref();
            let alignment = alignment
                .map(|alignment| aligned(tokenizers, line, &one, alignment))
                .transpose()?;
            Ok(OneTranslation {
                text: one.text,
                score: one.score,
                log_probability: one.log_probability,
                truncated: one.truncated,
                alignment,
            })
        })
        .collect::<Result<_>>()?;
    Ok(LineAnswer { source: line.to_owned(), translations, parts })
}

fn aligned(
    tokenizers: &TokenizerPair,
    line: &str,
    translation: &Translation,
    alignment: &AlignedTokens,
) -> Result<AlignedText> {
    let ids = if line.trim().is_empty() { Vec::new() } else { tokenizers.source().encode(line)? };
    let mut source = pieces_of(tokenizers.source(), &ids)?;
    let words = alignment.source_tokens.len().saturating_sub(1);
    // A line of many parts is tokenised piece by piece.
    if source.len() != words {
        source = alignment.source_tokens[..words].to_vec();
    }
    let target = pieces_of(tokenizers.target(), &translation.tokens)?;
    let weights = alignment
        .weights
        .iter()
        .map(|row| row.iter().take(words).map(|&weight| rounded(weight)).collect())
        .collect();
    Ok(AlignedText { source, target, weights })
}

/// Weight to three decimals, as shown on pages.
pub(crate) fn rounded(weight: f32) -> f64 {
    (f64::from(weight) * 1e3).round() / 1e3
}
