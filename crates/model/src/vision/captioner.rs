//! A captioner of images: an encoder of images, and a decoder of text that attends to the encoder
//! (Vinyals et al. 2015, "Show and Tell", section 3; with attention to places, Xu et al. 2015).
//!
//! **Decision.** A captioner is a translation model whose sources are images: patches replace
//! tokens, and everything after the embedding, from cross-attention to search, is shared with
//! translation. The alternative, a second decoder with its own cache, would have to be kept equal
//! to the first.

use crate::config::{Architecture, ImageEncoder, ModelConfig};
use crate::cost::LayerCost;
use crate::layers::encoders::vision::validate;
use crate::translation::SourceKind;
use crate::{
    Batch, Builder, ImageShape, LossOutput, LossSpec, Model, ModelCore, ModelError, Result,
    TranslationModel,
};

/// A captioner with its parameters. The image encoder's parameters have the same names as in an
/// [`ImageClassifier`](crate::ImageClassifier), so that a captioner can begin with the weights of
/// such a model.
#[derive(Debug, Clone)]
pub struct ImageCaptioner(TranslationModel);

impl ImageCaptioner {
    /// Makes a model from `builder`.
    ///
    /// # Errors
    /// If the configuration is impossible, or the device has no memory left.
    pub fn new(
        config: &ModelConfig,
        shape: &ImageShape,
        vocabulary: usize,
        builder: Builder,
    ) -> Result<Self> {
        builder.check(|| {
            shape.validate()?;
            require_patches(config)
        })?;
        let source = SourceKind::Images(shape.clone());
        TranslationModel::with_source(config, (source, vocabulary), builder).map(Self)
    }

    /// The translation model that a captioner consists of, for search, scores and rounding.
    #[must_use]
    pub fn translation(&self) -> &TranslationModel {
        &self.0
    }

    /// Rounds the weights to int8; see [`TranslationModel::round_to_int8`].
    ///
    /// # Errors
    /// If a weight is not finite.
    pub fn round_to_int8(&mut self) -> Result<()> {
        self.0.round_to_int8()
    }
}

/// Refuses configurations that models of images and texts do not support. Their image encoder must
/// be a Transformer, which outputs one row for each patch.
///
/// # Errors
/// If a setting is not supported; the error names the key, its value and the requirement.
pub(super) fn require_patches(config: &ModelConfig) -> Result<()> {
    if config.architecture == Architecture::Transformer
        && config.image_encoder == ImageEncoder::Convolutional
    {
        return Err(ModelError::Config(
            "model.image_encoder = \"convolutional\" is only for classifiers of images; models \
             that read images and text need \"transformer\""
                .to_owned(),
        ));
    }
    config.require_transformer()?;
    validate(config)
}

/// Reads two streams (kinds of input of a batch): the values of images, and captions that begin
/// with `<s>`, so that each token predicts the next one.
impl Model for ImageCaptioner {
    fn core(&self) -> &ModelCore {
        self.0.core()
    }

    fn layer_cost(config: &ModelConfig, layer: usize) -> LayerCost {
        TranslationModel::layer_cost(config, layer)
    }

    fn answer_classes(&self) -> Option<usize> {
        self.0.answer_classes()
    }

    fn loss_of_pass(&self, batch: &Batch, spec: LossSpec<'_>) -> Result<LossOutput> {
        self.0.loss_of_pass(batch, spec)
    }
}
