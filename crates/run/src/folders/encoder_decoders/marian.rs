//! MarianMT (Junczys-Dowmunt et al. 2018; Tiedemann and Thottingal 2020): the encoder-decoders of
//! OPUS-MT, with one vocabulary for both languages and a model of SentencePiece for each.

use taper_data::{Task, TokenizerKind};
use taper_model::{NormPlacement, Positions};

use super::bart::{keys, of, shared};
use crate::config::RunConfig;
use crate::folders::family::{Architecture, Family};
use crate::folders::keys::{Fixed, Key};
use crate::folders::tokens::TokenizerFiles;

pub(in crate::folders) static FAMILY: Family = Family {
    keys: &keys(
        "gelu",
        0.0,
        false,
        Key::only("share_encoder_decoder_embeddings", Fixed::Flag(true)),
    ),
    tokens: TokenizerFiles::Sides,
    unused: &["*.embed_positions.weight"],
    ..of("MarianMT", "marian", ARCHITECTURES, base)
};

const ARCHITECTURES: &[Architecture] =
    &[Architecture::new("MarianMTModel", Task::Translation, &[])];

fn base(recipe: &mut RunConfig) {
    shared(recipe);
    recipe.data.tokenizer.kind = TokenizerKind::Unigram;
    recipe.model.norm = NormPlacement::Post;
    recipe.model.positions = Positions::SinusoidalHalves;
    recipe.model.output_bias = true;
}
