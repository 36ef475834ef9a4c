//! Weights of another run as the initial weights of a new run, for fine-tuning and transfer
//! learning.
//!
//! A parameter takes the values of the checkpoint's tensor with the same name and shape. If the
//! tokenizers differ, a parameter with one row per token takes the rows of the tokens that both
//! tokenizers have. Other parameters keep their random values. It is no error if some parameters do
//! not fit, because weights are also reused for a deeper model or one with another output layer.
//! The caller reports which parameters were taken.

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
    /// Names of the parameters whose values were taken from the checkpoint, in the order of the
    /// checkpoint's file.
    pub taken: Vec<String>,
    /// Parameters that keep their random values, because no tensor of the checkpoint fits them.
    /// They are in the order of the model.
    pub drawn: Vec<SkippedParameter>,
    /// Names of the checkpoint's tensors for which the model has no parameter.
    pub unused: Vec<String>,
    /// Parameters for which only the rows of common tokens were taken, in the order of the
    /// checkpoint's file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub partly: Vec<PartialTable>,
    /// Names of parameters that the checkpoint has, but that [`WarmStartSettings::is_wanted`]
    /// excluded. They keep their random values.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unwanted: Vec<String>,
}

/// Parameter with one row per token (a table of tokens). Only the rows of tokens that the
/// checkpoint's table also has were taken from the checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PartialTable {
    /// Name of the parameter.
    pub name: String,
    /// Number of rows that were taken.
    pub rows: usize,
    /// Number of rows of the model's table, including those that were not taken.
    pub of: usize,
}

/// For each row of a table of tokens, the index of the row with the same token in another table;
/// `None` if the other table does not have the token.
pub type SharedRows = Vec<Option<usize>>;

/// Settings for taking weights from a checkpoint.
#[derive(Clone, Copy)]
pub struct WarmStartSettings<'a> {
    /// Required hash of the checkpoint's tokenizers, which determine the token of each row of its
    /// tables.
    pub tokenizer_hash: &'a str,
    /// Function that returns whether the parameter with this name takes values from the checkpoint.
    pub is_wanted: &'a dyn Fn(&str) -> bool,
    /// Function that receives the name of a parameter. If the parameter is a table of tokens, the
    /// function returns, for each row, the index of the row with the same token in the checkpoint's
    /// table. It returns `None` for other parameters, and if the tokenizers are the same.
    pub rows: &'a dyn Fn(&str) -> Option<&'a SharedRows>,
}

impl std::fmt::Debug for WarmStartSettings<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("WarmStartSettings").finish_non_exhaustive()
    }
}

/// Parameter that took no values from the checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SkippedParameter {
    /// Name of the parameter.
    pub name: String,
    /// Shape of the parameter in the model.
    pub shape: Vec<usize>,
    /// Shape of the checkpoint's tensor with this name; `None` if there is no such tensor.
    pub found: Option<Vec<usize>>,
}

/// Takes weights for `model` from the checkpoint in the directory `checkpoint`. A parameter is set
/// to the tensor with the same name and shape; if only the tokenizers differ, a table of tokens
/// gets the rows of common tokens. `taking` selects the parameters. Returns which parameters took
/// values, and which did not.
///
/// # Errors
/// If the checkpoint cannot be read or is corrupt, or if its tokenizer has another hash than
/// `taking` requires, because its embeddings would then belong to other tokens.
pub fn warm_start(
    checkpoint: &Path,
    model: &dyn Model,
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

/// Copies rows of the checkpoint's table to the rows of `parameter` with the same token. Returns
/// the number of copied rows, or `None` if the shapes do not fit.
///
/// `values` and `shape` are those of the checkpoint's table. `rows` has, for each row of
/// `parameter`, the index of the row with the same token in that table.
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
