//! A stack of layers: an encoder, or a decoder with or without an encoder.

pub(crate) mod block;
mod kind;

use crate::builder::tally::Stream;
use crate::config::NormPlacement;
use crate::cost::PartCost;
use crate::layers::attention::{Attended, Within};
use crate::layers::guidance::Guide;
use crate::layers::head::scaled;
use crate::layers::norm::Norm;
use crate::layers::positions::{Relative, StackPositions};
use crate::pass::recorder::StatePoint;
use crate::{Builder, ModelConfig, Pass, Sequences};
use block::Block;
use candle_core::{Result, Tensor};
use std::sync::Arc;
use taper_ops::rng::name_key;

pub(crate) use kind::StackKind;

/// Output of an encoder for M tokens, `(M, D)`, to which a decoder attends.
pub(crate) struct AttendedEncoder<'a> {
    pub(crate) hidden: &'a Tensor,
    pub(crate) lengths: &'a Arc<[usize]>,
    /// Word alignments that the attention of one of the layers is trained to follow; `None` if
    /// there is no such training.
    pub(crate) guide: Option<&'a Guide>,
}

/// Layers, one after the other. In Pre-LN, a final norm and dropout follow.
#[derive(Debug, Clone)]
pub(crate) struct Stack {
    name: String,
    pub(crate) blocks: Vec<Block>,
    pub(crate) relative: Relative,
    final_norm: Option<Norm>,
    dropout: f64,
    site: u64,
}

impl Stack {
    pub(crate) fn new(
        build: &mut Builder,
        name: &str,
        config: &ModelConfig,
        layers: usize,
        kind: StackKind,
    ) -> Result<Self> {
        let groups = config.groups(kind.is_causal(), layers);
        let relative = Relative::new(build, name, config, kind.is_causal(), &groups)?;
        let blocks = Self::blocks(build, name, config, layers, kind)?;
        let final_norm = match config.norm {
            NormPlacement::Pre => {
                if config.final_dropout > 0.0 {
                    build.count(PartCost::kept(config.d_model));
                }
                Some(Norm::new(build, &format!("{name}.final_norm"), config.d_model, config)?)
            }
            NormPlacement::Post => None,
        };
        let (dropout, site) = (config.final_dropout, name_key(&format!("{name}.final_norm")));
        Ok(Self { name: name.to_owned(), blocks, relative, final_norm, dropout, site })
    }

    fn blocks(
        build: &mut Builder,
        name: &str,
        config: &ModelConfig,
        layers: usize,
        kind: StackKind,
    ) -> Result<Vec<Block>> {
        let before = build.tally();
        // `most` is the largest number of scalars that a layer keeps for each token of its own
        // sequence. `of_encoder` is the number of scalars that a layer keeps for each token of the
        // encoder. It is the same for every layer, because all layers attend to the encoder alike.
        let (mut most, mut of_encoder) = (0.0, 0.0);
        let groups = config.groups(kind.is_causal(), layers);
        let blocks = build.layers(&groups, |build, i| {
            let before = build.tally();
            let block = Block::new(build, &format!("{name}.layers.{i}"), config, (kind, i))?;
            let after = build.tally();
            most = f64::max(most, after.current().kept - before.current().kept);
            of_encoder = after.first.kept - before.first.kept;
            Ok(block)
        })?;
        // With activation checkpoints, the pass keeps the input of each segment of layers. All
        // other results are kept for only one segment at a time, which the backward pass computes
        // again.
        let length = segment_length(layers);
        let kept = build.tally().current().kept - before.current().kept;
        let inputs = (config.d_model * layers.div_ceil(length.max(1))) as f64;
        build.count(PartCost::saved(kept - (inputs + most * length as f64).min(kept)));
        if kind.attends_to_encoder() {
            let saved = PartCost::saved(of_encoder * (layers - length) as f64);
            build.in_stream(Stream::First, |build| build.count(saved));
        }
        Ok(blocks)
    }

    /// Runs on whole sequences; a decoder attends to `encoded`.
    ///
    /// # Shapes
    /// `x (N, D)` → `(N, D)`, for N tokens of the width D.
    pub(crate) fn forward(
        &self,
        mut x: Tensor,
        sequences: &Sequences,
        encoded: Option<&AttendedEncoder<'_>>,
        pass: &Pass,
    ) -> Result<Tensor> {
        let lengths: Arc<[usize]> = sequences.lengths.as_slice().into();
        let positions = self.relative.prepare(sequences, pass)?;
        let encoded = encoded.map(|encoded| {
            (encoded.hidden.clone(), encoded.lengths.clone(), encoded.guide.cloned())
        });
        pass.record_state(&self.name, 0, StatePoint::Layer, &x);
        let length = segment_length(self.blocks.len()).max(1);
        for (number, blocks) in self.blocks.chunks(length).enumerate() {
            let segment = Segment {
                stack: self.name.clone(),
                first: number * length,
                blocks: blocks.to_vec(),
                lengths: lengths.clone(),
                positions: positions.clone(),
                encoded: encoded.clone(),
            };
            x = segment.checkpointed(x, pass)?;
        }
        self.finish(x, pass)
    }

    /// Applies the final norm and the dropout on its result, if there is a final norm.
    ///
    /// # Shapes
    /// `(N, D)` → `(N, D)`, for N tokens of the width D.
    pub(crate) fn finish(&self, x: Tensor, pass: &Pass) -> Result<Tensor> {
        let Some(norm) = &self.final_norm else { return Ok(x) };
        let x = norm.forward(&x, pass)?;
        let dropout = pass.dropout(self.dropout, self.site);
        if dropout.is_active() { scaled(&x, 1.0, dropout, pass) } else { Ok(x) }
    }
}

/// Number of layers in a segment: a group of consecutive layers that the backward pass computes
/// again together. Memory has the input of every segment, and the intermediate results of one
/// segment at a time. If n layers are divided into segments of √n layers, both the number of
/// inputs and the intermediate results grow with √n (Chen et al. 2016, "Training Deep Nets with
/// Sublinear Memory Cost", section 4.3).
fn segment_length(layers: usize) -> usize {
    (layers as f64).sqrt().ceil() as usize
}

/// Consecutive layers of a stack, with everything that they read in addition to their input.
#[derive(Clone)]
struct Segment {
    /// Name of the stack.
    stack: String,
    /// Index of the first of these layers in the stack.
    first: usize,
    blocks: Vec<Block>,
    lengths: Arc<[usize]>,
    positions: StackPositions,
    encoded: Option<(Tensor, Arc<[usize]>, Option<Guide>)>,
}

impl Segment {
    /// Runs the layers.
    ///
    /// # Shapes
    /// `(N, D)` → `(N, D)`, for N tokens of the width D.
    fn run(&self, mut x: Tensor, pass: &Pass) -> Result<Tensor> {
        for (layer, block) in (self.first..).zip(&self.blocks) {
            let key_value = match &self.encoded {
                Some((encoded, ..)) => block.key_value(encoded, pass)?,
                None => None,
            };
            let encoded = key_value.as_ref().zip(self.encoded.as_ref());
            let attended = encoded.map(|(key_value, (_, key_lengths, guide))| Attended {
                key_value,
                query_lengths: &self.lengths,
                key_lengths,
                guide: guide.as_ref().filter(|guide| guide.layer == layer),
            });
            let positions = self.positions.for_layer(layer);
            let within = Within { lengths: &self.lengths, positions, pass };
            x = block.forward(&x, within, attended.as_ref())?;
            pass.record_state(&self.stack, layer + 1, StatePoint::Layer, &x);
        }
        Ok(x)
    }

    /// Runs the layers. If the pass has checkpoints and the device is the CPU, only the input of
    /// the layers is kept, and the backward pass runs the layers again.
    ///
    /// # Shapes
    /// `(N, D)` → `(N, D)`, for N tokens of the width D.
    fn checkpointed(self, x: Tensor, pass: &Pass) -> Result<Tensor> {
        let inner = pass.for_segment().filter(|_| x.device().is_cpu());
        let (Some(tape), Some(inner), Some(again)) = (pass.tape(), inner, pass.for_segment())
        else {
            return self.run(x, pass);
        };
        let out = self.run(x.clone(), &inner)?;
        if !inner.take_auxiliary().0.is_empty() {
            candle_core::bail!(
                "layers with experts or guided attention add to the loss, which recomputed layers \
                 cannot: set training.checkpoint_activations = false"
            );
        }
        let Some(first) = inner.into_tape() else {
            candle_core::bail!("a segment has no tape");
        };
        let input = x.clone();
        let run_again = move || {
            let out = self.run(input, &again)?;
            let tape = again.into_tape().ok_or_else(|| {
                candle_core::Error::Msg("a segment that is computed again has no tape".to_owned())
            })?;
            Ok((tape, out))
        };
        tape.record_segment("segment", &[&x], &out, first, run_again)?;
        Ok(out)
    }
}
