//! The journey of one sentence through a translation model: its pieces, the vectors that they
//! become, where each layer looks, what the beam tried, and how likely each next token was.

use anyhow::{Context, Result, bail};
use candle_core::{DType, Device, Tensor};
use serde::Serialize;
use taper_data::{END, START, Tokenizer};
use taper_decoding::{BeamFate, BeamNode, beam_tree};
use taper_model::{AttentionRecord, Model, ModelError, Pass, Sequences, StateRecord, Transformer};
use taper_ops::threads::in_pool;

use super::map::layers;
use super::{AttentionLayer, AttentionPart, shown_tokens};
use crate::LoadedRun;
use crate::finite::require_finite;
use crate::translation::{LineLimit, OverlongRule, TranslationSettings, single_line};

/// Alternatives of each next token.
const ALTERNATIVES: usize = 5;

/// A piece of a text.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Piece {
    /// As a person reads it.
    pub token: String,
    /// Its number in the vocabulary.
    pub id: u32,
}

/// How long the vectors of a stack's tokens are.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StackNorms {
    /// `encoder` or `decoder`.
    pub stack: String,
    /// Its tokens.
    pub tokens: Vec<String>,
    /// For each token the Euclidean norm of its state: before the first layer, where token and
    /// position are added up, and after each layer.
    pub norms: Vec<Vec<f32>>,
}

/// A token that the beam looked at.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Branch {
    /// The number of the one that it continues.
    pub parent: Option<usize>,
    /// The token.
    pub token: String,
    /// The log-probability of all up to it.
    pub log_probability: f64,
    /// `kept`, `finished` or `dropped`.
    pub fate: &'static str,
    /// Whether the best translation goes through it.
    pub is_best: bool,
}

/// A translation that the search found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Found {
    /// Its text.
    pub text: String,
    /// Its length-normalised log-probability.
    pub score: f64,
    /// Its log-probability.
    pub log_probability: f64,
}

/// How a token of the best translation was chosen.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Choice {
    /// The token.
    pub token: String,
    /// Its probability after those before it.
    pub probability: f64,
    /// The likeliest tokens there, with their probabilities.
    pub alternatives: Vec<(String, f64)>,
}

/// All stations of a sentence.
#[derive(Debug, Clone, Serialize)]
pub struct Journey {
    /// The text.
    pub text: String,
    /// What the tokenizer reads of it: after normalisation.
    pub normalized: String,
    /// Its pieces, `</s>` last.
    pub pieces: Vec<Piece>,
    /// How positions come in: the recipe's `model.positions`.
    pub positions: String,
    /// The norms of the vectors of each token, of encoder and decoder.
    pub norms: Vec<StackNorms>,
    /// Where each layer looks.
    pub attention: Vec<AttentionLayer>,
    /// What the beam looked at, in the order of positions.
    pub beam: Vec<Branch>,
    /// The translations that were found, best first.
    pub found: Vec<Found>,
    /// How each token of the best was chosen, `</s>` last.
    pub choices: Vec<Choice>,
}

impl Journey {
    /// The journey of `text` through the model of `run`.
    ///
    /// # Errors
    /// When the text is empty or too long, or the model cannot be run on it.
    pub fn of(run: &LoadedRun, text: &str) -> Result<Self> {
        if text.trim().is_empty() {
            bail!("the text is empty");
        }
        let (source, target) = (run.tokenizers.source(), run.tokenizers.target());
        let mut ids = source.encode(text)?;
        let settings = TranslationSettings::of(&run.config);
        let limit = LineLimit::new(OverlongRule::Error, settings.max_source_tokens)
            .within(run.model.config());
        if ids.len() > limit.tokens {
            bail!("the text has {} tokens, more than {}", ids.len(), limit.tokens);
        }
        ids.push(END);
        let decoding = &settings.decoding;
        if decoding.sampling.is_active() {
            bail!("the run draws its translations (decoding.sampling): there is no beam to show");
        }
        let inference = run.model.inference();
        let (hypotheses, nodes) =
            beam_tree(&inference, &ids, decoding).context("the search failed")?;
        let best = hypotheses.first().context("the search found nothing")?.tokens.clone();
        let found = hypotheses.iter().map(|hypothesis| {
            Ok(Found {
                text: single_line(target.decode(&hypothesis.tokens)?),
                score: hypothesis.score,
                log_probability: hypothesis.log_probability,
            })
        });
        let found = found.collect::<Result<_>>()?;
        let (attention, states, logits) = forced(&run.model, &ids, &best)?;
        let (keys, inputs) =
            (shown_tokens(source, &ids), shown_tokens(target, &[&[START], &best[..]].concat()));
        let answers = [&best[..], &[END]].concat();
        let predicted = shown_tokens(target, &answers);
        let attention = layers(attention, |part| match part {
            AttentionPart::Encoder => (keys.clone(), keys.clone()),
            AttentionPart::Decoder => (inputs.clone(), inputs.clone()),
            AttentionPart::Cross => (predicted.clone(), keys.clone()),
        })?;
        let pieces =
            keys.iter().zip(&ids).map(|(token, id)| Piece { token: token.clone(), id: *id });
        Ok(Self {
            text: text.to_owned(),
            normalized: source.normalize(text)?,
            pieces: pieces.collect(),
            positions: serde_json::to_value(run.config.model.positions)?
                .as_str()
                .unwrap_or_default()
                .to_owned(),
            norms: norms(states, &[("encoder", &keys), ("decoder", &inputs)])?,
            attention,
            beam: branches(&nodes, &best, target),
            found,
            choices: choices(&logits, &answers, target)?,
        })
    }
}

/// One pass over a source and its translation: attention, states, and logits `(N, V)`.
fn forced(
    model: &Transformer,
    source: &[u32],
    target: &[u32],
) -> Result<(Vec<AttentionRecord>, Vec<StateRecord>, Tensor)> {
    let inputs = [&[START], target].concat();
    let (records, logits) = in_pool(model.device(), || {
        let pass = Pass::evaluate_with_states();
        let encoded = model.encode(&Sequences::pack(&[source]), &pass)?;
        let hidden = model.decode(&Sequences::pack(&[&inputs]), &encoded, &pass)?;
        let logits = model.logits(&hidden, &pass)?;
        Ok::<_, ModelError>((pass.into_records(), logits))
    })
    .context("the text cannot be read")?;
    Ok((records.0, records.1, logits.to_device(&Device::Cpu)?))
}

/// The norms of each stack's tokens, before and after each layer.
fn norms(states: Vec<StateRecord>, stacks: &[(&str, &Vec<String>)]) -> Result<Vec<StackNorms>> {
    let mut found: Vec<StackNorms> = stacks
        .iter()
        .map(|(stack, tokens)| StackNorms {
            stack: (*stack).to_owned(),
            tokens: (*tokens).clone(),
            norms: Vec::new(),
        })
        .collect();
    for record in states {
        let rows = record.rows.to_device(&Device::Cpu)?.to_dtype(DType::F32)?;
        let norms = rows.sqr()?.sum(1)?.sqrt()?.to_vec1::<f32>()?;
        require_finite("the states", norms.iter().copied())?;
        if let Some(own) = found.iter_mut().find(|own| own.stack == record.stack) {
            own.norms.push(norms);
        }
    }
    // Layers of before the Transformer keep no states.
    found.retain(|stack| !stack.norms.is_empty());
    Ok(found)
}

/// What the beam looked at, with what was best in the end.
fn branches(nodes: &[BeamNode], best: &[u32], tokenizer: &Tokenizer) -> Vec<Branch> {
    let mut on_path = vec![false; nodes.len()];
    let mut depth = vec![0; nodes.len()];
    for (number, node) in nodes.iter().enumerate() {
        let before = node.parent.is_none_or(|parent| on_path[parent]);
        depth[number] = node.parent.map_or(0, |parent| depth[parent] + 1);
        let wanted = best.get(depth[number]).copied().unwrap_or(END);
        let is_whole = depth[number] <= best.len() && node.fate != BeamFate::Dropped;
        on_path[number] = before && is_whole && node.token == wanted;
    }
    let branch = |(node, is_best): (&BeamNode, bool)| Branch {
        parent: node.parent,
        token: shown_tokens(tokenizer, &[node.token]).concat(),
        log_probability: node.log_probability,
        fate: match node.fate {
            BeamFate::Kept => "kept",
            BeamFate::Finished => "finished",
            BeamFate::Dropped => "dropped",
        },
        is_best,
    };
    nodes.iter().zip(on_path).map(branch).collect()
}

/// How each answer was chosen, by the softmax of its row.
fn choices(logits: &Tensor, answers: &[u32], tokenizer: &Tokenizer) -> Result<Vec<Choice>> {
    let rows = logits.to_vec2::<f32>()?;
    require_finite("the logits", rows.iter().flatten().copied())?;
    let choice = |(row, answer): (&Vec<f32>, &u32)| {
        let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let exponents: Vec<f64> =
            row.iter().map(|logit| f64::from(logit - largest).exp()).collect();
        let sum: f64 = exponents.iter().sum();
        let name = |id: u32| shown_tokens(tokenizer, &[id]).concat();
        let mut order: Vec<u32> = (0..row.len() as u32).collect();
        order.sort_by(|a, b| exponents[*b as usize].total_cmp(&exponents[*a as usize]));
        let likeliest = order.iter().take(ALTERNATIVES);
        Choice {
            token: name(*answer),
            probability: exponents[*answer as usize] / sum,
            alternatives: likeliest.map(|id| (name(*id), exponents[*id as usize] / sum)).collect(),
        }
    };
    Ok(rows.iter().zip(answers).map(choice).collect())
}
