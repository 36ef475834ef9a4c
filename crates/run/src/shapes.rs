//! Shapes of published models, for inspection and counting.
//!
//! A shape has the task, the section `[model]` of a recipe (configuration of a training), and the
//! size of the vocabulary. It has no weights: numbers of parameters and operations are computed
//! from it.

use taper_data::{ImageFormat, ImagesConfig};
use taper_model::{
    ActivationKind, ImageClassifier, LanguageModel, MaskedLanguageModel, ModelConfig,
    NormPlacement, Positions,
};

use crate::config::RunConfig;
use crate::tasks::TaskModel;

/// Published model.
#[derive(Debug, Clone)]
pub struct PublishedShape {
    /// Name of the shape in this program.
    pub name: &'static str,
    /// Publication of the model.
    pub source: &'static str,
    /// Task and architecture.
    pub config: RunConfig,
    /// Size of the vocabulary in tokens.
    pub vocabulary: usize,
}

/// Shapes of all published models that this program knows.
#[must_use]
pub fn published_shapes() -> Vec<PublishedShape> {
    let gpt1 = "Radford et al. 2018, section 4.1";
    let gpt2 = "Radford et al. 2019, table 2";
    vec![
        // GPT-1 has norms after each sublayer, and no final norm.
        gpt("gpt1", gpt1, (12, 768, 12), (512, 40_478), NormPlacement::Post),
        gpt("gpt2", gpt2, (12, 768, 12), (1024, 50_257), NormPlacement::Pre),
        gpt("gpt2-medium", gpt2, (24, 1024, 16), (1024, 50_257), NormPlacement::Pre),
        gpt("gpt2-large", gpt2, (36, 1280, 20), (1024, 50_257), NormPlacement::Pre),
        gpt("gpt2-xl", gpt2, (48, 1600, 25), (1024, 50_257), NormPlacement::Pre),
        gpt(
            "gpt3",
            "Brown et al. 2020, table 2.1",
            (96, 12_288, 96),
            (2048, 50_257),
            NormPlacement::Pre,
        ),
        bert("bert-base", (12, 768, 12)),
        bert("bert-large", (24, 1024, 16)),
        vit("vit-b-16", (12, 768, 12)),
        vit("vit-l-16", (24, 1024, 16)),
    ]
}

/// BERT with these numbers of layers, width and attention heads, and with the output layers of its
/// pretraining.
fn bert(name: &'static str, (layers, width, heads): (usize, usize, usize)) -> PublishedShape {
    let model = ModelConfig {
        d_model: width,
        d_ff: 4 * width,
        heads,
        encoder_layers: layers,
        activation: ActivationKind::Gelu,
        norm: NormPlacement::Post,
        norm_epsilon: 1e-12,
        positions: Positions::Learned,
        max_positions: 512,
        scale_embeddings: false,
        ..ModelConfig::default()
    };
    let mut config = RunConfig { name: name.to_owned(), model, ..RunConfig::default() };
    config.task = MaskedLanguageModel::TASK;
    config.data.text.block_length = 512;
    config.data.masked.next_sentence = true;
    let source = "Devlin et al. 2019, section 3";
    PublishedShape { name, source, config, vocabulary: 30_522 }
}

/// Vision transformer with these numbers of layers, width and attention heads, and the 1,000
/// classes of ImageNet.
fn vit(name: &'static str, (layers, width, heads): (usize, usize, usize)) -> PublishedShape {
    let model = ModelConfig {
        d_model: width,
        d_ff: 4 * width,
        heads,
        encoder_layers: layers,
        activation: ActivationKind::Gelu,
        norm: NormPlacement::Pre,
        norm_epsilon: 1e-12,
        positions: Positions::Learned,
        ..ModelConfig::default()
    };
    let mut config = RunConfig { name: name.to_owned(), model, ..RunConfig::default() };
    config.task = ImageClassifier::TASK;
    config.data.images = ImagesConfig {
        format: ImageFormat::Folders,
        labels: (0..1000).map(|class| class.to_string()).collect(),
        size: 224,
        channels: 3,
        patch: 16,
        mean: vec![0.5; 3],
        deviation: vec![0.5; 3],
        ..ImagesConfig::default()
    };
    PublishedShape { name, source: "Dosovitskiy et al. 2021, table 1", config, vocabulary: 0 }
}

/// Decoder with these numbers of layers, width and attention heads, and with these numbers of
/// positions and of tokens in the vocabulary.
fn gpt(
    name: &'static str,
    source: &'static str,
    (layers, width, heads): (usize, usize, usize),
    (positions, vocabulary): (usize, usize),
    norm: NormPlacement,
) -> PublishedShape {
    let model = ModelConfig {
        d_model: width,
        d_ff: 4 * width,
        heads,
        decoder_layers: layers,
        activation: ActivationKind::GeluTanh,
        norm,
        positions: Positions::Learned,
        max_positions: positions,
        scale_embeddings: false,
        ..ModelConfig::default()
    };
    let mut config = RunConfig { name: name.to_owned(), model, ..RunConfig::default() };
    config.task = LanguageModel::TASK;
    config.data.text.block_length = positions;
    PublishedShape { name, source, config, vocabulary }
}
