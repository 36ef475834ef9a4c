//! Directions of translation, and settings of models with several directions: the
//! `[data.languages]` table of a recipe (the TOML file with all settings of a training).

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Side of a pair, source or target, that begins with the token of the target language.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LanguageTag {
    /// A token such as `<2de>` before each source (Johnson et al. 2017, section 3).
    #[default]
    Source,
    /// The token is the first of each target, and search begins with it.
    Target,
}

/// Settings of a model that translates in several directions. The directions are those of the
/// corpora of `data.train`, each of which sets `from` and `to`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LanguagesConfig {
    /// Temperature T of the mix of directions: a direction with n pairs gets a share of each epoch
    /// that is proportional to n^(1/T) (Arivazhagan et al. 2019, section 4.2). In n, the pairs of
    /// each corpus are multiplied by its weight. 1 takes pairs as they are, 5 is usual, and with
    /// larger values all directions have nearly the same share. The vocabulary is trained on the
    /// same mix.
    #[schemars(range(min = 1.0))]
    #[schemars(
        extend("x-names" = "sampling_temperature temperature_sampling"),
        extend("x-change" = "accepted"),
        extend("x-idle" = ["one-direction"])
    )]
    pub temperature: f64,
    /// Side of a pair, source or target, that begins with the token of the target language, such as
    /// `<2de>`.
    #[schemars(
        extend("x-names" = "lang_tok encoder_langtok decoder_langtok"),
        extend("x-change" = "never"),
        extend("x-idle" = ["one-direction"])
    )]
    pub tag: LanguageTag,
}

impl Default for LanguagesConfig {
    fn default() -> Self {
        Self { temperature: 1.0, tag: LanguageTag::default() }
    }
}

/// Direction of translation, shown as `en-de`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Direction {
    /// The language translated from.
    pub from: String,
    /// The language translated into.
    pub to: String,
}

impl fmt::Display for Direction {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}-{}", self.from, self.to)
    }
}

impl Direction {
    /// Makes the direction from the language `from` to the language `to`.
    pub fn new(from: &str, to: &str) -> Self {
        Self { from: from.to_owned(), to: to.to_owned() }
    }
}

/// Token that names the target language `language` in token sequences, such as `<2de>`.
pub(crate) fn language_mark(language: &str) -> String {
    format!("<2{language}>")
}
