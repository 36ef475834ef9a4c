//! Settings of text generation in folders of the library Transformers. They are converted to keys
//! of the section `[decoding]` of a recipe (Taper's configuration file).

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::Value;
use taper_decoding::{LengthPenaltyForm, SearchRules};

use super::json::read_keys;
use super::tokens::GENERATION_CONFIG;
use crate::config::RunConfig;
use crate::event::{Notice, RecipeNotice};
use crate::tasks::entry;

/// Keys that Transformers follows when it generates text, but Taper does not. Each is paired with
/// the value at which the key has no effect.
const NOT_FOLLOWED: [(&str, f64); 12] = [
    ("encoder_repetition_penalty", 1.0),
    ("encoder_no_repeat_ngram_size", 0.0),
    ("guidance_scale", 1.0),
    ("sequence_bias", 0.0),
    ("exponential_decay_length_penalty", 0.0),
    ("begin_suppress_tokens", 0.0),
    ("penalty_alpha", 0.0),
    ("stop_strings", 0.0),
    ("watermarking_config", 0.0),
    ("token_healing", 0.0),
    ("dola_layers", 0.0),
    ("max_time", 0.0),
];

/// Further keys that Taper does not follow in language models.
const NOT_FOLLOWED_BY_TEXTS: [(&str, f64); 9] = [
    ("num_beams", 1.0),
    ("min_length", 0.0),
    ("min_p", 0.0),
    ("top_h", 0.0),
    ("typical_p", 1.0),
    ("epsilon_cutoff", 0.0),
    ("eta_cutoff", 0.0),
    ("forced_bos_token_id", -1.0),
    ("forced_eos_token_id", -1.0),
];

/// Further keys that Taper does not follow in translation models.
const NOT_FOLLOWED_BY_TRANSLATIONS: [(&str, f64); 2] =
    [("do_sample", 0.0), ("renormalize_logits", 0.0)];

/// Types of models for which Transformers forces an end token at the largest length, even if their
/// `config.json` does not say so.
const FORCES_END: [&str; 4] = ["marian", "bart", "mbart", "pegasus"];

/// Largest number of tokens in a translation if no key gives it. The number includes the decoder's
/// first input token.
const USUAL_LENGTH: usize = 21;

/// Settings of generation in a folder: those in `generation_config.json` or, if there is no such
/// file, in `config.json`.
struct Settings<'a> {
    path: PathBuf,
    generation: Value,
    config: &'a Value,
}

impl<'a> Settings<'a> {
    fn read(source: &Path, config: &'a Value) -> Result<Self> {
        let path = source.join(GENERATION_CONFIG);
        let generation = if path.exists() { read_keys(&path)? } else { Value::Null };
        Ok(Self { path, generation, config })
    }

    /// Value of the key `name`. As in Transformers, if there is a `generation_config.json`, all
    /// settings of generation in `config.json` are ignored.
    fn key(&self, name: &str) -> &Value {
        let keys = if self.generation.is_object() { &self.generation } else { self.config };
        &keys[name]
    }

    fn wrong(&self, name: &str, expected: &str) -> String {
        format!("{name} is {}, expected {expected}", self.key(name))
    }

    fn count(&self, name: &str, usual: usize) -> Result<usize> {
        match self.key(name) {
            Value::Null => Ok(usual),
            set => {
                let count = set.as_u64().and_then(|count| usize::try_from(count).ok());
                count.with_context(|| self.wrong(name, "a whole number"))
            }
        }
    }

    fn number(&self, name: &str, usual: f64) -> Result<f64> {
        match self.key(name) {
            Value::Null => Ok(usual),
            set => set.as_f64().with_context(|| self.wrong(name, "a number")),
        }
    }
}

/// Sets how the language model of `recipe` generates text: control of repetition, lengths, and
/// sampling. Defaults are those of the library Transformers.
///
/// # Errors
/// When a key has an unsupported value; the message names it.
pub(super) fn describe_text(recipe: &mut RunConfig, source: &Path, config: &Value) -> Result<()> {
    let settings = Settings::read(source, config)?;
    let decoding = &mut recipe.decoding;
    decoding.repetition_penalty = settings.number("repetition_penalty", 1.0)?;
    if decoding.repetition_penalty != 1.0 {
        // With these rules, tokens of the prompt are penalised too, as in Transformers.
        decoding.rules = SearchRules::Transformers;
    }
    decoding.no_repeat_ngram = settings.count("no_repeat_ngram_size", 0)?;
    decoding.min_length = settings.count("min_new_tokens", 0)?;
    decoding.max_length = settings.count("max_new_tokens", decoding.max_length)?.max(1);
    if *settings.key("do_sample") == true {
        let sampling = &mut decoding.sampling;
        sampling.temperature = settings.number("temperature", 1.0)?;
        sampling.top_k = settings.count("top_k", 50)?;
        sampling.top_p = settings.number("top_p", 1.0)?;
    }
    Ok(())
}

/// Messages about keys that the folder sets and that Transformers follows, but Taper does not, so
/// that the generated texts can differ. `translates`: whether the folder has a translation model;
/// otherwise, it has a language model.
///
/// # Errors
/// When `generation_config.json` is damaged.
pub(super) fn not_followed(source: &Path, config: &Value, translates: bool) -> Result<Vec<Notice>> {
    let settings = Settings::read(source, config)?;
    let changes = |name: &str, without_effect: f64| match settings.key(name) {
        Value::Null | Value::Bool(false) => false,
        Value::Array(list) => !list.is_empty(),
        given => given.as_f64() != Some(without_effect),
    };
    let others: &[(&str, f64)] =
        if translates { &NOT_FOLLOWED_BY_TRANSLATIONS } else { &NOT_FOLLOWED_BY_TEXTS };
    let asked = NOT_FOLLOWED.iter().chain(others);
    let asked = asked.filter(|(name, without_effect)| changes(name, *without_effect));
    let mut names: Vec<&str> = asked.map(|(name, _)| *name).collect();
    let is_limited = !settings.key("max_length").is_null();
    if !translates && is_limited && settings.key("max_new_tokens").is_null() {
        // This key limits the tokens of the prompt and the new tokens together. Taper can only
        // limit the new tokens.
        names.push("max_length");
    }
    if translates && settings.key("early_stopping") == "never" {
        // With the value "never", Taper's search ends as late as the search of Transformers, but
        // does not force an end token.
        names.push("early_stopping");
    }
    let is_one = |words: &Value| words.as_array().is_some_and(|words| words.len() == 1);
    let words = settings.key("bad_words_ids").as_array();
    if words.is_some_and(|words| !words.iter().all(is_one)) {
        names.push("bad_words_ids");
    }
    let note = |name: &str| {
        let (path, value) = (settings.path.display(), settings.key(name));
        let notice =
            format!("{path}: {name} is {value}, which is not followed here: texts may differ");
        RecipeNotice::WithoutEffect(notice).into()
    };
    Ok(names.into_iter().map(note).collect())
}

/// Messages about search settings of a translation model that an exported folder cannot express.
/// Because of these settings, translations by other programs can differ.
#[must_use]
pub fn not_exported(config: &RunConfig) -> Vec<Notice> {
    let decoding = &config.decoding;
    if !entry(config.task).translates {
        return Vec::new();
    }
    let mut notes = Vec::new();
    for (key, value) in [
        ("length_reward", decoding.length_reward),
        ("shortfall_penalty", decoding.shortfall_penalty),
    ] {
        if value > 0.0 {
            notes.push(format!(
                "other engines ignore decoding.{key} = {value}, so they translate shorter"
            ));
        }
    }
    let penalty = decoding.length_penalty;
    let is_gnmt = decoding.length_penalty_form == LengthPenaltyForm::Gnmt;
    if is_gnmt && penalty > 0.0 && decoding.beam_size > 1 {
        notes.push(format!(
            "other engines do not have decoding.length_penalty_form = \"gnmt\", which divides by \
             ((5 + length) / 6)^{penalty}: their length penalty is a power of the length itself, \
             so translations can differ"
        ));
    }
    if decoding.sampling.is_active() {
        notes.push(
            "other engines search for translations unless told otherwise, but \
             decoding.sampling.temperature of this run draws them"
                .to_owned(),
        );
    }
    if decoding.reranking.is_active() {
        notes.push("other engines ignore decoding.reranking".to_owned());
    }
    if decoding.repetition_penalty != 1.0 {
        notes.push(format!(
            "the export has no decoding.repetition_penalty = {}: give it to the engine",
            decoding.repetition_penalty
        ));
    }
    notes.into_iter().map(|note| RecipeNotice::WithoutEffect(note).into()).collect()
}

/// Sets the decoding of a translation model from the `generation_config.json` of the folder
/// `source` or, if there is none, from `keys`, its `config.json`.
///
/// # Errors
/// When a key requests an unsupported search; the message names it.
pub(super) fn describe(recipe: &mut RunConfig, source: &Path, keys: &Value) -> Result<()> {
    let settings = Settings::read(source, keys)?;
    let (generation, key) = (&settings.generation, |name: &str| settings.key(name));
    let wrong = |name: &str, expected: &str| settings.wrong(name, expected);
    let count = |name: &str, usual: usize| settings.count(name, usual);
    let number = |name: &str, usual: f64| settings.number(name, usual);
    if number("repetition_penalty", 1.0)? != 1.0 {
        bail!("{}: what a search here does not do", wrong("repetition_penalty", "1"));
    }
    let (end, forced) = (key("eos_token_id"), key("forced_eos_token_id"));
    let is_end = end == forced || end.as_array().is_some_and(|ends| ends.contains(forced));
    if !end.is_null() && !forced.is_null() && !is_end {
        bail!(
            "forced_eos_token_id is {forced}, which eos_token_id, {end}, does not name as an end"
        );
    }
    let decoding = &mut recipe.decoding;
    decoding.beam_size = count("num_beams", 1)?;
    decoding.diverse_groups = count("num_beam_groups", 1)?;
    if decoding.diverse_groups > 1 {
        decoding.diverse_penalty = number("diversity_penalty", 0.0)?;
    }
    decoding.n_best = 1;
    decoding.length_penalty = number("length_penalty", 1.0)?;
    decoding.length_penalty_form = LengthPenaltyForm::Power;
    let is_usual = FORCES_END.iter().any(|family| keys["model_type"] == *family);
    let is_open = forced.is_null() && (generation.is_object() || !is_usual);
    let rules = if is_open { SearchRules::TransformersOpen } else { SearchRules::Transformers };
    (decoding.rules, decoding.patience) = match key("early_stopping") {
        Value::Null | Value::Bool(false) => (rules, 0.0),
        Value::Bool(true) => (rules, 1.0),
        Value::String(never) if never == "never" => (SearchRules::Exact, 0.0),
        _ => bail!(wrong("early_stopping", "true, false or \"never\"")),
    };
    // `max_length` and `min_length` include the first input of the decoder; `max_new_tokens` and
    // `min_new_tokens` do not. `max_length` and `max_new_tokens` include a forced end token.
    let longest = match key("max_new_tokens") {
        Value::Null => count("max_length", USUAL_LENGTH)?.saturating_sub(1),
        _ => count("max_new_tokens", 0)?,
    };
    let forced = usize::from(decoding.rules != SearchRules::TransformersOpen);
    decoding.max_length =
        longest.checked_sub(forced).filter(|&most| most > 0).with_context(|| {
            format!("the largest number of tokens is {longest}, which leaves none for words")
        })?;
    let least = count("min_length", 0)?.saturating_sub(1);
    decoding.min_length = least.max(count("min_new_tokens", 0)?);
    decoding.max_length_ratio = 0.0;
    decoding.max_length_offset = decoding.max_length;
    decoding.no_repeat_ngram = count("no_repeat_ngram_size", 0)?;
    decoding.allow_unknown = true;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_export_cannot_express_is_said() {
        let notes = |change: &dyn Fn(&mut RunConfig)| -> String {
            let mut config = RunConfig::default();
            change(&mut config);
            let notes = not_exported(&config);
            notes.iter().map(|note| format!("{note}\n")).collect()
        };
        // The usual length penalty has the form "gnmt", for which other engines use a power of the
        // length. The two can rank translations in different orders: for 9 tokens, the penalty is
        // 1.22 times the penalty for 5 tokens, and with a power of the length it is 1.42 times.
        let usual = notes(&|_| {});
        assert!(usual.contains("length_penalty_form = \"gnmt\"") && usual.contains("/ 6)^0.6"));
        assert_eq!(usual.lines().count(), 1, "{usual}");
        let none: [&dyn Fn(&mut RunConfig); 4] = [
            &|config| config.decoding.length_penalty = 0.0,
            &|config| config.decoding.length_penalty_form = LengthPenaltyForm::Power,
            &|config| config.decoding.beam_size = 1,
            &|config| config.task = taper_data::Task::LanguageModel,
        ];
        for change in none {
            assert_eq!(notes(change), "");
        }
        let others = notes(&|config| {
            config.decoding.length_penalty = 0.0;
            config.decoding.length_reward = 0.2;
            config.decoding.shortfall_penalty = 0.3;
            config.decoding.repetition_penalty = 1.1;
        });
        for key in ["length_reward = 0.2", "shortfall_penalty = 0.3", "repetition_penalty = 1.1"] {
            assert!(others.contains(key), "{others}");
        }
    }
}
