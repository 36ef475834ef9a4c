//! Encoders of images and texts, and the state from which their class is predicted.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Image encoder of a classifier; models of images and text always use a Transformer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "kebab-case")]
pub enum ImageEncoder {
    /// Layers of attention over patches (Dosovitskiy et al. 2021).
    #[default]
    Transformer,
    /// `encoder_layers` convolutions of 3 x 3 pixels, the first with `d_model` channels; every
    /// second one has stride 2 and twice as many channels. The class is predicted from the mean
    /// over all positions.
    Convolutional,
}

/// State from which the class of an image or of a text is predicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "kebab-case")]
pub enum Pooling {
    /// The state of an additional token before the patches (Dosovitskiy et al. 2021, section 3.1);
    /// for texts the state of `<cls>`, which passes through a further layer (Devlin et al. 2019,
    /// section 4.1).
    #[default]
    ClassToken,
    /// The mean of all patches, without an additional token (Beyer et al. 2022, "Better plain ViT
    /// baselines for ImageNet-1k"); for texts the mean of all tokens, special ones included,
    /// without a further layer (Reimers and Gurevych 2019, "Sentence-BERT", section 3).
    Mean,
}
