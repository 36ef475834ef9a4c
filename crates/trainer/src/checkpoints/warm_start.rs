//! Weights of another run as the first weights of a new run: fine-tuning, transfer.
//!
//! A parameter takes the values of the tensor with its name and shape. A table of tokens takes the
//! rows of the tokens that both tokenizers have. Other parameters keep their random values. The
//! alternative, to refuse any partial fit, was rejected: reuse is needed precisely for a deeper
//! model or another output layer. The caller reports which parameters were taken.

use std::collections::HashMap;
use std::path::Path;

use serde::Serialize;
use taper_model::Model;
use taper_ops::Parameter;

use crate::checkpoints::{self, MODEL_FILE, Weights};
use crate::{CheckpointError, Parent};

/// Parameters that a model took from a checkpoint, and those that it did not take.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WarmStart {
    /// The checkpoint that gave the values.
    pub parent: Parent,
    /// Parameters with values of the checkpoint, in the order of the file.
    pub taken: Vec<String>,
    /// Parameters of the model that keep their random values, in the order of the model.
    pub drawn: Vec<SkippedParameter>,
    /// Tensors of the checkpoint without a parameter in the model.
    pub unused: Vec<String>,
    /// Tables that took only some of their rows, in the order of the file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub partly: Vec<PartialTable>,
    /// Parameters that `is_wanted` excluded, though the checkpoint has them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unwanted: Vec<String>,
}

/// Table of tokens (one row per token) that took the rows of the tokens it has in common with the
/// checkpoint's table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PartialTable {
    /// Name.
    pub name: String,
    /// Number of rows that were taken.
    pub rows: usize,
    /// Number of all rows of the model's table.
    pub of: usize,
}

/// For each row of a table of tokens, the row of the same token in another table; `None` if the
/// other table lacks the token.
pub type SharedRows = Vec<Option<usize>>;

/// Settings for taking weights from a checkpoint.
#[derive(Clone, Copy)]
pub struct WarmStartSettings<'a> {
    /// Hash of the tokenizers that the checkpoint must have; they determine the tokens of its
    /// tables.
    pub tokenizer_hash: &'a str,
    /// Returns true for the name of a parameter that is to take values.
    pub is_wanted: &'a dyn Fn(&str) -> bool,
    /// For the table of tokens of this name, the checkpoint's row for each of its rows; `None` if
    /// the parameter is not a table of tokens, or if the tokenizers are the same.
    pub rows: &'a dyn Fn(&str) -> Option<&'a SharedRows>,
}

impl std::fmt::Debug for WarmStartSettings<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("WarmStartSettings").finish_non_exhaustive()
    }
}

/// A parameter that took no values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SkippedParameter {
    /// Name.
    pub name: String,
    /// Shape in the model.
    pub shape: Vec<usize>,
    /// Shape of the checkpoint's tensor of that name; `None` if there is none.
    pub found: Option<Vec<usize>>,
}

/// Sets each parameter of `model` that `taking` selects to the values of the checkpoint in the
/// directory `checkpoint`, if the checkpoint has a tensor of that name and shape.
///
/// # Errors
/// If the checkpoint cannot be read or is corrupt, or if its tokenizer is not the one stated in
/// `taking`: its embeddings would then belong to other words.
pub fn warm_start(
    checkpoint: &Path,
    model: &impl Model,
    taking: &WarmStartSettings<'_>,
) -> Result<WarmStart, CheckpointError> {
    let state = checkpoints::read_state(checkpoint)?;
    checkpoints::check_tokenizer(checkpoint, &state, taking.tokenizer_hash)?;
    let path = checkpoint.join(MODEL_FILE);
    let weights = Weights::open(checkpoint, &state)?;
    let store = model.parameters();
    let mut left: HashMap<&str, &Parameter> =
        store.all().map(|parameter| (parameter.name(), parameter)).collect();
    let (mut taken, mut unused, mut other_shapes) = (Vec::new(), Vec::new(), HashMap::new());
    let (mut partly, mut unwanted) = (Vec::new(), Vec::new());
    let failed = |source| CheckpointError::Tensor { path: path.clone(), source };
    weights.each(&mut |tensor| {
        let name = tensor.name.as_str();
        match left.get(name) {
            Some(_) if !(taking.is_wanted)(name) => {
                left.remove(name);
                unwanted.push(tensor.name);
            }
            Some(parameter) if let Some(rows) = (taking.rows)(name) => {
                let count = take_rows(parameter, &tensor.values, &tensor.shape, rows);
                match count.map_err(failed)? {
                    Some(count) => {
                        left.remove(name);
                        let (rows, name) = (rows.len(), tensor.name);
                        partly.push(PartialTable { name, rows: count, of: rows });
                    }
                    None => drop(other_shapes.insert(tensor.name, tensor.shape)),
                }
            }
            Some(parameter) if parameter.shape() == tensor.shape => {
                parameter.set(tensor.values).map_err(failed)?;
                left.remove(tensor.name.as_str());
                taken.push(tensor.name);
            }
            Some(_) => drop(other_shapes.insert(tensor.name, tensor.shape)),
            None => unused.push(tensor.name),
        }
        Ok(())
    })?;
    let drawn = store
        .all()
        .filter(|parameter| left.contains_key(parameter.name()))
        .map(|parameter| SkippedParameter {
            name: parameter.name().to_owned(),
            shape: parameter.shape().to_vec(),
            found: other_shapes.remove(parameter.name()),
        })
        .collect();
    let sha256 = state.files.get(MODEL_FILE).map_or_else(String::new, |file| file.sha256.clone());
    let parent = Parent { path: checkpoint.to_owned(), step: state.step, sha256 };
    Ok(WarmStart { parent, taken, drawn, unused, partly, unwanted })
}

/// Copies rows of the checkpoint's table (`values` of the given `shape`) to the rows of `parameter`
/// with the same token, and returns the number of rows copied; `None` if the widths differ.
fn take_rows(
    parameter: &Parameter,
    values: &[f32],
    shape: &[usize],
    rows: &SharedRows,
) -> candle_core::Result<Option<usize>> {
    let fits = match (parameter.shape(), shape) {
        ([row_count, width @ ..], [_, other @ ..]) => *row_count == rows.len() && width == other,
        _ => false,
    };
    if !fits {
        return Ok(None);
    }
    let width = shape[1..].iter().product::<usize>().max(1);
    let mut own_values = parameter.values()?;
    let mut count = 0;
    for (own_row, row) in own_values.chunks_exact_mut(width).zip(rows) {
        let stored = row.and_then(|row| values.chunks_exact(width).nth(row));
        if let Some(stored) = stored {
            own_row.copy_from_slice(stored);
            count += 1;
        }
    }
    parameter.set(own_values)?;
    Ok(Some(count))
}
