//! Keys of `config.json` for sliding windows (Jiang et al. 2023, "Mistral 7B", section 2): a token
//! sees itself and the `sliding_window - 1` tokens before it, in all layers or in some of them.

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use taper_model::{AttentionKind, LayerKinds};

use crate::config::RunConfig;
use crate::folders::keys::Key;

/// Key for the number of tokens in the window, which is the same in all layers of a Mistral; null
/// if there are no windows.
pub(super) const OF_ALL: Key = Key::custom("sliding_window", read_of_all, |recipe| {
    let window = recipe.model.decoder_attention.window;
    Some(if has_windows(recipe) { json!(window) } else { Value::Null })
})
.spelled(&[""]);

/// Key for whether a Qwen has windows. If it is false, the other keys for windows have no effect.
/// So the function that reads this key also reads the other keys.
pub(super) const USE: Key =
    Key::custom("use_sliding_window", read, |recipe| Some(json!(has_windows(recipe))))
        .spelled(&[""]);
pub(super) const WIDTH: Key = Key::custom("sliding_window", read_before, |recipe| {
    has_windows(recipe).then(|| json!(recipe.model.decoder_attention.window))
});
/// Key for the number of layers before the first layer with a window. It is written for older
/// versions of the library Transformers.
pub(super) const FIRST: Key = Key::custom("max_window_layers", read_before, |recipe| {
    let first = kinds(recipe).into_iter().take_while(|kind| !is_window(*kind)).count();
    has_windows(recipe).then(|| json!(first))
});
pub(super) const TYPES: Key = Key::custom("layer_types", read_before, |recipe| {
    let name = |kind| if is_window(kind) { SLIDING } else { FULL };
    has_windows(recipe).then(|| json!(kinds(recipe).into_iter().map(name).collect::<Vec<_>>()))
});

const SLIDING: &str = "sliding_attention";
const FULL: &str = "full_attention";
/// Default of `max_window_layers`.
const USUAL_FIRST: usize = 28;
/// Default of `sliding_window`.
const USUAL_WINDOW: usize = 4096;

fn is_window(kind: AttentionKind) -> bool {
    kind == AttentionKind::Sparse
}

/// Kind of attention in each layer of the decoder.
fn kinds(recipe: &RunConfig) -> Vec<AttentionKind> {
    let kind_of = |layer| recipe.model.decoder_attention.kind_of(layer);
    (0..recipe.model.decoder_layers).map(kind_of).collect()
}

fn has_windows(recipe: &RunConfig) -> bool {
    kinds(recipe).into_iter().any(is_window)
}

/// Gives a window of `window` tokens to each layer if `has` returns true for its index.
fn set(recipe: &mut RunConfig, window: usize, has: impl Fn(usize) -> bool) {
    let kind = |layer| if has(layer) { AttentionKind::Sparse } else { AttentionKind::Full };
    let kinds: Vec<AttentionKind> = (0..recipe.model.decoder_layers).map(kind).collect();
    let attention = &mut recipe.model.decoder_attention;
    if !kinds.iter().copied().any(is_window) {
        return;
    }
    attention.window = window;
    match kinds.iter().copied().all(is_window) {
        true => attention.kind = AttentionKind::Sparse,
        false => attention.kinds = LayerKinds::new(&kinds),
    }
}

fn count(given: &Value, key: &str) -> Result<usize> {
    let count = given.as_u64().and_then(|count| usize::try_from(count).ok());
    count.with_context(|| format!("{key} is {given}, expected a whole number"))
}

/// Number of tokens in a window according to `sliding_window`; `None` if this key is null, and the
/// default if it is absent.
fn window(config: &Value) -> Result<Option<usize>> {
    match config.get("sliding_window") {
        None => Ok(Some(USUAL_WINDOW)),
        Some(Value::Null) => Ok(None),
        Some(given) => count(given, "sliding_window").map(Some),
    }
}

/// Reads the window of a Mistral. All layers must have attention of the same kind, because
/// Transformers does not treat layers of different kinds consistently.
fn read_of_all(config: &Value, recipe: &mut RunConfig) -> Result<()> {
    let window = window(config)?;
    let expected = if window.is_some() { SLIDING } else { FULL };
    let types = config["layer_types"].as_array();
    if types.is_some_and(|types| types.iter().any(|one| one != expected)) {
        bail!(
            "layer_types is {}: the models that can be imported have {expected} in all layers",
            config["layer_types"]
        );
    }
    if let Some(window) = window {
        set(recipe, window, |_| true);
    }
    Ok(())
}

/// Reads all keys for windows in the `config.json` of a Qwen.
fn read(config: &Value, recipe: &mut RunConfig) -> Result<()> {
    match &config["use_sliding_window"] {
        Value::Null | Value::Bool(false) => return Ok(()),
        Value::Bool(true) => {}
        other => bail!("use_sliding_window is {other}, expected true or false"),
    }
    let Some(window) = window(config)? else { return Ok(()) };
    let layers = recipe.model.decoder_layers;
    if let Some(types) = config["layer_types"].as_array() {
        let is_known = |one: &Value| one == SLIDING || one == FULL;
        if types.len() != layers || !types.iter().all(is_known) {
            bail!(
                "layer_types is {}: expected {SLIDING} or {FULL} for each of {layers} layers",
                config["layer_types"]
            );
        }
        set(recipe, window, |layer| types[layer] == SLIDING);
        return Ok(());
    }
    let first = match &config["max_window_layers"] {
        Value::Null => USUAL_FIRST,
        given => count(given, "max_window_layers")?,
    };
    set(recipe, window, |layer| layer >= first);
    Ok(())
}

/// Reads nothing, because [`USE`] has already read this key.
fn read_before(_: &Value, _: &mut RunConfig) -> Result<()> {
    Ok(())
}
