//! Journeys of a text through a language model or a text classifier. A journey has the values that
//! a model computes on the way from its input to its answer.

use std::path::Path;

use anyhow::{Context, Result};
use taper_model::{
    Batch, LanguageModel, Model, ModelError, Objective, Pass, Records, Sequences, TextClassifier,
};
use taper_ops::threads::in_pool;

use super::stations::{HeadInputs, StackVectors};
use super::{Answer, Choice, Journey, Piece};
use crate::attention::AttentionLayer;
use crate::attention::map::{layers, shown_tokens};
use crate::attention::reading::marked;
use crate::config::RunConfig;
use crate::generation::TextScorer;
use crate::prediction::DividedText;
use crate::tasks::{TaskModel, with_model};
use crate::{LoadSettings, LoadedRun, RunFolder};

impl Journey {
    /// Traces the journey of `text` through the model of the run (folder of a trained model) at
    /// `root`. For a model that reads images, `text` is the path of an image file.
    ///
    /// # Errors
    /// When the run cannot be loaded or its task has no journey, or the text is empty or too long,
    /// or the image cannot be read.
    pub fn trace(root: &Path, load: &LoadSettings, text: &str) -> Result<Self> {
        let task = RunFolder::open(root)?.load_config(&load.overrides)?.task;
        with_model!(task, M => <M as TaskModel>::journey(&LoadedRun::open(root, load)?, text))
    }

    /// Traces the journey of `text` through a language model, up to the prediction of the token
    /// after the text.
    ///
    /// # Errors
    /// When the text is empty or too long, or the model cannot be run on it.
    pub fn of_text(run: &LoadedRun<LanguageModel>, text: &str) -> Result<Self> {
        let tokenizer = run.tokenizers.target();
        let ids = TextScorer::new(run)?.read(text)?;
        let (mut records, logits) = in_pool(run.model.device(), || {
            let pass = Pass::evaluate_with_states();
            let hidden = run.model.hidden(&Sequences::pack(&[&ids]), &pass)?;
            let logits = run.model.logits(&hidden, &pass)?;
            Ok::<_, ModelError>((pass.into_records(), logits))
        })
        .context("the text cannot be read")?;
        let tokens = shown_tokens(tokenizer, &ids);
        let attention =
            layers(std::mem::take(&mut records.attention), |_| (tokens.clone(), tokens.clone()))?;
        let answers = ids.iter().skip(1).copied().map(Some).chain([None]);
        let name = |id| shown_tokens(tokenizer, &[id]).concat();
        Ok(Self {
            answer: Answer::Text,
            normalized: tokenizer.normalize(text)?,
            pieces: pieces(&tokens, &ids),
            choices: Choice::from_logits(&logits, answers, name)?,
            ..journey_of((&run.config, text), &records, attention, &[("decoder", &tokens)])?
        })
    }

    /// Traces the journey of `text` through a classifier, to its label.
    ///
    /// # Errors
    /// When the text is empty, or the model cannot be run on it.
    pub fn of_labelled(run: &LoadedRun<TextClassifier>, text: &str) -> Result<Self> {
        let (tokenizer, labelled) = (run.tokenizers.target(), &run.config.data.labelled);
        let evidence = DividedText::new(tokenizer, text, labelled)?.occlude(run)?.words;
        let row = marked(tokenizer, text, labelled)?;
        let segments: Vec<u32> = row.segments().collect();
        let ids = row.ids;
        let streams = [&segments, &ids].map(|ids| Sequences::pack(&[ids]));
        let (mut records, logits) = in_pool(run.model.device(), || {
            let logits = run.model.logits(&streams[0], &streams[1])?;
            let batch = Batch { asked: Some(vec![0]), ..Batch::new(streams.to_vec(), vec![0]) };
            Ok::<_, ModelError>((records_of(&run.model, &batch)?, logits))
        })
        .context("the text cannot be read")?;
        let tokens = shown_tokens(tokenizer, &ids);
        let attention =
            layers(std::mem::take(&mut records.attention), |_| (tokens.clone(), tokens.clone()))?;
        Ok(Self {
            answer: Answer::Label,
            normalized: tokenizer.normalize(text)?,
            pieces: pieces(&tokens, &ids),
            choices: Choice::from_logits(&logits, [None], |id| {
                labelled.labels[id as usize].clone()
            })?,
            evidence,
            ..journey_of((&run.config, text), &records, attention, &[("encoder", &tokens)])?
        })
    }
}

/// Runs a model on a batch, and returns the values that its layers record: states, attention
/// weights, queries, keys and values.
pub(super) fn records_of(model: &impl Model, batch: &Batch) -> Result<Records, ModelError> {
    let pass = Pass::evaluate_with_states();
    model.loss(batch, &Objective::default(), 1.0, &pass)?;
    Ok(pass.into_records())
}

/// Pieces with the readable forms `tokens` and the ids `ids`.
pub(super) fn pieces(tokens: &[String], ids: &[u32]) -> Vec<Piece> {
    tokens.iter().zip(ids).map(|(token, id)| Piece { token: token.clone(), id: *id }).collect()
}

/// Journey of `text` with the attention and all values recorded by a model's layers. `stacks` has
/// the name (encoder or decoder) and the tokens of each stack.
pub(super) fn journey_of(
    (config, text): (&RunConfig, &str),
    records: &Records,
    attention: Vec<AttentionLayer>,
    stacks: &[(&str, &[String])],
) -> Result<Journey> {
    let vectors = StackVectors::from_records(&records.states, stacks)?;
    Ok(Journey {
        task: config.task.to_string(),
        text: text.to_owned(),
        positions: serde_json::to_value(config.model.positions)?
            .as_str()
            .unwrap_or_default()
            .to_owned(),
        norms: vectors.iter().map(StackVectors::norms).collect(),
        vectors,
        heads: HeadInputs::from_records(&records.projections, &attention)?,
        attention,
        ..Journey::default()
    })
}
