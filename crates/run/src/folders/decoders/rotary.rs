//! Keys of `config.json` for rotary positions. Version 5 of the library Transformers writes all
//! these keys inside the object `rope_parameters`. Older versions write the base as `rope_theta`,
//! and the other keys inside the object `rope_scaling`. In a folder with both objects,
//! `rope_scaling` replaces `rope_parameters`. An export writes the keys of older versions, because
//! all versions read them.

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};
use taper_model::{RotaryConfig, RotaryPairs, RotaryScaling};

use crate::config::RunConfig;
use crate::folders::keys::Key;

/// Key for the base from which the speeds of rotation are computed.
pub(super) const BASE: Key = Key::custom(
    "rope_theta",
    |config, recipe| read_base(config, "rope_theta", recipe),
    |recipe| Some(json!(recipe.model.rotary.base)),
)
.spelled(&[WHOLE_FILE]);

/// Key for the scaling of rotary positions; without this key, they are not scaled.
pub(super) const SCALING: Key = Key::custom("rope_scaling", read, write).spelled(&[WHOLE_FILE]);

/// Key for the base from which the speeds of rotation are computed, as GPT-NeoX calls it.
pub(super) const BASE_OF_PART: Key = Key::custom(
    "rotary_emb_base",
    |config, recipe| read_base(config, "rotary_emb_base", recipe),
    |recipe| Some(json!(recipe.model.rotary.base)),
)
.spelled(&[WHOLE_FILE]);

/// JSON pointer to the whole `config.json`, for keys whose meaning depends on other keys.
const WHOLE_FILE: &str = "";
/// Name of the key for the share of each head that is rotated.
const SHARE: &str = "partial_rotary_factor";

/// Key for the share of each head that is rotated; by default a quarter, as in GPT-NeoX. It must be
/// read after the keys that determine the width of a head.
pub(super) const QUARTER: Key = Key::custom(
    "rotary_pct",
    |config, recipe| read_share(share(config, "rotary_pct"), recipe, 0.25),
    write_share,
)
.spelled(&[WHOLE_FILE]);

/// Key for the share of each head that is rotated; by default one half, as in Phi. It must be read
/// after the keys that determine the width of a head.
pub(super) const HALF: Key =
    Key::custom(SHARE, |config, recipe| read_share(share(config, SHARE), recipe, 0.5), write_share)
        .spelled(&[WHOLE_FILE]);

/// Key for the share of each head that is rotated, in families that rotate whole heads: only 1 is
/// accepted.
pub(super) const WHOLE: Key = Key::custom(SHARE, read_whole, |_| None).spelled(&[WHOLE_FILE]);

/// Object inside a `config.json` with the keys of rotary positions: `rope_scaling`, which older
/// versions write, if it has any keys, and otherwise `rope_parameters`; null if there is neither.
fn together(config: &Value) -> &Value {
    let is_given = |keys: &&Value| match keys {
        Value::Null => false,
        Value::Object(keys) => !keys.is_empty(),
        _ => true,
    };
    let places = [&config["rope_scaling"], &config["rope_parameters"]];
    places.into_iter().find(is_given).unwrap_or(&Value::Null)
}

/// Value of the key `newer` in the object that [`together`] returns. If this object lacks it, the
/// value of the key `older` at the top level of the `config.json`.
fn value<'a>(config: &'a Value, newer: &str, older: &str) -> &'a Value {
    Some(&together(config)[newer]).filter(|value| !value.is_null()).unwrap_or(&config[older])
}

fn share<'a>(config: &'a Value, older: &str) -> &'a Value {
    value(config, SHARE, older)
}

fn read_base(config: &Value, older: &str, recipe: &mut RunConfig) -> Result<()> {
    let given = value(config, "rope_theta", older);
    let wrong = || format!("the base of rotary positions is {given}, expected a number");
    recipe.model.rotary.base =
        if given.is_null() { USUAL_BASE } else { given.as_f64().with_context(wrong)? };
    Ok(())
}

/// Base from which the speeds of rotation are computed if no key gives it.
const USUAL_BASE: f64 = 10_000.0;

fn read_whole(config: &Value, _: &mut RunConfig) -> Result<()> {
    let given = share(config, SHARE);
    if !given.is_null() && given.as_f64() != Some(1.0) {
        bail!("partial_rotary_factor is {given}: the models that can be imported have 1.0");
    }
    Ok(())
}

fn read_share(given: &Value, recipe: &mut RunConfig, usual: f64) -> Result<()> {
    let wrong = || format!("the share of a head that is rotated is {given}, expected a number");
    let share = if given.is_null() { usual } else { given.as_f64().with_context(wrong)? };
    let head = recipe.model.attention_shape().head_width;
    let width = (head as f64 * share) as usize;
    recipe.model.rotary.width = (width != head).then_some(width);
    Ok(())
}

fn write_share(recipe: &RunConfig) -> Option<Value> {
    let head = recipe.model.attention_shape().head_width as f64;
    let share = |width: usize| {
        let share = width as f64 / head;
        // Programs that read the folder multiply the share by the width of a head and round down.
        // If rounding errors make the product too small, the next larger number is written.
        if ((head * share) as usize) < width { share.next_up() } else { share }
    };
    Some(json!(recipe.model.rotary.width.map_or(1.0, share)))
}

/// Function that returns a field of [`RotaryConfig`], the settings of rotary positions in Taper;
/// the field is `None` if the setting is omitted.
type Setting = fn(&mut RotaryConfig) -> &mut Option<f64>;

/// Settings of this kind of scaling. Each entry has the name of the key in `config.json`, the field
/// of the recipe, and the default of the key. The last value is true if an export writes the key
/// even if the recipe omits the setting.
fn settings(scaling: RotaryScaling) -> &'static [(&'static str, Setting, Option<f64>, bool)] {
    match scaling {
        RotaryScaling::Llama3 => &[
            ("low_freq_factor", |rotary| &mut rotary.slow_rotations, Some(1.0), true),
            ("high_freq_factor", |rotary| &mut rotary.fast_rotations, Some(4.0), true),
        ],
        RotaryScaling::Yarn => &[
            ("beta_slow", |rotary| &mut rotary.slow_rotations, Some(1.0), false),
            ("beta_fast", |rotary| &mut rotary.fast_rotations, Some(32.0), false),
            ("attention_factor", |rotary| &mut rotary.magnitude, None, false),
        ],
        _ => &[],
    }
}

fn scaling(kind: Option<&str>) -> Result<RotaryScaling> {
    Ok(match kind {
        Some("default") => RotaryScaling::None,
        Some("linear") => RotaryScaling::Interpolation,
        Some("llama3") => RotaryScaling::Llama3,
        Some("yarn") => RotaryScaling::Yarn,
        _ => bail!(
            "rope_type is {}: the models that can be imported have default, linear, llama3 or yarn",
            kind.map_or(Value::Null, Value::from)
        ),
    })
}

fn read(config: &Value, recipe: &mut RunConfig) -> Result<()> {
    let given = together(config);
    let positions = recipe.model.max_positions;
    let rotary = &mut recipe.model.rotary;
    let RotaryConfig { base, width, .. } = *rotary;
    *rotary = RotaryConfig { base, width, ..RotaryConfig::default() };
    let kind = match given {
        Value::Null => return Ok(()),
        Value::Object(keys) => keys.get("rope_type").or_else(|| keys.get("type")),
        other => bail!("the scaling of rotary positions is {other}, expected keys"),
    };
    let kind = kind.map_or(Some("default"), Value::as_str);
    rotary.scaling = scaling(kind)?;
    let number = |key: &str| -> Result<Option<f64>> {
        let wrong = || format!("{key} is {}, expected a number", given[key]);
        match &given[key] {
            Value::Null => Ok(None),
            number => number.as_f64().with_context(wrong).map(Some),
        }
    };
    let truncates = &given["truncate"];
    if !truncates.is_null() && *truncates != true {
        bail!("truncate is {truncates}: the models that can be imported have true");
    }
    if rotary.scaling == RotaryScaling::None {
        return Ok(());
    }
    let factor = number("factor")?;
    let kind = kind.unwrap_or_default();
    rotary.factor = factor.with_context(|| format!("rope_type {kind:?} has no factor"))?;
    if rotary.scaling == RotaryScaling::Interpolation {
        return Ok(());
    }
    // The library Transformers prefers this key at the top level to the same key inside the object
    // with the keys of rotary positions.
    const LENGTH: &str = "original_max_position_embeddings";
    let outer = Some(&config[LENGTH]).filter(|length| !length.is_null());
    let length = outer.unwrap_or(&given[LENGTH]);
    let whole = || format!("{LENGTH} is {length}, expected a whole number");
    rotary.original_length = Some(match length {
        Value::Null => positions,
        length => {
            let length = length.as_u64().and_then(|length| usize::try_from(length).ok());
            length.with_context(whole)?
        }
    });
    for (key, field, usual, _) in settings(rotary.scaling) {
        *field(rotary) = number(key)?.filter(|number| Some(*number) != *usual);
    }
    let scales = (number("mscale")?, number("mscale_all_dim")?);
    if rotary.scaling == RotaryScaling::Yarn
        && rotary.magnitude.is_none()
        && let (Some(one), Some(all)) = scales
        && one != 0.0
        && all != 0.0
    {
        let attention_factor = |scale: f64| 0.1 * scale * rotary.factor.ln() + 1.0;
        rotary.magnitude = Some(attention_factor(one) / attention_factor(all));
    }
    Ok(())
}

fn write(recipe: &RunConfig) -> Option<Value> {
    let mut rotary = recipe.model.rotary;
    let kind = match (rotary.pairs, rotary.scaling) {
        // Transformers has no names for some kinds of scaling. For these kinds, this function
        // writes names that `read` refuses. An export reads the new file as a check, so it fails.
        (RotaryPairs::Interleaved, _) => "interleaved",
        (_, RotaryScaling::None) => return None,
        (_, RotaryScaling::Interpolation) => "linear",
        (_, RotaryScaling::Ntk) => "ntk",
        (_, RotaryScaling::Llama3) => "llama3",
        (_, RotaryScaling::Yarn) => "yarn",
        (_, RotaryScaling::DualChunk) => "dual-chunk",
    };
    let mut keys = Map::new();
    keys.insert("rope_type".to_owned(), json!(kind));
    keys.insert("factor".to_owned(), json!(rotary.factor));
    if let Some(length) = rotary.original_length {
        keys.insert("original_max_position_embeddings".to_owned(), json!(length));
    }
    for (key, field, usual, always) in settings(rotary.scaling) {
        let value = field(&mut rotary).or(usual.filter(|_| *always));
        keys.extend(value.map(|value| ((*key).to_owned(), json!(value))));
    }
    Some(keys.into())
}
