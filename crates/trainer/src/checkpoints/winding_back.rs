//! Repair of the directory of checkpoints when a run is resumed from one of them.

use std::fs;
use std::path::Path;

use super::files::{self, failed};
use super::{AVERAGED, BEST, Checkpoints, LAST, LEFT, State, checkpoint_name, read_state};
use crate::CheckpointError;

impl Checkpoints {
    /// Makes the directory fit a run that is resumed from the checkpoint at `path` with the state
    /// `state`. Sets the pointers according to `state`, and adds the prefix [`LEFT`] to the names
    /// of checkpoints of later updates. If `path` is not in this directory, changes nothing and
    /// returns `false`.
    ///
    /// The pointers can disagree with `state` for two reasons. First, the run can be resumed from
    /// an earlier checkpoint. Second, a process can have replaced the last checkpoint by one of the
    /// same step that is also the best, and can have been killed before it changed the pointers.
    ///
    /// There can be a checkpoint of a later update even if `last` names the checkpoint at `path`,
    /// because a process was killed before it set `last`. Such a checkpoint is renamed as well: if
    /// the resumed run has other settings, it reaches other weights.
    pub(crate) fn wind_back_to(&self, path: &Path, state: &State) -> Result<bool, CheckpointError> {
        let name = checkpoint_name(state.step);
        // Canonical paths are compared, because the same directory can have several paths.
        let pointed_to = fs::canonicalize(self.root.join(&name));
        if pointed_to.ok() != fs::canonicalize(path).ok() {
            return Ok(false);
        }
        self.set_aside(state.step)?;
        let best = state.early_stopping.best.map(|best| checkpoint_name(best.step));
        let is_here = |name: &String| self.root.join(name).is_dir();
        // The best checkpoint can have been deleted because a later one was better. If the later one
        // has just been set aside, there is no best checkpoint until the next one is saved.
        let has_best = match &best {
            None => false,
            Some(best) if is_here(best) => true,
            Some(_) => self.pointer(BEST)?.as_ref().is_some_and(is_here),
        };
        if !has_best {
            files::remove_file(&self.root.join(BEST))?;
        }
        for (pointer, name) in [(BEST, best), (LAST, Some(name))] {
            if let Some(name) = name
                && self.root.join(&name).is_dir()
                && self.pointer(pointer)?.as_ref() != Some(&name)
            {
                self.point(pointer, &name)?;
            }
        }
        Ok(true)
    }

    /// Renames checkpoints of updates after `step`, and an average that contains any of them,
    /// because the run is resumed from an earlier checkpoint. Under their new names, the run
    /// neither deletes them, nor averages them with its later checkpoints, nor translates with
    /// them.
    fn set_aside(&self, step: u64) -> Result<(), CheckpointError> {
        let later =
            self.list()?.into_iter().filter(|saved| saved.step > step).map(|saved| saved.path);
        let averaged = self.root.join(AVERAGED);
        let averaged =
            read_state(&averaged).is_ok_and(|state| state.step > step).then_some(averaged);
        for path in later.chain(averaged) {
            let name = format!("{LEFT}{}", path.file_name().unwrap_or_default().display());
            // The name is already in use if a checkpoint of the same step was set aside earlier.
            let names =
                std::iter::once(name.clone()).chain((2..).map(|number| format!("{name}-{number}")));
            if let Some(free) = names.map(|name| self.root.join(name)).find(|path| !path.exists()) {
                fs::rename(&path, &free).map_err(failed("rename", &path))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoints::{STATE_FILE, state_json};
    use crate::early_stopping::{Best, EarlyStopping};
    use crate::{Identity, Metric};

    /// Writes checkpoints of updates 4, 8 and 12, without weights, and both pointers. Then resumes
    /// from update 8, whose state has the best score at update `best`; the checkpoint at `removed`
    /// is removed before. Returns the pointers afterwards: `last`, and `best` if there is one.
    fn resumed(best: Option<u64>, removed: u64, pointed: u64) -> (String, Option<String>) {
        let folder = tempfile::tempdir().expect("folder");
        let checkpoints = Checkpoints::new(folder.path());
        let best = best.map(|step| Best { step, score: 1.0 });
        let early_stopping =
            EarlyStopping { best, metric: Some(Metric::Loss), ..Default::default() };
        let path = |step| folder.path().join(checkpoint_name(step));
        let state = |step| State { step, early_stopping, ..State::new(1, Identity::default()) };
        for step in [4, 8, 12].into_iter().filter(|&step| step != removed) {
            fs::create_dir(path(step)).expect("folder");
            let json = state_json(&state(step)).expect("JSON");
            fs::write(path(step).join(STATE_FILE), json).expect("write");
        }
        checkpoints.point(LAST, &checkpoint_name(12)).expect("write");
        checkpoints.point(BEST, &checkpoint_name(pointed)).expect("write");
        assert!(!checkpoints.wind_back_to(folder.path(), &state(8)).expect("elsewhere"));
        assert_eq!(checkpoints.pointer(LAST).expect("read"), Some(checkpoint_name(12)));
        assert!(checkpoints.wind_back_to(&path(8), &state(8)).expect("here"));
        assert!(!path(12).exists());
        let left = folder.path().join(format!("{LEFT}{}", checkpoint_name(12)));
        assert_eq!(left.is_dir(), removed != 12);
        let pointer = |name| checkpoints.pointer(name).expect("read");
        (pointer(LAST).expect("last"), pointer(BEST))
    }

    #[test]
    fn pointers_are_those_of_the_state() {
        let [four, eight] = [4, 8].map(checkpoint_name);
        // A later checkpoint was the best.
        assert_eq!(resumed(Some(4), 0, 12), (eight.clone(), Some(four.clone())));
        // A process was killed before it set the pointer.
        assert_eq!(resumed(Some(8), 0, 4), (eight.clone(), Some(eight.clone())));
        // The best checkpoint was deleted, and the later one that was better is set aside.
        assert_eq!(resumed(Some(4), 4, 12), (eight.clone(), None));
        // The best checkpoint was deleted; the pointer names another that is still there.
        assert_eq!(resumed(Some(4), 4, 8), (eight.clone(), Some(eight.clone())));
        // The state has no score.
        assert_eq!(resumed(None, 0, 12), (eight.clone(), None));
        assert_eq!(resumed(None, 0, 4), (eight, None));
    }
}
