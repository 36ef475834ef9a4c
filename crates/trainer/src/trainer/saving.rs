//! Saving of checkpoints in the training loop. If the run's folder cannot be written to, the state
//! can be saved in another folder.

use std::path::{Path, PathBuf};

use taper_model::Model;

use super::Trainer;
use crate::checkpoints::tensors::Live;
use crate::checkpoints::{self, Checkpoints, Comparable};
use crate::exchange::{agree, by_the_first};
use crate::{Event, Observer, Parent, State, TrainError, average};

/// State of a trainer that is not on the disk. It must be saved before the trainer's next update,
/// which changes the tensors.
pub struct UnsavedState {
    state: State,
    model: Vec<Live>,
    optimizer: Vec<Live>,
    best: bool,
    /// Checkpoints of the run. The file of frozen weights that adapters change is next to them.
    checkpoints: Checkpoints,
}

impl UnsavedState {
    /// Saves the state as a checkpoint in the directory `checkpoints`, and returns the checkpoint's
    /// own directory.
    ///
    /// # Errors
    /// If the checkpoint cannot be written.
    pub fn save(&self, checkpoints: &Path) -> Result<PathBuf, TrainError> {
        let checkpoints = Checkpoints::new(checkpoints);
        if let Some(base) = &self.state.base {
            checkpoints::copy_base(base, &self.checkpoints, &checkpoints)?;
        }
        Ok(checkpoints.save(&self.state, &self.model, &self.optimizer, self.best)?)
    }
}

impl<M: Model> Trainer<M> {
    /// Saves a checkpoint before the first update, with the weights that were taken from `parent`.
    /// So a run that is killed before its first scheduled checkpoint can still continue from these
    /// weights. If the model has adapters, the frozen weights that they change are saved next to
    /// the checkpoints.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn save_beginning(&mut self, parent: Parent) -> Result<(), TrainError> {
        self.state.parent = Some(parent);
        self.state.base = checkpoints::save_base(&self.checkpoints, self.model.parameters())?;
        self.write(&self.checkpoints.clone(), false).map(drop)
    }

    /// Returns the state in memory, so that process 0 can save it in any folder. All processes must
    /// call this.
    ///
    /// # Errors
    /// If there is too little memory, or a process has ended.
    pub fn unsaved(&mut self) -> Result<UnsavedState, TrainError> {
        let best = self.state.early_stopping.best.is_some_and(|best| best.step == self.state.step);
        let (model, optimizer) = self.tensors()?;
        let (state, checkpoints) = (self.state.clone(), self.checkpoints.clone());
        Ok(UnsavedState { state, model, optimizer, best, checkpoints })
    }

    /// Removes the record of the best validation, and resets the count of validations without
    /// improvement. Callers use this if later scores cannot be compared with the scores so far. If
    /// the current state is on the disk as a checkpoint, that checkpoint is changed, too.
    ///
    /// # Errors
    /// If the checkpoint's state or the pointers to the best and the last checkpoint cannot be
    /// written.
    pub fn forget_scores(&mut self) -> Result<(), TrainError> {
        self.state.forget_scores();
        let path = self.checkpoints.directory(self.state.step);
        let (checkpoints, state, saved) = (&self.checkpoints, &self.state, self.saved);
        by_the_first(self.updater.exchange(), || {
            if saved && checkpoints.wind_back_to(&path, state)? {
                checkpoints::replace_state(&path, state)?;
            }
            Ok(())
        })
    }

    /// Saves a checkpoint, and deletes those that need not be kept any more.
    pub(super) fn save(
        &mut self,
        best: bool,
        observer: &mut dyn Observer,
    ) -> Result<(), TrainError> {
        let step = self.state.step;
        by_the_first(self.updater.exchange(), || {
            observer.flush().map_err(|source| TrainError::Observer { step, source })
        })?;
        let path = self.write(&self.checkpoints.clone(), best)?;
        let deleted = self.prune()?;
        self.tell(
            observer,
            &Event::Checkpoint { step, path, best, deleted, timing: self.timing() },
        );
        Ok(())
    }

    /// Deletes the checkpoints that need not be kept any more, and returns their names.
    pub(super) fn prune(&mut self) -> Result<Vec<String>, TrainError> {
        let (config, state, checkpoints) = (&self.config, &self.state, &self.checkpoints);
        let comparable = Comparable {
            metric: config.early_stopping.metric,
            validation: &state.identity.validation,
        };
        by_the_first(self.updater.exchange(), || {
            let (last, best) = (config.keep_last, config.keep_best);
            Ok(checkpoints.prune(state.step, last, best, &comparable)?)
        })
    }

    /// Writes the state as a checkpoint in `checkpoints`, and returns the checkpoint's directory.
    fn write(&mut self, checkpoints: &Checkpoints, best: bool) -> Result<PathBuf, TrainError> {
        let (model, optimizer) = self.tensors()?;
        let state = &self.state;
        let path = by_the_first(self.updater.exchange(), || {
            Ok(checkpoints.save(state, &model, &optimizer, best)?)
        })?;
        self.saved = true;
        Ok(path)
    }

    /// Returns the tensors for the model's file, and those for the optimizer's file. Only process 0
    /// gets them; other processes get empty lists.
    fn tensors(&mut self) -> Result<(Vec<Live>, Vec<Live>), TrainError> {
        let step = self.state.step;
        let failed = |source| TrainError::Compute { action: "collect the state", step, source };
        self.updater.export(self.model.parameters()).map_err(failed)
    }

    /// Saves an interim checkpoint, from which training can be resumed, unless the state is on the
    /// disk already.
    pub(super) fn save_interim(&mut self, observer: &mut dyn Observer) -> Result<(), TrainError> {
        if self.saved {
            return Ok(());
        }
        self.save(false, observer)
    }

    /// If the observer has failed, saves the state, and returns the observer's error.
    pub(super) fn check_observer(&mut self, observer: &mut dyn Observer) -> Result<(), TrainError> {
        let observed = self.unobserved.take().map_or(Ok(()), Err);
        agree(self.updater.exchange(), observed).or_else(|error| {
            self.save_interim(observer)?;
            Err(error)
        })
    }

    /// Averages the newest checkpoints, and saves the average.
    pub(super) fn average_last(&mut self, observer: &mut dyn Observer) -> Result<(), TrainError> {
        let (step, count) = (self.state.step, self.config.average_last);
        let (checkpoints, averaged) = (&self.checkpoints, &self.averaged);
        let paths: Vec<PathBuf> = by_the_first(self.updater.exchange(), || {
            let mut all = checkpoints.list()?;
            all.retain(|saved| saved.step <= step && !saved.interim);
            let newest = all.split_off(all.len().saturating_sub(count));
            let paths: Vec<_> = newest.into_iter().map(|saved| saved.path).collect();
            average(&paths)?.save(averaged)?;
            Ok(paths)
        })?;
        let name =
            |path: &PathBuf| path.file_name().map(|name| name.to_string_lossy().into_owned());
        let checkpoints = paths.iter().filter_map(name).collect();
        let event =
            Event::Averaged { step: self.state.step, path: self.averaged.clone(), checkpoints };
        self.tell(observer, &event);
        Ok(())
    }
}
