//! Export of models to folders in the format of [ONNX](https://onnx.ai), which ONNX Runtime and
//! many other engines run. The files are those that `ORTModelForSeq2SeqLM` and
//! `ORTModelForCausalLM` of the library Optimum expect.
//!
//! A translation model becomes three graphs: an encoder, a decoder that begins a text, and a
//! decoder that continues a text with the keys and values of earlier tokens. A language model
//! becomes one graph ([`models`]). Graphs are built from the configuration and the parameters of
//! the trained model ([`layers`], [`attention`], [`positions`]), and written together with the
//! weights ([`graph`]).

mod attention;
mod graph;
mod layers;
mod models;
mod positions;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};
use taper_model::{AttentionKind, ModelConfig, Positions};

use super::{Engine, limits, tokenizer_files};
use crate::config::RunConfig;
use crate::folder::files::require_free;
use crate::folders::{self, Exported, write_json};
use crate::tasks::{TaskModel, entry, without_adapters};
use crate::{LoadedRun, model_card};

/// Keys of the section `[model]` of a configuration whose values ONNX graphs can express, in
/// addition to the keys that [`limits`] accepts for every engine.
const EXPRESSED: &[&str] = &["query_key_norm", "output_scale"];

/// The format ONNX. Exports have weights in f32.
#[derive(Debug, Clone, Copy, Default)]
pub struct Onnx {
    /// Whether weights are always written to a second file next to their graph. If graph and
    /// weights exceed 2 GB, there is a second file in any case. A second file can be mapped into
    /// memory, so that several processes share one copy.
    pub external_data: bool,
}

impl Engine for Onnx {
    const NAME: &'static str = "ONNX";

    fn export<M: TaskModel>(&self, run: &LoadedRun<M>, folder: &Path) -> Result<Exported> {
        let (config, parameters) = (&without_adapters(&run.config), run.model.parameters());
        let refused = refused(config);
        limits::require_expressed(config, Self::NAME, EXPRESSED, refused)?;
        require_free(folder)?;
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let model = &config.model;
        let most = if self.external_data { 0 } else { graph::MOST_BYTES };
        let write = |name: &str, graph: graph::Graph<'_>| graph.write(&folder.join(name), most);
        let translates = entry(config.task).translates;
        if translates {
            write("encoder_model.onnx", models::encoder(model, parameters)?)?;
            write("decoder_model.onnx", models::decoder(model, parameters, false)?)?;
            write("decoder_with_past_model.onnx", models::decoder(model, parameters, true)?)?;
        } else {
            write("model.onnx", models::language_model(model, parameters)?)?;
        }
        let (keys, has_tokenizer) = folders::described(run, folder, usual(model, translates))?;
        if !has_tokenizer {
            for (file, tokenizer) in tokenizer_files(&run.tokenizers) {
                tokenizer.save_file(&folder.join(file))?;
            }
        }
        let usage = usage(translates, has_tokenizer);
        model_card::write(run, folder, &model_card::Library { name: "onnx", usage })?;
        write_json(&folder.join("config.json"), &keys)?;
        Ok(Exported { checkpoint: run.checkpoint.clone(), step: run.state.step })
    }
}

/// Key of `[model]` with a value that ONNX graphs cannot express; `None` if there is no such key.
fn refused(config: &RunConfig) -> Option<&'static str> {
    let (model, translates) = (&config.model, entry(config.task).translates);
    let is_other = |causal: bool, layers: usize| {
        let attention = model.attention(causal);
        (0..layers).any(|layer| attention.kind_of(layer) != AttentionKind::Full)
    };
    if translates && is_other(false, model.encoder_layers) {
        return Some("encoder_attention");
    }
    if model.positions == Positions::Rotary && model.rotary.dual_chunk().is_some() {
        return Some("rotary.scaling");
    }
    is_other(true, model.decoder_layers).then_some("decoder_attention")
}

/// Keys of `config.json` for a model that belongs to no model family of the library Transformers.
/// Optimum needs only the sizes, under names that it knows. The graphs describe the computation.
fn usual(model: &ModelConfig, translates: bool) -> Map<String, Value> {
    let shape = model.attention_shape();
    let keys = match translates {
        true => json!({
            "model_type": "marian",
            "is_encoder_decoder": true,
            "d_model": model.d_model,
            "encoder_layers": model.encoder_layers,
            "decoder_layers": model.decoder_layers,
            "encoder_attention_heads": model.heads,
            "decoder_attention_heads": model.heads,
            "encoder_ffn_dim": model.d_ff,
            "decoder_ffn_dim": model.d_ff,
            "max_position_embeddings": model.max_positions,
        }),
        false => json!({
            "model_type": "llama",
            "hidden_size": model.d_model,
            "intermediate_size": model.d_ff,
            "num_hidden_layers": model.decoder_layers,
            "num_attention_heads": model.heads,
            "num_key_value_heads": shape.key_value_heads,
            "head_dim": shape.head_width,
            "max_position_embeddings": model.max_positions,
        }),
    };
    match keys {
        Value::Object(keys) => keys,
        _ => Map::new(),
    }
}

/// Markdown text about the folder. If the library Transformers can load the folder's tokenizer
/// (`has_tokenizer`), it has an example program in Python; otherwise it names the tokenizer files.
fn usage(translates: bool, has_tokenizer: bool) -> String {
    let class = if translates { "ORTModelForSeq2SeqLM" } else { "ORTModelForCausalLM" };
    if !has_tokenizer {
        return format!(
            "The graphs have the inputs and outputs that `{class}` of the library Optimum expects; \
             `tokenizer.source.json` and `tokenizer.target.json` are for the package \
             `tokenizers`.\n"
        );
    }
    format!(
        "```python\nfrom optimum.onnxruntime import {class}\nfrom transformers import \
         AutoTokenizer\n\nfolder = \"path/of/this/folder\"\ntokenizer = \
         AutoTokenizer.from_pretrained(folder)\nmodel = {class}.from_pretrained(folder)\ntokens = \
         tokenizer([\"…\"], return_tensors=\"pt\", return_token_type_ids=False)\nresult = \
         model.generate(**tokens)\nprint(tokenizer.batch_decode(result, \
         skip_special_tokens=True))\n```\n"
    )
}
