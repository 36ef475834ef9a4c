//! How far gradients reach back through recurrent layers. For each state of a layer, the norm of
//! the gradient of the loss is computed, depending on how many steps come after this state.
//!
//! A layer cannot learn from states at which this norm has vanished (Bengio et al. 1994, "Learning
//! Long-Term Dependencies with Gradient Descent is Difficult"; Pascanu et al. 2013).

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use taper_model::{
    Architecture, Batch, Builder, Model, ModelConfig, Objective, Pass, Sequences, TranslationModel,
};
use taper_ops::Gradients;

use super::ParallelText;
use crate::checks::device;
use crate::loaded_run::LoadedRun;
use crate::tasks::vocabularies;
use crate::translation::encode_sources;

/// Number of sentences that are processed in one batch.
const AT_ONCE: usize = 50;

/// Norms of the gradients with respect to the states of one recurrent layer, which reads in one
/// direction.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LayerGradients {
    /// Full name of the layer in the model.
    pub layer: String,
    /// Mean over sentences of `‖∂L/∂h‖`; the entry at index `n` is for the state h after which the
    /// layer makes `n` more steps. L is the negative log-likelihood of a sentence in nats.
    pub norms: Vec<f64>,
    /// Number of sentences in each mean of `norms`. Shorter sentences have no states at the larger
    /// indices.
    pub sentences: Vec<usize>,
}

/// Computes the norms of the gradients with respect to the states of each recurrent layer in a
/// trained model (`run`), without dropout. At most `count` sentences are used, evenly spread over
/// `split`.
///
/// # Errors
/// When the model has no recurrent layers, or the split cannot be read.
pub fn state_gradients(run: &LoadedRun, split: &str, count: usize) -> Result<Vec<LayerGradients>> {
    ensure!(
        run.config.model.architecture == Architecture::Recurrent,
        "the run's model.architecture is \"{}\", which has no recurrent states",
        run.config.model.architecture.name()
    );
    let text = ParallelText::read(&run.config.data, run.corpora(split)?)?.spread(count);
    let sources = encode_sources(&run.tokenizers, &text.sources)?;
    let targets = run.tokenizers.target().encode_batch(&text.references)?;
    let model = without_dropout(run)?;
    let mut layers: Vec<LayerGradients> = Vec::new();
    for (sources, targets) in sources.chunks(AT_ONCE).zip(targets.chunks(AT_ONCE)) {
        let goal = run.tokenizers.target();
        let inputs: Vec<Vec<u32>> =
            targets.iter().map(|ids| goal.target_row(ids.iter().copied())).collect();
        let answers = targets.iter().flat_map(|ids| goal.answer_row(ids.iter().copied())).collect();
        let (source, target) = (Sequences::pack(sources), Sequences::pack(&inputs));
        let lengths = [source.lengths.clone(), target.lengths.clone()];
        let pass = Pass::train(1, 1, 0).noting_states();
        let batch = Batch::new(vec![source, target], answers);
        let output = model.loss(&batch, &Objective::default(), 1.0, &pass)?;
        let noted = pass.state_gradients();
        let mut gradients = Gradients::new(model.parameters())?;
        pass.backward(&output, model.parameters(), &mut gradients)?;
        for (number, (layer, states)) in noted.into_iter().enumerate() {
            let [of_source, of_target] = &lengths;
            let lengths = if layer.starts_with("encoder") { of_source } else { of_target };
            if layers.len() == number {
                let (norms, sentences) = (Vec::new(), Vec::new());
                layers.push(LayerGradients { layer: layer.clone(), norms, sentences });
            }
            layers[number].add(&states.norms(), lengths, layer.ends_with("backward"));
        }
    }
    for layer in &mut layers {
        let means = layer.norms.iter().zip(&layer.sentences);
        layer.norms = means.map(|(sum, &count)| sum / count as f64).collect();
    }
    Ok(layers)
}

impl LayerGradients {
    /// Adds the norms of a batch to the sums. `norms` has the norms of one sentence after the
    /// other, and `lengths` has the number of norms of each sentence. `backwards` tells whether the
    /// layer reads from right to left.
    fn add(&mut self, norms: &[f64], lengths: &[usize], backwards: bool) {
        let mut first = 0;
        for &length in lengths {
            for (at, norm) in norms[first..first + length].iter().enumerate() {
                let behind = if backwards { at } else { length - 1 - at };
                let size = self.norms.len().max(behind + 1);
                self.norms.resize(size, 0.0);
                self.sentences.resize(size, 0);
                self.norms[behind] += norm;
                self.sentences[behind] += 1;
            }
            first += length;
        }
    }
}

/// Copy of a run's model with the same weights and without dropout.
fn without_dropout(run: &LoadedRun) -> Result<TranslationModel> {
    let config = ModelConfig {
        embedding_dropout: 0.0,
        attention_dropout: 0.0,
        feed_forward_dropout: 0.0,
        residual_dropout: 0.0,
        final_dropout: 0.0,
        ..run.config.model.clone()
    };
    let device = run.model.device();
    let ((source, target), dtype) =
        (vocabularies(&run.tokenizers), device::dtype(&run.config.dtype, device)?);
    let model = TranslationModel::new(&config, source, target, Builder::zeroed(device, dtype))
        .context("cannot build the model")?;
    let pairs = model.parameters().parameters().iter().zip(run.model.parameters().parameters());
    for (parameter, theirs) in pairs {
        parameter.var().set(theirs.var().as_tensor())?;
    }
    Ok(model)
}
