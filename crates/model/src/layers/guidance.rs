//! Guided alignment: attention that learns the source word of each target word.
//!
//! Chen et al. 2016, "Guided Alignment Training for Topic-Aware Neural Machine Translation",
//! section 3; Garg et al. 2019, "Jointly Learning to Align and Translate with Transformer Models",
//! section 4.2. Let A be the attention weights of one head in one decoder layer, and G the matrix
//! of links (pairs of aligned words), whose rows sum to 1 or are empty. The loss of a batch of N
//! answers is
//!
//! ```text
//! − λ/N · Σ_t Σ_s G_ts log A_ts
//! ```
//!
//! Here λ is the weight of this loss ([`Guidance::weight`]), t an answer (a target token that is
//! predicted), and s a source token. Row t of A belongs to the decoder position that predicts
//! answer t; the input at this position is the token before the answer. Answers without a link, and
//! `</s>`, add nothing. In Garg et al., the guided head sees the whole target in a second pass.
//! Here, as in Chen et al., the loss belongs to the translation pass itself.

use crate::{Architecture, Batch, Guidance, ModelConfig, ModelError, Pass, Routing};
use candle_core::{Device, Result, Tensor};
use taper_ops::{AttentionSpec, Dropout, composed};

/// Links of a batch, prepared for the layer whose attention they guide.
#[derive(Debug, Clone)]
pub(crate) struct Guide {
    /// Index of the decoder layer, from 0.
    pub(crate) layer: usize,
    head: usize,
    /// Factors `−λ/N · G`, by which the logarithms of the attention weights are multiplied:
    /// `(B, 1, Tq, Tk)`, for B sequences padded to the longest target (Tq) and to the longest
    /// source (Tk).
    wanted: Tensor,
}

impl Guide {
    /// Makes the guide of a batch that was checked, or returns `None` if there is nothing to guide.
    ///
    /// # Errors
    /// If the model has no such layer or head, or a link connects tokens of different sentences.
    pub(crate) fn new(
        guidance: Option<Guidance>,
        batch: &Batch,
        config: &ModelConfig,
    ) -> std::result::Result<Option<Self>, ModelError> {
        let (Some(guidance), [source, .., target]) = (guidance, batch.streams.as_slice()) else {
            return Ok(None);
        };
        if config.architecture != Architecture::Transformer {
            return Err(ModelError::Config(
                "attention can be guided in a Transformer alone".to_owned(),
            ));
        }
        // The default is the layer whose attention shows alignments best: the one before the last.
        let layer = guidance.layer.unwrap_or(config.decoder_layers.saturating_sub(2));
        if layer >= config.decoder_layers || guidance.head >= config.heads {
            return Err(ModelError::Config(format!(
                "attention is to be guided in layer {} and head {} of the decoder, which has {} \
                 layers of {} heads",
                layer + 1,
                guidance.head + 1,
                config.decoder_layers,
                config.heads
            )));
        }
        if guidance.weight == 0.0 || batch.links.is_empty() {
            return Ok(None);
        }
        let longest = |lengths: &[usize]| lengths.iter().copied().max().unwrap_or(0);
        let (queries, keys) = (longest(&target.lengths), longest(&source.lengths));
        let mut values = vec![0.0_f32; target.lengths.len() * queries * keys];
        let (mut first_target, mut first_source) = (0, 0);
        let mut rows = batch.links.chunk_by(|one, next| one.0 == next.0).peekable();
        for (pair, (of_source, of_target)) in source.lengths.iter().zip(&target.lengths).enumerate()
        {
            let is_here = |row: &&[(u32, u32)]| (row[0].0 as usize) < first_target + of_target;
            while let Some(row) = rows.next_if(is_here) {
                // Each row here has at least one link, and the weights of its links sum to 1.
                let share = guidance.weight / (batch.tokens() * row.len()) as f64;
                let query = row[0].0 as usize - first_target;
                for (_, key) in row {
                    let key = (*key as usize).checked_sub(first_source);
                    let Some(key) = key.filter(|key| key < of_source) else {
                        return Err(ModelError::Batch(format!(
                            "a batch links a token of pair {} with one of another pair",
                            pair + 1
                        )));
                    };
                    values[(pair * queries + query) * keys + key] -= share as f32;
                }
            }
            first_target += of_target;
            first_source += of_source;
        }
        let shape = (target.lengths.len(), 1, queries, keys);
        let wanted = Tensor::from_vec(values, shape, &Device::Cpu)?;
        Ok(Some(Self { layer, head: guidance.head, wanted }))
    }

    /// Adds the loss of the guided head's attention from `query` to the keys.
    ///
    /// # Shapes
    /// `query (N, Q)` of N target tokens, `key_value (M, 2·K)` of M source tokens; Q and K are the
    /// widths of all query heads and of all key heads.
    pub(crate) fn add_loss(
        &self,
        query: &Tensor,
        key_value: &Tensor,
        spec: &AttentionSpec,
        pass: &Pass,
    ) -> Result<()> {
        let (width, key_head) = (spec.shape.head_width, spec.shape.key_value_head(self.head));
        // Attention of one head, before dropout.
        let shape = spec.shape.single_head();
        let spec = AttentionSpec { shape, dropout: Dropout::none(), ..spec.clone() };
        let inputs = [query, key_value];
        let loss = composed::on_tape(pass.tape(), "guided alignment", &inputs, |inputs| {
            let of_head = |x: &Tensor, head| x.narrow(1, head * width, width)?.contiguous();
            let query = of_head(&inputs[0], self.head)?; // (N, Dh), Dh = width of a head
            let key = of_head(&inputs[1], key_head)?; // (M, Dh)
            let logarithms = composed::attention_log_weights(&query, &key, None, &spec)?;
            let wanted = self.wanted.to_device(logarithms.device())?;
            logarithms.mul(&wanted.to_dtype(logarithms.dtype())?)?.sum_all()
        })?;
        pass.add_auxiliary(loss, Routing::default());
        Ok(())
    }
}
