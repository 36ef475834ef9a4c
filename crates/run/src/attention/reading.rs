//! Attention weights on a text, from the models of all tasks that read text.

use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use taper_data::{EncodedText, LabelledConfig, Row, Task, Tokenizer, TokenizerPair, rows_of};
use taper_model::{
    AttentionRecord, Batch, LanguageModel, MaskedLanguageModel, Model, ModelError, Objective, Pass,
    Sequences, TextClassifier, TranslationModel,
};
use taper_ops::threads::in_pool;

use super::map::{layers, shown_tokens};
use super::{AttentionMap, AttentionPart};
use crate::advice::{Action, Advice, Verb};
use crate::generation::TextScorer;
use crate::tasks::{PredictionEntry, TaskEntry, TaskModel, entry, tasks_that, with_model};
use crate::translation::{LineNumbers, LineTranslator, TranslationSettings};
use crate::{LoadSettings, LoadedRun, RunFolder};

/// Message for a model without attention weights.
const NO_WEIGHTS: &str =
    "no layer has attention weights: the model's attention is linear, or it has none";

/// Refuses a task whose models have no attention over words, and a target for models that do not
/// translate.
///
/// # Errors
/// If the task has no attention over words, or `target` is given for a task other than translation.
pub(crate) fn require_words(task: Task, target: Option<&str>) -> Result<()> {
    let TaskEntry { translates, hides_attention, predicts, .. } = entry(task);
    if target.is_some() && !translates {
        bail!("a target is for {}; the run's task is {task}", tasks_that(|one| one.translates));
    }
    let Some(reason) = hides_attention else { return Ok(()) };
    let error = anyhow!("{reason}");
    Err(match predicts {
        Some(PredictionEntry { draws_attention: true, .. }) => {
            Advice::new(Action::Use(Verb::DrawAttention), "draws where").about(error)
        }
        _ => error,
    })
}

impl AttentionMap {
    /// Attention of a trained model on `text`; `root` is the folder of its run (the folder that a
    /// training writes). A translation model reads the text as source, together with `target` or,
    /// if `target` is `None`, with the model's own translation.
    ///
    /// # Errors
    /// When the run cannot be loaded or reads no text, the text is empty or too long, or no layer
    /// has attention weights.
    pub fn of_run(
        root: &Path,
        load: &LoadSettings,
        text: &str,
        target: Option<&str>,
    ) -> Result<Self> {
        let task = RunFolder::open(root)?.load_config(&load.overrides)?.task;
        require_words(task, target)?;
        with_model!(task, M => <M as TaskModel>::attention(
            &LoadedRun::open(root, load)?, text, target
        ))
    }

    /// Attention of the translation model of `run`, which is already loaded, in the same way as
    /// [`AttentionMap::of_run`].
    ///
    /// # Errors
    /// See [`AttentionMap::of_run`].
    pub fn of_translation(run: &LoadedRun, text: &str, target: Option<&str>) -> Result<Self> {
        let source = run.tokenizers.source().encode_text(text)?;
        if let Some(target) = target {
            return Self::of_encoded(run, &source, &run.tokenizers.target().encode_text(target)?);
        }
        let settings = TranslationSettings::from_config(&run.config);
        let translator = LineTranslator::new(run, &settings)?;
        let line =
            translator.translate_encoded(&[&source], &[], LineNumbers::From(1), |_| {})?.next();
        let line = line.context("no translation was found")??;
        let best = line.translations.into_iter().next().context("no translation")?;
        let tokenizer = run.tokenizers.target();
        if line.overlong.is_some() {
            // The line was translated in parts, and the tokens of each part begin with tokens that
            // come before every text. So the whole translation is tokenised again as one text.
            return Self::of_encoded(run, &source, &tokenizer.encode_text(&best.text)?);
        }
        let target = tokenizer.without_before_target(&best.tokens);
        Self::of_pair(&run.model, &run.tokenizers, &source, (&best.text, target))?
            .context(NO_WEIGHTS)
    }

    /// Attention of a translation model on a source and a target that the run's tokenizers have
    /// already tokenised.
    ///
    /// # Errors
    /// See [`AttentionMap::of_run`].
    pub fn of_encoded(run: &LoadedRun, source: &EncodedText, target: &EncodedText) -> Result<Self> {
        Self::of_pair(&run.model, &run.tokenizers, source, (target.text(), target.ids()))?
            .context(NO_WEIGHTS)
    }

    /// Attention of a model that reads the source `text` and predicts `translation`, which has the
    /// tokens `target`; `None` if no layer has attention weights.
    ///
    /// # Errors
    /// When the source cannot be read.
    fn of_pair(
        model: &TranslationModel,
        tokenizers: &TokenizerPair,
        text: &EncodedText,
        (translation, target): (&str, &[u32]),
    ) -> Result<Option<Self>> {
        let (source, goal) = (tokenizers.source(), tokenizers.target());
        let sources = source.source_row(text.ids().iter().copied());
        let inputs = goal.target_row(target.iter().copied());
        let answers = goal.answer_row(target.iter().copied());
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
        let (text, translation) = (text.text().to_owned(), translation.to_owned());
        Ok(Some(Self { text, translation, layers }))
    }

    /// Attention of a model that reads `source` and predicts `target`; `None` if no layer has
    /// attention weights.
    ///
    /// # Errors
    /// When the pair cannot be read.
    pub(crate) fn of_reference(
        model: &TranslationModel,
        tokenizers: &TokenizerPair,
        source: &str,
        target: &str,
    ) -> Result<Option<Self>> {
        let source = tokenizers.source().encode_text(source)?;
        let ids = tokenizers.target().encode(target)?;
        Self::of_pair(model, tokenizers, &source, (target, &ids))
    }

    /// Attention of the language model of `run` on a text that is already tokenised, in the same
    /// way as [`AttentionMap::of_run`].
    ///
    /// # Errors
    /// See [`AttentionMap::of_run`].
    pub fn of_text(run: &LoadedRun<LanguageModel>, text: &EncodedText) -> Result<Self> {
        let ids = TextScorer::new(run)?.row(text.text(), text.ids())?;
        let sequences = Sequences::pack(&[&ids]);
        let records = in_pool(run.model.device(), || {
            let pass = Pass::evaluate_with_attention();
            run.model.hidden(&sequences, &pass)?;
            Ok::<_, ModelError>(pass.into_attention())
        })
        .context("the text cannot be read")?;
        Self::of_stack(text.text(), records, &shown_tokens(run.tokenizers.target(), &ids))
    }

    /// Attention of the masked language model of `run`, which is already loaded, in the same way as
    /// [`AttentionMap::of_run`].
    ///
    /// # Errors
    /// See [`AttentionMap::of_run`].
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
        Self::of_stack(text, records, &shown_tokens(run.tokenizers.target(), &ids))
    }

    /// Attention of the text classifier of `run`, which is already loaded, in the same way as
    /// [`AttentionMap::of_run`].
    ///
    /// # Errors
    /// See [`AttentionMap::of_run`].
    pub fn of_labelled(run: &LoadedRun<TextClassifier>, text: &str) -> Result<Self> {
        Self::of_row(run, text, &labelled_row(run, text)?)
    }

    /// Attention of the text classifier of `run` on `text`, which is already tokenised to `row`, in
    /// the same way as [`AttentionMap::of_run`].
    ///
    /// # Errors
    /// See [`AttentionMap::of_run`].
    pub fn of_row(run: &LoadedRun<TextClassifier>, text: &str, row: &Row) -> Result<Self> {
        let segments: Vec<u32> = row.segments().collect();
        let ids = &row.ids;
        let streams = vec![Sequences::pack(&[segments]), Sequences::pack(&[ids])];
        let batch = Batch { asked: Some(vec![0]), ..Batch::new(streams, vec![0]) };
        let records = in_pool(run.model.device(), || {
            let pass = Pass::evaluate_with_attention();
            run.model.loss(&batch, &Objective::default(), 1.0, &pass)?;
            Ok::<_, ModelError>(pass.into_attention())
        })
        .context("the text cannot be read")?;
        Self::of_stack(text, records, &shown_tokens(run.tokenizers.target(), ids))
    }

    fn of_stack(text: &str, records: Vec<AttentionRecord>, tokens: &[String]) -> Result<Self> {
        let layers = layers(records, |_| (tokens.to_vec(), tokens.to_vec()))?;
        Ok(Self { text: text.to_owned(), translation: String::new(), layers })
    }
}

/// Tokens that a classifier reads for a text or a pair of texts (a row), including special tokens.
///
/// # Errors
/// When the text is empty, or the tokenizer refuses it.
pub fn labelled_row(run: &LoadedRun<TextClassifier>, text: &str) -> Result<Row> {
    marked(run.tokenizers.target(), text, &run.config.data.labelled)
}

/// Tokens that an encoder reads for a text or a pair of texts (a row). They include the special
/// tokens that mark where each text begins and ends.
pub(super) fn marked(tokenizer: &Tokenizer, text: &str, config: &LabelledConfig) -> Result<Row> {
    let rows = rows_of(tokenizer, &[text.to_owned()], config)?;
    rows.into_iter().next().context("the text is empty")
}
