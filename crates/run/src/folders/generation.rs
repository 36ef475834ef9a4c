//! Settings of generation in folders, with the corresponding keys of a recipe's decoding.

use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use taper_decoding::{LengthPenaltyForm, SearchRules};

use super::json::read_keys;
use super::tokens::GENERATION_CONFIG;
use crate::config::RunConfig;

/// Sets the decoding of a translation model from the `generation_config.json` of the folder
/// `source`, and from `keys`, its `config.json`, which is the only source in older folders.
///
/// # Errors
/// With the key that requests an unsupported search.
pub(super) fn describe(recipe: &mut RunConfig, source: &Path, keys: &Value) -> Result<()> {
    let path = source.join(GENERATION_CONFIG);
    let generation = if path.exists() { read_keys(&path)? } else { Value::Null };
    let key = |name: &str| match &generation[name] {
        Value::Null => &keys[name],
        set => set,
    };
    let wrong =
        |name: &str, expected: &str| format!("{name} is {}, expected {expected}", key(name));
    let count = |name: &str, usual: usize| match key(name) {
        Value::Null => Ok(usual),
        set => {
            let count = set.as_u64().and_then(|count| usize::try_from(count).ok());
            count.with_context(|| wrong(name, "a whole number"))
        }
    };
    let number = |name: &str, usual: f64| match key(name) {
        Value::Null => Ok(usual),
        set => set.as_f64().with_context(|| wrong(name, "a number")),
    };
    for (name, usual) in [("repetition_penalty", 1.0), ("num_beam_groups", 1.0)] {
        if number(name, usual)? != usual {
            bail!("{}: what a search here does not do", wrong(name, &usual.to_string()));
        }
    }
    let decoding = &mut recipe.decoding;
    decoding.beam_size = count("num_beams", 1)?;
    decoding.n_best = 1;
    decoding.length_penalty = number("length_penalty", 1.0)?;
    decoding.length_penalty_form = LengthPenaltyForm::Power;
    // Without the file, the end is forced, as in the families that come without it.
    let is_open = generation.is_object() && generation["forced_eos_token_id"].is_null();
    let rules = if is_open { SearchRules::TransformersOpen } else { SearchRules::Transformers };
    (decoding.rules, decoding.patience) = match key("early_stopping") {
        Value::Null | Value::Bool(false) => (rules, 0.0),
        Value::Bool(true) => (rules, 1.0),
        Value::String(never) if never == "never" => (SearchRules::Exact, 0.0),
        _ => bail!(wrong("early_stopping", "true, false or \"never\"")),
    };
    // Both count the first input of the decoder, and the largest length counts a forced end.
    let around = if decoding.rules == SearchRules::TransformersOpen { 1 } else { 2 };
    decoding.max_length = count("max_length", 20)?.saturating_sub(around).max(1);
    decoding.min_length = count("min_length", 0)?.saturating_sub(1);
    decoding.max_length_ratio = 0.0;
    decoding.max_length_offset = decoding.max_length;
    decoding.no_repeat_ngram = count("no_repeat_ngram_size", 0)?;
    decoding.allow_unknown = true;
    Ok(())
}
