//! Journeys of texts and images through models that write a translation or caption, with the tree
//! of the beam search. A journey has the values that a model computes on its way from an input to
//! its answer.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use candle_core::Tensor;
use taper_data::{END, Pixels, Tokenizer};
use taper_decoding::{
    BeamFate, BeamNode, DecodingConfig, Hypothesis, NumberedSources, Sentence, StepModel, beam_tree,
};
use taper_model::{ImageCaptioner, Model, ModelError, Pass, Records, Sequences, Transformer};
use taper_ops::threads::in_pool;

use super::reading::{journey_of, pieces};
use super::{Branch, Choice, FoundTranslation, Journey, Picture};
use crate::LoadedRun;
use crate::attention::map::{AttentionPart, layers, shown_tokens};
use crate::config::RunConfig;
use crate::image_text::caption_search;
use crate::translation::{LineLimit, OverlongRule, TranslationSettings, single_line, speaking};

impl Journey {
    /// Traces the journey of `text` through a translation model, to its best translation.
    ///
    /// # Errors
    /// When the text is empty or too long, the run has several directions of translation and none
    /// has been chosen, or the model cannot be run on the text.
    pub fn of_translation(run: &LoadedRun, text: &str) -> Result<Self> {
        run.require_direction()?;
        ensure!(!text.trim().is_empty(), "the text is empty");
        let (source, target) = (run.tokenizers.source(), run.tokenizers.target());
        let ids = source.encode(text)?;
        let settings = TranslationSettings::from_config(&run.config);
        let limit = LineLimit::new(OverlongRule::Error, settings.max_source_tokens)
            .within(run.model.config(), source);
        if ids.len() > limit.tokens {
            bail!("the text has {} tokens, more than {}", ids.len(), limit.tokens);
        }
        let ids = source.source_row(ids);
        let inference = speaking(&run.model, target);
        let decoding = deterministic(&settings.decoding)?;
        let prefix = target.before_target();
        let sentence = Sentence { prefix: &prefix, ..sentence(&ids) };
        let candidates = match decoding.shortlist {
            true => Some(run.shortlist.get()?.candidates(&sentence, inference.special())),
            false => None,
        };
        let sentence = Sentence { candidates: candidates.as_deref(), ..sentence };
        let search = beam_tree(&inference, sentence, decoding).context("the search failed")?;
        let keys = shown_tokens(source, &ids);
        let read = Source { config: &run.config, name: text, ids: &ids, tokens: &keys };
        Ok(Self {
            normalized: source.normalize(text)?,
            pieces: pieces(&keys, &ids),
            ..read.written(&run.model, target, search)?
        })
    }

    /// Traces the journey of the image file at `path` through a model that describes images, to its
    /// best caption.
    ///
    /// # Errors
    /// When the image cannot be read, or the model cannot be run on it.
    pub fn of_captioned(run: &LoadedRun<ImageCaptioner>, path: &Path) -> Result<Self> {
        let settings = &run.config.data.images;
        let pixels = Pixels::of_file(path, settings)?.0;
        let values: Vec<u32> = pixels.iter().map(|&value| u32::from(value)).collect();
        let model = run.model.translation();
        let inference = model.inference();
        // The search reads sequences of ids, not images. It therefore gets a source with the index
        // of the image as its only id, and `numbered` replaces this source by the image's pixel
        // values.
        let numbered = NumberedSources::new(&inference, |_| Ok(vec![values.clone()]));
        let search = caption_search(&run.config);
        let search = beam_tree(&numbered, sentence(&[0, END]), deterministic(&search)?)
            .context("the search failed")?;
        let encoded = in_pool(model.device(), || {
            model.encode(&Sequences::pack(&[&values]), &Pass::evaluate())
        })?;
        let picture = Picture::new(settings, pixels, encoded.hidden().dim(0)?);
        let patches = picture.tokens();
        let name = path.file_name().context("the image has no name")?.to_string_lossy();
        let read = Source { config: &run.config, name: &name, ids: &values, tokens: &patches };
        let written = read.written(model, run.tokenizers.target(), search)?;
        let ids: Vec<u32> = (0..patches.len() as u32).collect();
        Ok(Self {
            normalized: name.to_string(),
            pieces: pieces(&patches, &ids),
            picture: Some(picture),
            ..written
        })
    }
}

/// Sentence with the tokens `source`, whose translation may begin with any token.
fn sentence(source: &[u32]) -> Sentence<'_> {
    Sentence { source, prefix: &[], phrases: &[], candidates: None, number: 0 }
}

/// Returns `decoding` if its search is a beam search, which can be shown.
///
/// # Errors
/// When the search samples, because it then has no beam; or when the translation is chosen among
/// candidates, because the beam then leads to another one.
fn deterministic(decoding: &DecodingConfig) -> Result<&DecodingConfig> {
    if decoding.sampling.is_active() {
        bail!("the run samples its output (decoding.sampling): there is no beam to show");
    }
    if decoding.reranking.is_active() {
        bail!(
            "the run chooses among candidates (decoding.reranking), and the beam does not show \
             this choice: set decoding.reranking.candidates to 0 to see the search alone"
        );
    }
    Ok(decoding)
}

/// Source of a journey: the tokens of a text, or the pixel values of an image.
struct Source<'a> {
    config: &'a RunConfig,
    name: &'a str,
    ids: &'a [u32],
    /// Names of the encoder's tokens.
    tokens: &'a [String],
}

impl Source<'_> {
    /// Journey up to the best hypothesis of a search. The fields `normalized`, `pieces` and
    /// `picture` are left to the caller.
    fn written(
        &self,
        model: &Transformer,
        target: &Tokenizer,
        (hypotheses, nodes): (Vec<Hypothesis>, Vec<BeamNode>),
    ) -> Result<Journey> {
        let best = &hypotheses.first().context("the search found nothing")?.tokens;
        let found = hypotheses.iter().map(|hypothesis| {
            Ok(FoundTranslation {
                text: single_line(target.decode(&hypothesis.tokens)?),
                score: hypothesis.score,
                log_probability: hypothesis.log_probability,
            })
        });
        let found = found.collect::<Result<_>>()?;
        let text = target.without_before_target(best);
        let inputs = target.target_row(text.iter().copied());
        let answers = target.answer_row(text.iter().copied());
        let (mut records, logits) = forced(model, self.ids, &inputs)?;
        let (keys, inputs) = (self.tokens, shown_tokens(target, &inputs));
        let predicted = shown_tokens(target, &answers);
        let attention = layers(std::mem::take(&mut records.attention), |part| match part {
            AttentionPart::Encoder => (keys.to_vec(), keys.to_vec()),
            AttentionPart::Decoder => (inputs.clone(), inputs.clone()),
            AttentionPart::Cross => (predicted.clone(), keys.to_vec()),
        })?;
        let name = |id| shown_tokens(target, &[id]).concat();
        Ok(Journey {
            beam: branches(&nodes, best, target),
            found,
            choices: Choice::from_logits(&logits, answers.iter().copied().map(Some), name)?,
            ..journey_of(
                (self.config, self.name),
                &records,
                attention,
                &[("encoder", keys), ("decoder", &inputs)],
            )?
        })
    }
}

/// Runs a model on `source` and on the decoder's `inputs`. Returns the values that the layers
/// record, and the logits, of shape (N, V), for the N inputs.
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

/// Branches of the beam, with `is_best` set on those that lead to the best translation, `best`.
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
