//! MarianMT (Junczys-Dowmunt et al. 2018; Tiedemann and Thottingal 2020): the encoder-decoders of
//! OPUS-MT. Each language has a SentencePiece model. There is one vocabulary for both languages, or
//! one for each.

use anyhow::{Result, bail};
use serde_json::{Value, json};
use taper_data::{Task, TokenizerKind};
use taper_model::{NormPlacement, Positions, Tied};

use super::bart::{bart_family, keys, shared};
use crate::config::RunConfig;
use crate::folders::family::{Architecture, Family};
use crate::folders::keys::Key;
use crate::folders::tokens::TokenizerFiles;

pub(in crate::folders) static FAMILY: Family = Family {
    keys: &keys("gelu", 0.0, false, [TIED, SHARED]),
    tokens: TokenizerFiles::Sides,
    unused: &["*.embed_positions.weight"],
    ..bart_family("MarianMT", "marian", ARCHITECTURES, base)
};

const ARCHITECTURES: &[Architecture] =
    &[Architecture::new("MarianMTModel", Task::Translation, &[])];

const TIED: Key = Key::switch(
    "tie_word_embeddings",
    true,
    |recipe, is_tied| recipe.model.tied = if is_tied { Tied::All } else { Tied::None },
    |recipe| recipe.model.tied.ties_output(),
);

/// Key for whether both languages share a vocabulary; it must be read after [`TIED`].
const SHARED: Key = Key::custom("share_encoder_decoder_embeddings", read_shared, |recipe| {
    Some(json!(recipe.model.tied.ties_embeddings()))
});

fn read_shared(given: &Value, recipe: &mut RunConfig) -> Result<()> {
    let tied = match (given, recipe.model.tied) {
        (Value::Bool(false), Tied::All) => Tied::Decoder,
        (Value::Bool(false), tied) => tied,
        (Value::Bool(true) | Value::Null, Tied::All) => return Ok(()),
        (Value::Bool(true) | Value::Null, _) => bail!(
            "tie_word_embeddings is false: the models with one vocabulary that can be imported \
             have true"
        ),
        _ => bail!("share_encoder_decoder_embeddings is {given}, expected true or false"),
    };
    recipe.model.tied = tied;
    recipe.data.tokenizer.joint = false;
    Ok(())
}

fn base(recipe: &mut RunConfig) {
    shared(recipe);
    recipe.data.tokenizer.kind = TokenizerKind::Unigram;
    recipe.model.norm = NormPlacement::Post;
    recipe.model.positions = Positions::SinusoidalHalves;
    recipe.model.output_bias = true;
}
