//! State-space layers: Mamba (Gu and Dao 2023, "Mamba: Linear-Time Sequence Modeling with Selective
//! State Spaces", sections 3.2 and 3.4), and a diagonal S4 as its special case.
//!
//! ```text
//! (x, z) = W_in input,   u = silu(convolution(x)),   Δ, B, C = functions of u
//! h_t = exp(Δ_t A) h_(t−1) + Δ_t B_t u_t,   y_t = (C_t h_t + D u_t) · silu(z_t)
//! output = W_out y
//! ```
//!
//! In a `mamba`, Δ = softplus(W_up W_down u + b), B = W_B u and C = W_C u. Each token thus
//! determines how much the state keeps of this token and of the past. In an `s4d`, Δ, B and C are
//! parameters, the same for all tokens; the recurrence of h then equals a long convolution with one
//! filter for each channel.
//!
//! To continue a text, decoding needs only the state h and the last inputs of the convolution.
//!
//! **Decision.** In an encoder, whose tokens also see later tokens, two such layers read a
//! sequence, one from each end. They share W_in, z and W_out (Zhu et al. 2024, "Vision Mamba",
//! algorithm 1).
//!
//! **Decision.** Initially, A is −1, −2, … in each channel, and the bias of Δ makes Δ log-uniform
//! between 0.001 and 0.1 (section 3.6 and the authors' implementation). log(−A), the parameter
//! `log_decay`, and the bias are stored as vectors, not matrices. So they are exempt from weight
//! decay, which would change how long the layer remembers.

#[cfg(test)]
mod tests;

use crate::config::{AttentionKind, ModelConfig};
use crate::cost::PartCost;
use crate::layers::attention::mixer::Mixer;
use crate::layers::attention::mixer::Unprojected;
use crate::layers::attention::{LayerPast, PastRows, Texts, Within};
use crate::layers::linear::{Linear, Residual};
use crate::layers::weight::Weight;
use crate::{Builder, Pass, StateSpaceConfig};
use candle_core::{DType, Result, Tensor};
use std::sync::Arc;
use taper_ops::{
    ConvolutionSpec, ScanInputs, ScanSpec, causal_convolution, causal_convolution_after, composed,
    selective_scan, selective_scan_after,
};

/// Smallest and largest initial step size Δ.
const STEPS: (f64, f64) = (1e-3, 0.1);

/// Distance, in tokens, between the states of a scan that are kept for the backward pass.
const KEPT_EVERY: usize = 32;

/// A state-space layer.
///
/// In the shapes, N is the number of tokens, R the number of rows (texts that are decoded), and E
/// the number of channels.
#[derive(Debug, Clone)]
pub(crate) struct StateSpace {
    input: Linear,
    mechanism: StateSpaceMechanism,
    output: Linear,
}

/// Computation between the projections of a state-space layer.
#[derive(Debug, Clone)]
pub(crate) struct StateSpaceMechanism {
    /// Directions in which the layer reads: from the first token to the last and, in an encoder,
    /// also from the last to the first.
    directions: Vec<Direction>,
    channels: usize,
    /// Number of multiplications and additions per token.
    flops: f64,
    /// Number of scalars kept per token for the backward pass.
    kept: f64,
}

/// Convolution and scan in one direction.
#[derive(Debug, Clone)]
struct Direction {
    filter: Weight,
    filter_bias: Weight,
    steps: Steps,
    log_decay: Weight,
    skip: Weight,
    reverse: bool,
}

/// Where Δ, B and C come from.
#[derive(Debug, Clone)]
enum Steps {
    /// Computed from each token.
    Selective { down: Linear, up: Linear, in_out: Linear },
    /// Parameters, the same for all tokens.
    Fixed { delta: Weight, in_out: Weight },
}

impl StateSpace {
    /// Makes the layer with the index `layer`, from 0, in a stack; `causal` says whether the stack
    /// is causal.
    pub(crate) fn new(
        build: &mut Builder,
        name: &str,
        config: &ModelConfig,
        (causal, layer): (bool, usize),
    ) -> Result<Self> {
        let (width, channels) = (config.d_model, config.state_space.channels(config.d_model));
        Ok(Self {
            input: Linear::new(build, &format!("{name}.in"), width, channels.saturating_mul(2), 2)?,
            mechanism: StateSpaceMechanism::new(build, name, config, (causal, layer))?,
            output: Linear::new(build, &format!("{name}.out"), channels, width, 1)?,
        })
    }
}

impl Mixer for StateSpace {
    fn forward(
        &self,
        x: &Tensor,
        residual: Residual<'_>,
        Within { lengths, pass, .. }: Within<'_>,
    ) -> Result<Tensor> {
        let gated = self.input.forward(x, pass)?; // (N, 2·E)
        self.output.onto(&self.mechanism.run(&gated, lengths, pass)?, residual, pass)
    }

    fn step(
        &self,
        x: &Tensor,
        residual: Residual<'_>,
        (past, _): (&mut LayerPast, &PastRows<'_>),
        pass: &Pass,
    ) -> Result<Tensor> {
        let gated = self.input.forward(x, pass)?; // (R, 2·E)
        let lengths: Arc<[usize]> = vec![1; x.dim(0)?].into();
        let (out, remembered) =
            self.mechanism.go_on(&gated, &lengths, past.running.as_ref(), pass)?;
        past.running = Some(remembered);
        self.output.onto(&out, residual, pass)
    }

    fn read(
        &self,
        x: &Tensor,
        residual: Residual<'_>,
        (past, texts): (&mut LayerPast, &Texts<'_>),
        pass: &Pass,
    ) -> Result<Tensor> {
        let gated = self.input.forward(x, pass)?; // (N, 2·E)
        let (out, remembered) = self.mechanism.go_on(&gated, &texts.lengths.into(), None, pass)?;
        past.put_running(remembered, texts.rows, texts.count)?;
        self.output.onto(&out, residual, pass)
    }

    fn remember(
        &self,
        x: &Tensor,
        (past, texts): (&mut LayerPast, &Texts<'_>),
        pass: &Pass,
    ) -> Result<()> {
        let gated = self.input.forward(x, pass)?; // (N, 2·E)
        let (_, remembered) = self.mechanism.go_on(&gated, &texts.lengths.into(), None, pass)?;
        past.put_running(remembered, texts.rows, texts.count)
    }
}

impl StateSpaceMechanism {
    pub(crate) fn new(
        build: &mut Builder,
        name: &str,
        config: &ModelConfig,
        (causal, layer): (bool, usize),
    ) -> Result<Self> {
        let selective = is_selective(config, causal, layer);
        let channels = config.state_space.channels(config.d_model);
        let mut cost = PartCost::default();
        let counted = |part: PartCost| {
            cost = PartCost { mixing_flops: part.flops, ..part };
            cost
        };
        let directions = build.counted_as(counted, |build| {
            let mut directions = vec![Direction::new(build, name, config, (selective, false))?];
            if !causal {
                let name = &format!("{name}.backward");
                directions.push(Direction::new(build, name, config, (selective, true))?);
                // The sum of the results of both directions is kept for the gradients.
                build.count(PartCost::kept(channels));
            }
            Ok::<_, candle_core::Error>(directions)
        })?;
        Ok(Self { directions, channels, flops: cost.flops, kept: cost.kept })
    }

    /// Runs on whole sequences of N tokens in all. E is the number of channels.
    ///
    /// # Shapes
    /// `gated (N, 2·E)` → `(N, E)`.
    fn run(&self, gated: &Tensor, lengths: &Arc<[usize]>, pass: &Pass) -> Result<Tensor> {
        let mut all = Vec::with_capacity(self.directions.len());
        for direction in &self.directions {
            all.push(direction.run(gated, lengths, pass)?);
        }
        let inputs: Vec<&Tensor> = all.iter().collect();
        match inputs.as_slice() {
            [one] => Ok((*one).clone()),
            several => composed::on_tape(pass.tape(), "directions", several, |inputs| {
                inputs[1..].iter().try_fold(inputs[0].clone(), |sum, one| sum + one)
            }),
        }
    }

    /// Runs on B sequences, each of which continues from its state in `remembered`, or begins
    /// without a state if `remembered` is `None`. Returns the results and the new states.
    ///
    /// A state has the last inputs of the convolution, `(K − 1, E)`, and then h, `(E, S)`, in f32
    /// or wider. K is the width of the convolution in tokens, E the number of channels, and S the
    /// size of a channel's state.
    ///
    /// # Shapes
    /// `gated (N, 2·E)`, `remembered (B, (K − 1 + S)·E)` → `(N, E)`, `(B, (K − 1 + S)·E)`.
    fn go_on(
        &self,
        gated: &Tensor,
        lengths: &Arc<[usize]>,
        remembered: Option<&Tensor>,
        pass: &Pass,
    ) -> Result<(Tensor, Tensor)> {
        let [direction] = self.directions.as_slice() else {
            candle_core::bail!("a state-space layer that reads from both ends cannot decode");
        };
        direction.go_on(gated, lengths, remembered, pass)
    }
}

impl Unprojected for StateSpaceMechanism {
    fn input_width(&self) -> usize {
        self.channels.saturating_mul(2)
    }

    fn attend(&self, gated: &Tensor, Within { lengths, pass, .. }: Within<'_>) -> Result<Tensor> {
        self.run(gated, lengths, pass)
    }

    fn kept(&self, length: usize) -> f64 {
        self.kept * length as f64
    }

    fn flops(&self, length: usize) -> f64 {
        self.flops * length as f64
    }
}

fn is_selective(config: &ModelConfig, causal: bool, layer: usize) -> bool {
    config.attention(causal).kind_of(layer) == AttentionKind::Mamba
}

/// Adds a parameter; `value` maps uniform random numbers in `[0, 1)` to its values.
fn uniform(
    build: &mut Builder,
    name: &str,
    shape: &[usize],
    value: impl Fn(f32) -> f32,
) -> Result<Weight> {
    build.add(name, shape, |counter, i| value(counter.f32_at(i)))
}

/// Returns a function that maps a number in `[0, 1)` to one between `-bound` and `bound`.
fn between(bound: f64) -> impl Fn(f32) -> f32 {
    move |uniform| ((2.0 * f64::from(uniform) - 1.0) * bound) as f32
}

/// Maps a number in `[0, 1)` to the bias b of an initial step size, which is softplus(b).
fn step_bias(uniform: f32) -> f32 {
    let (least, largest) = STEPS;
    let step = least * (largest / least).powf(f64::from(uniform));
    step.exp_m1().ln() as f32
}

impl Steps {
    fn selective(
        build: &mut Builder,
        name: &str,
        channels: usize,
        shape: &StateSpaceConfig,
        width: usize,
    ) -> Result<Self> {
        let (rank, states) = (shape.rank(width), shape.states);
        for (inputs, outputs) in [(channels, rank), (rank, channels), (channels, 2 * states)] {
            build.count(PartCost::product(inputs, outputs));
        }
        let up = between((rank as f64).powf(-0.5));
        let down = build.matrix(&format!("{name}.step_down.weight"), rank, channels, 1)?;
        let up = uniform(build, &format!("{name}.step_up.weight"), &[channels, rank], up)?;
        let bias = uniform(build, &format!("{name}.step_up.bias"), &[channels], step_bias)?;
        let in_out = build.matrix(&format!("{name}.in_out.weight"), 2 * states, channels, 2)?;
        Ok(Self::Selective {
            down: Linear::from_parts(down, None, build.products),
            up: Linear::from_parts(up, Some(bias), build.products),
            in_out: Linear::from_parts(in_out, None, build.products),
        })
    }

    fn fixed(build: &mut Builder, name: &str, channels: usize, states: usize) -> Result<Self> {
        Ok(Self::Fixed {
            delta: uniform(build, &format!("{name}.step.bias"), &[channels], step_bias)?,
            in_out: build.add(
                &format!("{name}.in_out.bias"),
                &[channels.saturating_mul(2 * states)],
                // B is all ones, and C is normally distributed.
                |counter, i| match (i as usize % (2 * states)) < states {
                    true => 1.0,
                    false => counter.normal_at(i) as f32,
                },
            )?,
        })
    }
}

impl Direction {
    fn new(
        build: &mut Builder,
        name: &str,
        config: &ModelConfig,
        (selective, reverse): (bool, bool),
    ) -> Result<Self> {
        let StateSpaceConfig { states, convolution, .. } = config.state_space;
        let channels = config.state_space.channels(config.d_model);
        // The convolution keeps its result for the backward pass. The scan keeps its result and the
        // state of every 32nd token.
        let flops = 2.0 * convolution as f64 * channels as f64;
        build.count(PartCost { flops, ..PartCost::kept(channels) });
        let kept = channels as f64 * (1.0 + states as f64 / KEPT_EVERY as f64);
        let flops = channels as f64 * (7 * states + 8) as f64;
        build.count(PartCost { flops, kept, ..PartCost::default() });
        let filter = between((convolution as f64).powf(-0.5));
        let steps = match selective {
            true => Steps::selective(build, name, channels, &config.state_space, config.d_model)?,
            false => Steps::fixed(build, name, channels, states)?,
        };
        Ok(Self {
            filter: uniform(
                build,
                &format!("{name}.filter.weight"),
                &[channels, convolution],
                &filter,
            )?,
            filter_bias: uniform(build, &format!("{name}.filter.bias"), &[channels], &filter)?,
            steps,
            log_decay: build.add(
                &format!("{name}.log_decay"),
                &[channels.saturating_mul(states)],
                |_, i| ((i as usize % states + 1) as f32).ln(),
            )?,
            skip: build.constant(&format!("{name}.skip"), &[channels], 1.0)?,
            reverse,
        })
    }

    fn is_selective(&self) -> bool {
        matches!(self.steps, Steps::Selective { .. })
    }

    fn specs(&self, lengths: &Arc<[usize]>) -> (ConvolutionSpec, ScanSpec) {
        let (reverse, selective) = (self.reverse, self.is_selective());
        (
            ConvolutionSpec { lengths: lengths.clone(), reverse },
            ScanSpec { lengths: lengths.clone(), selective, reverse },
        )
    }

    /// Computes Δ before softplus, and B and C side by side.
    fn steps(&self, x: &Tensor, pass: &Pass) -> Result<(Tensor, Tensor)> {
        Ok(match &self.steps {
            Steps::Selective { down, up, in_out } => {
                (up.forward(&down.forward(x, pass)?, pass)?, in_out.forward(x, pass)?)
            }
            Steps::Fixed { delta, in_out } => (delta.get(pass).clone(), in_out.get(pass).clone()),
        })
    }

    /// Calls `scan` with the inputs that it needs; `x` is the result of the convolution.
    fn scanned<T>(
        &self,
        (x, gated): (&Tensor, &Tensor),
        pass: &Pass,
        scan: impl FnOnce(ScanInputs<'_>) -> Result<T>,
    ) -> Result<T> {
        let (delta, in_out) = self.steps(x, pass)?;
        scan(ScanInputs {
            x,
            delta: &delta,
            in_out: &in_out,
            log_decay: self.log_decay.get(pass),
            skip: self.skip.get(pass),
            gated,
        })
    }

    fn run(&self, gated: &Tensor, lengths: &Arc<[usize]>, pass: &Pass) -> Result<Tensor> {
        let (filter, bias) = (self.filter.get(pass), self.filter_bias.get(pass));
        let (convolution, scan) = self.specs(lengths);
        let x = causal_convolution(pass.tape(), gated, filter, bias, &convolution)?;
        self.scanned((&x, gated), pass, |inputs| selective_scan(pass.tape(), inputs, &scan))
    }

    fn go_on(
        &self,
        gated: &Tensor,
        lengths: &Arc<[usize]>,
        remembered: Option<&Tensor>,
        pass: &Pass,
    ) -> Result<(Tensor, Tensor)> {
        let (filter, bias) = (self.filter.get(pass), self.filter_bias.get(pass));
        let (channels, taps) = filter.dims2()?;
        let before = (taps - 1) * channels;
        let (convolution, scan) = self.specs(lengths);
        let (window, states) = match remembered {
            Some(remembered) => {
                let rest = remembered.dim(1)? - before;
                let window = remembered.narrow(1, 0, before)?.contiguous()?;
                (window, Some(remembered.narrow(1, before, rest)?.contiguous()?))
            }
            None => {
                let wide = if gated.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
                (Tensor::zeros((lengths.len(), before), wide, gated.device())?, None)
            }
        };
        let x = causal_convolution_after(gated, filter, bias, &convolution, &window)?;
        let (out, states) = self.scanned((&x, gated), pass, |inputs| {
            selective_scan_after(inputs, &scan, states.as_ref())
        })?;
        let window = window_after(gated, lengths, &window, (channels, taps))?;
        Ok((out, Tensor::cat(&[window, states], 1)?))
    }
}

/// Returns the last K − 1 inputs of the convolution for each of B sequences. If a sequence is
/// shorter than that, the first of these inputs come from `window`, which has the inputs before the
/// sequence.
///
/// # Shapes
/// `gated (N, 2·E)`, `window (B, (K − 1)·E)` → `(B, (K − 1)·E)`.
fn window_after(
    gated: &Tensor,
    lengths: &[usize],
    window: &Tensor,
    (channels, taps): (usize, usize),
) -> Result<Tensor> {
    let (batch, remembered) = (lengths.len(), taps - 1);
    if remembered == 0 {
        return Ok(window.clone());
    }
    let inputs = gated.narrow(1, 0, channels)?.to_dtype(window.dtype())?.contiguous()?;
    // `rows` has the inputs of all sequences, and then the inputs of all windows.
    let rows = Tensor::cat(&[inputs, window.reshape((batch * remembered, channels))?], 0)?;
    let (mut first, all) = (0, gated.dim(0)?);
    let mut index = Vec::with_capacity(batch * remembered);
    for (sequence, &length) in lengths.iter().enumerate() {
        for place in 0..remembered {
            index.push(match (length + place).checked_sub(remembered) {
                Some(inputs) => first + inputs,
                None => all + sequence * remembered + place + length,
            } as u32);
        }
        first += length;
    }
    let index = Tensor::from_vec(index, batch * remembered, rows.device())?;
    rows.index_select(&index, 0)?.reshape((batch, remembered * channels))
}
