//! Beginning of a run, and its continuation from a checkpoint.

use std::path::Path;

use taper_model::Model;

use super::Trainer;
use crate::checkpoints::{self, AVERAGED, Checkpoints};
use crate::exchange::{SingleProcess, agree, by_the_first};
use crate::updates::Updater;
use crate::{Exchange, Identity, ProcessTime, State, TrainError, TrainingConfig};

impl<M: Model> Trainer<M> {
    /// Begins a run with the current weights of `model`. Its checkpoints are saved in the directory
    /// `checkpoints`. They contain `identity`, which describes the run's recipe (all settings of
    /// the run), tokenizer and validation.
    ///
    /// # Errors
    /// If the configuration is not valid, or buffers cannot be allocated.
    pub fn new(
        model: M,
        config: TrainingConfig,
        identity: Identity,
        checkpoints: &Path,
    ) -> Result<Self, TrainError> {
        Self::begin_among(Box::new(SingleProcess::default()), model, config, identity, checkpoints)
    }

    /// Begins a run like [`Trainer::new`], in one of several processes that train a model together.
    /// All processes must have built the same model.
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

    /// Continues the run whose checkpoints are in the directory `checkpoints`, from its checkpoint
    /// called `name` (`last`, `best` or the name of a checkpoint's directory).
    ///
    /// # Errors
    /// If the configuration is not valid or has another seed than the run, or the checkpoint cannot
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
    /// need not be in the directory `checkpoints`. New checkpoints are saved in `checkpoints`. If
    /// `path` is in `checkpoints`, the pointer file `last` is changed so that it names this
    /// checkpoint.
    ///
    /// `identity` replaces the identity in the checkpoint. So if the caller has accepted a change
    /// of the recipe (the settings of the run), it need not be accepted again in the next
    /// resumption. If the validation has another description or metric than in the checkpoint, the
    /// best score and the count of validations without improvement are reset.
    ///
    /// # Errors
    /// See [`Trainer::resume`]. Also if the pointer file `last` cannot be written.
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
    /// together. Their number can differ from the number of processes before the interruption.
    ///
    /// # Errors
    /// See [`Trainer::resume_from`]. An error in one process is an error in all of them.
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

    /// Reads the state of the checkpoint in the directory `path`. Returns an error if training must
    /// not continue from it.
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
            time: ProcessTime::default(),
            whole_time: ProcessTime::default(),
        }
    }
}
