//! Keys of `config.json` that T5, mT5 and umT5 share, and properties of these models that no key
//! expresses. The key [`SCALE`] is an exception: mT5 does not have it.

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use taper_data::TokenizerKind;
use taper_model::{FeedForwardKind, NormKind, NormPlacement, Positions, Tied};

use crate::config::RunConfig;
use crate::folders::keys::{Key, activation_name, activation_of, width_of_heads};

/// General name, as a JSON pointer, under which the library Transformers also reads the number of
/// layers.
pub(super) const GENERAL_LAYERS: &[&str] = &["/num_hidden_layers"];
/// General name, as a JSON pointer, under which the library Transformers also reads the number of
/// heads.
pub(super) const GENERAL_HEADS: &[&str] = &["/num_attention_heads"];

pub(super) const WIDTH: Key =
    Key::count("d_model", 512, |recipe| &mut recipe.model.d_model).spelled(&["/hidden_size"]);
pub(super) const DECODER_LAYERS: Key =
    Key::custom("num_decoder_layers", reads_decoder_layers, |recipe| {
        Some(json!(recipe.model.decoder_layers))
    });
pub(super) const HEAD_WIDTH: Key =
    Key::derived("d_kv", Some(64), |recipe| &mut recipe.model.head_width, width_of_heads)
        .spelled(&["/head_dim"]);
pub(super) const FEED_FORWARD: Key = Key::custom(
    "feed_forward_proj",
    |config, recipe| reads_feed_forward(config, "relu", recipe),
    feed_forward,
)
.spelled(&[""]);
pub(super) const MULTILINGUAL_FEED_FORWARD: Key = Key::custom(
    "feed_forward_proj",
    |config, recipe| reads_feed_forward(config, "gated-gelu", recipe),
    feed_forward,
)
.spelled(&[""]);
pub(super) const BUCKETS: Key =
    Key::count("relative_attention_num_buckets", 32, |recipe| &mut recipe.model.relative_buckets);
pub(super) const DISTANCE: Key = Key::count("relative_attention_max_distance", 128, |recipe| {
    &mut recipe.model.relative_distance
});
/// Key for the number of tokens of the longest text in training. The model can also read longer
/// texts.
pub(super) const LONGEST: Key =
    Key::count("n_positions", 512, |recipe| &mut recipe.model.max_positions);
pub(super) const DROPOUT: Key = Key::number(
    "dropout_rate",
    0.1,
    &[
        |recipe| &mut recipe.model.residual_dropout,
        |recipe| &mut recipe.model.embedding_dropout,
        |recipe| &mut recipe.model.attention_dropout,
        |recipe| &mut recipe.model.feed_forward_dropout,
        |recipe| &mut recipe.model.final_dropout,
    ],
);
pub(super) const EPSILON: Key =
    Key::number("layer_norm_epsilon", 1e-6, &[|recipe| &mut recipe.model.norm_epsilon]);
pub(super) const TIED: Key = Key::switch(
    "tie_word_embeddings",
    true,
    |recipe, is_tied| recipe.model.tied = if is_tied { Tied::All } else { Tied::Embeddings },
    |recipe| recipe.model.tied.ties_output(),
);
/// Key for whether the decoder's last hidden states are multiplied by 1/√d_model before the output
/// projection. Versions of Transformers up to 4 do not have this key; they multiply the states if
/// `tie_word_embeddings` is true.
pub(super) const SCALE: Key = Key::switch(
    "scale_decoder_outputs",
    true,
    |recipe, is_scaled| {
        recipe.model.output_scale = is_scaled.then(|| (recipe.model.d_model as f64).powf(-0.5));
    },
    |recipe| recipe.model.output_scale.is_some(),
)
.spelled(&["/scale_decoder_outputs", "/tie_word_embeddings"]);

/// Key for the tasks of a model, such as translation from English to German, each with a prefix: a
/// text that is put before every source text. If exactly one task has a prefix, Taper's
/// configuration (recipe) gets this prefix; otherwise it gets none.
pub(super) const TASKS: Key = Key::custom("task_specific_params", reads_tasks, tasks);

/// Sets the properties that all models like T5 share.
pub(super) fn base(recipe: &mut RunConfig) {
    recipe.data.tokenizer.kind = TokenizerKind::Unigram;
    recipe.data.tokenizer.joint = true;
    let model = &mut recipe.model;
    (model.norm, model.norm_kind) = (NormPlacement::Pre, NormKind::Rms);
    (model.positions, model.attention_scale) = (Positions::T5, Some(1.0));
    (model.scale_embeddings, model.biases) = (false, false);
}

/// Reads the number of decoder layers; the default is the number of encoder layers.
fn reads_decoder_layers(given: &Value, recipe: &mut RunConfig) -> Result<()> {
    let count = given.as_u64().and_then(|count| usize::try_from(count).ok());
    recipe.model.decoder_layers = match given {
        Value::Null => recipe.model.encoder_layers,
        _ => count
            .with_context(|| format!("num_decoder_layers is {given}, expected a whole number"))?,
    };
    Ok(())
}

/// Reads kind and activation of the feed-forward layers from a value such as `relu` or
/// `gated-silu`.
fn reads_feed_forward(config: &Value, usual: &str, recipe: &mut RunConfig) -> Result<()> {
    let given = &config["feed_forward_proj"];
    let other = || format!("feed_forward_proj is {given}, expected such as relu or gated-gelu");
    let name = match given {
        Value::Null => usual,
        _ => given.as_str().with_context(other)?,
    };
    let (kind, activation) = match name.split_once('-') {
        None => (FeedForwardKind::Plain, name),
        // In the value `gated-gelu`, `gelu` stands for the activation `gelu_new`.
        Some(("gated", "gelu")) => (FeedForwardKind::Gated, "gelu_new"),
        Some(("gated", activation)) => (FeedForwardKind::Gated, activation),
        Some(_) => bail!(other()),
    };
    recipe.model.feed_forward = kind;
    recipe.model.activation = activation_of("feed_forward_proj", activation)?;
    // Transformers also saves two keys whose values follow from `feed_forward_proj`. When it reads
    // a file, it prefers these two keys, so their values must agree with `feed_forward_proj`.
    let is_gated = kind == FeedForwardKind::Gated;
    for (key, follows) in [("is_gated_act", json!(is_gated)), ("dense_act_fn", json!(activation))] {
        if !config[key].is_null() && config[key] != follows {
            bail!("{key} is {}, but feed_forward_proj, {name:?}, means {follows}", config[key]);
        }
    }
    Ok(())
}

fn feed_forward(recipe: &RunConfig) -> Option<Value> {
    let activation = activation_name(recipe.model.activation);
    Some(match (recipe.model.feed_forward, activation) {
        (FeedForwardKind::Plain, activation) => json!(activation),
        (FeedForwardKind::Gated, "gelu_new") => json!("gated-gelu"),
        (FeedForwardKind::Gated, activation) => json!(format!("gated-{activation}")),
    })
}

fn reads_tasks(given: &Value, recipe: &mut RunConfig) -> Result<()> {
    let tasks = given.as_object().into_iter().flatten();
    let prefixes: Vec<&str> = tasks.filter_map(|(_, task)| task["prefix"].as_str()).collect();
    recipe.data.source_prefix = match prefixes.as_slice() {
        [one] => (*one).to_owned(),
        _ => String::new(),
    };
    Ok(())
}

fn tasks(recipe: &RunConfig) -> Option<Value> {
    let data = &recipe.data;
    let name = format!("translation_{}_to_{}", data.source_language, data.target_language);
    let is_one = !data.source_prefix.is_empty();
    is_one.then(|| json!({ name: { "prefix": data.source_prefix } }))
}
