//! BART (Lewis et al. 2020): an encoder-decoder that rewrites text of one language. MarianMT,
//! M2M100, mBART and Pegasus have tensors and keys of the same names.

use taper_data::{Task, TokenizerKind};
use taper_model::{NormPlacement, Positions, Tied};

use super::bart_names::{COPIES, MODULES};
use crate::config::RunConfig;
use crate::folders::family::{Architecture, Family};
use crate::folders::keys::{Fixed, Key};
use crate::folders::tokens::TokenizerFiles;

pub(in crate::folders) static FAMILY: Family = Family {
    keys: &keys("gelu", 0.0, false, [TIED, ENCODES]),
    tokens: TokenizerFiles::Begun,
    ..bart_family("BART", "bart", ARCHITECTURES, base)
};

const ARCHITECTURES: &[Architecture] =
    &[Architecture::new("BartForConditionalGeneration", Task::Translation, &[])];

/// Key `is_decoder`, which must be false because the model also has an encoder.
pub(super) const ENCODES: Key = Key::only("is_decoder", Fixed::Flag(false));

/// Key that must be true: embeddings and output projection share one matrix.
pub(super) const TIED: Key = Key::only("tie_word_embeddings", Fixed::Flag(true));

/// Fields of Taper's configuration (recipe) that a key of `config.json` sets, all to the same
/// number.
type Numbers = &'static [fn(&mut RunConfig) -> &mut f64];
const DROPOUT: Numbers =
    &[|recipe| &mut recipe.model.residual_dropout, |recipe| &mut recipe.model.embedding_dropout];
const ATTENTION: Numbers = &[|recipe| &mut recipe.model.attention_dropout];
const INNER: Numbers = &[|recipe| &mut recipe.model.feed_forward_dropout];

/// Keys of a model family like BART. `activation`, `attention_dropout` and `scales` (whether
/// embeddings are scaled) are the family's defaults for these keys. `tied` is the family's key for
/// tied matrices, and `own` is one further key, which differs between families.
pub(super) const fn keys(
    activation: &'static str,
    attention_dropout: f64,
    scales: bool,
    [tied, own]: [Key; 2],
) -> [Key; 16] {
    [
        // The library Transformers also reads these keys under their general names, such as
        // `hidden_size`.
        Key::count("d_model", 1024, |recipe| &mut recipe.model.d_model).spelled(&["/hidden_size"]),
        Key::count("encoder_layers", 12, |recipe| &mut recipe.model.encoder_layers)
            .spelled(&["/num_hidden_layers"]),
        Key::count("decoder_layers", 12, |recipe| &mut recipe.model.decoder_layers),
        Key::count("encoder_attention_heads", 16, |recipe| &mut recipe.model.heads)
            .spelled(&["/num_attention_heads"]),
        Key::count("decoder_attention_heads", 16, |recipe| &mut recipe.model.heads),
        Key::count("encoder_ffn_dim", 4096, |recipe| &mut recipe.model.d_ff),
        Key::count("decoder_ffn_dim", 4096, |recipe| &mut recipe.model.d_ff),
        Key::count("max_position_embeddings", 1024, |recipe| &mut recipe.model.max_positions),
        Key::activation("activation_function", activation),
        Key::number("dropout", 0.1, DROPOUT),
        Key::number("attention_dropout", attention_dropout, ATTENTION),
        Key::number("activation_dropout", 0.0, INNER),
        Key::flag("scale_embedding", scales, |recipe| &mut recipe.model.scale_embeddings),
        tied,
        Key::only("is_encoder_decoder", Fixed::Flag(true)),
        own,
    ]
}

/// Description of a model family whose tensors have the same names as BART's. Its list of keys is
/// empty; the caller sets it.
pub(super) const fn bart_family(
    name: &'static str,
    model_type: &'static str,
    architectures: &'static [Architecture],
    base: fn(&mut RunConfig),
) -> Family {
    Family { name, model_type, architectures, base, ..SHARED }
}

const SHARED: Family = Family {
    name: "",
    model_type: "",
    architectures: &[],
    base: shared,
    tokens: TokenizerFiles::Languages,
    keys: &[],
    free: &["embedding_dropout", "output_bias"],
    prefix: "model.",
    modules: MODULES,
    copies: COPIES,
    zeros: &[("output.bias", "final_logits_bias")],
    unused: &["*.version"],
};

/// Sets the properties that all models of families like BART share.
pub(super) fn shared(recipe: &mut RunConfig) {
    recipe.data.tokenizer.joint = true;
    recipe.model.tied = Tied::All;
    recipe.model.norm_epsilon = 1e-5;
}

/// Sets the properties that BART and mBART share: learned positions, norms of embeddings and a bias
/// of the output. In the table of positions, row 2 is the first that is used.
pub(super) fn learned(recipe: &mut RunConfig, norm: NormPlacement) {
    shared(recipe);
    recipe.model.norm = norm;
    recipe.model.positions = Positions::Learned;
    recipe.model.position_offset = 2;
    recipe.model.embedding_norm = true;
    recipe.model.output_bias = true;
}

fn base(recipe: &mut RunConfig) {
    learned(recipe, NormPlacement::Post);
    recipe.data.tokenizer.kind = TokenizerKind::Bytes;
}
