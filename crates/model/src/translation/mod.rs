//! Translation: a source is read as a whole, and a target is written token by token.
//!
//! [`TranslationModel`] has what every such model has: embeddings, output projection, loss and
//! decoding. Between embeddings and output are the layers of its
//! [`Architecture`](crate::Architecture), which implement one trait ([`encoder_decoder`]).

mod architecture;
mod convolutional;
mod encoder_decoder;
mod inference;
mod recurrent;
mod transformer;

use crate::builder::tally::Stream;
use crate::config::{ModelConfig, Tied};
use crate::cost::LayerCost;
use crate::layers::embedding::TokenEmbedding;
use crate::layers::encoders::vision::PatchEmbedding;
use crate::layers::guidance::Guide;
use crate::layers::head::Head;
use crate::layers::weight::Weight;
use crate::{
    Batch, Builder, ImageShape, LossOutput, LossSpec, Model, ModelCore, Pass, Result, Sequences,
};
use candle_core::Tensor;
use encoder_decoder::EncoderDecoder;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

pub(crate) use inference::in_blocks;
pub use inference::{DecodeState, Inference};

/// Output of an encoder, to which a decoder attends.
#[derive(Debug, Clone)]
pub struct EncoderOutput {
    pub(crate) hidden: Tensor,
    pub(crate) lengths: Arc<[usize]>,
}

impl EncoderOutput {
    /// Rows `(M, E)`, one source after the other, without padding. M is the number of source tokens
    /// or image patches, and E is the width of the encoder's output, in a Transformer the width of
    /// the model.
    #[must_use]
    pub fn hidden(&self) -> &Tensor {
        &self.hidden
    }

    /// Range of rows of each source.
    pub(crate) fn ranges(&self) -> Vec<Range<usize>> {
        let mut first = 0;
        let of_length = |&length: &usize| {
            first += length;
            first - length..first
        };
        self.lengths.iter().map(of_length).collect()
    }
}

/// An encoder-decoder with its parameters.
#[derive(Debug, Clone)]
pub struct TranslationModel {
    core: ModelCore,
    source: SourceKind,
    vocab_target: usize,
    source_embedding: SourceEmbedding,
    target_embedding: TokenEmbedding,
    layers: Arc<dyn EncoderDecoder>,
    output: Head,
    /// True if decoding multiplies in int8.
    is_int8: bool,
}

/// Kind of the sources of a model.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum SourceKind {
    /// Text, with a vocabulary of this size.
    Text(usize),
    /// Images.
    Images(ImageShape),
}

impl SourceKind {
    /// Number of different ids that a source can have.
    fn vocabulary(&self) -> usize {
        match self {
            Self::Text(size) => *size,
            Self::Images(_) => 256,
        }
    }

    /// Name of the stream (kind of input of a batch) that has the sources.
    fn stream(&self) -> &'static str {
        match self {
            Self::Text(_) => "source",
            Self::Images(_) => "image",
        }
    }

    /// Which embedding matrices are shared; images have no matrix to share.
    fn tied(&self, config: &ModelConfig) -> Tied {
        match (self, config.tied) {
            (Self::Images(_), Tied::All) => Tied::Decoder,
            (Self::Images(_), Tied::Embeddings) => Tied::None,
            (_, tied) => tied,
        }
    }
}

/// Embedding of the sources, whose result is the input of the first layer.
#[derive(Debug, Clone)]
enum SourceEmbedding {
    Tokens(TokenEmbedding),
    Patches(PatchEmbedding),
}

/// Makes the embedding matrix of the source, the embedding matrix of the target, and the matrix of
/// the output projection. `tied` says which of the three are the same matrix; `source` and `target`
/// are the sizes of the vocabularies.
fn tables(
    build: &mut Builder,
    tied: Tied,
    (source, target): (usize, usize),
    width: usize,
) -> candle_core::Result<[Weight; 3]> {
    if tied.ties_embeddings() {
        let shared = build.token_table("embedding.weight", target, width)?;
        let output = match tied.ties_output() {
            true => shared.clone(),
            false => build.token_table("output.weight", target, width)?,
        };
        return Ok([shared.clone(), shared, output]);
    }
    let source = build.token_table("source_embedding.weight", source, width)?;
    let [target, output] = target_tables(build, tied, target, width)?;
    Ok([source, target, output])
}

/// Makes the embedding matrix of the target and the matrix of the output projection, for a model
/// whose source does not share them. `tied` says whether these two are the same matrix.
fn target_tables(
    build: &mut Builder,
    tied: Tied,
    target: usize,
    width: usize,
) -> candle_core::Result<[Weight; 2]> {
    let embedding = build.token_table("target_embedding.weight", target, width)?;
    let output = match tied.ties_output() {
        true => embedding.clone(),
        false => build.token_table("output.weight", target, width)?,
    };
    Ok([embedding, output])
}

/// Another name of [`TranslationModel`], after its most common architecture (Vaswani et al. 2017,
/// figure 1).
pub type Transformer = TranslationModel;

impl TranslationModel {
    /// Makes a model from `builder`.
    ///
    /// # Errors
    /// If the configuration is impossible, or the device has no memory left.
    pub fn new(
        config: &ModelConfig,
        vocab_source: usize,
        vocab_target: usize,
        builder: Builder,
    ) -> Result<Self> {
        Self::with_source(config, (SourceKind::Text(vocab_source), vocab_target), builder)
    }

    /// Makes a model whose sources are texts or images; see [`TranslationModel::new`].
    pub(crate) fn with_source(
        config: &ModelConfig,
        (source, vocab_target): (SourceKind, usize),
        builder: Builder,
    ) -> Result<Self> {
        let (width, tied) = (config.d_model, source.tied(config));
        builder.check(|| {
            config.validate(!tied.ties_embeddings() || source.vocabulary() == vocab_target)
        })?;
        let mut builder = builder.with_biases(config.biases);
        let build = &mut builder;
        let (source_embedding, target_table, output) = match &source {
            SourceKind::Text(size) => {
                let [source, target, output] = tables(build, tied, (*size, vocab_target), width)?;
                let tokens = build.in_stream(Stream::First, |build| {
                    TokenEmbedding::new(build, "encoder", source, config)
                })?;
                (SourceEmbedding::Tokens(tokens), target, output)
            }
            SourceKind::Images(shape) => {
                let patches = build
                    .in_stream(Stream::First, |build| PatchEmbedding::new(build, shape, config))?;
                let [target, output] = target_tables(build, tied, vocab_target, width)?;
                (SourceEmbedding::Patches(patches), target, output)
            }
        };
        let target_embedding = TokenEmbedding::new(build, "decoder", target_table, config)?;
        let layers = architecture::layers(build, config)?;
        let output =
            Head::of_vocabulary(build, (output, vocab_target), config, config.output_bias)?;
        let streams = [source.stream(), "target"];
        Ok(Self {
            core: builder.finish(config, &streams),
            source,
            vocab_target,
            source_embedding,
            target_embedding,
            layers,
            output,
            is_int8: false,
        })
    }

    /// Number of tokens in the source vocabulary; for images, the number of values that a pixel can
    /// have.
    #[must_use]
    pub fn vocab_source(&self) -> usize {
        self.source.vocabulary()
    }

    /// Number of tokens in the target vocabulary.
    #[must_use]
    pub fn vocab_target(&self) -> usize {
        self.vocab_target
    }

    /// Name of the layer whose attention shows best from which source tokens a target token comes;
    /// a [`Pass`] records the layer's attention under this name. `None` if no layer attends to the
    /// source.
    #[must_use]
    pub fn aligning_layer(&self) -> Option<String> {
        self.layers.aligning_layer()
    }

    /// Runs the encoder.
    ///
    /// # Shapes
    /// M source tokens, or patches of images → `(M, E)`, one row for each of them, one source after
    /// the other; E is the width of the encoder's output.
    ///
    /// # Errors
    /// If an id is not in the vocabulary, an image does not have the model's shape, or a sequence
    /// is longer than the learned positions.
    pub fn encode(&self, source: &Sequences, pass: &Pass) -> Result<EncoderOutput> {
        source.check()?;
        let (x, divided) = match &self.source_embedding {
            SourceEmbedding::Tokens(tokens) => {
                (tokens.forward(source, pass)?, Cow::Borrowed(source))
            }
            SourceEmbedding::Patches(patches) => {
                patches.shape().check(source)?;
                let (x, divided) = patches.forward(source, pass)?;
                (x, Cow::Owned(divided))
            }
        }; // (M, D)
        let hidden = self.layers.encode(x, &divided, pass)?; // (M, E)
        Ok(EncoderOutput { hidden, lengths: divided.lengths.as_slice().into() })
    }

    /// Runs the decoder on whole target sequences (teacher forcing).
    ///
    /// # Shapes
    /// One target sequence for each source sequence, N tokens in all → `(N, D)`, one row for each
    /// token, one sequence after the other; D is the width of the model.
    ///
    /// # Errors
    /// The errors of [`TranslationModel::encode`], and an error if the numbers of sequences differ.
    pub fn decode(
        &self,
        target: &Sequences,
        encoded: &EncoderOutput,
        pass: &Pass,
    ) -> Result<Tensor> {
        self.decode_guided(target, encoded, None, pass)
    }

    /// Runs [`TranslationModel::decode`]. If there is a `guide`, which has word alignments, adds to
    /// the pass the loss that makes one attention head follow them.
    fn decode_guided(
        &self,
        target: &Sequences,
        encoded: &EncoderOutput,
        guide: Option<&Guide>,
        pass: &Pass,
    ) -> Result<Tensor> {
        target.check()?;
        let x = self.target_embedding.forward(target, pass)?; // (N, D)
        Ok(self.layers.decode(x, target, encoded, guide, pass)?) // (N, D)
    }

    /// Applies the output projection, in f32.
    ///
    /// # Shapes
    /// `(N, D)` → `(N, V)`, where V is the size of the target vocabulary.
    ///
    /// # Errors
    /// If the width of `hidden` is not the model's.
    pub fn logits(&self, hidden: &Tensor, pass: &Pass) -> Result<Tensor> {
        Ok(self.output.logits(hidden, pass)?)
    }
}

/// Reads two streams (kinds of input of a batch): the source, which is a text or an image, and the
/// target, which begins with `<s>` so that each token predicts the next one.
impl Model for TranslationModel {
    fn core(&self) -> &ModelCore {
        &self.core
    }

    fn layer_cost(config: &ModelConfig, layer: usize) -> LayerCost {
        architecture::layer_cost(config, layer)
    }

    fn answer_classes(&self) -> Option<usize> {
        Some(self.vocab_target)
    }

    fn loss_of_pass(&self, batch: &Batch, spec: LossSpec<'_>) -> Result<LossOutput> {
        let [source, target] = batch.read([self.source.stream(), "target"])?;
        let encoded = self.encode(source, spec.pass)?;
        let guide = Guide::new(spec.objective.guidance, batch, self.config())?;
        let hidden = self.decode_guided(target, &encoded, guide.as_ref(), spec.pass)?;
        Ok(self.output.loss(&hidden, batch, spec)?)
    }
}
