//! A mixture of experts in place of a feed-forward layer: as in Switch Transformers (Fedus et al.
//! 2022, "Switch Transformers", section 2) with one expert per token, or as in GShard (Lepikhin et
//! al. 2021) with several.
//!
//! ```text
//! p = softmax(W_r x),   y = Σ_e g_e · FFN_e(x)   over the experts of the k largest p
//! ```
//!
//! The sum is over the k experts of a token, those with the largest p. With one expert per token, g
//! is p (Switch, equation 2). With several, g is p divided by the sum of p over the token's experts
//! (GShard, algorithm 1). The tokens of each expert are gathered for common matrix products, so a
//! token costs only the arithmetic of its own experts.
//!
//! In training, an expert takes at most `capacity · k · tokens / experts` tokens of a micro-batch,
//! rounded up. It first takes the tokens whose first choice it is, in the order of the tokens, then
//! the tokens whose second choice it is, and so on (Switch, equation 3). Further tokens are
//! dropped: the layer adds nothing for them. Outside of training nothing is dropped, so that the
//! result of a token does not depend on other tokens, and the result of a sentence does not depend
//! on other sentences.

#[cfg(test)]
mod tests;

use super::dense::DenseFeedForward;
use crate::config::ExpertsConfig;
use crate::cost::PartCost;
use crate::layers::head::picked;
use crate::layers::linear::Residual;
use crate::layers::weight::Weight;
use crate::{Builder, ModelConfig, Pass, Routing};
use candle_core::{D, DType, Device, Result, Tensor};
use std::sync::Arc;
use taper_ops::composed::CountedProduct;
use taper_ops::rng::{Counter, name_key};
use taper_ops::{Dropout, composed};

/// Experts, and the router that chooses among them.
#[derive(Debug, Clone)]
pub(crate) struct Experts {
    router: Weight,
    experts: Vec<DenseFeedForward>,
    config: ExpertsConfig,
    site: u64,
}

/// Assignment of the tokens of a pass to experts. Choice c of a token is the expert with its c-th
/// largest probability.
struct Plan {
    /// Indices of the tokens of each expert.
    tokens: Vec<Vec<u32>>,
    /// For each choice and token, the index of the row that the chosen expert returns for the
    /// token. The rows of all experts are numbered one expert after the other. A dropped token gets
    /// the index after the last row.
    rows: Vec<Vec<u32>>,
    /// For each choice and token, the index of the chosen expert.
    experts: Vec<Vec<u32>>,
    /// Number of drops: pairs of a token and an expert that did not take it. A token that two
    /// experts drop counts twice.
    dropped: usize,
}

impl Plan {
    /// Makes the plan from the `probabilities` of the experts for each token. An expert takes at
    /// most `capacity` tokens.
    fn new(probabilities: &[Vec<f32>], experts: usize, choices: usize, capacity: usize) -> Self {
        let ranked = |row: &Vec<f32>| {
            let mut order: Vec<u32> = (0..experts as u32).collect();
            // Among experts with equal probabilities, the first one wins.
            order.sort_by(|&a, &b| row[b as usize].total_cmp(&row[a as usize]));
            order
        };
        let ranked: Vec<Vec<u32>> = probabilities.iter().map(ranked).collect();
        let chosen = |choice: usize| ranked.iter().map(|order| order[choice]).collect::<Vec<u32>>();
        let mut plan = Self {
            tokens: vec![Vec::new(); experts],
            rows: Vec::new(),
            experts: (0..choices).map(chosen).collect(),
            dropped: 0,
        };
        // For each choice and token, the token's index among the tokens of its expert; `None` if it
        // is dropped.
        let mut places = Vec::new();
        for of_choice in &plan.experts {
            let mut of_tokens = Vec::with_capacity(of_choice.len());
            for (token, &expert) in of_choice.iter().enumerate() {
                let tokens = &mut plan.tokens[expert as usize];
                of_tokens.push((tokens.len() < capacity).then_some(tokens.len()));
                if tokens.len() < capacity {
                    tokens.push(token as u32);
                } else {
                    plan.dropped += 1;
                }
            }
            places.push(of_tokens);
        }
        let mut first = 0;
        let firsts: Vec<usize> = plan
            .tokens
            .iter()
            .map(|tokens| {
                first += tokens.len();
                first - tokens.len()
            })
            .collect();
        for (of_choice, places) in plan.experts.iter().zip(places) {
            let row = |(&expert, place): (&u32, Option<usize>)| {
                place.map_or(first, |place| firsts[expert as usize] + place) as u32
            };
            plan.rows.push(of_choice.iter().zip(places).map(row).collect());
        }
        plan
    }

    /// Returns, for each expert, the share of tokens for which it is the first choice.
    fn shares(&self) -> Vec<f64> {
        let mut shares = vec![0.0; self.tokens.len()];
        let first = &self.experts[0];
        for &expert in first {
            shares[expert as usize] += 1.0 / first.len() as f64;
        }
        shares
    }

    fn routing(&self) -> Routing {
        let mut loads = vec![0u64; self.tokens.len()];
        for &expert in self.experts.iter().flatten() {
            loads[expert as usize] += 1;
        }
        let busiest = loads.iter().copied().max().unwrap_or(0) * loads.len() as u64;
        Routing { routed: loads.iter().sum(), dropped: self.dropped as u64, busiest }
    }
}

impl Experts {
    pub(crate) fn new(build: &mut Builder, name: &str, config: &ModelConfig) -> Result<Self> {
        let ExpertsConfig { count, per_token, jitter, .. } = config.experts;
        let width = config.d_model;
        let router = build.matrix(&format!("{name}.router.weight"), count, width, 1)?;
        // For the backward pass, each token's row is kept in several forms: gathered for the
        // expert, returned by the expert, scattered back, and weighted. The inputs and the
        // probabilities of the router are kept too, and so are the results of jitter and of
        // dropout.
        let drawn = usize::from(jitter > 0.0) + usize::from(config.residual_dropout > 0.0);
        build.count(PartCost::kept(width.saturating_mul(6).saturating_add(5)) * per_token);
        let of_router = PartCost::product(width, count);
        build.count(of_router.keeping(8 * count).keeping(width.saturating_mul(1 + 2 * drawn)));
        let mut of_one = PartCost::default();
        let experts = build.layers(&[(0, count)], |build, index| {
            let counted = |part: PartCost| {
                of_one = PartCost { parameters: 0.0, ..part };
                part.once()
            };
            // The first expert has the site (the key of the random numbers) of a dense layer, so
            // that a single expert drops the same elements as a dense layer.
            let site = name_key(name).wrapping_add(index as u64);
            let name = format!("{name}.experts.{index}");
            build.counted_as(counted, |build| DenseFeedForward::new(build, &name, site, config))
        })?;
        // A token passes only through the experts to which it is sent.
        build.count(of_one * per_token);
        let site = name_key(&format!("{name}.router"));
        Ok(Self { router, experts, config: config.experts.clone(), site })
    }

    /// Runs the router on N tokens: `x (N, D)` → `(N, E + 1)`. A row of the result has the
    /// probabilities of the E experts, and then the logarithm of the sum of the exponentials of the
    /// router's scores. The result is in f32, or wider, whatever the type of the model (Switch,
    /// section 2.4).
    ///
    /// In training, each element of x is multiplied by a random number near 1 (appendix B).
    fn route(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let noise = match pass.noise(self.site) {
            Some(key) if self.config.jitter > 0.0 => {
                let (counter, jitter) = (Counter::new(key), self.config.jitter);
                let factor = |i| 1.0 + jitter * (2.0 * counter.f64_at(i) - 1.0);
                let noise: Vec<f64> = (0..x.elem_count() as u64).map(factor).collect();
                Some(Tensor::from_vec(noise, x.shape(), &Device::Cpu)?)
            }
            _ => None,
        };
        let inputs = [x, self.router.get(pass)];
        composed::on_tape(pass.tape(), "router", &inputs, |inputs| {
            let wide = if inputs[0].dtype() == DType::F64 { DType::F64 } else { DType::F32 };
            let mut x = inputs[0].to_dtype(wide)?;
            if let Some(noise) = &noise {
                x = x.mul(&noise.to_dtype(wide)?.to_device(x.device())?)?;
            }
            let logits = x.times(&inputs[1].to_dtype(wide)?.t()?)?; // (N, E)
            let largest = logits.max_keepdim(D::Minus1)?.detach();
            let exponentials = logits.broadcast_sub(&largest)?.exp()?;
            let sum = exponentials.sum_keepdim(D::Minus1)?;
            let probabilities = exponentials.broadcast_div(&sum)?;
            Tensor::cat(&[probabilities, (sum.log()? + largest)?], 1)
        })
    }

    /// Adds the loss `α E Σ f_e P_e + β Σ_t z_t² / N`, where α is `balance_loss`, β is `z_loss`, E
    /// is the number of experts, and N the number of tokens. Here f_e is the share of tokens whose
    /// first choice is expert e, P_e is the mean probability of e (Switch, equations 4 to 6), and
    /// z_t is the logarithm that [`Experts::route`] returns for token t (Zoph et al. 2022,
    /// "ST-MoE", equation 5).
    fn auxiliary(&self, routed: &Tensor, plan: &Plan, pass: &Pass) -> Result<()> {
        let experts = self.experts.len();
        let shares = Tensor::from_vec(plan.shares(), (1, experts), &Device::Cpu)?;
        let shares = shares.to_dtype(routed.dtype())?.to_device(routed.device())?;
        let loss = composed::on_tape(pass.tape(), "balance", &[routed], |inputs| {
            let rows = inputs[0].dim(0)? as f64;
            let probabilities = inputs[0].narrow(1, 0, experts)?;
            let weighed = probabilities.broadcast_mul(&shares)?;
            let balance = weighed.sum_all()? * (self.config.balance_loss * experts as f64 / rows);
            let squares = inputs[0].narrow(1, experts, 1)?.sqr()?.sum_all()?;
            balance + (squares * (self.config.z_loss / rows))?
        })?;
        pass.add_auxiliary(loss, plan.routing());
        Ok(())
    }

    /// Computes `residual + dropout(y)`, where y is the weighted sum of the experts' results.
    ///
    /// # Shapes
    /// `(N, D)` → `(N, D)`, for N tokens of the width D.
    pub(crate) fn forward(&self, x: &Tensor, onto: Residual<'_>, pass: &Pass) -> Result<Tensor> {
        let (count, rows) = (self.experts.len(), x.dim(0)?);
        let routed = self.route(x, pass)?;
        let probabilities = routed.narrow(1, 0, count)?.to_dtype(DType::F32)?.to_vec2()?;
        let choices = self.config.per_token;
        let capacity = match pass.is_training() {
            true => self.config.capacity_of(rows),
            false => rows,
        };
        let plan = Plan::new(&probabilities, count, choices, capacity);
        if pass.is_training() {
            self.auxiliary(&routed, &plan, pass)?;
        }
        let brought = self.brought(x, &plan, pass)?;
        let inputs: Vec<&Tensor> = [onto.x, &routed].into_iter().chain(&brought).collect();
        composed::on_tape(pass.tape(), "experts", &inputs, |inputs| {
            let (residual, routed, brought) = (&inputs[0], &inputs[1], &inputs[2..]);
            let index = |of_choice: &Vec<u32>| {
                Tensor::from_slice(of_choice.as_slice(), (rows, 1), routed.device())
            };
            let gates: Vec<Tensor> = plan
                .experts
                .iter()
                .map(|of_choice| routed.gather(&index(of_choice)?, 1))
                .collect::<Result<_>>()?; // (N, 1) each
            let weighed = |gate: &Tensor, result: &Tensor| {
                result.broadcast_mul(&gate.to_dtype(result.dtype())?)
            };
            let mut sum = weighed(&gates[0], &brought[0])?;
            if let [first, others @ ..] = gates.as_slice()
                && !others.is_empty()
            {
                let total = others.iter().try_fold(first.clone(), |total, gate| total + gate)?;
                for (gate, result) in others.iter().zip(&brought[1..]) {
                    sum = (sum + weighed(gate, result)?)?;
                }
                sum = sum.broadcast_div(&total.to_dtype(sum.dtype())?)?;
            }
            composed::drop(&sum, onto.dropout)? + residual
        })
    }

    /// Returns, for each choice, the results of the experts that the N tokens chose, with zeros for
    /// dropped tokens: `(N, D)` for each choice.
    fn brought(&self, x: &Tensor, plan: &Plan, pass: &Pass) -> Result<Vec<Tensor>> {
        let mut results = Vec::with_capacity(self.experts.len());
        for (expert, tokens) in self.experts.iter().zip(&plan.tokens) {
            // In training, every parameter must get a gradient: an expert without tokens therefore
            // runs on the first token. Its result is not used, so its gradient is zero.
            let is_idle = tokens.is_empty();
            if is_idle && !(pass.is_training() && x.dim(0)? > 0) {
                continue;
            }
            let rows: Arc<[u32]> = if is_idle { [0].into() } else { tokens.as_slice().into() };
            let inputs = picked(x, rows, Dropout::none(), pass)?;
            results.push((expert.alone(&inputs, pass)?, is_idle));
        }
        let (rows, width) = x.dims2()?;
        if rows == 0 {
            return Ok(vec![x.clone(); plan.rows.len()]);
        }
        // The results of idle experts follow the row of zeros.
        results.sort_by_key(|(_, is_idle)| *is_idle);
        let busy = results.iter().filter(|(_, is_idle)| !is_idle).count();
        let inputs: Vec<&Tensor> = results.iter().map(|(result, _)| result).collect();
        let all = composed::on_tape(pass.tape(), "rows of experts", &inputs, |inputs| {
            let zeros = Tensor::zeros((1, width), x.dtype(), x.device())?;
            let (busy, idle) = inputs.split_at(busy);
            let parts: Vec<&Tensor> = busy.iter().chain([&zeros]).chain(idle).collect();
            Tensor::cat(&parts, 0)
        })?;
        let of_choice =
            |of_choice: &Vec<u32>| picked(&all, of_choice.as_slice().into(), Dropout::none(), pass);
        plan.rows.iter().map(of_choice).collect()
    }
}
