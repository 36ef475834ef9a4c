//! Beginning of a run, and its continuation from a checkpoint.

use std::path::Path;

use taper_model::Model;

use super::Trainer;
use crate::checkpoints::{self, AVERAGED, Checkpoints};
use crate::exchange::{SingleProcess, agree, by_the_first};
use crate::updates::Updater;
use crate::{Exchange, Identity, ProcessTime, State, TrainError, TrainingConfig};

impl<M: Model> Trainer<M> {
    /// Begins a run with the current weights of `model`; the run saves its checkpoints under
    /// `checkpoints`.
    ///
    /// # Errors
    /// When the configuration does not allow training, or buffers cannot be allocated.
    pub fn new(
        model: M,
        config: TrainingConfig,
        identity: Identity,
        checkpoints: &Path,
    ) -> Result<Self, TrainError> {
        Self::begin_among(Box::new(SingleProcess::default()), model, config, identity, checkpoints)
    }

    /// Begins a run like [`Trainer::new`], in one of several processes that train a model together.
    /// Every process must have made the same model.
    ///
    /// # Errors
    /// See [`Trainer::new`].
    pub fn begin_among(
        exchange: Box<dyn Exchange>,
        model: M,
        config: TrainingConfig,
        identity: Identity,
        checkpoints: &Path,
    ) -> Result<Self, TrainError> {
        config.check()?;
        let updater = Updater::among(exchange, model.parameters(), &config).map_err(|error| {
            TrainError::Compute { action: "set up the optimizer", step: 0, source: error.into() }
        })?;
        let state = State::new(config.seed, identity);
        Ok(Self::assemble(model, config, checkpoints, updater, state, false))
    }

    /// Continues the run under `checkpoints` from its checkpoint called `name` (`last`, `best` or a
    /// directory's name).
    ///
    /// # Errors
    /// When the configuration does not allow training or has another seed, or the checkpoint cannot
    /// be loaded or does not fit the model or the tokenizer.
    pub fn resume(
        model: M,
        config: TrainingConfig,
        identity: Identity,
        checkpoints: &Path,
        name: &str,
    ) -> Result<Self, TrainError> {
        let path = Checkpoints::new(checkpoints).resolve(name)?;
        Self::resume_from(model, config, identity, checkpoints, &path)
    }

    /// Continues like [`Trainer::resume`], but from the checkpoint in the directory `path`, which
    /// may be elsewhere. New checkpoints are saved under `checkpoints`. If `path` is there, `last`
    /// points at it from now on.
    ///
    /// `identity` replaces the identity in the checkpoint, so that a change which the caller has
    /// accepted need not be accepted again. If the validation scores have another identity or
    /// metric than in the checkpoint, the best score and the patience are reset.
    ///
    /// # Errors
    /// The errors of [`Trainer::resume`], and an error if `last` cannot be changed.
    pub fn resume_from(
        model: M,
        config: TrainingConfig,
        identity: Identity,
        checkpoints: &Path,
        path: &Path,
    ) -> Result<Self, TrainError> {
        Self::resume_among(
            Box::new(SingleProcess::default()),
            model,
            config,
            identity,
            checkpoints,
            path,
        )
    }

    /// Continues like [`Trainer::resume_from`], in one of several processes that train a model
    /// together. The number of processes may differ from the number before.
    ///
    /// # Errors
    /// The errors of [`Trainer::resume_from`] in any of the processes.
    pub fn resume_among(
        mut exchange: Box<dyn Exchange>,
        model: M,
        config: TrainingConfig,
        identity: Identity,
        checkpoints: &Path,
        path: &Path,
    ) -> Result<Self, TrainError> {
        let read = Self::read(&config, &identity, path);
        let mut state = agree(&mut *exchange, read)?;
        let store = model.parameters();
        let mut updater = Updater::import(exchange, path, &state, store, &config)?;
        let on_disk = state.clone();
        if let (Some(base), Some(scale)) = (&mut state.base, store.adapter_scale()) {
            base.scale = scale;
        }
        let before = std::mem::replace(&mut state.identity, identity).validation;
        if state.early_stopping.is_of_another(config.early_stopping.metric)
            || (!before.is_empty() && before != state.identity.validation)
        {
            state.forget_scores();
        }
        let saved = by_the_first(updater.exchange(), || {
            let saved = Checkpoints::new(checkpoints).wind_back_to(path, &state)?;
            if saved && state != on_disk {
                checkpoints::replace_state(path, &state)?;
            }
            Ok(saved)
        })?;
        Ok(Self::assemble(model, config, checkpoints, updater, state, saved))
    }

    /// Reads the state of the checkpoint in the directory `path`; an error if training must not
    /// continue from it.
    fn read(
        config: &TrainingConfig,
        identity: &Identity,
        path: &Path,
    ) -> Result<State, TrainError> {
        config.check()?;
        let state = checkpoints::read_state(path)?;
        checkpoints::check_tokenizer(path, &state, &identity.tokenizer_hash)?;
        if state.seed != config.seed {
            let (path, saved, configured) = (path.to_owned(), state.seed, config.seed);
            return Err(TrainError::Seed { path, saved, configured });
        }
        Ok(state)
    }

    fn assemble(
        model: M,
        config: TrainingConfig,
        checkpoints: &Path,
        updater: Updater,
        state: State,
        saved: bool,
    ) -> Self {
        let averaged = checkpoints.join(AVERAGED);
        let checkpoints = Checkpoints::new(checkpoints);
        Self {
            model,
            config,
            checkpoints,
            averaged,
            updater,
            state,
            saved,
            settled: true,
            unobserved: None,
            learning_rate: 0.0,
            nll: 0.0,
            time: ProcessTime::default(),
            whole_time: ProcessTime::default(),
        }
    }
}
