//! Folders of adapters in the format of the library PEFT, with settings in `adapter_config.json`
//! and low-rank adapters in `adapter_model.safetensors`. An adapter consists of two factors, A and
//! B, of low rank; their product `B A` is added to a matrix of the model.
//!
//! The name of a tensor consists of [`PREFIX`], the name of the matrix in the model family of the
//! library Transformers, and the kind of the factor.
//!
//! A layer of Taper's model can fuse several matrices: `qkv` fuses `q_proj`, `k_proj` and `v_proj`.
//! Each of these matrices is then a part of the layer. In Taper's run (the model with its files),
//! each part has its own factors A and B. In a folder in which the matrices are separate modules,
//! each module also has its own factors. Other folders have a single module for all parts, such as
//! GPT-2's `c_attn`, with only one factor A and one factor B. The factor A of such a module
//! consists of the factors A of the parts, one below the other. Its factor B has the factors B of
//! the parts as blocks on its diagonal, and zeros elsewhere.

mod export;
mod import;
mod settings;

use std::ops::Range;
use std::path::Path;

use taper_ops::ParameterStore;

use super::family::{Counterpart, Family};
use super::order::Order;
use crate::config::RunConfig;

pub use export::export_adapters;
pub use import::import_adapters;

/// Name of the file with the settings of the adapters.
const SETTINGS: &str = "adapter_config.json";
/// Name of the file with the factors of the adapters.
const ADAPTERS: &str = "adapter_model.safetensors";
/// Prefix of the names of all tensors.
const PREFIX: &str = "base_model.model.";

/// Whether `folder` has adapters.
pub(super) fn are_in(folder: &Path) -> bool {
    folder.join(SETTINGS).is_file()
}

/// Part of a linear layer of a run: a matrix with its own adapters.
struct Part {
    /// Name of the layer in the run.
    layer: String,
    /// Index of the part in its layer, from 0.
    number: usize,
    /// Rows of the layer's matrix that belong to the part.
    rows: Range<usize>,
}

/// Module of a folder. The rows of its matrix are rows of a layer's matrix in the run.
struct Module {
    /// Name of the module: the name of its matrix without `.weight`.
    name: String,
    /// Rows of the layer's matrix that belong to the module.
    rows: Range<usize>,
    /// Order in which the module has these rows.
    order: Order,
}

/// Finds the linear layers with adapters. Returns, for each layer, its parts and the modules of a
/// folder that have rows of its matrix.
fn adapted(
    family: &Family,
    config: &RunConfig,
    store: &ParameterStore,
) -> Vec<(Vec<Part>, Vec<Module>)> {
    let mut all = Vec::new();
    for weight in store.base() {
        let Some(layer) = weight.name().strip_suffix(".weight") else { continue };
        let (mut parts, mut end) = (Vec::new(), 0);
        while let Some(up) = store.get(&format!("{layer}.lora_b.{}", parts.len())) {
            let rows = end..end + up.shape()[0];
            end = rows.end;
            parts.push(Part { layer: layer.to_owned(), number: parts.len(), rows });
        }
        let theirs = written(family, config, weight.name(), weight.shape());
        if let (false, Some(theirs)) = (parts.is_empty(), theirs) {
            all.push((parts, modules(&theirs)));
        }
    }
    all
}

/// Tensors in an exported folder that have the values of the parameter `name` with the given shape;
/// `None` if the family has no such tensors.
fn written(
    family: &Family,
    config: &RunConfig,
    name: &str,
    shape: &[usize],
) -> Option<Counterpart> {
    let mut theirs = family.counterparts(name, shape, config).into_iter();
    match config.model.tied.ties_output() {
        true => theirs.next(),
        false => theirs.next_back(),
    }
}

/// Modules of a folder whose matrices together have the rows of a layer's matrix, in the order of
/// these rows. `theirs` describes the folder's tensors for the layer.
fn modules(theirs: &Counterpart) -> Vec<Module> {
    let mut end = 0;
    // In some model families, such as GPT-2, folders have the matrices of linear layers transposed.
    // The factors of the adapters are not transposed in these folders.
    let (is_transposed, order) = match theirs.order {
        Order::Transposed => (true, Order::Same),
        order => (false, order),
    };
    let module = |(name, shape): (&String, &Vec<usize>)| {
        let rows = end..end + if is_transposed { shape[1] } else { shape[0] };
        end = rows.end;
        let name = name.strip_suffix(".weight").unwrap_or(name).to_owned();
        Module { name, rows, order }
    };
    theirs.names.iter().zip(&theirs.shapes).map(module).collect()
}

/// Whether the range `inner` is within `outer`.
fn is_within(inner: &Range<usize>, outer: &Range<usize>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}
