//! Journey of one sentence through a translation model: its pieces, their vectors, the attention of
//! each layer, the hypotheses of the beam, and the probability of each next token.

use anyhow::{Context, Result, bail};
use candle_core::{DType, Device, Tensor};
use serde::Serialize;
use taper_data::Tokenizer;
use taper_decoding::{BeamFate, BeamNode, beam_tree};
use taper_model::{AttentionRecord, Model, ModelError, Pass, Sequences, StateRecord, Transformer};
use taper_ops::threads::in_pool;

use super::map::layers;
use super::{AttentionLayer, AttentionPart, shown_tokens};
use crate::LoadedRun;
use crate::finite::require_finite;
use crate::translation::{LineLimit, OverlongRule, TranslationSettings, single_line, speaking};

/// Alternatives of each next token.
const ALTERNATIVES: usize = 5;

/// Piece of a text.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Piece {
    /// Readable form.
    pub token: String,
    /// Id in the vocabulary.
    pub id: u32,
}

/// Lengths of the vectors of a stack's tokens.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StackNorms {
    /// Name of the stack: `encoder` or `decoder`.
    pub stack: String,
    /// Tokens of the stack.
    pub tokens: Vec<String>,
    /// Euclidean norms of each token's state: before the first layer, as the sum of token and
    /// position, and after each layer.
    pub norms: Vec<Vec<f32>>,
}

/// Token that the beam considered.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Branch {
    /// Index of the branch that it continues.
    pub parent: Option<usize>,
    /// Token of this branch.
    pub token: String,
    /// Log-probability of all tokens up to this one.
    pub log_probability: f64,
    /// Fate of the branch: `kept`, `finished` or `dropped`.
    pub fate: &'static str,
    /// Whether the best translation contains this branch.
    pub is_best: bool,
}

/// Translation found by the search.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Found {
    /// Text of the translation.
    pub text: String,
    /// Length-normalised log-probability.
    pub score: f64,
    /// Log-probability.
    pub log_probability: f64,
}

/// Choice of one token of the best translation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Choice {
    /// Token that was chosen.
    pub token: String,
    /// Probability of the token, given its predecessors.
    pub probability: f64,
    /// Likeliest tokens at this place, with their probabilities.
    pub alternatives: Vec<(String, f64)>,
}

/// All stations of a sentence.
#[derive(Debug, Clone, Serialize)]
pub struct Journey {
    /// Original text.
    pub text: String,
    /// Text after the tokenizer's normalisation.
    pub normalized: String,
    /// Pieces of the text, `</s>` last.
    pub pieces: Vec<Piece>,
    /// Kind of position encoding: the recipe's `model.positions`.
    pub positions: String,
    /// Norms of the vectors of each token, in encoder and decoder.
    pub norms: Vec<StackNorms>,
    /// Attention of each layer.
    pub attention: Vec<AttentionLayer>,
    /// Branches of the beam, in the order of positions.
    pub beam: Vec<Branch>,
    /// Translations of the search, best first.
    pub found: Vec<Found>,
    /// Choices of the tokens of the best translation, `</s>` last.
    pub choices: Vec<Choice>,
}

impl Journey {
    /// Traces the journey of `text` through the model of `run`.
    ///
    /// # Errors
    /// When the text is empty or too long, or the model cannot be run on it.
    pub fn of(run: &LoadedRun, text: &str) -> Result<Self> {
        if text.trim().is_empty() {
            bail!("the text is empty");
        }
        let (source, target) = (run.tokenizers.source(), run.tokenizers.target());
        let ids = source.encode(text)?;
        let settings = TranslationSettings::of(&run.config);
        let limit = LineLimit::new(OverlongRule::Error, settings.max_source_tokens)
            .within(run.model.config(), source);
        if ids.len() > limit.tokens {
            bail!("the text has {} tokens, more than {}", ids.len(), limit.tokens);
        }
        let ids = source.source_row(ids);
        let decoding = &settings.decoding;
        if decoding.sampling.is_active() {
            bail!("the run draws its translations (decoding.sampling): there is no beam to show");
        }
        let inference = speaking(&run.model, target);
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
        let (attention, states, logits) =
            forced(&run.model, &ids, &target.target_row(best.iter().copied()))?;
        let (keys, inputs) = (
            shown_tokens(source, &ids),
            shown_tokens(target, &target.target_row(best.iter().copied())),
        );
        let answers = target.answer_row(best.iter().copied());
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

/// Runs one pass over a source and its translation: attention, states, and logits `(N, V)`.
fn forced(
    model: &Transformer,
    source: &[u32],
    inputs: &[u32],
) -> Result<(Vec<AttentionRecord>, Vec<StateRecord>, Tensor)> {
    let (records, logits) = in_pool(model.device(), || {
        let pass = Pass::evaluate_with_states();
        let encoded = model.encode(&Sequences::pack(&[source]), &pass)?;
        let hidden = model.decode(&Sequences::pack(&[inputs]), &encoded, &pass)?;
        let logits = model.logits(&hidden, &pass)?;
        Ok::<_, ModelError>((pass.into_records(), logits))
    })
    .context("the text cannot be read")?;
    Ok((records.0, records.1, logits.to_device(&Device::Cpu)?))
}

/// Norms of each stack's tokens, before and after each layer.
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
    // Layers older than the Transformer keep no states.
    found.retain(|stack| !stack.norms.is_empty());
    Ok(found)
}

/// Branches of the beam, marked if the best translation contains them.
fn branches(nodes: &[BeamNode], best: &[u32], tokenizer: &Tokenizer) -> Vec<Branch> {
    let mut on_path = vec![false; nodes.len()];
    let mut depth = vec![0; nodes.len()];
    for (number, node) in nodes.iter().enumerate() {
        let before = node.parent.is_none_or(|parent| on_path[parent]);
        depth[number] = node.parent.map_or(0, |parent| depth[parent] + 1);
        let wanted = best.get(depth[number]).copied().unwrap_or(tokenizer.end());
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

/// Choice of each token, by the softmax of its row.
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
