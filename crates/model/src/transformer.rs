//! The encoder-decoder Transformer: embeddings, two stacks, output projection and loss.

use crate::block::{Stack, StackKind};
use crate::config::{ModelConfig, Tied};
use crate::positions::{Added, to_compute};
use crate::weight::{Builder, Weight};
use crate::{ModelError, Pass, Sequences};
use candle_core::{DType, Device, Tensor};
use std::sync::Arc;
use taper_ops::rng::name_key;
use taper_ops::{CrossEntropySpec, EmbeddingSpec, LossSums, ParameterStore, Products};

/// What a model is trained towards.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Objective {
    /// Probability mass of the target distribution that is spread over the whole vocabulary.
    pub label_smoothing: f64,
    /// Above 0, the factor α of R-Drop (Liang et al. 2021, section 2.2): the batch passes twice,
    /// with different dropout, and the loss of a token is `(CE₁ + CE₂) / 2 + α (KL(p₁‖p₂) +
    /// KL(p₂‖p₁)) / 2`.
    ///
    /// The paper adds the divergences to the sum of the cross entropies and not to their mean: its
    /// α is twice this one, for twice this loss. The mean keeps losses, gradients and clipping
    /// on the scale of one pass.
    pub r_drop: f64,
}

impl Objective {
    /// Label-smoothed cross entropy in one pass.
    #[must_use]
    pub const fn smoothed(label_smoothing: f64) -> Self {
        Self { label_smoothing, r_drop: 0.0 }
    }

    /// How often a batch passes through the model.
    #[must_use]
    pub fn passes(&self) -> usize {
        if self.r_drop > 0.0 { 2 } else { 1 }
    }
}

/// The loss of a batch; with two passes, sums are means over the two.
#[derive(Debug, Clone)]
pub struct LossOutput {
    /// `scale · Σ` of the objective: what [`Pass::backward`] starts from.
    pub loss: Tensor,
    /// Sum of the label-smoothed cross entropy over target tokens, in nats.
    pub smoothed_sum: f64,
    /// Sum of the negative log-likelihood over target tokens, in nats.
    pub nll_sum: f64,
    /// Sum of the divergences `(KL(p₁‖p₂) + KL(p₂‖p₁)) / 2` over target tokens, in nats; 0 with
    /// one pass.
    pub divergence_sum: f64,
    /// Target tokens whose true class scored highest; half of one is none.
    pub correct: usize,
    /// Target tokens.
    pub tokens: usize,
}

/// The result of the encoder, as the decoder attends to it.
#[derive(Debug, Clone)]
pub struct Memory {
    pub(crate) hidden: Tensor,
    pub(crate) lengths: Arc<[usize]>,
}

impl Memory {
    /// Packed rows `(M, D)`, one for each source token.
    #[must_use]
    pub fn hidden(&self) -> &Tensor {
        &self.hidden
    }
}

/// An encoder-decoder Transformer with its parameters.
#[derive(Debug, Clone)]
pub struct Transformer {
    pub(crate) config: ModelConfig,
    store: ParameterStore,
    vocab_source: usize,
    vocab_target: usize,
    pub(crate) compute: DType,
    products: Products,
    source_embedding: Weight,
    target_embedding: Weight,
    output: Weight,
    source_positions: Added,
    target_positions: Added,
    encoder: Stack,
    pub(crate) decoder: Stack,
}

impl Transformer {
    /// Makes a model with freshly drawn parameters: one seed, one model, on any device and number
    /// of threads.
    ///
    /// `compute` is the type of activations, or on the CPU that of the operands of matrix products;
    /// parameters are f32.
    ///
    /// # Errors
    /// When the configuration is impossible, or the device has no memory left.
    pub fn new(
        config: &ModelConfig,
        vocab_source: usize,
        vocab_target: usize,
        seed: u64,
        device: &Device,
        compute: DType,
    ) -> Result<Self, ModelError> {
        Self::build(config, (vocab_source, vocab_target), Some(seed), device, compute)
    }

    /// The type of the activations: f32 on the CPU, whatever its products round to.
    #[must_use]
    pub const fn activations(&self) -> DType {
        self.compute
    }

    /// As [`Transformer::new`] with every parameter zero, to be loaded: drawing takes longer than
    /// reading.
    ///
    /// # Errors
    /// As [`Transformer::new`].
    pub fn blank(
        config: &ModelConfig,
        vocab_source: usize,
        vocab_target: usize,
        device: &Device,
        compute: DType,
    ) -> Result<Self, ModelError> {
        Self::build(config, (vocab_source, vocab_target), None, device, compute)
    }

    fn build(
        config: &ModelConfig,
        (vocab_source, vocab_target): (usize, usize),
        seed: Option<u64>,
        device: &Device,
        compute: DType,
    ) -> Result<Self, ModelError> {
        config.validate(vocab_source == vocab_target)?;
        let mut store = ParameterStore::new(device);
        // Where the products alone are rounded, everything else is in f32.
        let products = Products::of(compute, device);
        let compute = if products == Products::Bf16 { DType::F32 } else { compute };
        let build = &mut Builder { store: &mut store, seed, biases: config.biases, products };
        let width = config.d_model;
        let (source_embedding, target_embedding, output) = match config.tied {
            Tied::All => {
                let shared = build.embedding("embedding.weight", vocab_target, width)?;
                (shared.clone(), shared.clone(), shared)
            }
            Tied::Decoder => {
                let source = build.embedding("source_embedding.weight", vocab_source, width)?;
                let target = build.embedding("target_embedding.weight", vocab_target, width)?;
                (source, target.clone(), target)
            }
            Tied::None => (
                build.embedding("source_embedding.weight", vocab_source, width)?,
                build.embedding("target_embedding.weight", vocab_target, width)?,
                build.embedding("output.weight", vocab_target, width)?,
            ),
        };
        let source_positions = Added::new(build, "encoder.positions", config)?;
        let target_positions = Added::new(build, "decoder.positions", config)?;
        let encoder =
            Stack::new(build, "encoder", config, config.encoder_layers, StackKind::Encoder)?;
        let decoder =
            Stack::new(build, "decoder", config, config.decoder_layers, StackKind::Decoder)?;
        Ok(Self {
            config: config.clone(),
            store,
            vocab_source,
            vocab_target,
            compute,
            products,
            source_embedding,
            target_embedding,
            output,
            source_positions,
            target_positions,
            encoder,
            decoder,
        })
    }

    /// The shape of the model.
    #[must_use]
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// The parameters, in order.
    #[must_use]
    pub fn parameters(&self) -> &ParameterStore {
        &self.store
    }

    /// Size of the source vocabulary.
    #[must_use]
    pub fn vocab_source(&self) -> usize {
        self.vocab_source
    }

    /// Size of the target vocabulary.
    #[must_use]
    pub fn vocab_target(&self) -> usize {
        self.vocab_target
    }

    /// The device on which the model computes.
    #[must_use]
    pub fn device(&self) -> &Device {
        self.store.device()
    }

    fn embed(
        &self,
        table: &Weight,
        added: &Added,
        sequences: &Sequences,
        site: &str,
        pass: &Pass,
    ) -> Result<Tensor, ModelError> {
        if !sequences.is_consistent() {
            return Err(ModelError::Lengths {
                ids: sequences.ids.len(),
                lengths: sequences.lengths.iter().sum(),
            });
        }
        let longest = sequences.lengths.iter().copied().max().unwrap_or(0);
        let positions = added.table(longest, pass, self.device())?;
        self.embed_at(
            table,
            positions.as_ref(),
            sequences.ids.as_slice().into(),
            sequences.positions(),
            site,
            pass,
        )
    }

    fn embed_at(
        &self,
        table: &Weight,
        positions: Option<&Tensor>,
        ids: Arc<[u32]>,
        at: Arc<[u32]>,
        site: &str,
        pass: &Pass,
    ) -> Result<Tensor, ModelError> {
        let scale =
            if self.config.scale_embeddings { (self.config.d_model as f64).sqrt() } else { 1.0 };
        let dropout = pass.dropout(self.config.embedding_dropout, name_key(site));
        let out = taper_ops::embedding(
            pass.tape(),
            table.get(pass),
            positions,
            &EmbeddingSpec { ids, positions: at, scale, dropout },
        )?;
        Ok(to_compute(out, self.compute)?)
    }

    /// Embeds one new target token for each row, all at `position`: `(R, D)`.
    pub(crate) fn embed_step(
        &self,
        tokens: &[u32],
        position: usize,
        pass: &Pass,
    ) -> Result<Tensor, ModelError> {
        let table = self.target_positions.table(position + 1, pass, self.device())?;
        let at = vec![position as u32; tokens.len()];
        self.embed_at(
            &self.target_embedding,
            table.as_ref(),
            tokens.into(),
            at.into(),
            "decoder.embedding",
            pass,
        )
    }

    /// Runs the encoder.
    ///
    /// # Errors
    /// When an id is not in the vocabulary, or a sequence is longer than learned positions reach.
    pub fn encode(&self, source: &Sequences, pass: &Pass) -> Result<Memory, ModelError> {
        let x = self.embed(
            &self.source_embedding,
            &self.source_positions,
            source,
            "encoder.embedding",
            pass,
        )?;
        let lengths: Arc<[usize]> = source.lengths.as_slice().into();
        let positions = self.encoder.relative.prepare(source, pass)?;
        let hidden = self.encoder.forward(x, &lengths, &positions, None, pass)?;
        Ok(Memory { hidden, lengths })
    }

    /// Runs the decoder over whole target sequences (teacher forcing).
    ///
    /// # Shapes
    /// One target sequence for each source sequence → packed `(N, D)`.
    ///
    /// # Errors
    /// As [`Transformer::encode`]; and when the numbers of sequences differ.
    pub fn decode(
        &self,
        target: &Sequences,
        memory: &Memory,
        pass: &Pass,
    ) -> Result<Tensor, ModelError> {
        let x = self.embed(
            &self.target_embedding,
            &self.target_positions,
            target,
            "decoder.embedding",
            pass,
        )?;
        let lengths: Arc<[usize]> = target.lengths.as_slice().into();
        let positions = self.decoder.relative.prepare(target, pass)?;
        Ok(self.decoder.forward(
            x,
            &lengths,
            &positions,
            Some((&memory.hidden, &memory.lengths)),
            pass,
        )?)
    }

    /// The output projection, in f32: `(N, D)` → `(N, V)`.
    ///
    /// # Errors
    /// When the width is not the model's.
    pub fn logits(&self, hidden: &Tensor, pass: &Pass) -> Result<Tensor, ModelError> {
        let spec = taper_ops::LinearSpec { products: self.products, ..Default::default() };
        Ok(to_compute(self.output.apply(hidden, None, None, &spec, pass)?, DType::F32)?)
    }

    /// The objective on a batch; `loss` is `scale` times its sum over the target tokens.
    ///
    /// For the mean over the tokens of an update, `scale` is one over their number, over all
    /// micro-batches.
    ///
    /// # Errors
    /// As [`Transformer::decode`]; and when a target is not in the vocabulary.
    pub fn loss(
        &self,
        source: &Sequences,
        target_in: &Sequences,
        target_out: &[u32],
        objective: &Objective,
        scale: f64,
        pass: &Pass,
    ) -> Result<LossOutput, ModelError> {
        let Objective { label_smoothing: smoothing, r_drop } = *objective;
        let spec = |scale| CrossEntropySpec { smoothing, r_drop, scale, products: self.products };
        if objective.passes() == 1 {
            return self.loss_of_rows(source, target_in, target_out, &spec(scale), pass);
        }
        // Elements are dropped by their number in the batch: in one of twice the size, the second
        // pass drops others than the first.
        let rows = self.loss_of_rows(
            &source.twice(),
            &target_in.twice(),
            &target_out.repeat(2),
            &spec(scale / 2.0),
            pass,
        )?;
        Ok(LossOutput {
            loss: rows.loss,
            smoothed_sum: rows.smoothed_sum / 2.0,
            nll_sum: rows.nll_sum / 2.0,
            divergence_sum: rows.divergence_sum / 2.0,
            correct: rows.correct / 2,
            tokens: rows.tokens / 2,
        })
    }

    fn loss_of_rows(
        &self,
        source: &Sequences,
        target_in: &Sequences,
        target_out: &[u32],
        spec: &CrossEntropySpec,
        pass: &Pass,
    ) -> Result<LossOutput, ModelError> {
        let memory = self.encode(source, pass)?;
        let hidden = self.decode(target_in, &memory, pass)?;
        let (loss, LossSums { smoothed, nll, correct, divergence }) =
            taper_ops::smoothed_cross_entropy(
                pass.tape(),
                &hidden,
                self.output.get(pass),
                target_out,
                spec,
            )?;
        let tokens = target_out.len();
        Ok(LossOutput {
            loss,
            smoothed_sum: smoothed,
            nll_sum: nll,
            divergence_sum: divergence,
            correct,
            tokens,
        })
    }
}
