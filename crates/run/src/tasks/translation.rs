//! Task of translation: an encoder-decoder model, scored by its loss and by its translations.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Result;
use serde_json::Value;
use taper_data::{
    BatchingConfig, Corpora, Corpus, Dataset, Direction, LanguageTag, RawPair, Task, TokenizerPair,
    read_pairs,
};
use taper_decoding::{DecodingConfig, RerankingConfig, SamplingConfig};
use taper_model::{Batch, Builder, Sequences, TranslationModel};
use taper_trainer::{BoxError, Sample, Scores, TeacherForced, Validator, evaluate};

use super::{ImportedFolder, ModelResult, TaskModel, Vocabularies};
use crate::attention::{AttentionMap, Journey};
use crate::config::{EvaluationConfig, RunConfig};
use crate::evaluation::{
    Batches, ParallelText, Split, TestSetResult, TextScores, TranslatedTestSet,
};
use crate::event::RunObserver;
use crate::loaded_run::in_direction;
use crate::training::in_order;
use crate::translation::{LineTranslator, TranslationSettings, for_the_best};
use crate::{LoadedRun, sentence_vectors};

/// Number of sentence pairs in a batch with which the loss is measured.
const MEASURED_TOGETHER: usize = 64;

impl TaskModel for TranslationModel {
    const TASK: Task = Task::Translation;
    const DECODES: bool = true;

    fn build(
        config: &RunConfig,
        (source, target): Vocabularies,
        builder: Builder,
    ) -> ModelResult<Self> {
        Self::new(&config.model, source, target, builder)
    }

    fn validation(
        config: &RunConfig,
        dataset: Arc<dyn Dataset>,
        tokenizers: &TokenizerPair,
    ) -> Result<Box<dyn Validator<Self>>> {
        Ok(Box::new(Validation::new(config, dataset, tokenizers)?))
    }

    /// Typical length of sentences, in tokens.
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
        run.require_direction()?;
        AttentionMap::of_translation(run, text, target)
    }

    fn sentence_vectors(run: &LoadedRun<Self>, texts: &[String]) -> Result<Vec<Vec<f32>>> {
        if run.config.data.languages.tag == LanguageTag::Source {
            run.require_direction()?;
        }
        sentence_vectors::of_sources(run, texts)
    }

    fn describe_import(recipe: &mut RunConfig, folder: &dyn ImportedFolder) -> Result<()> {
        let positions = recipe.model.max_positions;
        recipe.data.cleaning.max_tokens = positions.saturating_sub(1).max(1);
        folder.describe_search(recipe)?;
        Ok(())
    }

    fn shorter_rows(positions: usize) -> String {
        // The end token `</s>` needs a position, too.
        format!("data.cleaning.max_tokens = {}", positions.saturating_sub(1))
    }

    fn measured_by(config: &RunConfig) -> Value {
        let decoding = for_the_best(&config.decoding).with_candidates();
        serde_json::json!({
            // With sampling, there is no beam.
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

    fn only_decode(&mut self, is_int8: bool) -> bool {
        Self::only_decode(self, is_int8);
        true
    }

    /// Shows attention between source and reference instead of the model's translation, so that the
    /// pictures of all validations show the same text.
    fn attention_on(
        &self,
        example: &Sample,
        tokenizers: &TokenizerPair,
    ) -> Result<Option<AttentionMap>> {
        AttentionMap::of_reference(self, tokenizers, &example.source, &example.reference)
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
                // Pairs that training would skip, because they are too long, are not measured.
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
        // A window in which all pairs are too long gives no batch.
        let has_some = |batch: &Result<Batch, BoxError>| {
            batch.as_ref().map_or(true, |batch| batch.tokens() > 0)
        };
        Ok(Box::new(windows.map(batch).filter(has_some)))
    }

    fn test(&self, split: Split<'_>, observer: &mut dyn RunObserver) -> Result<TestSetResult> {
        let result = TranslatedTestSet::evaluate(split, self, observer)?;
        Ok(TestSetResult::Translated(Box::new(result)))
    }
}

/// Largest number of samples (translations that are shown as examples) of a validation.
const MOST_SAMPLES: usize = 3;

/// Validation of a model in each of its directions of translation (pairs of languages). The scores
/// are means over the directions.
struct Validation {
    directions: Vec<(Direction, DirectionValidation)>,
    /// Samples of the last validation.
    samples: Vec<Sample>,
}

/// Validation of a model in one direction of translation.
struct DirectionValidation {
    dataset: Arc<dyn Dataset>,
    batching: BatchingConfig,
    label_smoothing: f64,
    text: ParallelText,
    tokenizers: TokenizerPair,
    settings: TranslationSettings,
    evaluation: EvaluationConfig,
}

impl Validation {
    /// Reads the validation sentences that will be translated.
    ///
    /// # Errors
    /// If the split cannot be read.
    fn new(
        config: &RunConfig,
        dataset: Arc<dyn Dataset>,
        tokenizers: &TokenizerPair,
    ) -> Result<Self> {
        let parts = match dataset.directions() {
            parts if parts.is_empty() => {
                let directions = config.data.directions_of(&config.data.validation);
                directions.into_iter().map(|one| (one, Arc::clone(&dataset))).collect()
            }
            parts => parts,
        };
        let of_part = |(direction, dataset)| {
            let (config, tokenizers) = in_direction(config, tokenizers, &direction)?;
            Ok((direction, DirectionValidation::new(&config, dataset, tokenizers)?))
        };
        let directions = parts.into_iter().map(of_part).collect::<Result<_>>()?;
        Ok(Self { directions, samples: Vec::new() })
    }
}

impl DirectionValidation {
    /// Reads the validation sentences that will be translated. `config` and `tokenizers` are those
    /// for this direction.
    ///
    /// # Errors
    /// If the split cannot be read.
    fn new(
        config: &RunConfig,
        dataset: Arc<dyn Dataset>,
        tokenizers: TokenizerPair,
    ) -> Result<Self> {
        let data = &config.data;
        let languages = Direction::new(&data.source_language, &data.target_language);
        let is_own = |corpus: &&Corpus| data.direction_of(corpus) == languages;
        let split = Corpora(data.validation.iter().filter(is_own).cloned().collect());
        let text = if config.evaluation.validation_sentences == 0 {
            ParallelText::default()
        } else {
            ParallelText::read(data, split)?.spread(config.evaluation.validation_sentences)
        };
        Ok(Self {
            dataset,
            batching: config.data.batching.clone(),
            label_smoothing: config.training.label_smoothing,
            text,
            tokenizers,
            settings: TranslationSettings {
                decoding: DecodingConfig {
                    beam_size: 1,
                    n_best: 1,
                    sampling: SamplingConfig::default(),
                    reranking: RerankingConfig::default(),
                    ..config.decoding.clone()
                },
                ..TranslationSettings::from_config(config)
            },
            evaluation: config.scoring(),
        })
    }

    /// Loss and accuracy of a model on the reference translations, scores of its own translations
    /// (`None` if it translates nothing), and samples of its translations.
    fn measure(
        &self,
        model: &TranslationModel,
    ) -> Result<(TeacherForced, Option<TextScores>, Vec<Sample>), BoxError> {
        let batches = in_order(&self.dataset, &self.batching);
        let read = evaluate(model, batches, self.label_smoothing)?;
        if self.text.sources.is_empty() {
            return Ok((read, None, Vec::new()));
        }
        let translator = LineTranslator::from_model(model, &self.tokenizers, None, &self.settings)?;
        let translations = translator.best(&self.text.sources, |_| {})?.texts;
        let text = TextScores::new(&translations, &self.text.references, &self.evaluation)?;
        let samples = self.samples_of(&translations);
        Ok((read, Some(text), samples))
    }

    /// Samples from `translations`, at equal distances, with their sources and references.
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

/// Samples of several directions: the first of each direction, then the second of each, and so on,
/// up to [`MOST_SAMPLES`] samples.
fn in_turn(samples: Vec<Vec<Sample>>) -> Vec<Sample> {
    let mut samples: Vec<_> = samples.into_iter().map(Vec::into_iter).collect();
    let mut chosen = Vec::with_capacity(MOST_SAMPLES);
    for _ in 0..MOST_SAMPLES {
        chosen.extend(samples.iter_mut().filter_map(Iterator::next));
    }
    chosen.truncate(MOST_SAMPLES);
    chosen
}

impl Validator<TranslationModel> for Validation {
    fn validate(&mut self, model: &TranslationModel, _step: u64) -> Result<Scores, BoxError> {
        let is_single = self.directions.len() == 1;
        let mut scores = Scores::default();
        let (mut sums, mut samples) = (BTreeMap::<&str, f64>::new(), Vec::new());
        for (direction, validation) in &self.directions {
            let (read, text, of_direction) = validation.measure(model)?;
            let mut own = vec![("loss", read.loss), ("nll", read.nll), ("accuracy", read.accuracy)];
            let text = text.iter();
            own.extend(
                text.flat_map(|text| [("bleu", text.bleu.score), ("chrf", text.chrf.score)]),
            );
            for (name, score) in own {
                *sums.entry(name).or_default() += score;
                if !is_single && matches!(name, "loss" | "bleu" | "chrf") {
                    scores.insert(&format!("{name}.{direction}"), score);
                }
            }
            samples.push(of_direction);
        }
        for (name, sum) in sums {
            scores.insert(name, sum / self.directions.len() as f64);
        }
        // The perplexity is computed from the mean of `nll` over the directions.
        scores.insert("perplexity", scores.get("nll").unwrap_or(f64::NAN).exp());
        self.samples = in_turn(samples);
        Ok(scores)
    }

    fn samples(&mut self) -> Vec<Sample> {
        std::mem::take(&mut self.samples)
    }
}
