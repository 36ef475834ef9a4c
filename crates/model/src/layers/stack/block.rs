//! A Transformer layer, for encoders and decoders.

use super::kind::StackKind;
use crate::config::{NormPlacement, ParallelFeedForward};
use crate::cost::{LayerCost, PartCost};
use crate::layers::attention::{
    Attended, CrossAttention, LayerPast, Mixer, PastRows, Texts, Within, mixer,
};
use crate::layers::feed_forward::FeedForward;
use crate::layers::linear::Residual;
use crate::layers::norm::Norm;
use crate::pass::recorder::StatePoint;
use crate::{Builder, ModelConfig, Pass};
use candle_core::{Result, Tensor};
use std::ops::Range;
use std::sync::Arc;
use taper_ops::rng::name_key;

/// Operations around a sublayer: a norm before or after it, dropout, and the residual connection.
#[derive(Debug, Clone)]
struct Sublayer {
    /// Norm of the sublayer; `None` if the sublayer reads the result of another sublayer's norm.
    norm: Option<Norm>,
    placement: NormPlacement,
    dropout: f64,
    site: u64,
}

impl Sublayer {
    /// Makes the operations around the sublayer called `name`, with a norm called `{name}_norm`.
    fn new(build: &mut Builder, name: &str, config: &ModelConfig) -> Result<Self> {
        let norm = Norm::new(build, &format!("{name}_norm"), config.d_model, config)?;
        Ok(Self { norm: Some(norm), ..Self::without_norm(build, name, config) })
    }

    /// Makes the operations around the sublayer called `name`, without a norm.
    fn without_norm(build: &mut Builder, name: &str, config: &ModelConfig) -> Self {
        // The composed operations (made of Candle's operations) keep two tensors that the fused
        // operations do not keep: the input of the sublayer, which is already kept by another
        // sublayer, and the result of the norm, which the fused operations compute again.
        build.count(PartCost::default().forgetting(config.d_model).forgetting(config.d_model));
        Self {
            norm: None,
            placement: config.norm,
            dropout: config.residual_dropout,
            site: name_key(&format!("{name}_norm")),
        }
    }

    /// Returns the input of the sublayer: `x`, normalised if the norm comes before the sublayer.
    fn input(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        match &self.norm {
            Some(norm) if self.placement == NormPlacement::Pre => norm.forward(x, pass),
            _ => Ok(x.clone()),
        }
    }

    /// Runs `f`, which must add the sublayer's result to the residual `x`, and normalises the sum
    /// if the norm comes after the sublayer.
    fn onto(
        &self,
        x: &Tensor,
        pass: &Pass,
        f: impl FnOnce(Residual<'_>) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let sum = f(Residual { x, dropout: pass.dropout(self.dropout, self.site) })?;
        match &self.norm {
            Some(norm) if self.placement == NormPlacement::Post => norm.forward(&sum, pass),
            _ => Ok(sum),
        }
    }

    /// Runs `f`, which gets the input of the sublayer and the residual. It must add the sublayer's
    /// result to the residual.
    fn run(
        &self,
        x: &Tensor,
        pass: &Pass,
        f: impl FnOnce(&Tensor, Residual<'_>) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let input = self.input(x, pass)?;
        self.onto(x, pass, |residual| f(&input, residual))
    }
}

/// A Transformer layer: self-attention, or a state-space layer in its place; attention to an
/// encoder, if there is one; and the feed-forward layer, which can be missing after a state-space
/// layer.
#[derive(Debug, Clone)]
pub(crate) struct Block {
    mixer: (Sublayer, Arc<dyn Mixer>),
    cross_attention: Option<(Sublayer, CrossAttention)>,
    feed_forward: Option<(Sublayer, FeedForward)>,
    parallel: ParallelFeedForward,
}

impl Block {
    /// Makes the layer with the index `layer`, from 0, in a stack of this kind.
    pub(crate) fn new(
        build: &mut Builder,
        name: &str,
        config: &ModelConfig,
        (kind, layer): (StackKind, usize),
    ) -> Result<Self> {
        let named = |part: &str| format!("{name}.{part}");
        let at = (kind.is_causal(), layer);
        let name = named(config.attention(at.0).kind_of(at.1).sublayer());
        let mixer = (Sublayer::new(build, &name, config)?, mixer(build, &name, config, at)?);
        let cross_attention = if kind.attends_to_encoder() {
            let name = named("cross_attention");
            Some((Sublayer::new(build, &name, config)?, CrossAttention::new(build, &name, config)?))
        } else {
            None
        };
        let feed_forward = if config.has_feed_forward(kind.is_causal(), layer) {
            let name = named("feed_forward");
            let frame = match config.parallel_feed_forward {
                ParallelFeedForward::SharedNorm => Sublayer::without_norm(build, &name, config),
                _ => Sublayer::new(build, &name, config)?,
            };
            Some((frame, FeedForward::new(build, &name, config, layer)?))
        } else {
            None
        };
        let parallel = config.parallel_feed_forward;
        if parallel != ParallelFeedForward::None && feed_forward.is_some() {
            // No norm reads the sum of the residual and the result of self-attention, so this sum
            // is not kept.
            build.count(PartCost::freed(config.d_model));
        }
        Ok(Self { mixer, cross_attention, feed_forward, parallel })
    }

    /// Cost of the layer with the index `layer`, from 0, for one token of the layer's own sequence.
    pub(crate) fn cost(config: &ModelConfig, kind: StackKind, layer: usize) -> LayerCost {
        Builder::part_cost(config.biases, |build| Self::new(build, "", config, (kind, layer)))
    }

    /// Computes the keys and values with which this layer sees the encoder's output; `None` if the
    /// layer does not attend to an encoder.
    ///
    /// # Shapes
    /// `encoded (M, D)` for M encoder tokens → `(M, 2·K)`, where K is the width of all key heads.
    pub(crate) fn key_value(&self, encoded: &Tensor, pass: &Pass) -> Result<Option<Tensor>> {
        self.cross_attention
            .as_ref()
            .map(|(_, attention)| attention.key_value(encoded, pass))
            .transpose()
    }

    /// Runs the layer on whole sequences.
    ///
    /// # Shapes
    /// `(N, D)` → `(N, D)`.
    pub(crate) fn forward(
        &self,
        x: &Tensor,
        within: Within<'_>,
        attended: Option<&Attended<'_>>,
    ) -> Result<Tensor> {
        let pass = within.pass;
        let mut x = self.mixed(x, pass, |mixer, x, residual| mixer.forward(x, residual, within))?;
        if let (Some((frame, attention)), Some(to)) = (&self.cross_attention, attended) {
            x = frame.run(&x, pass, |x, residual| attention.attend(x, residual, to, pass))?;
            pass.record_within(StatePoint::CrossAttention, &x);
        }
        self.fed_forward(x, pass)
    }

    /// Runs `mix`, which must run self-attention or the state-space layer in its place, and then
    /// the feed-forward layer if it is parallel: `(N, D)` → `(N, D)` for N tokens of the width D.
    fn mixed(
        &self,
        x: &Tensor,
        pass: &Pass,
        mix: impl FnOnce(&dyn Mixer, &Tensor, Residual<'_>) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let (frame, mixer) = &self.mixer;
        let input = frame.input(x, pass)?;
        let mixed = frame.onto(x, pass, |residual| mix(&**mixer, &input, residual))?;
        pass.record_within(StatePoint::SelfAttention, &mixed);
        let read = match self.parallel {
            ParallelFeedForward::None => return Ok(mixed),
            ParallelFeedForward::SharedNorm => &input,
            ParallelFeedForward::OwnNorm => x,
        };
        let Some((frame, feed_forward)) = &self.feed_forward else { return Ok(mixed) };
        let input = frame.input(read, pass)?;
        frame.onto(&mixed, pass, |residual| feed_forward.forward(&input, residual, pass))
    }

    /// Runs the feed-forward layer if it is not parallel but follows the other sublayers: `(N, D)`
    /// → `(N, D)`.
    fn fed_forward(&self, x: Tensor, pass: &Pass) -> Result<Tensor> {
        match (&self.feed_forward, self.parallel) {
            (Some((frame, feed_forward)), ParallelFeedForward::None) => {
                frame.run(&x, pass, |x, residual| feed_forward.forward(x, residual, pass))
            }
            _ => Ok(x),
        }
    }

    /// Runs the layer on one new token in each row (a text that is decoded); see [`Mixer::step`]
    /// and [`CrossAttention::step`].
    pub(crate) fn step(
        &self,
        x: &Tensor,
        past: (&mut LayerPast, &PastRows<'_>),
        source: Option<(&Tensor, &[Range<usize>])>,
        pass: &Pass,
    ) -> Result<Tensor> {
        let mut x =
            self.mixed(x, pass, |mixer, x, residual| mixer.step(x, residual, past, pass))?;
        if let (Some((frame, attention)), Some((key_value, rows))) = (&self.cross_attention, source)
        {
            x = frame
                .run(&x, pass, |x, residual| attention.step(x, residual, key_value, rows, pass))?;
        }
        self.fed_forward(x, pass)
    }

    /// Runs a layer that attends to no encoder on whole texts; see [`Mixer::read`].
    pub(crate) fn read(
        &self,
        x: &Tensor,
        past: (&mut LayerPast, &Texts<'_>),
        pass: &Pass,
    ) -> Result<Tensor> {
        let x = self.mixed(x, pass, |mixer, x, residual| mixer.read(x, residual, past, pass))?;
        self.fed_forward(x, pass)
    }

    /// Adds whole texts to the past as [`Self::read`] does, but returns no result. This is for the
    /// last layer: logits are computed only for the token that follows these texts, which is fed
    /// separately.
    pub(crate) fn remember(
        &self,
        x: &Tensor,
        past: (&mut LayerPast, &Texts<'_>),
        pass: &Pass,
    ) -> Result<()> {
        let (frame, mixer) = &self.mixer;
        mixer.remember(&frame.input(x, pass)?, past, pass)
    }
}
