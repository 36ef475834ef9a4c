//! A Transformer layer, for encoders and decoders.

use super::kind::StackKind;
use crate::config::NormPlacement;
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

/// The frame around every sublayer: a norm before or after, dropout, and the residual
/// connection.
#[derive(Debug, Clone)]
struct Sublayer {
    norm: Norm,
    placement: NormPlacement,
    dropout: f64,
    site: u64,
}

impl Sublayer {
    /// Makes the frame of the sublayer called `name`; its norm is `{name}_norm`.
    fn new(build: &mut Builder, name: &str, config: &ModelConfig) -> Result<Self> {
        let norm = format!("{name}_norm");
        // Another sublayer keeps its input, and its output is recomputed.
        build.count(PartCost::default().forgetting(config.d_model).forgetting(config.d_model));
        Ok(Self {
            norm: Norm::new(build, &norm, config.d_model, config)?,
            placement: config.norm,
            dropout: config.residual_dropout,
            site: name_key(&norm),
        })
    }

    /// Runs `f`, which gets its input and the residual that its result is added to.
    fn run(
        &self,
        x: &Tensor,
        pass: &Pass,
        f: impl FnOnce(&Tensor, Residual<'_>) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let residual = Residual { x, dropout: pass.dropout(self.dropout, self.site) };
        match self.placement {
            NormPlacement::Pre => f(&self.norm.forward(x, pass)?, residual),
            NormPlacement::Post => self.norm.forward(&f(x, residual)?, pass),
        }
    }
}

/// Self-attention or a layer in its place, attention to an encoder if there is one, and the
/// feed-forward layer, which a state-space layer may omit.
#[derive(Debug, Clone)]
pub(crate) struct Block {
    mixer: (Sublayer, Arc<dyn Mixer>),
    cross_attention: Option<(Sublayer, CrossAttention)>,
    feed_forward: Option<(Sublayer, FeedForward)>,
}

impl Block {
    /// Makes the layer with number `layer` in the stack, from 0.
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
            Some((
                Sublayer::new(build, &name, config)?,
                FeedForward::new(build, &name, config, layer)?,
            ))
        } else {
            None
        };
        Ok(Self { mixer, cross_attention, feed_forward })
    }

    /// Cost of a layer, counted from 0, for one token of its own sequence.
    pub(crate) fn cost(config: &ModelConfig, kind: StackKind, layer: usize) -> LayerCost {
        Builder::part_cost(config.biases, |build| Self::new(build, "", config, (kind, layer)))
    }

    /// Computes keys and values for this layer's attention to the encoder, if there is one.
    ///
    /// # Shapes
    /// `(M, D)` → `(M, 2·D)`.
    pub(crate) fn key_value(&self, encoded: &Tensor, pass: &Pass) -> Result<Option<Tensor>> {
        self.cross_attention
            .as_ref()
            .map(|(_, attention)| attention.key_value(encoded, pass))
            .transpose()
    }

    /// Runs the layer over whole sequences.
    ///
    /// # Shapes
    /// `(N, D)` → `(N, D)`.
    pub(crate) fn forward(
        &self,
        x: &Tensor,
        within: Within<'_>,
        attended: Option<&Attended<'_>>,
    ) -> Result<Tensor> {
        let ((frame, mixer), pass) = (&self.mixer, within.pass);
        let mut x = frame.run(x, pass, |x, residual| mixer.forward(x, residual, within))?;
        pass.record_within(StatePoint::SelfAttention, &x);
        if let (Some((frame, attention)), Some(to)) = (&self.cross_attention, attended) {
            x = frame.run(&x, pass, |x, residual| attention.attend(x, residual, to, pass))?;
            pass.record_within(StatePoint::CrossAttention, &x);
        }
        self.fed_forward(x, pass)
    }

    /// Runs the feed-forward sublayer: `(N, D)` → `(N, D)`.
    fn fed_forward(&self, x: Tensor, pass: &Pass) -> Result<Tensor> {
        match &self.feed_forward {
            Some((frame, feed_forward)) => {
                frame.run(&x, pass, |x, residual| feed_forward.forward(x, residual, pass))
            }
            None => Ok(x),
        }
    }

    /// Runs the layer on one new token in each row; see [`Mixer::step`] and
    /// [`CrossAttention::step`].
    pub(crate) fn step(
        &self,
        x: &Tensor,
        past: (&mut LayerPast, &PastRows<'_>),
        source: Option<(&Tensor, &[Range<usize>])>,
        pass: &Pass,
    ) -> Result<Tensor> {
        let (frame, mixer) = &self.mixer;
        let mut x = frame.run(x, pass, |x, residual| mixer.step(x, residual, past, pass))?;
        if let (Some((frame, attention)), Some((key_value, rows))) = (&self.cross_attention, source)
        {
            x = frame
                .run(&x, pass, |x, residual| attention.step(x, residual, key_value, rows, pass))?;
        }
        self.fed_forward(x, pass)
    }

    /// Runs the layer on whole texts, without an encoder; see [`Mixer::read`].
    pub(crate) fn read(
        &self,
        x: &Tensor,
        past: (&mut LayerPast, &Texts<'_>),
        pass: &Pass,
    ) -> Result<Tensor> {
        let (frame, mixer) = &self.mixer;
        let x = frame.run(x, pass, |x, residual| mixer.read(x, residual, past, pass))?;
        self.fed_forward(x, pass)
    }
}
