//! Attention of every layer and head on one text.

use std::path::Path;

use anyhow::{Context, Result, bail};
use candle_core::{DType, Device};
use serde::Serialize;
use taper_data::{LabelledConfig, Row, Tokenizer, TokenizerPair, rows_of};
use taper_model::{
    AttentionRecord, Batch, LanguageModel, MaskedLanguageModel, Model, ModelError, Objective, Pass,
    Sequences, TextClassifier, TranslationModel,
};
use taper_ops::threads::in_pool;
use taper_plots::Language;

use super::rollout;
use crate::finite::require_finite;
use crate::generation::TextScorer;
use crate::tasks::{TaskEntry, TaskModel, entry, with_model};
use crate::translation::{LineTranslator, TranslationSettings};
use crate::{LoadSettings, LoadedRun, RunFolder};

/// Weights of each key for each query.
pub type Weights = Vec<Vec<f32>>;

/// Kind of attention, by the tokens that attend and the tokens attended to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AttentionPart {
    /// Tokens of an encoder to each other.
    Encoder,
    /// Tokens of a decoder to themselves and their predecessors.
    Decoder,
    /// Tokens of a decoder to tokens of an encoder.
    Cross,
}

impl AttentionPart {
    /// Part of an attention layer, and its number from 0, by its full name.
    fn of_layer(name: &str) -> Option<(Self, usize)> {
        // Layers older than the Transformer have one attention, to the source.
        let layer = name.split('.').find_map(|part| part.parse().ok()).unwrap_or(0);
        match (name.starts_with("encoder."), name.ends_with(".self_attention")) {
            (true, true) => Some((Self::Encoder, layer)),
            (false, true) => Some((Self::Decoder, layer)),
            (false, false) => Some((Self::Cross, layer)),
            (true, false) => None,
        }
    }

    /// Full name of its layer, counted from 0.
    #[must_use]
    pub fn layer_name(self, layer: usize) -> String {
        match self {
            Self::Encoder => format!("encoder.layers.{layer}.self_attention"),
            Self::Decoder => format!("decoder.layers.{layer}.self_attention"),
            Self::Cross => format!("decoder.layers.{layer}.cross_attention"),
        }
    }

    /// Name in data and messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Encoder => "encoder",
            Self::Decoder => "decoder",
            Self::Cross => "cross",
        }
    }

    /// Title on a page.
    #[must_use]
    pub const fn title(self, language: Language) -> &'static str {
        let chinese = match self {
            Self::Encoder => "编码器",
            Self::Decoder => "解码器",
            Self::Cross => "交叉",
        };
        language.choose(self.name(), chinese)
    }
}

/// One layer of attention on a text.
#[derive(Debug, Clone, Serialize)]
pub struct AttentionLayer {
    /// Kind of attention.
    pub part: AttentionPart,
    /// Number in its stack, from 1.
    pub layer: usize,
    /// Tokens that attend. From a decoder to an encoder, these are the predicted tokens; in a
    /// decoder, the tokens read.
    pub queries: Vec<String>,
    /// Tokens attended to.
    pub keys: Vec<String>,
    /// Weights of each head.
    pub heads: Vec<Weights>,
}

impl AttentionLayer {
    /// Mean over the heads.
    #[must_use]
    pub fn mean(&self) -> Weights {
        let share = 1.0 / self.heads.len().max(1) as f32;
        let mut mean = vec![vec![0.0; self.keys.len()]; self.queries.len()];
        for head in &self.heads {
            for (sums, weights) in mean.iter_mut().zip(head) {
                sums.iter_mut().zip(weights).for_each(|(sum, weight)| *sum += share * weight);
            }
        }
        mean
    }
}

/// Attention of a model on a text.
#[derive(Debug, Clone, Serialize)]
pub struct AttentionMap {
    /// Text that was read; of a translation model, the source.
    pub text: String,
    /// Translation; empty for other models.
    pub translation: String,
    /// Layers in order, grouped by part.
    pub layers: Vec<AttentionLayer>,
}

impl AttentionMap {
    /// Attention of the run at `root` on `text`; a translation model reads it together with
    /// `target`, or with its own translation.
    ///
    /// # Errors
    /// When the run cannot be loaded or reads no text, the text is empty or too long, or no layer
    /// has attention weights.
    pub fn of(root: &Path, load: &LoadSettings, text: &str, target: Option<&str>) -> Result<Self> {
        let task = RunFolder::open(root)?.load_config(&load.overrides)?.task;
        let TaskEntry { translates, hides_attention, .. } = entry(task);
        if target.is_some() && !translates {
            bail!("a target is for translation; the run's task is {task}");
        }
        if let Some(reason) = hides_attention {
            bail!("{reason}");
        }
        with_model!(task, M => <M as TaskModel>::attention(
            &LoadedRun::open(root, load)?, text, target
        ))
    }

    /// Attention of a translation model, like [`AttentionMap::of`].
    ///
    /// # Errors
    /// See [`AttentionMap::of`].
    pub fn of_translation(run: &LoadedRun, text: &str, target: Option<&str>) -> Result<Self> {
        let (translation, target) = match target {
            Some(target) => (target.to_owned(), run.tokenizers.target().encode(target)?),
            None => {
                let settings = TranslationSettings::of(&run.config);
                let translator = LineTranslator::new(run, &settings)?;
                let lines = [text.to_owned()];
                let line = translator.translate(&lines, &[], 1, |_| {})?.next();
                let line = line.context("no translation was found")??;
                let best = line.translations.into_iter().next().context("no translation")?;
                (best.text, best.tokens)
            }
        };
        Self::of_pair(&run.model, &run.tokenizers, (text, &translation), target)?.context(
            "no layer has attention weights: the model's attention is linear, or it has none",
        )
    }

    /// Attention of a model on a sentence while it writes `translation`, of `target` tokens; `None`
    /// if no layer has attention weights.
    ///
    /// # Errors
    /// When the sentence cannot be read.
    fn of_pair(
        model: &TranslationModel,
        tokenizers: &TokenizerPair,
        (text, translation): (&str, &str),
        target: Vec<u32>,
    ) -> Result<Option<Self>> {
        let (source, goal) = (tokenizers.source(), tokenizers.target());
        let sources = source.source_row(source.encode(text)?);
        let inputs = goal.target_row(target.iter().copied());
        let answers = goal.answer_row(target);
        let records = in_pool(model.device(), || {
            let pass = Pass::evaluate_with_attention();
            let encoded = model.encode(&Sequences::pack(&[&sources]), &pass)?;
            model.decode(&Sequences::pack(&[&inputs]), &encoded, &pass)?;
            Ok::<_, ModelError>(pass.into_attention())
        })
        .context("the text cannot be read")?;
        let (keys, read) = (shown_tokens(source, &sources), shown_tokens(goal, &inputs));
        let predicted = shown_tokens(goal, &answers);
        if records.is_empty() {
            return Ok(None);
        }
        let layers = layers(records, |part| match part {
            AttentionPart::Encoder => (keys.clone(), keys.clone()),
            AttentionPart::Decoder => (read.clone(), read.clone()),
            AttentionPart::Cross => (predicted.clone(), keys.clone()),
        })?;
        Ok(Some(Self { text: text.to_owned(), translation: translation.to_owned(), layers }))
    }

    /// Attention of a model on the source of a pair while it is given the target; `None` if no
    /// layer has attention weights.
    ///
    /// # Errors
    /// When the pair cannot be read.
    pub(crate) fn of_told(
        model: &TranslationModel,
        tokenizers: &TokenizerPair,
        source: &str,
        target: &str,
    ) -> Result<Option<Self>> {
        let ids = tokenizers.target().encode(target)?;
        Self::of_pair(model, tokenizers, (source, target), ids)
    }

    /// Attention of a language model, like [`AttentionMap::of`].
    ///
    /// # Errors
    /// See [`AttentionMap::of`].
    pub fn of_text(run: &LoadedRun<LanguageModel>, text: &str) -> Result<Self> {
        let ids = TextScorer::new(run)?.read(text)?;
        let sequences = Sequences::pack(&[&ids]);
        let records = in_pool(run.model.device(), || {
            let pass = Pass::evaluate_with_attention();
            run.model.hidden(&sequences, &pass)?;
            Ok::<_, ModelError>(pass.into_attention())
        })
        .context("the text cannot be read")?;
        Self::of_one(text, records, &shown_tokens(run.tokenizers.target(), &ids))
    }

    /// Attention of a masked language model, like [`AttentionMap::of`].
    ///
    /// # Errors
    /// See [`AttentionMap::of`].
    pub(crate) fn of_masked(run: &LoadedRun<MaskedLanguageModel>, text: &str) -> Result<Self> {
        let max_tokens = run.config.data.text.block_length;
        let one = LabelledConfig { max_tokens, ..LabelledConfig::default() };
        let ids = marked(run.tokenizers.target(), text, &one)?.ids;
        let records = in_pool(run.model.device(), || {
            let pass = Pass::evaluate_with_attention();
            run.model.hidden(&Sequences::pack(&[&ids]), &vec![0; ids.len()], &pass)?;
            Ok::<_, ModelError>(pass.into_attention())
        })
        .context("the text cannot be read")?;
        Self::of_one(text, records, &shown_tokens(run.tokenizers.target(), &ids))
    }

    /// Attention of a classifier of texts, like [`AttentionMap::of`].
    ///
    /// # Errors
    /// See [`AttentionMap::of`].
    pub fn of_labelled(run: &LoadedRun<TextClassifier>, text: &str) -> Result<Self> {
        let row = marked(run.tokenizers.target(), text, &run.config.data.labelled)?;
        let segments: Vec<u32> = row.segments().collect();
        let ids = row.ids;
        let streams = vec![Sequences::pack(&[segments]), Sequences::pack(&[&ids])];
        let batch = Batch { asked: Some(vec![0]), ..Batch::new(streams, vec![0]) };
        let records = in_pool(run.model.device(), || {
            let pass = Pass::evaluate_with_attention();
            run.model.loss(&batch, &Objective::default(), 1.0, &pass)?;
            Ok::<_, ModelError>(pass.into_attention())
        })
        .context("the text cannot be read")?;
        Self::of_one(text, records, &shown_tokens(run.tokenizers.target(), &ids))
    }

    fn of_one(text: &str, records: Vec<AttentionRecord>, tokens: &[String]) -> Result<Self> {
        let layers = layers(records, |_| (tokens.to_vec(), tokens.to_vec()))?;
        Ok(Self { text: text.to_owned(), translation: String::new(), layers })
    }

    /// Parts of the model, in order.
    #[must_use]
    pub fn parts(&self) -> Vec<AttentionPart> {
        let mut parts: Vec<AttentionPart> = self.layers.iter().map(|layer| layer.part).collect();
        parts.dedup();
        parts
    }

    /// Layer of a part, counted from 1. The default is the last; in attention to an encoder the
    /// last but one, from which alignments are read.
    ///
    /// # Errors
    /// When there is no such layer; the message lists those that exist.
    pub fn layer(&self, part: AttentionPart, number: Option<usize>) -> Result<&AttentionLayer> {
        let own: Vec<&AttentionLayer> =
            self.layers.iter().filter(|layer| layer.part == part).collect();
        let usual = match part {
            AttentionPart::Cross => own.len().saturating_sub(1).max(1),
            _ => own.len(),
        };
        let wanted = number.unwrap_or(usual);
        let found = own.iter().find(|layer| layer.layer == wanted);
        found.copied().with_context(|| {
            let parts: Vec<&str> = self.parts().into_iter().map(AttentionPart::name).collect();
            match own.len() {
                0 => format!(
                    "the model has no attention {}: it has {}",
                    part.name(),
                    parts.join(", ")
                ),
                count => format!("attention {} has layers 1 to {count}, not {wanted}", part.name()),
            }
        })
    }

    /// Share of each token in each token after all layers of a part whose tokens attend to each
    /// other (Abnar and Zuidema 2020).
    ///
    /// # Errors
    /// When the part is attention to an encoder, or does not exist.
    pub fn rollout(&self, part: AttentionPart) -> Result<AttentionLayer> {
        let last = self.layer(part, None)?;
        if part == AttentionPart::Cross {
            bail!("attention is rolled out over layers of self-attention: encoder or decoder");
        }
        let own = self.layers.iter().filter(|layer| layer.part == part);
        let wide = |layer: &AttentionLayer| -> Vec<Vec<f64>> {
            let mean = layer.mean();
            mean.into_iter().map(|row| row.into_iter().map(f64::from).collect()).collect()
        };
        let flow = rollout(own.map(wide)).context("no layers")?;
        let narrow = flow.into_iter().map(|row| row.into_iter().map(|x| x as f32).collect());
        Ok(AttentionLayer { heads: vec![narrow.collect()], ..last.clone() })
    }
}

/// Text between its marks, as an encoder reads it, or a pair of texts.
fn marked(tokenizer: &Tokenizer, text: &str, config: &LabelledConfig) -> Result<Row> {
    let rows = rows_of(tokenizer, &[text.to_owned()], config)?;
    rows.into_iter().next().context("the text is empty")
}

/// Layers with recorded weights, for one sequence; `labels` names queries and keys.
///
/// # Errors
/// When there are no layers, or a weight is not finite.
pub(super) fn layers(
    records: Vec<AttentionRecord>,
    labels: impl Fn(AttentionPart) -> (Vec<String>, Vec<String>),
) -> Result<Vec<AttentionLayer>> {
    let mut layers = Vec::with_capacity(records.len());
    for AttentionRecord { layer, weights } in records {
        let Some((part, number)) = AttentionPart::of_layer(&layer) else { continue };
        let (queries, keys) = labels(part);
        let weights = weights.to_dtype(DType::F32)?.to_device(&Device::Cpu)?.get(0)?; // (H, T, S)
        let heads = weights.to_vec3::<f32>()?;
        require_finite("the attention", heads.iter().flatten().flatten().copied())?;
        layers.push(AttentionLayer { part, layer: number + 1, queries, keys, heads });
    }
    if layers.is_empty() {
        bail!("no layer has attention weights: the model's attention is linear, or it has none");
    }
    layers.sort_by_key(|layer| (layer.part, layer.layer));
    Ok(layers)
}

/// Tokens in readable form: text instead of the byte-level alphabet, blanks as `▁`, and signs for
/// line ends and similar characters.
#[must_use]
pub fn shown_tokens(tokenizer: &Tokenizer, ids: &[u32]) -> Vec<String> {
    let sign = |character: char| match character {
        '\n' => '⏎',
        '\t' => '⇥',
        other if other.is_control() => '\u{FFFD}',
        other => other,
    };
    let shown = |id: &u32| {
        let token = tokenizer.token(*id).unwrap_or_default();
        let text = tokenizer.decode(&[*id]).unwrap_or_default();
        let is_readable = !text.is_empty() && !text.contains('\u{FFFD}');
        let is_spelled = token.replace('▁', "") == text.trim();
        let shown = if is_readable && !is_spelled { text.replace(' ', "▁") } else { token };
        shown.chars().map(sign).collect()
    };
    ids.iter().map(shown).collect()
}
