//! The weights of another run as the first ones of a new one: fine-tuning, transfer.
//!
//! A parameter takes the values of the tensor that has its name and shape; the others stay as they
//! were drawn. The alternative, to refuse whatever does not fit in full, was rejected: a deeper
//! model or another output layer is a reason to take weights over. What was taken and what was not
//! is for the caller to show.

use std::collections::HashMap;
use std::path::Path;

use serde::Serialize;
use taper_model::Model;
use taper_ops::Parameter;

use crate::checkpoints::{self, MODEL_FILE};
use crate::{CheckpointError, Parent};

/// What a model took of a checkpoint.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WarmStart {
    /// The checkpoint.
    pub parent: Parent,
    /// The parameters that have its values, in the order of the file.
    pub taken: Vec<String>,
    /// The model's parameters that stay as they were drawn, in the order of the model.
    pub drawn: Vec<NotTaken>,
    /// The checkpoint's tensors that the model has no parameter for.
    pub unused: Vec<String>,
}

/// A parameter that took no values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NotTaken {
    /// Its name.
    pub name: String,
    /// Its shape in the model.
    pub shape: Vec<usize>,
    /// The shape of the checkpoint's tensor of that name, if there is one.
    pub found: Option<Vec<usize>>,
}

/// Gives the parameters of `model` the values of the checkpoint in the directory `checkpoint`, as
/// far as names and shapes agree.
///
/// # Errors
/// The checkpoint cannot be read, is corrupt, or is of another tokenizer than `tokenizer_hash`, so
/// that its embeddings mean other words.
pub fn warm_start(
    checkpoint: &Path,
    model: &impl Model,
    tokenizer_hash: &str,
) -> Result<WarmStart, CheckpointError> {
    let state = checkpoints::read_state(checkpoint)?;
    checkpoints::check_tokenizer(checkpoint, &state, tokenizer_hash)?;
    let path = checkpoint.join(MODEL_FILE);
    let reader = checkpoints::open_tensors(checkpoint, &state, MODEL_FILE)?;
    let store = model.parameters();
    let mut left: HashMap<&str, &Parameter> =
        store.parameters().iter().map(|parameter| (parameter.name(), parameter)).collect();
    let (mut taken, mut unused, mut found) = (Vec::new(), Vec::new(), HashMap::new());
    reader.each(|tensor| {
        match left.get(tensor.name.as_str()) {
            Some(parameter) if parameter.shape() == tensor.shape => {
                parameter
                    .set(tensor.values)
                    .map_err(|source| CheckpointError::Tensor { path: path.clone(), source })?;
                left.remove(tensor.name.as_str());
                taken.push(tensor.name);
            }
            Some(_) => drop(found.insert(tensor.name, tensor.shape)),
            None => unused.push(tensor.name),
        }
        Ok(())
    })?;
    let drawn = store
        .parameters()
        .iter()
        .filter(|parameter| left.contains_key(parameter.name()))
        .map(|parameter| NotTaken {
            name: parameter.name().to_owned(),
            shape: parameter.shape().to_vec(),
            found: found.remove(parameter.name()),
        })
        .collect();
    let sha256 = state.files.get(MODEL_FILE).map_or_else(String::new, |file| file.sha256.clone());
    let parent = Parent { path: checkpoint.to_owned(), step: state.step, sha256 };
    Ok(WarmStart { parent, taken, drawn, unused })
}
