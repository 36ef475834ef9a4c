//! Translations and generated texts of runs, which are folders of trained models. Settings come
//! from Python as JSON.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::OnceLock;

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde::Deserialize;
use serde_json::{Map, Value};
use taper_decoding::DecodingConfig;
use taper_model::LanguageModel;
use taper_run::generation::{GenerationSettings, Generator, Prompt, PromptContent};
use taper_run::translation::{OverlongRule, PackedModels, TranslationDetail};
use taper_run::{BadItem, LineTranslator, LoadedRun, TranslationSettings, answer_each};

use crate::engine::Cancelled;
use crate::error::one_line;

/// Largest number of lines that are translated together. The command-line program has the same
/// limit.
const WINDOW: usize = 4096;

/// Models of a run with their weights in the layout for fast multiplication. The first translation
/// fills this cell.
pub(crate) type Packed = OnceLock<PackedModels>;

/// Keys of the table `[decoding]` of a recipe (a TOML file with all settings of a training), with
/// the values that replace those of the run.
type Changes = Map<String, Value>;

/// Returns `config` with the values in `changes`.
fn changed(config: &DecodingConfig, changes: &Changes) -> Result<DecodingConfig> {
    let mut keys = serde_json::to_value(config)?;
    merge(&mut keys, changes);
    let config: DecodingConfig =
        serde_json::from_value(keys).map_err(|error| anyhow!("decoding: {error}"))?;
    config.validate()?;
    Ok(config)
}

fn merge(keys: &mut Value, changes: &Changes) {
    for (key, value) in changes {
        match (keys.get_mut(key), value) {
            (Some(own @ Value::Object(_)), Value::Object(value)) => merge(own, value),
            _ => keys[key.as_str()] = value.clone(),
        }
    }
}

/// Settings of a translation, which replace those of the run.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TranslateOptions {
    decoding: Changes,
    beam: Option<usize>,
    /// Number of translations to return for each line; `None` for only the best translation.
    n_best: Option<usize>,
    alignment: bool,
    overlong: String,
    max_source_tokens: Option<usize>,
    ensemble: Vec<PathBuf>,
    /// Text with which the translation of each line must begin. The list is empty if translations
    /// may begin with any text.
    prefixes: Vec<String>,
    /// Code of the source language; the field `to` has the code of the target language. Both are
    /// only for a run of several directions.
    from: Option<String>,
    to: Option<String>,
}

impl TranslateOptions {
    fn settings(&self, run: &LoadedRun) -> Result<TranslationSettings> {
        let mut settings = TranslationSettings::from_config(&run.config);
        settings.decoding = changed(&settings.decoding, &self.decoding)?;
        self.widen(&mut settings.decoding)?;
        settings.overlong = match self.overlong.as_str() {
            "split" => OverlongRule::Split,
            "cut" => OverlongRule::Cut,
            "error" => OverlongRule::Error,
            other => bail!("overlong is {other:?}: it is split, cut or error"),
        };
        match self.max_source_tokens {
            Some(0) => bail!("max_source_tokens must be at least 1"),
            Some(tokens) => settings.max_source_tokens = tokens,
            None => {}
        }
        settings.ensemble.clone_from(&self.ensemble);
        let alignments = self.alignment;
        let all = self.n_best.is_some();
        settings.detail = TranslationDetail { all, alignments, weights: alignments };
        Ok(settings)
    }

    /// Sets the beam size and the number of translations, by the same rules as the program's
    /// options.
    fn widen(&self, config: &mut DecodingConfig) -> Result<()> {
        let draws = config.sampling.is_active();
        if let Some(beam) = self.beam {
            if draws {
                bail!("beam has no effect if translations are sampled: leave one of them out");
            }
            config.beam_size = beam;
            config.n_best = config.n_best.min(beam.max(1));
        }
        if let Some(n_best) = self.n_best {
            config.n_best = n_best;
            if self.beam.is_none() && !draws {
                config.beam_size = config.beam_size.max(n_best);
            }
        }
        Ok(config.validate()?)
    }
}

/// Translates lines. Returns a JSON list with one record for each line, which has the line's
/// translations or an error.
pub(crate) fn translate(
    run: &LoadedRun,
    packed: &Packed,
    lines: &[String],
    options: &TranslateOptions,
    cancelled: &Cancelled,
) -> Result<String> {
    let settings = options.settings(run)?;
    let prefixes = &options.prefixes;
    if !prefixes.is_empty() && prefixes.len() != lines.len() {
        bail!("there are {} lines and {} prefixes", lines.len(), prefixes.len());
    }
    let translator = match packed.get() {
        Some(models) if settings.ensemble.is_empty() => {
            LineTranslator::with_models(run, &settings, models)?
        }
        _ => LineTranslator::new(run, &settings)?,
    };
    if settings.ensemble.is_empty() {
        let _ = packed.set(translator.models());
    }
    let (from, to) = (options.from.as_deref(), options.to.as_deref());
    let direction = match (from, to) {
        (None, None) => {
            run.require_direction()?;
            None
        }
        _ => Some(run.config.data.choose_direction(from, to)?),
    };
    let spoken = direction.map(|direction| run.in_direction(&direction)).transpose()?;
    let tokenizers = spoken.as_ref().map_or(&run.tokenizers, |(_, tokenizers)| tokenizers);
    let translator = translator.with_tokenizers(tokenizers);
    let translator = translator.under(&settings, cancelled);
    let mut records = Vec::with_capacity(lines.len());
    for (window, first) in lines.chunks(WINDOW).zip((0..).step_by(WINDOW)) {
        ensure!(!cancelled.is_cancelled(), "interrupted");
        let prefixes = prefixes.get(first..first + window.len()).unwrap_or_default();
        for line in translator.translate(window, prefixes, first + 1, |_| {})? {
            records.push(match line {
                Ok(line) => serde_json::to_string(&line)?,
                Err(error) if error.is::<BadItem>() => fault(&error),
                Err(error) => return Err(error),
            });
        }
    }
    Ok(list(records))
}

/// Settings of generation, which replace those of the run.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GenerateOptions {
    decoding: Changes,
    max_tokens: usize,
    context: Option<usize>,
    samples: usize,
    temperature: Option<f64>,
    top_k: Option<usize>,
    top_p: Option<f64>,
    seed: Option<u64>,
}

impl GenerateOptions {
    fn settings(&self, run: &LoadedRun<LanguageModel>) -> Result<GenerationSettings> {
        let mut settings = GenerationSettings::from_config(&run.config);
        settings.decoding = changed(&settings.decoding, &self.decoding)?;
        let sampling = &mut settings.decoding.sampling;
        let is_wanted = self.top_k.is_some() || self.top_p.is_some();
        let usual = if is_wanted && !sampling.is_active() { 1.0 } else { sampling.temperature };
        sampling.temperature = self.temperature.unwrap_or(usual);
        sampling.top_k = self.top_k.unwrap_or(sampling.top_k);
        sampling.top_p = self.top_p.unwrap_or(sampling.top_p);
        sampling.seed = self.seed.unwrap_or(sampling.seed);
        if self.seed.is_some() && !sampling.is_active() {
            bail!("seed has no effect if nothing is sampled: give a temperature above 0");
        }
        settings.max_tokens = self.max_tokens;
        settings.decoding.n_best = self.samples;
        if let Some(context) = self.context {
            settings.context = context;
        }
        if self.samples > 1 && !settings.decoding.sampling.is_active() {
            bail!(
                "samples = {} would give one text again and again if nothing is sampled: leave \
                 it out, or give a temperature above 0",
                self.samples
            );
        }
        Ok(settings)
    }
}

/// Continues `prompt`, or begins a text if `prompt` is `None`. Passes each piece of text to
/// `on_piece` when it is generated. Returns the record of the text as JSON.
pub(crate) fn generate(
    run: &LoadedRun<LanguageModel>,
    prompt: Option<&str>,
    options: &GenerateOptions,
    cancelled: &Cancelled,
    mut on_piece: impl FnMut(&str),
) -> Result<String> {
    let generator = Generator::new(run, &options.settings(run)?)?;
    let content = prompt.map_or(PromptContent::Beginning, PromptContent::Text);
    let ids = generator.read(content).context("the prompt")?;
    let prompt = Prompt { content: PromptContent::Tokens(&ids), number: 0 };
    let texts = generator.generate_until(&[prompt], |piece| {
        if cancelled.is_cancelled() {
            return ControlFlow::Break(());
        }
        on_piece(piece.text);
        ControlFlow::Continue(())
    })?;
    let text = texts.first().and_then(|texts| texts.first());
    Ok(serde_json::to_string(text.context("no text was generated")?)?)
}

/// Continues prompts. Returns a JSON list with one record for each prompt, which has the generated
/// texts or an error.
pub(crate) fn generate_all(
    run: &LoadedRun<LanguageModel>,
    prompts: &[String],
    options: &GenerateOptions,
    cancelled: &Cancelled,
) -> Result<String> {
    let settings = options.settings(run)?;
    let generator = Generator::new(run, &settings)?;
    let generator = generator.under(&settings, cancelled)?;
    let read = |(number, text): (usize, &String)| {
        let read = generator.read(PromptContent::Text(text));
        Ok((number as u64, read.with_context(|| format!("prompt {}", number + 1))?))
    };
    let found = answer_each(prompts.iter().enumerate().map(read), |read| {
        let prompts = read
            .iter()
            .map(|(number, ids)| Prompt { content: PromptContent::Tokens(ids), number: *number });
        let prompts: Vec<Prompt<'_>> = prompts.collect();
        generator.generate_until(&prompts, |_| ControlFlow::Continue(()))
    })?;
    records(found)
}

/// Writes a JSON list of answers; a failed answer is replaced by its error.
pub(crate) fn records<T: serde::Serialize>(answers: Vec<Result<T>>) -> Result<String> {
    list_of(answers, |one| Ok(serde_json::to_string(&one)?))
}

/// Writes a JSON list of answers, each converted to JSON by `record`; a failed answer is replaced
/// by its error.
pub(crate) fn list_of<T>(
    answers: Vec<Result<T>>,
    record: impl Fn(T) -> Result<String>,
) -> Result<String> {
    let record = |one: Result<T>| one.map_or_else(|error| Ok(fault(&error)), &record);
    Ok(list(answers.into_iter().map(record).collect::<Result<_>>()?))
}

fn fault(error: &anyhow::Error) -> String {
    serde_json::json!({ "error": one_line(error) }).to_string()
}

fn list(records: Vec<String>) -> String {
    format!("[{}]", records.join(","))
}
