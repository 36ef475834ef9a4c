//! Translation: an encoder-decoder, measured by its loss and its translations.

use std::sync::Arc;

use anyhow::Result;
use serde_json::Value;
use taper_data::{BatchingConfig, Dataset, RawPair, Task, TokenizerPair, read_pairs};
use taper_decoding::{DecodingConfig, RerankingConfig, SamplingConfig};
use taper_model::{Batch, Builder, Sequences, TranslationModel};
use taper_trainer::{BoxError, Sample, Validate, evaluate};

use super::{Built, ImportedFolder, TaskModel, Vocabularies};
use crate::attention::{AttentionMap, Journey};
use crate::config::{EvaluationConfig, RunConfig};
use crate::evaluation::{
    Batches, ParallelText, Split, TestSetResult, TextScores, TranslatedTestSet,
};
use crate::event::RunObserver;
use crate::training::in_order;
use crate::translation::{LineTranslator, TranslationSettings, for_the_best};
use crate::{LoadedRun, sentence_vectors};

/// Number of pairs whose loss is measured in one batch.
const MEASURED_TOGETHER: usize = 64;

impl TaskModel for TranslationModel {
    const TASK: Task = Task::Translation;
    const DECODES: bool = true;

    fn build(config: &RunConfig, (source, target): Vocabularies, builder: Builder) -> Built<Self> {
        Self::new(&config.model, source, target, builder)
    }

    fn validation(
        config: &RunConfig,
        dataset: Arc<dyn Dataset>,
        tokenizers: &TokenizerPair,
    ) -> Result<Box<dyn Validate<Self>>> {
        Ok(Box::new(Validation::new(config, dataset, tokenizers)?))
    }

    /// Returns a typical number for sentences.
    fn usual_tokens(_config: &RunConfig) -> usize {
        32
    }

    fn counted_tokens(_config: &RunConfig) -> usize {
        512
    }

    fn inputs(_: &RunConfig, (source, target): Vocabularies) -> Vec<(&'static str, String)> {
        vec![("vocabulary", format!("{source} source, {target} target"))]
    }

    fn journey(run: &LoadedRun<Self>, text: &str) -> Result<Journey> {
        Journey::of_translation(run, text)
    }

    fn attention(run: &LoadedRun<Self>, text: &str, target: Option<&str>) -> Result<AttentionMap> {
        AttentionMap::of_translation(run, text, target)
    }

    fn sentence_vectors(run: &LoadedRun<Self>, texts: &[String]) -> Result<Vec<Vec<f32>>> {
        sentence_vectors::of_sources(run, texts)
    }

    fn describe_import(recipe: &mut RunConfig, folder: &dyn ImportedFolder) -> Result<()> {
        let positions = recipe.model.max_positions;
        recipe.data.cleaning.max_tokens = positions.saturating_sub(1).max(1);
        folder.describe_search(recipe)?;
        Ok(())
    }

    fn shorter_rows(positions: usize) -> String {
        // Room for `</s>`.
        format!("data.cleaning.max_tokens = {}", positions.saturating_sub(1))
    }

    fn measured_by(config: &RunConfig) -> Value {
        let decoding = for_the_best(&config.decoding).with_candidates();
        serde_json::json!({
            // No text is written if translations are sampled.
            "beam_size": (!decoding.sampling.is_active()).then_some(decoding.beam_size),
            "length_penalty": decoding.length_penalty,
            "decoding": decoding,
        })
    }

    fn require_test_set(config: &RunConfig, split: &str) -> Result<()> {
        read_pairs(&config.data, config.data.split(split))?;
        Ok(())
    }

    fn round_to_int8(&mut self) -> Result<()> {
        Ok(Self::round_to_int8(self)?)
    }

    /// Gives the model the reference, so that the pictures of two validations show the same text.
    fn attention_on(
        &self,
        example: &Sample,
        tokenizers: &TokenizerPair,
    ) -> Result<Option<AttentionMap>> {
        AttentionMap::of_told(self, tokenizers, &example.source, &example.reference)
    }

    fn batches(split: Split<'_>) -> Result<Batches<'_>> {
        let Split { config, tokenizers, .. } = split;
        let pairs = read_pairs(&config.data, split.corpora())?;
        let most = config.data.cleaning.max_tokens;
        let (source, target) = (tokenizers.source(), tokenizers.target());
        let batch = move |pairs: Vec<RawPair>| -> Result<Batch, BoxError> {
            let (mut sources, mut inputs, mut answers) = (Vec::new(), Vec::new(), Vec::new());
            for pair in pairs {
                let (read, written) = (source.encode(&pair.source)?, target.encode(&pair.target)?);
                // Pairs that training would skip are not measured.
                if read.len().max(written.len()) <= most {
                    sources.push(source.source_row(read));
                    inputs.push(target.target_row(written.iter().copied()));
                    answers.extend(target.answer_row(written));
                }
            }
            let streams = vec![Sequences::pack(&sources), Sequences::pack(&inputs)];
            Ok(Batch::new(streams, answers))
        };
        let mut pairs = pairs.into_iter();
        let windows = std::iter::from_fn(move || {
            let window: Vec<RawPair> = pairs.by_ref().take(MEASURED_TOGETHER).collect();
            (!window.is_empty()).then_some(window)
        });
        // A window of overlong pairs leaves no batch.
        let has_some = |batch: &Result<Batch, BoxError>| {
            batch.as_ref().map_or(true, |batch| batch.tokens() > 0)
        };
        Ok(Box::new(windows.map(batch).filter(has_some)))
    }

    fn test(&self, split: Split<'_>, observer: &mut dyn RunObserver) -> Result<TestSetResult> {
        let result = TranslatedTestSet::of(split, self, observer)?;
        Ok(TestSetResult::Translated(Box::new(result)))
    }
}

/// Largest number of translations of a validation that are kept.
const MOST_SAMPLES: usize = 3;

/// Validation of a model on the validation split.
struct Validation {
    dataset: Arc<dyn Dataset>,
    batching: BatchingConfig,
    label_smoothing: f64,
    text: ParallelText,
    tokenizers: TokenizerPair,
    settings: TranslationSettings,
    evaluation: EvaluationConfig,
    /// Samples of the last validation.
    samples: Vec<Sample>,
}

impl Validation {
    /// Reads the text that will be decoded.
    ///
    /// # Errors
    /// When the split cannot be read.
    fn new(
        config: &RunConfig,
        dataset: Arc<dyn Dataset>,
        tokenizers: &TokenizerPair,
    ) -> Result<Self> {
        let text = if config.evaluation.validation_sentences == 0 {
            ParallelText::default()
        } else {
            ParallelText::read(&config.data, &config.data.validation)?
                .spread(config.evaluation.validation_sentences)
        };
        Ok(Self {
            dataset,
            batching: config.data.batching.clone(),
            label_smoothing: config.training.label_smoothing,
            text,
            tokenizers: tokenizers.clone(),
            settings: TranslationSettings {
                decoding: DecodingConfig {
                    beam_size: 1,
                    n_best: 1,
                    sampling: SamplingConfig::default(),
                    reranking: RerankingConfig::default(),
                    ..config.decoding.clone()
                },
                ..TranslationSettings::of(config)
            },
            evaluation: config.scoring(),
            samples: Vec::new(),
        })
    }
}

impl Validation {
    /// Some of the translations with their sources and references, evenly spread.
    fn samples_of(&self, translations: &[String]) -> Vec<Sample> {
        let count = self.evaluation.samples.min(MOST_SAMPLES).min(translations.len());
        let sample = |number: usize| {
            let index = (2 * number + 1) * translations.len() / (2 * count);
            Sample {
                source: self.text.sources[index].clone(),
                reference: self.text.references[index].clone(),
                hypothesis: translations[index].clone(),
            }
        };
        (0..count).map(sample).collect()
    }
}

impl Validate<TranslationModel> for Validation {
    fn validate(
        &mut self,
        model: &TranslationModel,
        _step: u64,
    ) -> Result<taper_trainer::Scores, BoxError> {
        let batches = in_order(&self.dataset, &self.batching);
        let mut scores = evaluate(model, batches, self.label_smoothing)?.scores();
        if !self.text.sources.is_empty() {
            let translator = LineTranslator::of(model, &self.tokenizers, &self.settings)?;
            let translations = translator.best(&self.text.sources, |_| {})?.texts;
            let text = TextScores::new(&translations, &self.text.references, &self.evaluation)?;
            self.samples = self.samples_of(&translations);
            scores.insert("bleu", text.bleu.score);
            scores.insert("chrf", text.chrf.score);
        }
        Ok(scores)
    }

    fn samples(&mut self) -> Vec<Sample> {
        std::mem::take(&mut self.samples)
    }
}
