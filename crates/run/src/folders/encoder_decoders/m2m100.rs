//! M2M100 (Fan et al. 2021) and NLLB (NLLB Team 2022): translation among many languages. A token
//! before each text names its language.

use anyhow::Context;
use serde_json::json;
use taper_data::{Task, TokenizerKind};
use taper_model::{NormPlacement, Positions, SinusoidFrequencies};

use super::bart::{TIED, bart_family, keys, shared};
use crate::config::RunConfig;
use crate::folders::family::{Architecture, Family};
use crate::folders::keys::Key;

pub(in crate::folders) static FAMILY: Family = Family {
    keys: &keys("relu", 0.1, true, [TIED, FIRST_POSITION]),
    free: &["embedding_dropout"],
    zeros: &[],
    ..bart_family("M2M100", "m2m_100", ARCHITECTURES, base)
};

const ARCHITECTURES: &[Architecture] =
    &[Architecture::new("M2M100ForConditionalGeneration", Task::Translation, &[])];

/// Key for the id of the padding token. In the table of positions, the row after the row with this
/// index is the first that is used.
const FIRST_POSITION: Key = Key::custom(
    "pad_token_id",
    |given, recipe| {
        let pad = if given.is_null() { Some(1) } else { given.as_u64() };
        let pad = pad.and_then(|pad| usize::try_from(pad).ok());
        let pad = pad.with_context(|| format!("pad_token_id is {given}, expected a number"))?;
        recipe.model.position_offset = pad.saturating_add(1);
        Ok(())
    },
    |recipe| recipe.model.position_offset.checked_sub(1).map(|pad| json!(pad)),
);

fn base(recipe: &mut RunConfig) {
    shared(recipe);
    recipe.data.tokenizer.kind = TokenizerKind::Bpe;
    recipe.model.norm = NormPlacement::Pre;
    recipe.model.positions = Positions::SinusoidalHalves;
    recipe.model.sinusoid_frequencies = SinusoidFrequencies::Tensor2Tensor;
    recipe.model.position_offset = 2;
}
