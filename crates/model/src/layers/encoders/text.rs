//! Encoder of BERT (Devlin et al. 2019, section 3). Its inputs are tokens, positions and segments
//! (0 or 1 for each token, which says to which sentence of a pair the token belongs). Its outputs
//! are one row for each token, and one row for each text.

use crate::config::Pooling;
use crate::cost::PartCost;
use crate::layers::embedding::{EmbeddingNorm, TokenEmbedding};
use crate::layers::head::picked;
use crate::layers::linear::Linear;
use crate::layers::stack::Stack;
use crate::layers::stack::StackKind;
use crate::layers::weight::Weight;
use crate::{Builder, ModelConfig, ModelError, Pass, Sequences};
use candle_core::{DType, Device, Result, Tensor};
use std::sync::Arc;
use taper_ops::{EmbeddingSpec, composed};

/// Computes `stack(dropout(norm(token + position + segment)))`.
#[derive(Debug, Clone)]
pub(crate) struct TextEncoder {
    tokens: TokenEmbedding,
    segments: Weight,
    norm: EmbeddingNorm,
    stack: Stack,
}

impl TextEncoder {
    /// Makes the encoder; `table (V, D)` is the embedding of the V tokens of the vocabulary.
    pub(crate) fn new(build: &mut Builder, table: Weight, config: &ModelConfig) -> Result<Self> {
        Ok(Self {
            tokens: TokenEmbedding::new(build, "encoder", table, &without_norm(config))?,
            segments: build.embedding(
                "encoder.segments.weight",
                config.segments,
                config.d_model,
            )?,
            norm: EmbeddingNorm::new(build, "encoder", config)?,
            stack: Stack::new(build, "encoder", config, config.encoder_layers, StackKind::Encoder)?,
        })
    }

    /// Makes an encoder that has an embedding of its own. This is the first part of every model
    /// that analyses a text without writing one. The parameters have the same names as in a
    /// [`MaskedLanguageModel`](crate::MaskedLanguageModel), so that the encoder can begin with the
    /// weights of such a model.
    pub(crate) fn with_embedding(
        build: &mut Builder,
        config: &ModelConfig,
        vocabulary: usize,
    ) -> Result<Self> {
        let table = build.token_table("embedding.weight", vocabulary, config.d_model)?;
        Self::new(build, table, config)
    }

    /// Encodes whole texts, after checking their lengths and that each token has a segment.
    ///
    /// # Shapes
    /// N tokens → `(N, D)`, where D is the width of the model.
    ///
    /// # Errors
    /// If an id is not in the vocabulary, if a segment is neither 0 nor 1, if the number of
    /// segments is not the number of tokens, or if a text is longer than the learned positions.
    pub(crate) fn states(
        &self,
        (segments, text): (&Sequences, &Sequences),
        pass: &Pass,
    ) -> std::result::Result<Tensor, ModelError> {
        text.check()?;
        if segments.lengths != text.lengths {
            return Err(ModelError::Batch("segments are not as long as their texts".to_owned()));
        }
        Ok(self.forward(text, segments.ids.as_slice().into(), pass)?)
    }

    /// Encodes whole texts; `segments` has 0 or 1 for each token.
    ///
    /// # Shapes
    /// N tokens → `(N, D)`.
    pub(crate) fn forward(
        &self,
        text: &Sequences,
        segments: Arc<[u32]>,
        pass: &Pass,
    ) -> Result<Tensor> {
        let tokens = self.tokens.forward(text, pass)?; // (N, D)
        let table = self.segments.get(pass);
        let segments = if table.dim(0)? == 1 { vec![0; segments.len()].into() } else { segments };
        // The operation adds to each token's row the row of the token's segment, in place of a
        // position.
        let spec = EmbeddingSpec {
            ids: (0..text.ids.len() as u32).collect(),
            positions: segments,
            scale: 1.0,
            dropout: taper_ops::Dropout::none(),
        };
        let x = taper_ops::embedding(pass.tape(), &tokens, Some(table), &spec)?;
        self.stack.forward(self.norm.forward(&x, pass)?, text, None, pass) // (N, D)
    }
}

/// Returns the configuration for the embedding of tokens, without norm and dropout: these come only
/// after segments are added.
fn without_norm(config: &ModelConfig) -> ModelConfig {
    ModelConfig { embedding_norm: false, embedding_dropout: 0.0, ..config.clone() }
}

/// Pooler: computes `tanh(W h + b)` from the state h of each text's first token.
#[derive(Debug, Clone)]
pub(crate) struct Pooler(Linear);

impl Pooler {
    pub(crate) fn new(build: &mut Builder, width: usize) -> Result<Self> {
        let linear = |build: &mut Builder| Linear::new(build, "pooler", width, width, 1);
        Ok(Self(build.counted_as(PartCost::once, linear)?))
    }

    /// Pools the first tokens of texts.
    ///
    /// # Shapes
    /// `hidden (N, D)`, the indices of B rows → `(B, D)`.
    pub(crate) fn forward(&self, hidden: &Tensor, rows: Arc<[u32]>, pass: &Pass) -> Result<Tensor> {
        let first = picked(hidden, rows, taper_ops::Dropout::none(), pass)?;
        let x = self.0.forward(&first, pass)?;
        composed::on_tape(pass.tape(), "tanh", &[&x], |inputs| inputs[0].tanh())
    }
}

/// Pooling of the states of a text into one row, from which the text's class is predicted.
#[derive(Debug, Clone)]
pub(crate) enum TextPooling {
    /// The state of the text's first token, `<cls>` (Devlin et al. 2019, section 4.1).
    ClassToken(Pooler),
    /// The mean over the text's tokens, special ones included (Reimers and Gurevych 2019,
    /// "Sentence-BERT", section 3). It has no parameters.
    Mean,
}

impl TextPooling {
    pub(crate) fn new(build: &mut Builder, config: &ModelConfig) -> Result<Self> {
        Ok(match config.pooling {
            Pooling::ClassToken => Self::ClassToken(Pooler::new(build, config.d_model)?),
            Pooling::Mean => {
                // The states are kept in f32, in which they are summed.
                build.count(PartCost::kept(config.d_model));
                Self::Mean
            }
        })
    }

    /// Pools the states of whole texts.
    ///
    /// # Shapes
    /// `hidden (N, D)` of B texts, none of them empty → `(B, D)`.
    pub(crate) fn forward(
        &self,
        hidden: &Tensor,
        lengths: &[usize],
        pass: &Pass,
    ) -> Result<Tensor> {
        match self {
            Self::ClassToken(pooler) => pooler.forward(hidden, first_rows(lengths), pass),
            Self::Mean => mean_of_rows(hidden, lengths, pass),
        }
    }
}

/// Computes the mean of the rows of each sequence, none of which may be empty: `(N, D)` → `(B, D)`.
///
/// Sums are in f32 or wider, and taken row after row in the order of the text, so that a sequence
/// has the same mean in a batch as alone.
fn mean_of_rows(hidden: &Tensor, lengths: &[usize], pass: &Pass) -> Result<Tensor> {
    let (count, device) = (lengths.len(), hidden.device());
    let wide = if hidden.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
    let sequence_of_row: Vec<u32> = (0_u32..)
        .zip(lengths)
        .flat_map(|(sequence, &length)| std::iter::repeat_n(sequence, length))
        .collect();
    let shares: Vec<f64> = lengths.iter().map(|&length| 1.0 / length as f64).collect();
    let (rows, width) = hidden.dims2()?;
    let sequence_of_row = Tensor::from_vec(sequence_of_row, rows, device)?;
    let shares = Tensor::from_vec(shares, (count, 1), &Device::Cpu)?.to_dtype(wide)?;
    let shares = shares.to_device(device)?;
    composed::on_tape(pass.tape(), "mean of tokens", &[hidden], |inputs| {
        let rows = inputs[0].to_dtype(wide)?;
        let sums = Tensor::zeros((count, width), wide, device)?;
        let sums = sums.index_add(&sequence_of_row, &rows, 0)?; // (B, D)
        sums.broadcast_mul(&shares)?.to_dtype(inputs[0].dtype())
    })
}

/// Returns the index of the first row of each sequence.
pub(crate) fn first_rows(lengths: &[usize]) -> Arc<[u32]> {
    let mut first = 0;
    let row = |&length: &usize| {
        first += length as u32;
        first - length as u32
    };
    lengths.iter().map(row).collect()
}
