//! Journey through a translation model, with the tree of its search.

use anyhow::{Context, Result, bail};
use candle_core::Tensor;
use taper_data::Tokenizer;
use taper_decoding::{BeamFate, BeamNode, beam_tree};
use taper_model::{Model, ModelError, Pass, Records, Sequences, Transformer};
use taper_ops::threads::in_pool;

use super::reading::{journey_of, pieces};
use super::{Branch, Choice, Found, Journey};
use crate::LoadedRun;
use crate::attention::map::{AttentionPart, layers, shown_tokens};
use crate::translation::{LineLimit, OverlongRule, TranslationSettings, single_line, speaking};

impl Journey {
    /// Traces the journey of `text` through a translation model, into its best translation.
    ///
    /// # Errors
    /// When the text is empty or too long, or the model cannot be run on it.
    pub fn of_translation(run: &LoadedRun, text: &str) -> Result<Self> {
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
        let inputs = target.target_row(best.iter().copied());
        let answers = target.answer_row(best.iter().copied());
        let (mut records, logits) = forced(&run.model, &ids, &inputs)?;
        let (keys, inputs) = (shown_tokens(source, &ids), shown_tokens(target, &inputs));
        let predicted = shown_tokens(target, &answers);
        let attention = layers(std::mem::take(&mut records.attention), |part| match part {
            AttentionPart::Encoder => (keys.clone(), keys.clone()),
            AttentionPart::Decoder => (inputs.clone(), inputs.clone()),
            AttentionPart::Cross => (predicted.clone(), keys.clone()),
        })?;
        let name = |id| shown_tokens(target, &[id]).concat();
        Ok(Self {
            normalized: source.normalize(text)?,
            pieces: pieces(&keys, &ids),
            beam: branches(&nodes, &best, target),
            found,
            choices: Choice::of(&logits, answers.iter().copied().map(Some), name)?,
            ..journey_of(
                (&run.config, text),
                &records,
                attention,
                &[("encoder", &keys), ("decoder", &inputs)],
            )?
        })
    }
}

/// Runs one pass over a source and its translation: its records, and logits `(N, V)`.
fn forced(model: &Transformer, source: &[u32], inputs: &[u32]) -> Result<(Records, Tensor)> {
    in_pool(model.device(), || {
        let pass = Pass::evaluate_with_states();
        let encoded = model.encode(&Sequences::pack(&[source]), &pass)?;
        let hidden = model.decode(&Sequences::pack(&[inputs]), &encoded, &pass)?;
        let logits = model.logits(&hidden, &pass)?;
        Ok::<_, ModelError>((pass.into_records(), logits))
    })
    .context("the text cannot be read")
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
