//! Event file of a training for TensorBoard. It is in the same folder as `metrics.jsonl`, and has
//! values for the same updates.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use candle_core::{DType, Device};
use taper_data::TokenizerPair;
use taper_model::Model;
use taper_plots::{Language, PlotError, Theme};
use taper_tensorboard::{EventFile, Histogram, Parameter, Value};
use taper_trainer::{BoxError, Event, Sample, Scores, State, Validator};

use crate::attention::{AttentionLayer, AttentionMap, AttentionPart, mean_figure};
use crate::config::RunConfig;
use crate::tasks::TaskModel;

/// Prefix of the names of event files.
const NAME: &str = "events.out.tfevents.";
/// Prefixes of the tags of values that are recorded in a validation.
const VALIDATION: [&str; 4] = ["validation/", "weights/", "samples/", "attention/"];

/// Event file of a run, to which both recorder and validation write.
#[derive(Debug, Clone)]
pub(crate) struct TensorBoard(Arc<Mutex<EventFile>>);

impl TensorBoard {
    /// Opens the event file of the run (folder of the training) at `root`, and removes records that
    /// are later than the checkpoint's state `state`. Returns `None` if the recipe (settings of the
    /// training) does not request an event file.
    ///
    /// # Errors
    /// If the file cannot be read or written.
    pub(crate) fn open(root: &Path, config: &RunConfig, state: &State) -> Result<Option<Self>> {
        if !config.logging.tensorboard {
            return Ok(None);
        }
        let (path, is_new) = match existing(root)? {
            Some(path) => (path, false),
            None => (root.join(format!("{NAME}{}.taper", seconds() as u64)), true),
        };
        let known = |step: u64, tags: &[String]| {
            let is_validation =
                tags.iter().any(|tag| VALIDATION.iter().any(|prefix| tag.starts_with(prefix)));
            match is_validation {
                true => state.validated_at.is_some_and(|validated| step <= validated),
                false => step <= state.step,
            }
        };
        let mut events = EventFile::resume(&path, known)
            .with_context(|| format!("cannot write {}", path.display()))?;
        if is_new {
            let parameters = parameters(config)?;
            let recipe = format!("```toml\n{}```\n", config.to_toml()?);
            events.append(
                0,
                &[Value::parameters(seconds(), &parameters), Value::text("recipe", &recipe)],
            );
        }
        Ok(Some(Self(Arc::new(Mutex::new(events)))))
    }

    fn append(&self, step: u64, values: &[Value]) {
        // A poisoned lock is used all the same: if a thread has panicked while it held the lock,
        // only records that are not yet written can be incomplete.
        self.0.lock().unwrap_or_else(PoisonError::into_inner).append(step, values);
    }

    /// Writes all records to the disk.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(crate) fn flush(&self) -> Result<()> {
        let mut events = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let path = events.path().to_owned();
        events.flush().with_context(|| format!("cannot append to {}", path.display()))
    }

    /// Records an event of the trainer.
    pub(crate) fn record(&self, event: &Event) {
        let mut values = Vec::new();
        let mut add = |tag: &str, value: f64| values.push(Value::scalar(tag, value));
        match event {
            Event::Log {
                epoch,
                loss,
                nll,
                accuracy,
                learning_rate,
                gradient_norm,
                noise_scale,
                layers,
                tokens,
                timing,
                ..
            } => {
                add("train/loss", *loss);
                if let Some(accuracy) = accuracy {
                    add("train/nll", *nll);
                    add("train/perplexity", nll.exp());
                    add("train/accuracy", *accuracy);
                }
                add("train/learning_rate", *learning_rate);
                add("train/gradient_norm", *gradient_norm);
                if let Some(scale) = noise_scale {
                    add("train/gradient_noise_scale", *scale);
                }
                add("train/epoch", *epoch as f64);
                add("train/tokens", *tokens as f64);
                if let Some(rate) = timing.tokens_per_second {
                    add("train/tokens_per_second", rate);
                }
                for (layer, norms) in layers {
                    add(&format!("gradient_norms/{layer}"), f64::from(norms.gradient));
                    add(&format!("weight_norms/{layer}"), f64::from(norms.weight));
                }
            }
            Event::Validation { scores, samples, .. } => {
                for (name, score) in scores.iter() {
                    add(&format!("validation/{name}"), score);
                }
                for (number, sample) in samples.iter().enumerate() {
                    values.push(Value::text(&format!("samples/{number}"), &table(sample)));
                }
            }
            _ => {}
        }
        if !values.is_empty() {
            self.append(event.step(), &values);
        }
    }

    /// Records a histogram of the values of each parameter.
    fn record_weights(&self, model: &impl Model, step: u64) -> candle_core::Result<()> {
        let mut layers: BTreeMap<&str, Vec<f32>> = BTreeMap::new();
        for parameter in model.parameters().parameters() {
            let values = parameter.var().flatten_all()?.to_dtype(DType::F32)?;
            let values: Vec<f32> = values.to_device(&Device::Cpu)?.to_vec1()?;
            layers.entry(parameter.name()).or_default().extend(values);
        }
        let value = |(name, values): (&str, Vec<f32>)| {
            Value::histogram(&format!("weights/{name}"), &Histogram::count(values))
        };
        let values: Vec<Value> = layers.into_iter().map(value).collect();
        self.append(step, &values);
        Ok(())
    }

    /// Records attention: one picture for each layer, with the mean over the heads of the layer.
    fn record_attention(&self, map: &AttentionMap, step: u64) -> Result<(), PlotError> {
        let picture = |layer: &AttentionLayer| {
            let tag = format!("attention/{}/layer {}", layer.part.name(), layer.layer);
            let figure = mean_figure(layer, Language::English);
            Ok(Value::image(&tag, figure.size, &figure.draw()?.png(Theme::Light, 1.0)?))
        };
        let values = match drawn(map).map(picture).collect::<Result<Vec<_>, _>>() {
            // Training must not end because a picture cannot be drawn.
            Err(error @ (PlotError::NoFonts | PlotError::WithoutPng)) => {
                vec![Value::text("attention/none", &error.to_string())]
            }
            values => values?,
        };
        self.append(step, &values);
        Ok(())
    }
}

/// Layers whose attention is drawn: those that attend to an encoder, or all layers if there are no
/// such layers.
fn drawn(map: &AttentionMap) -> impl Iterator<Item = &AttentionLayer> {
    let has_cross = map.layers.iter().any(|layer| layer.part == AttentionPart::Cross);
    map.layers.iter().filter(move |layer| !has_cross || layer.part == AttentionPart::Cross)
}

/// Path of a run's event file; `None` if it has none.
fn existing(root: &Path) -> Result<Option<PathBuf>> {
    let mut files: Vec<PathBuf> = fs::read_dir(root)
        .with_context(|| format!("cannot read {}", root.display()))?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(NAME))
        })
        .filter(|path| path.extension().is_none_or(|extension| extension != "partial"))
        .collect();
    files.sort();
    Ok(files.pop())
}

/// Formats a sample as a table in Markdown.
fn table(sample: &Sample) -> String {
    let cell = |text: &str| text.replace('|', "\\|");
    format!(
        "| | |\n|---|---|\n| source | {} |\n| reference | {} |\n| translation | {} |\n",
        cell(&sample.source),
        cell(&sample.reference),
        cell(&sample.hypothesis)
    )
}

/// Keys of a recipe that have numbers, flags or text as values, each with its value.
fn parameters(config: &RunConfig) -> Result<Vec<(String, Parameter)>> {
    let json = serde_json::to_value(config).context("the recipe is not JSON")?;
    let mut parameters = Vec::new();
    collect("", &json, &mut parameters);
    Ok(parameters)
}

fn collect(name: &str, value: &serde_json::Value, parameters: &mut Vec<(String, Parameter)>) {
    use serde_json::Value as Json;
    let parameter = match value {
        Json::Object(map) => {
            for (key, value) in map {
                let name = if name.is_empty() { key.clone() } else { format!("{name}.{key}") };
                collect(&name, value, parameters);
            }
            return;
        }
        Json::Number(number) => Parameter::Number(number.as_f64().unwrap_or(f64::NAN)),
        Json::Bool(value) => Parameter::Switch(*value),
        Json::String(text) => Parameter::Text(text.clone()),
        Json::Null | Json::Array(_) => return,
    };
    parameters.push((name.to_owned(), parameter));
}

fn seconds() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// Validation that also records the weights and the attention of the model.
pub(crate) struct Watched<M> {
    inner: Box<dyn Validator<M>>,
    events: TensorBoard,
    tokenizers: TokenizerPair,
    /// Samples of the last validation.
    samples: Vec<Sample>,
}

impl<M: TaskModel> Watched<M> {
    /// Wraps `inner` in a validation that also records to `events`. If `events` is `None`, returns
    /// `inner`.
    pub(crate) fn boxed(
        inner: Box<dyn Validator<M>>,
        events: Option<&TensorBoard>,
        tokenizers: &TokenizerPair,
    ) -> Box<dyn Validator<M>>
    where
        M: 'static,
    {
        let Some(events) = events.cloned() else { return inner };
        Box::new(Self { inner, events, tokenizers: tokenizers.clone(), samples: Vec::new() })
    }
}

impl<M: TaskModel> Validator<M> for Watched<M> {
    fn validate(&mut self, model: &M, step: u64) -> Result<Scores, BoxError> {
        let scores = self.inner.validate(model, step)?;
        self.events.record_weights(model, step)?;
        self.samples = self.inner.samples();
        if let Some(first) = self.samples.first()
            && let Some(map) = model.attention_on(first, &self.tokenizers)?
        {
            self.events.record_attention(&map, step)?;
        }
        Ok(scores)
    }

    fn samples(&mut self) -> Vec<Sample> {
        std::mem::take(&mut self.samples)
    }
}
