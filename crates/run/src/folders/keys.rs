//! Conversion between the keys of `config.json` in the library Transformers and the corresponding
//! keys of a recipe (Taper's configuration), in both directions.

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};
use taper_model::{ActivationKind, Tied};

use crate::config::RunConfig;

/// Key of `config.json`. If it is absent or null, the default of Transformers is used. There is one
/// exception: for [`Setting::Derived`], null means the value that is computed from other keys.
pub(super) struct Key {
    pub(super) name: &'static str,
    /// Other places in `config.json` where the key's value can be, as JSON pointers. They take
    /// precedence over `name`.
    spellings: &'static [&'static str],
    setting: Setting,
}

/// Function that returns a field of a recipe. The field is a count.
type Count = fn(&mut RunConfig) -> &mut usize;
/// Function that returns a field of a recipe. The field is a floating-point number.
type Number = fn(&mut RunConfig) -> &mut f64;
/// Function that returns a field of a recipe. The field is a count, or `None` if the recipe omits
/// it.
type Left = fn(&mut RunConfig) -> &mut Option<usize>;

/// Function that returns a field of a recipe. The field is a flag.
type Flag = fn(&mut RunConfig) -> &mut bool;

/// Effect of a key on a recipe. The field `usual` of a variant is the default of the key in
/// Transformers, and the field `of` has functions that return the fields of the recipe that the key
/// sets.
enum Setting {
    Count {
        usual: usize,
        of: Count,
    },
    /// Number that several fields are set to. An export writes the value of the first field.
    Number {
        usual: f64,
        of: &'static [Number],
    },
    /// Inner width of feed-forward layers, `d_ff`; by default four times the width of the model.
    InnerWidth,
    Flag {
        usual: bool,
        of: Flag,
    },
    Activation {
        usual: &'static str,
    },
    Tied,
    /// Count that a recipe omits if it equals the value that `follows` computes from other keys.
    Derived {
        usual: Option<usize>,
        of: Left,
        follows: fn(&RunConfig) -> usize,
    },
    /// Flag that several fields of a recipe express together. `set` sets them, and `is` reads them.
    Switch {
        usual: bool,
        set: fn(&mut RunConfig, bool),
        is: fn(&RunConfig) -> bool,
    },
    /// Value that is converted by the functions `read` (for an import) and `write` (for an export).
    Custom {
        read: fn(&Value, &mut RunConfig) -> Result<()>,
        write: fn(&RunConfig) -> Option<Value>,
    },
    /// Key that has the same value in all supported models.
    Only(Fixed),
}

/// Only supported value of a key.
#[derive(Clone, Copy)]
pub(super) enum Fixed {
    Flag(bool),
    Text(&'static str),
}

impl From<Fixed> for Value {
    fn from(value: Fixed) -> Self {
        match value {
            Fixed::Flag(flag) => flag.into(),
            Fixed::Text(text) => text.into(),
        }
    }
}

impl Key {
    const fn new(name: &'static str, setting: Setting) -> Self {
        Self { name, spellings: &[], setting }
    }

    /// The same key, whose value can also be at other places in a `config.json`, which are given as
    /// JSON pointers and searched in this order. An export writes only `name`.
    pub(super) const fn spelled(self, spellings: &'static [&'static str]) -> Self {
        Self { name: self.name, spellings, setting: self.setting }
    }

    /// Key with a count that a recipe omits if it equals the value that `follows` computes from
    /// earlier keys. If the key is absent, the count is `usual`, or that computed value if `usual`
    /// is `None`.
    pub(super) const fn derived(
        name: &'static str,
        usual: Option<usize>,
        of: Left,
        follows: fn(&RunConfig) -> usize,
    ) -> Self {
        Self::new(name, Setting::Derived { usual, of, follows })
    }

    /// Key with a flag that several fields of a recipe express together. `usual` is the default;
    /// `set` sets the fields, and `is` reads them.
    pub(super) const fn switch(
        name: &'static str,
        usual: bool,
        set: fn(&mut RunConfig, bool),
        is: fn(&RunConfig) -> bool,
    ) -> Self {
        Self::new(name, Setting::Switch { usual, set, is })
    }

    /// Key with functions of its own for reading and writing.
    pub(super) const fn custom(
        name: &'static str,
        read: fn(&Value, &mut RunConfig) -> Result<()>,
        write: fn(&RunConfig) -> Option<Value>,
    ) -> Self {
        Self::new(name, Setting::Custom { read, write })
    }

    /// Key for whether embedding and output projection are tied; the default is that they are not.
    pub(super) const fn untied() -> Self {
        let set = |recipe: &mut RunConfig, is_tied| {
            recipe.model.tied = if is_tied { Tied::All } else { Tied::None };
        };
        Self::switch("tie_word_embeddings", false, set, |recipe| recipe.model.tied.ties_output())
    }

    /// Value of the key in a `config.json`; `None` if the key is absent.
    fn given<'a>(&self, config: &'a Value) -> Option<&'a Value> {
        let places = self.spellings.iter().filter_map(|place| config.pointer(place));
        let named = config.get(self.name);
        places.chain(named).find(|value| !value.is_null()).or(named)
    }

    pub(super) const fn count(name: &'static str, usual: usize, of: Count) -> Self {
        Self::new(name, Setting::Count { usual, of })
    }

    /// Key with a number that all fields in `of` are set to. An export writes the value of the
    /// first field.
    pub(super) const fn number(name: &'static str, usual: f64, of: &'static [Number]) -> Self {
        Self::new(name, Setting::Number { usual, of })
    }

    /// Key of the inner width of feed-forward layers; the default is four times the width of the
    /// model. It must be read after the key for the width of the model.
    pub(super) const fn inner_width(name: &'static str) -> Self {
        Self::new(name, Setting::InnerWidth)
    }

    pub(super) const fn flag(name: &'static str, usual: bool, of: Flag) -> Self {
        Self::new(name, Setting::Flag { usual, of })
    }

    pub(super) const fn activation(name: &'static str, usual: &'static str) -> Self {
        Self::new(name, Setting::Activation { usual })
    }

    /// Key for whether embedding and output projection are tied; the default is that they are.
    pub(super) const fn tied() -> Self {
        Self::new("tie_word_embeddings", Setting::Tied)
    }

    /// Key with one allowed value, which is also the default.
    pub(super) const fn only(name: &'static str, value: Fixed) -> Self {
        Self::new(name, Setting::Only(value))
    }

    /// Sets the fields of `recipe` to `given`, the key's value in a `config.json`; `given` is
    /// `None` if the file lacks the key.
    fn read(&self, given: Option<&Value>, recipe: &mut RunConfig) -> Result<()> {
        let (name, is_absent) = (self.name, given.is_none());
        let given = given.unwrap_or(&Value::Null);
        let wrong = |expected: &str| format!("{name} is {given}, expected {expected}");
        let is_given = !given.is_null();
        let count = || -> Result<usize> {
            let count = given.as_u64().and_then(|count| usize::try_from(count).ok());
            count.with_context(|| wrong("a whole number"))
        };
        let flag = |usual: bool| match is_given {
            true => given.as_bool().with_context(|| wrong("true or false")),
            false => Ok(usual),
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
            Setting::Flag { usual, of } => *of(recipe) = flag(*usual)?,
            Setting::Activation { usual } => {
                let activation = if is_given {
                    given.as_str().with_context(|| wrong("the name of an activation"))?
                } else {
                    usual
                };
                recipe.model.activation = activation_of(name, activation)?;
            }
            Setting::Tied => {
                recipe.model.tied = if flag(true)? { Tied::All } else { Tied::None };
            }
            Setting::Derived { usual, of, follows } => {
                let count = if is_given { Some(count()?) } else { usual.filter(|_| is_absent) };
                let follows = follows(recipe);
                *of(recipe) = count.filter(|&count| count != follows);
            }
            Setting::Switch { usual, set, .. } => {
                let flag = flag(*usual)?;
                set(recipe, flag);
            }
            Setting::Custom { read, .. } => read(given, recipe)?,
            Setting::Only(value) => {
                let value = Value::from(*value);
                if is_given && *given != value {
                    bail!("{name} is {given}: the models that can be imported have {value}");
                }
            }
        }
        Ok(())
    }

    /// Value of the key for a recipe; `None` if a `config.json` for this recipe omits the key.
    fn write(&self, recipe: &mut RunConfig) -> Option<Value> {
        Some(match &self.setting {
            Setting::Count { of, .. } => json!(*of(recipe)),
            Setting::Number { of, .. } => json!(*of.first()?(recipe)),
            Setting::InnerWidth => {
                let inner = recipe.model.d_ff;
                return (inner != 4 * recipe.model.d_model).then(|| json!(inner));
            }
            Setting::Flag { of, .. } => json!(*of(recipe)),
            Setting::Activation { .. } => json!(activation_name(recipe.model.activation)),
            Setting::Tied => json!(recipe.model.tied.ties_output()),
            Setting::Derived { of, follows, .. } => {
                let count = *of(recipe);
                json!(count.unwrap_or_else(|| follows(recipe)))
            }
            Setting::Switch { is, .. } => json!(is(recipe)),
            Setting::Custom { write, .. } => return write(recipe),
            Setting::Only(value) => (*value).into(),
        })
    }
}

/// Width of an attention head: the width of the model divided by the number of heads. If the number
/// of heads does not divide the width, returns 0, which is no possible width.
pub(super) fn width_of_heads(recipe: &RunConfig) -> usize {
    let (width, heads) = (recipe.model.d_model, recipe.model.heads);
    if heads > 0 && width.is_multiple_of(heads) { width / heads } else { 0 }
}

/// Sets the fields of `recipe` from `given`, the content of a `config.json`.
///
/// # Errors
/// When a value is invalid or no supported model has it, or when two keys of the file set the same
/// key of the recipe to different values.
pub(super) fn read(keys: &[Key], given: &Value, recipe: &mut RunConfig) -> Result<()> {
    for key in keys {
        key.read(key.given(given), recipe)?;
    }
    for key in keys {
        let Setting::Count { usual, .. } = key.setting else { continue };
        let Some(is) = key.write(recipe) else { continue };
        let name = key.name;
        let said = [key.given(given), given.get(name)];
        let said: Vec<&Value> = said.into_iter().flatten().filter(|said| !said.is_null()).collect();
        if let Some(other) = said.iter().find(|said| ***said != is) {
            bail!("{name} is {other}, but another key sets the same property to {is}");
        }
        if said.is_empty() && is != usual {
            bail!(
                "{name} is absent, which means {usual}, but another key sets the same property to \
                 {is}"
            );
        }
    }
    Ok(())
}

/// Adds `keys`, with their values for `recipe`, to the keys of a `config.json`.
pub(super) fn write(keys: &[Key], recipe: &RunConfig, config: &mut Map<String, Value>) {
    let mut recipe = recipe.clone();
    for key in keys {
        config.extend(key.write(&mut recipe).map(|value| (key.name.to_owned(), value)));
    }
}

/// Activation that Transformers calls `name`. Errors name `key`, the key with this value.
pub(super) fn activation_of(key: &str, name: &str) -> Result<ActivationKind> {
    Ok(match name {
        "gelu" => ActivationKind::Gelu,
        "gelu_new" | "gelu_pytorch_tanh" => ActivationKind::GeluTanh,
        "relu" => ActivationKind::Relu,
        "silu" | "swish" => ActivationKind::Swish,
        "quick_gelu" => ActivationKind::QuickGelu,
        other => bail!("{key} = {other:?}: expected gelu, gelu_new, quick_gelu, relu or silu"),
    })
}

/// Name of an activation in Transformers.
pub(super) fn activation_name(activation: ActivationKind) -> &'static str {
    match activation {
        ActivationKind::Gelu => "gelu",
        ActivationKind::GeluTanh => "gelu_new",
        ActivationKind::Relu => "relu",
        ActivationKind::Swish => "silu",
        ActivationKind::QuickGelu => "quick_gelu",
    }
}
