//! Pegasus (Zhang et al. 2020): an encoder-decoder for summaries, trained to write sentences that
//! were removed from a text.

use taper_data::{Task, TokenizerKind};
use taper_model::{NormPlacement, Positions};

use super::bart::{ENCODES, TIED, bart_family, keys, shared};
use crate::config::RunConfig;
use crate::folders::family::{Architecture, Family};
use crate::folders::tokens::TokenizerFiles;

pub(in crate::folders) static FAMILY: Family = Family {
    keys: &keys("gelu", 0.0, false, [TIED, ENCODES]),
    tokens: TokenizerFiles::Fast,
    unused: &["*.embed_positions.weight"],
    ..bart_family("Pegasus", "pegasus", ARCHITECTURES, base)
};

const ARCHITECTURES: &[Architecture] =
    &[Architecture::new("PegasusForConditionalGeneration", Task::Translation, &[])];

fn base(recipe: &mut RunConfig) {
    shared(recipe);
    recipe.data.tokenizer.kind = TokenizerKind::Unigram;
    recipe.model.norm = NormPlacement::Pre;
    recipe.model.positions = Positions::SinusoidalHalves;
    recipe.model.output_bias = true;
}
