//! Saving and loading of an updater's state in a checkpoint. The files do not depend on the number
//! of processes.

use std::path::Path;

use std::collections::BTreeMap;

use candle_core::{DType, Tensor};
use taper_ops::ParameterStore;

use super::{GradientTree, Updater, pieces};
use crate::checkpoints::tensors::{self, Live};
use crate::checkpoints::{self, MODEL_FILE, OPTIMIZER_FILE};
use crate::exchange::{Layout, Piece, Timed, agree};
use crate::{BoxError, CheckpointError, Exchange, Optimizer, State, TrainError, TrainingConfig};

/// Prefix of the names of the trained weights in the optimizer's file. They are stored there if the
/// model's file has the moving average of the weights.
const WEIGHTS: &str = "weights.";

impl Updater {
    /// Returns the tensors to save: first those for the model's file, then those for the
    /// optimizer's file. All processes must call this. Only process 0 gets the tensors; other
    /// processes get empty lists.
    pub(crate) fn export(
        &mut self,
        store: &ParameterStore,
    ) -> Result<(Vec<Live>, Vec<Live>), BoxError> {
        let names = self.optimizer.buffers();
        let mut parts = vec![Vec::new(); names.len()];
        let none = Tensor::zeros(0, DType::F32, store.device())?;
        for of_piece in &self.state {
            for (buffer, parts) in of_piece.iter().zip(&mut parts) {
                // Each process sends its part of the buffer to process 0.
                let mut given = vec![none.clone(); self.exchange.size()];
                given[0] = buffer.clone();
                parts.extend(self.exchange.exchange(given)?);
            }
        }
        if self.exchange.rank() > 0 {
            return Ok((Vec::new(), Vec::new()));
        }
        let mut optimizer = Vec::new();
        for (name, parts) in names.iter().zip(&parts) {
            optimizer.extend(tensors::live_parts(store, &prefix(name), parts)?);
        }
        let model = match &self.ema {
            Some(ema) => {
                optimizer.extend(tensors::live_parameters(store, WEIGHTS)?);
                tensors::live_parts(store, "", std::slice::from_ref(ema))?
            }
            None => tensors::live_parameters(store, "")?,
        };
        Ok((model, optimizer))
    }

    /// Makes an updater with the state in a checkpoint, and sets the weights in `store`: the
    /// inverse of [`Self::export`]. All processes must call this.
    ///
    /// If the configuration has a moving average but the checkpoint does not, the average begins
    /// with the current weights. If only the checkpoint has a moving average, it is dropped.
    pub(crate) fn import(
        mut exchange: Box<dyn Exchange>,
        checkpoint: &Path,
        saved: &State,
        store: &ParameterStore,
        config: &TrainingConfig,
    ) -> Result<Self, TrainError> {
        let optimizer = config.optimizer.build();
        let layout = Layout::new(store, &*optimizer);
        let pieces = pieces(&layout, config, &*exchange);
        let loaded = Loaded::read(checkpoint, saved, store, config, (&*optimizer, &pieces));
        let Loaded { state, ema } = agree(&mut *exchange, loaded.map_err(TrainError::from))?;
        let gradients = GradientTree::default();
        let layer_norms = BTreeMap::new();
        let (composed, exchange) = (false, Timed::new(exchange));
        Ok(Self {
            optimizer,
            exchange,
            layout,
            pieces,
            state,
            ema,
            gradients,
            layer_norms,
            composed,
        })
    }
}

/// State of an updater that is read from a checkpoint.
struct Loaded {
    /// The optimizer's buffers for each piece.
    state: Vec<Vec<Tensor>>,
    ema: Option<Tensor>,
}

impl Loaded {
    /// Reads the optimizer's buffers for `pieces`, and sets the weights in `store`.
    fn read(
        checkpoint: &Path,
        saved: &State,
        store: &ParameterStore,
        config: &TrainingConfig,
        (optimizer, pieces): (&dyn Optimizer, &[Piece]),
    ) -> Result<Self, CheckpointError> {
        checkpoints::require_float(checkpoint, saved)?;
        let path = checkpoint.join(OPTIMIZER_FILE);
        let failed = |source| CheckpointError::Tensor { path: path.clone(), source };
        checkpoints::load_base(checkpoint, saved, store)?;
        let model = checkpoints::open_tensors(checkpoint, saved, MODEL_FILE)?;
        let model = model.flat(store, &[""])?.pop().unwrap_or_default();
        let file = checkpoints::open_tensors(checkpoint, saved, OPTIMIZER_FILE)?;
        let names = optimizer.buffers();
        if !names.iter().any(|name| file.has(&prefix(name))) {
            let (kind, missing) = (config.optimizer.kind, names.join("', '"));
            return Err(CheckpointError::OtherOptimizer { path, kind, missing });
        }
        let mut prefixes: Vec<String> = names.iter().map(|name| prefix(name)).collect();
        let has_weights = file.has(WEIGHTS);
        prefixes.extend(has_weights.then(|| WEIGHTS.to_owned()));
        let mut buffers = file.flat(store, &prefixes)?;
        let weights = if has_weights { buffers.pop() } else { None };
        let flat = |values: Vec<f32>| {
            let count = values.len();
            Tensor::from_vec(values, count, store.device()).map_err(failed)
        };
        let ema = if config.ema_decay > 0.0 { Some(flat(model.clone())?) } else { None };
        checkpoints::set_weights(checkpoint, store, weights.unwrap_or(model))?;
        let state = match pieces {
            // A single process has the whole of each buffer, so no copies of parts are needed.
            [piece] if piece.own_range().len() == store.len() => {
                vec![buffers.into_iter().map(flat).collect::<Result<_, _>>()?]
            }
            pieces => {
                let own_parts = |piece: &Piece| {
                    let part = |values: &Vec<f32>| flat(values[piece.own_range()].to_vec());
                    buffers.iter().map(part).collect::<Result<_, _>>()
                };
                pieces.iter().map(own_parts).collect::<Result<_, _>>()?
            }
        };
        Ok(Self { state, ema })
    }
}

/// Returns the prefix of the names of a buffer's tensors in the file.
fn prefix(buffer: &str) -> String {
    format!("{buffer}.")
}
