//! Tokens in a folder for CTranslate2: vocabularies (lists of all tokens), special tokens, and
//! tokenizers.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value, json};
use taper_data::{Tokenizer, TokenizerPair};
use taper_decoding::LengthPenaltyForm;

use super::super::tokenizer_files;
use crate::config::RunConfig;
use crate::folders::{write_json, write_sentence_pieces};
use crate::generation::beginning;
use crate::tasks::entry;

/// Vocabularies and special tokens of an exported model, in the form that CTranslate2 needs.
pub(super) struct Tokens {
    /// Ids of the tokens that the model must not write.
    pub(super) never_written: Vec<u32>,
    /// Vocabularies: for each, the name of its file and the list of its tokens.
    vocabularies: Vec<(&'static str, Vec<String>)>,
    unknown: String,
    start: String,
    end: String,
    translates: bool,
}

impl Tokens {
    /// Vocabularies and special tokens of a run (folder of a trained model).
    ///
    /// # Errors
    /// When source and target have different end tokens.
    pub(super) fn from_run(config: &RunConfig, tokenizers: &TokenizerPair) -> Result<Self> {
        let target = tokenizers.target();
        let translates = entry(config.task).translates;
        let list = list(target);
        let special = target.special_tokens();
        let name = |id: u32| list[id as usize].clone();
        let end = name(target.end());
        let start = match (translates, beginning(target, config.data.text.documents).as_deref()) {
            (true, _) => target.decoder_start(),
            (false, Ok(&[start])) => start,
            (false, _) => target.end(),
        };
        let (start, unknown) = (name(start), special.unknown.map_or(end.clone(), name));
        let is_shared = !translates || tokenizers.is_joint();
        let mut vocabularies = Vec::new();
        if !is_shared {
            let source = tokenizers.source();
            let of_source = self::list(source);
            let end_of_source = &of_source[source.end() as usize];
            ensure!(
                *end_of_source == end,
                "a source ends with {end_of_source} and a translation with {end}: CTranslate2 \
                     has one end for both"
            );
            vocabularies.push(("source_vocabulary.json", of_source));
        }
        let file = match (translates, is_shared) {
            (false, _) => "vocabulary.json",
            (true, true) => "shared_vocabulary.json",
            (true, false) => "target_vocabulary.json",
        };
        vocabularies.push((file, list));
        let never_written = if translates { special.never_written.clone() } else { Vec::new() };
        Ok(Self { never_written, vocabularies, unknown, start, end, translates })
    }

    /// Writes the vocabularies and the tokenizers into `folder`. If a tokenizer was imported with a
    /// SentencePiece model, that model is written too.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub(super) fn write(&self, folder: &Path, tokenizers: &TokenizerPair) -> Result<()> {
        for (file, tokens) in &self.vocabularies {
            write_json(&folder.join(file), tokens)?;
        }
        for (file, tokenizer) in tokenizer_files(tokenizers) {
            tokenizer.save_file(&folder.join(file))?;
        }
        write_sentence_pieces(folder, tokenizers)
    }

    /// Writes `config.json`, the file with special tokens and settings, to `path`.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(super) fn write_config(&self, config: &RunConfig, path: &Path) -> Result<()> {
        let model = &config.model;
        let mut keys = Map::new();
        let mut set = |key: &str, value: Value| keys.insert(key.to_owned(), value);
        set("bos_token", json!(self.start));
        set("eos_token", json!(self.end));
        set("unk_token", json!(self.unknown));
        set("layer_norm_epsilon", json!(model.norm_epsilon));
        let shared = model.attention_shape().key_value_heads < model.heads;
        set("multi_query_attention", json!(shared));
        if self.translates {
            set("decoder_start_token", json!(self.start));
            set("add_source_bos", json!(false));
            set("add_source_eos", json!(true));
        }
        write_json(path, &keys).context("the model is written, but not its special tokens")
    }

    /// Markdown text with an example program in Python that uses the folder.
    pub(super) fn usage(&self, config: &RunConfig, tokenizers: &TokenizerPair) -> String {
        let files: Vec<&str> = tokenizer_files(tokenizers).iter().map(|(file, _)| *file).collect();
        let (source, target) = (files[0], files[files.len() - 1]);
        let names = |tokenizer: &Tokenizer| -> Vec<String> {
            let before = tokenizer.special_tokens().before.iter();
            before.filter_map(|&id| tokenizer.token(id)).collect()
        };
        let list = |tokens: &[String]| json!(tokens).to_string();
        let mut text =
            String::from("```python\nimport ctranslate2\nfrom tokenizers import Tokenizer\n\n");
        let read = |name: &str, file: &str| {
            format!("{name} = Tokenizer.from_file(folder + \"/{file}\")\n")
        };
        text.push_str("folder = \"path/of/this/folder\"\n");
        if !self.translates {
            text.push_str(&read("tokenizer", target));
            let starts = tokenizers.target().special_tokens().starts_prompts;
            let start = if starts { format!("[{}] + ", json!(self.start)) } else { String::new() };
            let _ = write!(
                text,
                "model = ctranslate2.Generator(folder)\n\
                 tokens = {start}tokenizer.encode(\"…\", add_special_tokens=False).tokens\n\
                 result = model.generate_batch([tokens], max_length=100, sampling_topk=1,\n    \
                 include_prompt_in_result=False)\n\
                 print(tokenizer.decode(result[0].sequences_ids[0]))\n```\n"
            );
            return text;
        }
        text.push_str(&read("source", source));
        if source == target {
            text.push_str("target = source\n");
        } else {
            text.push_str(&read("target", target));
        }
        let before = names(tokenizers.source());
        let before =
            if before.is_empty() { String::new() } else { format!("{} + ", list(&before)) };
        let mut options = vec![format!("beam_size={}", config.decoding.beam_size)];
        if config.decoding.length_penalty_form == LengthPenaltyForm::Power {
            options.push(format!("length_penalty={:?}", config.decoding.length_penalty));
        }
        if !config.decoding.allow_unknown && tokenizers.target().special_tokens().unknown.is_some()
        {
            options.push("disable_unk=True".to_owned());
        }
        let prefix = names(tokenizers.target());
        if !prefix.is_empty() {
            options.push(format!("target_prefix=[{}]", list(&prefix)));
        }
        let _ = write!(
            text,
            "model = ctranslate2.Translator(folder)\n\
             tokens = {before}source.encode(\"…\", add_special_tokens=False).tokens\n\
             result = model.translate_batch([tokens], {})\n\
             print(target.decode([target.token_to_id(token) for token in result[0].hypotheses[0]]))\n\
             ```\n",
            options.join(", ")
        );
        text
    }
}

/// Tokens in the order of their ids. An id without a token gets a unique name.
fn list(tokenizer: &Tokenizer) -> Vec<String> {
    let name = |id: u32| tokenizer.token(id).unwrap_or_else(|| format!("<row {id}>"));
    (0..tokenizer.vocabulary_size() as u32).map(name).collect()
}
