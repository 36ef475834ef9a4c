//! Writes the tokenizer of a run (a model of Taper with its files) to a folder. `AutoTokenizer` of
//! the library Transformers can read it from there.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};
use taper_data::Tokenizer;
use taper_decoding::{DecodingConfig, SearchRules};

use super::super::json::write_json;
use super::older::for_older;
use super::parts::{ends, template};
use super::sides::write_binary;
use super::{CLASS, GENERATION_CONFIG, SPECIAL_TOKENS_MAP, TOKENIZER, TOKENIZER_CONFIG};
use crate::folder::files::write_atomically;

/// How an exported model uses tokens.
#[derive(Debug, Clone, Copy)]
pub(in super::super) enum Exported<'a> {
    /// Language model: the token `start` comes before a text.
    Writes { start: u32, decoding: &'a DecodingConfig },
    /// Translation model between these languages. Its texts end with `</s>`. A text with its
    /// special tokens has at most `longest` tokens.
    Translates { decoding: &'a DecodingConfig, languages: [&'a str; 2], longest: usize },
    /// Encoder that reads texts between special tokens.
    Reads {
        /// Whether texts can contain masks in place of hidden tokens.
        hidden: bool,
    },
}

impl Exported<'_> {
    /// Keys of `config.json` with ids of tokens, such as `eos_token_id`. For an imported tokenizer,
    /// they are the keys in its folder; otherwise, they follow from the tokenizer.
    pub(in super::super) fn ids(self, tokenizer: &Tokenizer) -> Map<String, Value> {
        if let Some(folder) = tokenizer.folder() {
            return folder.ids.iter().map(|(key, id)| (key.clone(), id.clone())).collect();
        }
        let special = tokenizer.special_tokens();
        let mut ids = Map::new();
        if let Self::Writes { start, .. } = self {
            ids.insert("bos_token_id".to_owned(), json!(start));
            ids.insert("eos_token_id".to_owned(), json!(tokenizer.end()));
        }
        if let Self::Translates { .. } = self {
            ids.insert("decoder_start_token_id".to_owned(), json!(tokenizer.decoder_start()));
            ids.insert("eos_token_id".to_owned(), json!(tokenizer.end()));
            ids.insert("forced_eos_token_id".to_owned(), json!(tokenizer.end()));
        }
        if let Some(pad) = special.pad {
            ids.insert("pad_token_id".to_owned(), json!(pad));
        }
        ids
    }
}

/// Writes `tokenizer.json` and the files that name its special tokens, for a model that reads at
/// most `longest` tokens. For a tokenizer that was imported, writes the files with which it was
/// imported instead.
///
/// # Errors
/// When a file cannot be written.
pub(in super::super) fn write(
    folder: &Path,
    tokenizer: &Tokenizer,
    exported: Exported<'_>,
    longest: usize,
) -> Result<()> {
    if let Some(came_with) = tokenizer.folder() {
        write_binary(folder, came_with)?;
    }
    let came_with = tokenizer.folder().map(|folder| &folder.files);
    for (name, text) in came_with.into_iter().flatten() {
        let older = if name == TOKENIZER_CONFIG { for_older(text)? } else { None };
        let text = older.as_deref().unwrap_or(text);
        write_atomically(&folder.join(name), text.as_bytes())?;
    }
    if came_with.is_some_and(|files| files.contains_key(TOKENIZER_CONFIG)) {
        return Ok(tokenizer.save_file(&folder.join(TOKENIZER))?);
    }
    let names = names(tokenizer, exported);
    let mut config = names.clone();
    let inputs: &[&str] = match exported {
        Exported::Writes { .. } | Exported::Translates { .. } => &["input_ids", "attention_mask"],
        Exported::Reads { .. } => &["input_ids", "token_type_ids", "attention_mask"],
    };
    config.insert("tokenizer_class".to_owned(), json!(CLASS));
    config.insert("model_max_length".to_owned(), json!(longest));
    config.insert("model_input_names".to_owned(), json!(inputs));
    config.insert("clean_up_tokenization_spaces".to_owned(), json!(false));
    if let Exported::Translates { languages: [source, target], .. } = exported {
        config.insert("source_lang".to_owned(), json!(source));
        config.insert("target_lang".to_owned(), json!(target));
    }
    if came_with.is_none() {
        // In Taper, the spelling of a special token within a text is read as text. Only for a model
        // that predicts hidden tokens, it is read as the special token.
        let is_text = !matches!(exported, Exported::Reads { hidden: true });
        config.insert("split_special_tokens".to_owned(), json!(is_text));
        write_json(&folder.join(SPECIAL_TOKENS_MAP), &names)?;
        write_generation(folder, tokenizer, exported)?;
    }
    write_json(&folder.join(TOKENIZER_CONFIG), &config)?;
    let path = folder.join(TOKENIZER);
    match with_marks(tokenizer, exported)? {
        Some(json) => write_atomically(&path, json.as_bytes()),
        None => Ok(tokenizer.save_file(&path)?),
    }
}

/// Writes the settings of generation for a model whose tokenizer was trained by Taper.
///
/// # Errors
/// When the file cannot be written.
pub(in super::super) fn write_generation(
    folder: &Path,
    tokenizer: &Tokenizer,
    exported: Exported<'_>,
) -> Result<()> {
    let mut generation = exported.ids(tokenizer);
    match exported {
        Exported::Writes { decoding, .. } => {
            generation.extend(draws(decoding));
            generation.insert("suppress_tokens".to_owned(), json!(never_written(tokenizer)));
        }
        Exported::Translates { decoding, longest, .. } => {
            generation.extend(searches(tokenizer, decoding, longest));
        }
        Exported::Reads { .. } => return Ok(()),
    }
    write_json(&folder.join(GENERATION_CONFIG), &generation)
}

/// Spellings of the special tokens, by the names of their roles in Transformers.
fn names(tokenizer: &Tokenizer, exported: Exported<'_>) -> Map<String, Value> {
    let special = tokenizer.special_tokens();
    let mut roles = vec![("pad_token", special.pad), ("unk_token", special.unknown)];
    match exported {
        Exported::Writes { start, .. } => {
            // The token before a text may be the line end, which is an ordinary token and gets no
            // role.
            let start = Some(start).filter(|&start| tokenizer.is_special(start));
            roles.extend([("bos_token", start), ("eos_token", Some(tokenizer.end()))]);
        }
        Exported::Translates { .. } => roles.push(("eos_token", Some(tokenizer.end()))),
        Exported::Reads { .. } => {
            let [class, separator, mask] = tokenizer.mark_ids();
            roles.extend([("cls_token", class), ("sep_token", separator), ("mask_token", mask)]);
        }
    }
    let named = |(role, id): (&str, Option<u32>)| {
        Some((role.to_owned(), Value::from(tokenizer.token(id?)?)))
    };
    roles.into_iter().filter_map(named).collect()
}

/// Content of a `tokenizer.json` with a post-processor that puts special tokens around texts;
/// `None` for a language model, and for a tokenizer that already has a post-processor.
fn with_marks(tokenizer: &Tokenizer, exported: Exported<'_>) -> Result<Option<String>> {
    if let Exported::Translates { .. } = exported {
        let ends = tokenizer.token(tokenizer.end()).map(|end| ends(&end, tokenizer.end()));
        let json = ends.map(|ends| tokenizer.with_post_processor(&ends)).transpose();
        return Ok(json.context("tokenizer.json: cannot put </s> behind texts")?.flatten());
    }
    let [Some(class), Some(separator), _] = tokenizer.mark_ids() else { return Ok(None) };
    if matches!(exported, Exported::Writes { .. }) {
        return Ok(None);
    }
    let [Some(class), Some(separator)] = [class, separator].map(|id| tokenizer.token(id)) else {
        return Ok(None);
    };
    let template = template(&class, &separator, |token| tokenizer.id(token).map(u64::from));
    let json = tokenizer.with_post_processor(&template);
    json.context("tokenizer.json: cannot put marks around texts")
}

/// Settings of a search, for `generation_config.json`. In Transformers, the length penalty is
/// always a power of the length. Taper also has the form of Wu et al. 2016. For this form, the
/// exponent is written unchanged, because for long translations the two penalties then nearly
/// agree; without the key, Transformers would use the exponent 1.
/// [`not_exported`](super::super::not_exported) reports the difference. Limits that depend on the
/// length of the source are left out, because there are no keys for them.
fn searches(
    tokenizer: &Tokenizer,
    decoding: &DecodingConfig,
    longest: usize,
) -> Map<String, Value> {
    let special = tokenizer.special_tokens();
    let never = [special.pad, Some(tokenizer.decoder_start())].into_iter().flatten();
    let unknown = special.unknown.filter(|_| !decoding.allow_unknown);
    let never: Vec<[u32; 1]> = never.chain(unknown).map(|id| [id]).collect();
    let mut keys = Map::new();
    keys.insert("num_beams".to_owned(), json!(decoding.beam_size));
    if decoding.diverse_groups > 1 {
        keys.insert("num_beam_groups".to_owned(), json!(decoding.diverse_groups));
        keys.insert("diversity_penalty".to_owned(), json!(decoding.diverse_penalty));
    }
    keys.insert("length_penalty".to_owned(), json!(decoding.length_penalty));
    let stops_early = decoding.rules != SearchRules::Exact && decoding.patience > 0.0;
    keys.insert("early_stopping".to_owned(), json!(stops_early));
    // In Transformers, both limits of the length include the first input of the decoder, and the
    // largest length also includes the end token.
    let most = decoding.max_length.saturating_add(2).min(longest);
    keys.insert("max_length".to_owned(), json!(most));
    let least = if decoding.min_length > 0 { decoding.min_length.saturating_add(1) } else { 0 };
    keys.insert("min_length".to_owned(), json!(least));
    keys.insert("no_repeat_ngram_size".to_owned(), json!(decoding.no_repeat_ngram));
    keys.insert("bad_words_ids".to_owned(), json!(never));
    keys
}

/// Ids that generation never produces: special tokens except end tokens, and ids without a token.
fn never_written(tokenizer: &Tokenizer) -> Vec<u32> {
    let special = tokenizer.special_tokens();
    let of_text = special.no_text.iter().copied().filter(|&id| !special.ends.contains(&id));
    let of_ours = of_text.filter(|_| tokenizer.has_special_tokens());
    of_ours.chain(tokenizer.ids_without_token()).collect()
}

/// Settings of text generation by a language model, for `generation_config.json`. With the same
/// penalty on repetition, the texts of Transformers and of Taper can differ: Transformers also
/// applies the penalty to the tokens of the prompt, and Taper does so only if
/// [`DecodingConfig::rules`] are those of Transformers.
fn draws(decoding: &DecodingConfig) -> Map<String, Value> {
    let sampling = &decoding.sampling;
    let mut keys = Map::new();
    keys.insert("repetition_penalty".to_owned(), json!(decoding.repetition_penalty));
    keys.insert("no_repeat_ngram_size".to_owned(), json!(decoding.no_repeat_ngram));
    keys.insert("min_new_tokens".to_owned(), json!(decoding.min_length));
    keys.insert("max_new_tokens".to_owned(), json!(decoding.max_length));
    keys.insert("do_sample".to_owned(), json!(sampling.is_active()));
    if sampling.is_active() {
        keys.insert("temperature".to_owned(), json!(sampling.temperature));
        keys.insert("top_k".to_owned(), json!(sampling.top_k));
        keys.insert("top_p".to_owned(), json!(sampling.top_p));
    }
    keys
}
