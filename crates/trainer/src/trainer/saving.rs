//! Checkpoints of the loop, and their rescue.

use std::path::{Path, PathBuf};

use taper_model::Model;

use super::Trainer;
use crate::checkpoints::tensors::Live;
use crate::checkpoints::{self, Checkpoints, Comparable};
use crate::exchange::{agree, by_the_first};
use crate::{Event, Observer, Parent, State, TrainError, average};

/// State that is not on disk: the trainer's state until its next update.
pub struct UnsavedState {
    state: State,
    model: Vec<Live>,
    optimizer: Vec<Live>,
    best: bool,
    /// Checkpoints of the run, next to the frozen weights that its adapters change.
    checkpoints: Checkpoints,
}

impl UnsavedState {
    /// Saves the state as a checkpoint under `checkpoints`; returns its directory.
    ///
    /// # Errors
    /// If the disk refuses.
    pub fn save(&self, checkpoints: &Path) -> Result<PathBuf, TrainError> {
        let checkpoints = Checkpoints::new(checkpoints);
        if let Some(base) = &self.state.base {
            checkpoints::copy_base(base, &self.checkpoints, &checkpoints)?;
        }
        Ok(checkpoints.save(&self.state, &self.model, &self.optimizer, self.best)?)
    }
}

impl<M: Model> Trainer<M> {
    /// Saves the state before the first update, with weights taken from `parent`: a run that is
    /// killed before its first own checkpoint still continues from these weights. Frozen weights
    /// that adapters change are saved next to the checkpoints, once.
    ///
    /// # Errors
    /// If the disk refuses.
    pub fn save_beginning(&mut self, parent: Parent) -> Result<(), TrainError> {
        self.state.parent = Some(parent);
        self.state.base = checkpoints::save_base(&self.checkpoints, self.model.parameters())?;
        self.write(&self.checkpoints.clone(), false).map(drop)
    }

    /// Saves the state as a checkpoint under `checkpoints`, for a run whose own folder cannot be
    /// written to; returns its directory.
    ///
    /// # Errors
    /// When that directory cannot be written either.
    pub fn rescue(&mut self, checkpoints: &Path) -> Result<PathBuf, TrainError> {
        let path = self.unsaved()?.save(checkpoints)?;
        self.saved = true;
        Ok(path)
    }

    /// State in memory, for process 0 to save anywhere. All processes take part.
    ///
    /// # Errors
    /// When there is no memory left for the copy, or a process has ended.
    pub fn unsaved(&mut self) -> Result<UnsavedState, TrainError> {
        let best = self.state.early_stopping.best.is_some_and(|best| best.step == self.state.step);
        let (model, optimizer) = self.tensors()?;
        let (state, checkpoints) = (self.state.clone(), self.checkpoints.clone());
        Ok(UnsavedState { state, model, optimizer, best, checkpoints })
    }

    /// Forgets the best validation so far and the patience, for callers that know that scores have
    /// another meaning from now on. The saved state is changed as well.
    ///
    /// # Errors
    /// When the pointer to the best or the last checkpoint cannot be changed.
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

    /// Saves a checkpoint, and deletes the obsolete ones.
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

    /// Deletes obsolete checkpoints; returns their names.
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

    /// Writes the state as a checkpoint of `checkpoints`.
    fn write(&mut self, checkpoints: &Checkpoints, best: bool) -> Result<PathBuf, TrainError> {
        let (model, optimizer) = self.tensors()?;
        let state = &self.state;
        let path = by_the_first(self.updater.exchange(), || {
            Ok(checkpoints.save(state, &model, &optimizer, best)?)
        })?;
        self.saved = true;
        Ok(path)
    }

    /// The tensors of a checkpoint, in process 0.
    fn tensors(&mut self) -> Result<(Vec<Live>, Vec<Live>), TrainError> {
        let step = self.state.step;
        let failed = |source| TrainError::Compute { action: "collect the state", step, source };
        self.updater.export(self.model.parameters()).map_err(failed)
    }

    /// Saves a checkpoint outside the schedule, so that training can continue from here.
    pub(super) fn save_interim(&mut self, observer: &mut dyn Observer) -> Result<(), TrainError> {
        if self.saved {
            return Ok(());
        }
        self.save(false, observer)
    }

    /// Ends training if the observer has failed, with the state saved.
    pub(super) fn check_observer(&mut self, observer: &mut dyn Observer) -> Result<(), TrainError> {
        let observed = self.unobserved.take().map_or(Ok(()), Err);
        agree(self.updater.exchange(), observed).or_else(|error| {
            self.save_interim(observer)?;
            Err(error)
        })
    }

    /// Averages the newest checkpoints.
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
