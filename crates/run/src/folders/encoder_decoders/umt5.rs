//! umT5 (Chung et al. 2023): mT5 with separate relative position biases in each layer.

use taper_data::Task;

use super::{mt5, t5, t5_keys};
use crate::config::RunConfig;
use crate::folders::family::{Architecture, Family};
use crate::folders::keys::{Fixed, Key};

pub(in crate::folders) static FAMILY: Family = Family {
    name: "umT5",
    model_type: "umt5",
    architectures: &[Architecture::new("UMT5ForConditionalGeneration", Task::Translation, &[])],
    base,
    keys: &[
        t5_keys::WIDTH,
        mt5::INNER_WIDTH,
        mt5::LAYERS,
        mt5::HEADS,
        t5_keys::DECODER_LAYERS,
        t5_keys::HEAD_WIDTH,
        t5_keys::MULTILINGUAL_FEED_FORWARD,
        t5_keys::BUCKETS,
        t5_keys::DISTANCE,
        t5_keys::LONGEST,
        t5_keys::DROPOUT,
        t5_keys::EPSILON,
        t5_keys::TIED,
        t5_keys::SCALE,
        t5_keys::TASKS,
        Key::only("is_encoder_decoder", Fixed::Flag(true)),
    ],
    ..t5::FAMILY
};

fn base(recipe: &mut RunConfig) {
    t5_keys::base(recipe);
    recipe.model.relative_by_layer = true;
}
