//! Keys of `config.json` beside the keys of a recipe that they set, both ways.

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};
use taper_model::{ActivationKind, Tied};

use crate::config::RunConfig;

/// A key of `config.json`. One that is left out, or is null, has the value that Transformers takes
/// then.
pub(super) struct Key {
    name: &'static str,
    setting: Setting,
}

/// Where a recipe has a count.
type Count = fn(&mut RunConfig) -> &mut usize;
/// Where it has a number.
type Number = fn(&mut RunConfig) -> &mut f64;

/// What a key sets.
enum Setting {
    Count {
        usual: usize,
        of: Count,
    },
    /// The first is what is written.
    Number {
        usual: f64,
        of: &'static [Number],
    },
    /// `d_ff`; four times the width without it.
    InnerWidth,
    Activation {
        usual: &'static str,
    },
    Tied,
    /// What the models here always have.
    Only(Fixed),
}

/// The only value of a key that a model here can have.
#[derive(Clone, Copy)]
pub(super) enum Fixed {
    Flag(bool),
    Count(usize),
    Text(&'static str),
}

impl From<Fixed> for Value {
    fn from(value: Fixed) -> Self {
        match value {
            Fixed::Flag(flag) => flag.into(),
            Fixed::Count(count) => count.into(),
            Fixed::Text(text) => text.into(),
        }
    }
}

impl Key {
    pub(super) const fn count(name: &'static str, usual: usize, of: Count) -> Self {
        Self { name, setting: Setting::Count { usual, of } }
    }

    /// A number for all of these; the first is written.
    pub(super) const fn number(name: &'static str, usual: f64, of: &'static [Number]) -> Self {
        Self { name, setting: Setting::Number { usual, of } }
    }

    /// The width within feed-forward layers: where it is left out, four times that of the model,
    /// whose key goes before.
    pub(super) const fn inner_width(name: &'static str) -> Self {
        Self { name, setting: Setting::InnerWidth }
    }

    pub(super) const fn activation(name: &'static str, usual: &'static str) -> Self {
        Self { name, setting: Setting::Activation { usual } }
    }

    /// Whether embedding and output projection are one; they are where it is left out.
    pub(super) const fn tied() -> Self {
        Self { name: "tie_word_embeddings", setting: Setting::Tied }
    }

    /// A key with this value alone, which it has too where it is left out.
    pub(super) const fn only(name: &'static str, value: Fixed) -> Self {
        Self { name, setting: Setting::Only(value) }
    }

    /// Sets what a `config.json` says of the key.
    fn read(&self, given: &Value, recipe: &mut RunConfig) -> Result<()> {
        let name = self.name;
        let wrong = |expected: &str| format!("{name} is {given}, expected {expected}");
        let is_given = !given.is_null();
        let count = || -> Result<usize> {
            let count = given.as_u64().and_then(|count| usize::try_from(count).ok());
            count.with_context(|| wrong("a whole number"))
        };
        match &self.setting {
            Setting::Count { usual, of } => {
                *of(recipe) = if is_given { count()? } else { *usual };
            }
            Setting::Number { usual, of } => {
                let number = if is_given {
                    given.as_f64().with_context(|| wrong("a number"))?
                } else {
                    *usual
                };
                of.iter().for_each(|of| *of(recipe) = number);
            }
            Setting::InnerWidth => {
                let usual = recipe.model.d_model.saturating_mul(4);
                recipe.model.d_ff = if is_given { count()? } else { usual };
            }
            Setting::Activation { usual } => {
                let activation = if is_given {
                    given.as_str().with_context(|| wrong("the name of an activation"))?
                } else {
                    usual
                };
                recipe.model.activation = activation_of(name, activation)?;
            }
            Setting::Tied => {
                let is_tied =
                    !is_given || given.as_bool().with_context(|| wrong("true or false"))?;
                recipe.model.tied = if is_tied { Tied::All } else { Tied::None };
            }
            Setting::Only(value) => {
                let value = Value::from(*value);
                if is_given && *given != value {
                    bail!("{name} is {given}: the models that can be imported have {value}");
                }
            }
        }
        Ok(())
    }

    /// Its value for a recipe; `None` where it is left out.
    fn write(&self, recipe: &mut RunConfig) -> Option<Value> {
        Some(match &self.setting {
            Setting::Count { of, .. } => json!(*of(recipe)),
            Setting::Number { of, .. } => json!(*of.first()?(recipe)),
            Setting::InnerWidth => {
                let inner = recipe.model.d_ff;
                return (inner != 4 * recipe.model.d_model).then(|| json!(inner));
            }
            Setting::Activation { .. } => json!(activation_name(recipe.model.activation)),
            Setting::Tied => json!(recipe.model.tied != Tied::None),
            Setting::Only(value) => (*value).into(),
        })
    }
}

/// Sets what a `config.json` says.
///
/// # Errors
/// For a value that is none of its key, or that no model here can have, and for two keys that say
/// different things of what is one here.
pub(super) fn read(keys: &[Key], given: &Value, recipe: &mut RunConfig) -> Result<()> {
    for key in keys {
        key.read(&given[key.name], recipe)?;
    }
    for key in keys.iter().filter(|key| matches!(key.setting, Setting::Count { .. })) {
        let (said, is) = (&given[key.name], key.write(recipe));
        if let Some(is) = is.filter(|is| !said.is_null() && is != said) {
            bail!(
                "{} is {said}, but another key says {is} of what is one and the same here",
                key.name
            );
        }
    }
    Ok(())
}

/// Puts the keys of a recipe into a `config.json`.
pub(super) fn write(keys: &[Key], recipe: &RunConfig, config: &mut Map<String, Value>) {
    let mut recipe = recipe.clone();
    for key in keys {
        config.extend(key.write(&mut recipe).map(|value| (key.name.to_owned(), value)));
    }
}

/// The activation that the key `key` names.
fn activation_of(key: &str, name: &str) -> Result<ActivationKind> {
    Ok(match name {
        "gelu" => ActivationKind::Gelu,
        "gelu_new" | "gelu_pytorch_tanh" => ActivationKind::GeluTanh,
        "relu" => ActivationKind::Relu,
        "silu" | "swish" => ActivationKind::Swish,
        "quick_gelu" => ActivationKind::QuickGelu,
        other => bail!("{key} = {other:?}: expected gelu, gelu_new, quick_gelu, relu or silu"),
    })
}

/// The name of an activation in Transformers.
fn activation_name(activation: ActivationKind) -> &'static str {
    match activation {
        ActivationKind::Gelu => "gelu",
        ActivationKind::GeluTanh => "gelu_new",
        ActivationKind::Relu => "relu",
        ActivationKind::Swish => "silu",
        ActivationKind::QuickGelu => "quick_gelu",
    }
}
