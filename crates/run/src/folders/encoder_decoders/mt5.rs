//! mT5 (Xue et al. 2021): T5 of version 1.1, trained on texts in 101 languages.

use taper_data::Task;

use super::{t5, t5_keys};
use crate::folders::family::{Architecture, Family};
use crate::folders::keys::{Fixed, Key};

pub(in crate::folders) static FAMILY: Family = Family {
    name: "mT5",
    model_type: "mt5",
    architectures: &[Architecture::new("MT5ForConditionalGeneration", Task::Translation, &[])],
    keys: &[
        t5_keys::WIDTH,
        INNER_WIDTH,
        LAYERS,
        HEADS,
        t5_keys::DECODER_LAYERS,
        t5_keys::HEAD_WIDTH,
        t5_keys::MULTILINGUAL_FEED_FORWARD,
        t5_keys::BUCKETS,
        t5_keys::DISTANCE,
        t5_keys::LONGEST,
        t5_keys::DROPOUT,
        t5_keys::EPSILON,
        t5_keys::TIED,
        t5_keys::TASKS,
        Key::only("is_encoder_decoder", Fixed::Flag(true)),
    ],
    ..t5::FAMILY
};

pub(super) const INNER_WIDTH: Key = Key::count("d_ff", 1024, |recipe| &mut recipe.model.d_ff);
pub(super) const LAYERS: Key =
    Key::count("num_layers", 8, |recipe| &mut recipe.model.encoder_layers)
        .spelled(t5_keys::GENERAL_LAYERS);
pub(super) const HEADS: Key =
    Key::count("num_heads", 6, |recipe| &mut recipe.model.heads).spelled(t5_keys::GENERAL_HEADS);
