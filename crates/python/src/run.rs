//! Python class for runs. A run is the folder of a trained model.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use pyo3::prelude::*;
use serde::Deserialize;
use taper_run::tasks::{self, AnyRun};
use taper_run::{LoadSettings, RunFolder, WeightType};

use crate::array::Array;
use crate::attention::AttentionMap;
use crate::decoding::{GenerateOptions, Packed, TranslateOptions, generate_all, translate};
use crate::engine::compute;
use crate::error::{exception, options};
use crate::prediction::{embed, predict, score};
use crate::stream::Stream;
use crate::tokenizer::Tokenizer;

/// A run whose model is in memory.
#[pyclass(frozen, module = "taper._native")]
pub(crate) struct Run {
    loaded: Arc<dyn AnyRun>,
    packed: Arc<Packed>,
}

/// Settings with which a run is loaded.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LoadOptions {
    checkpoint: Option<String>,
    device: Option<String>,
    weights: Option<String>,
    overrides: Vec<String>,
    from: Option<String>,
    to: Option<String>,
}

impl LoadOptions {
    fn settings(self) -> Result<LoadSettings> {
        let Self { checkpoint, device, weights, overrides, from, to } = self;
        let weights = match weights.as_deref() {
            None => None,
            Some("f32") => Some(WeightType::F32),
            Some("bf16") => Some(WeightType::Bf16),
            Some("int8") => Some(WeightType::Int8),
            Some(other) => bail!("weights is {other:?}: it is f32, bf16 or int8"),
        };
        // Each later call may choose any direction of the run, so all directions are loaded.
        let every_direction = true;
        let only_decodes = false;
        Ok(LoadSettings {
            checkpoint,
            device,
            weights,
            overrides,
            from,
            to,
            every_direction,
            only_decodes,
        })
    }
}

/// Sets the number of threads for the whole process; 0 keeps one thread for each core.
#[pyfunction]
pub(crate) fn choose_threads(threads: usize) -> PyResult<()> {
    taper_run::checks::choose_threads(threads).map_err(|error| exception(&error))
}

#[pymethods]
impl Run {
    #[staticmethod]
    fn load(py: Python<'_>, root: PathBuf, settings: &str) -> PyResult<Self> {
        let settings: LoadOptions = options(settings)?;
        let settings = settings.settings().map_err(|error| exception(&error))?;
        let loaded = compute(py, move |_| {
            let task = RunFolder::open(&root)?.load_config(&settings.overrides)?.task;
            tasks::open(task, &root, &settings)
        })?;
        Ok(Self { loaded: loaded.into(), packed: Arc::default() })
    }

    #[getter]
    fn task(&self) -> String {
        self.loaded.config().task.to_string()
    }

    #[getter]
    fn recipe(&self) -> PyResult<String> {
        self.loaded.config().to_toml().map_err(|error| exception(&error))
    }

    #[getter]
    fn checkpoint(&self) -> PathBuf {
        self.loaded.checkpoint().to_owned()
    }

    #[getter]
    fn step(&self) -> u64 {
        self.loaded.step()
    }

    fn tokenizer(&self, of_targets: bool) -> PyResult<Tokenizer> {
        let tokenizers = self.loaded.tokenizers();
        if tokenizers.vocabulary_sizes() == (0, 0) {
            let task = self.loaded.config().task;
            return Err(exception(&anyhow!("a run of the task {task} has no tokenizer")));
        }
        let chosen = if of_targets { tokenizers.target() } else { tokenizers.source() };
        Ok(Tokenizer::new(chosen))
    }

    fn translate(&self, py: Python<'_>, lines: Vec<String>, settings: &str) -> PyResult<String> {
        let settings: TranslateOptions = options(settings)?;
        let (loaded, packed) = (Arc::clone(&self.loaded), Arc::clone(&self.packed));
        compute(py, move |cancelled| {
            translate(loaded.with_model()?, &packed, &lines, &settings, cancelled)
        })
    }

    fn generate(&self, prompt: Option<String>, settings: &str) -> PyResult<Stream> {
        Stream::start(Arc::clone(&self.loaded), prompt, options(settings)?)
    }

    fn generate_all(
        &self,
        py: Python<'_>,
        prompts: Vec<String>,
        settings: &str,
    ) -> PyResult<String> {
        let settings: GenerateOptions = options(settings)?;
        let loaded = Arc::clone(&self.loaded);
        compute(py, move |cancelled| {
            generate_all(loaded.with_model()?, &prompts, &settings, cancelled)
        })
    }

    fn score(
        &self,
        py: Python<'_>,
        texts: Vec<String>,
        targets: Option<Vec<String>>,
    ) -> PyResult<String> {
        let loaded = Arc::clone(&self.loaded);
        compute(py, move |_| score(&*loaded, &texts, targets.as_deref()))
    }

    fn predict(
        &self,
        py: Python<'_>,
        items: Vec<String>,
        prompts: Vec<String>,
    ) -> PyResult<String> {
        let loaded = Arc::clone(&self.loaded);
        compute(py, move |cancelled| predict(&*loaded, &items, &prompts, cancelled))
    }

    fn embed(&self, py: Python<'_>, texts: Vec<String>) -> PyResult<Array> {
        let (loaded, rows) = (Arc::clone(&self.loaded), texts.len());
        let (values, width) = compute(py, move |_| embed(&*loaded, &texts))?;
        Ok(Array::new(values, vec![rows, width]))
    }

    fn attention(
        &self,
        py: Python<'_>,
        text: String,
        target: Option<String>,
    ) -> PyResult<AttentionMap> {
        let loaded = Arc::clone(&self.loaded);
        let map = compute(py, move |_| loaded.attention(&text, target.as_deref()))?;
        Ok(AttentionMap::new(map))
    }

    fn weights(&self, py: Python<'_>) -> PyResult<Vec<(String, Array)>> {
        let loaded = Arc::clone(&self.loaded);
        compute(py, move |_| {
            let parameters = loaded.parameters().parameters().iter();
            let values = |parameter: &taper_ops::Parameter| {
                let tensor = parameter.var().flatten_all()?.to_vec1::<f32>();
                let values = tensor.with_context(|| parameter.name().to_owned())?;
                let shape = parameter.shape().to_vec();
                Ok((parameter.name().to_owned(), Array::new(values, shape)))
            };
            parameters.map(values).collect()
        })
    }
}
