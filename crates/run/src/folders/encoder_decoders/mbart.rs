//! mBART of 25 languages (Liu et al. 2020) and of 50 (Tang et al. 2020): translation between many
//! languages. A special token names the language of each text.

use taper_data::{Task, TokenizerKind};
use taper_model::NormPlacement;

use super::bart::{ENCODES, TIED, bart_family, keys, learned};
use crate::config::RunConfig;
use crate::folders::family::{Architecture, Family};

pub(in crate::folders) static FAMILY: Family = Family {
    keys: &keys("gelu", 0.0, false, [TIED, ENCODES]),
    ..bart_family("mBART", "mbart", ARCHITECTURES, base)
};

const ARCHITECTURES: &[Architecture] =
    &[Architecture::new("MBartForConditionalGeneration", Task::Translation, &[])];

fn base(recipe: &mut RunConfig) {
    learned(recipe, NormPlacement::Pre);
    recipe.data.tokenizer.kind = TokenizerKind::Unigram;
}
