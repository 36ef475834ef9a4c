//! Tests that a run can continue with the same result after it was stopped by one of these causes:
//! a failure of the disk, of an observer or of a validation; an interruption; or the end of its
//! process during a rename.

#[path = "../common/mod.rs"]
mod common;
mod divergence;

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use common::{Generated, HeldOut, Task, contents, model, record, short_run, tiny};
use taper_model::{Batch, Transformer};
use taper_trainer::{
    BoxError, CheckpointError, Checkpoints, Event, Identity, MODEL_FILE, Metric, NoValidation,
    OPTIMIZER_FILE, Observer, Position, Scores, Source, StopReason, TrainError, Trainer,
    TrainingConfig, Validator, load_model, read_state,
};

const UPDATES: u64 = 20;

fn config() -> TrainingConfig {
    TrainingConfig { average_last: 2, ..short_run(UPDATES) }
}

fn begin(directory: &Path) -> Trainer<Transformer> {
    Trainer::new(model(&tiny(0.2)), config(), Identity::default(), directory).unwrap()
}

fn resume(directory: &Path) -> Trainer<Transformer> {
    Trainer::resume(model(&tiny(0.2)), config(), Identity::default(), directory, "last").unwrap()
}

/// Continues the training with `observer`.
fn train(
    trainer: &mut Trainer<Transformer>,
    observer: &mut dyn Observer,
) -> Result<StopReason, TrainError> {
    let data = Generated::new(Task::Copy);
    trainer.train(&mut data.clone(), &mut HeldOut(data), observer, &AtomicBool::new(false))
}

/// Trains a run without failures in `directory`, and returns its record.
fn undisturbed(directory: &Path) -> Vec<serde_json::Value> {
    let mut events = Vec::new();
    let mut observer = |event: &Event| -> Result<(), BoxError> {
        events.push(event.clone());
        Ok(())
    };
    train(&mut begin(directory), &mut observer).unwrap();
    record(&events)
}

fn assert_same_files(left: &Path, right: &Path) {
    for checkpoint in ["step-00000020", "averaged"] {
        let (left, right) = (contents(&left.join(checkpoint)), contents(&right.join(checkpoint)));
        for file in [MODEL_FILE, OPTIMIZER_FILE] {
            assert!(left.get(file) == right.get(file), "{file} of {checkpoint} differs");
        }
    }
}

#[test]
fn what_the_disk_refuses_is_kept_in_memory_and_can_be_saved_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, run, elsewhere) =
        (folder.path().join("whole"), folder.path().join("run"), folder.path().join("elsewhere"));
    let expected = undisturbed(&whole);

    let checkpoints = run.join("checkpoints");
    fs::create_dir(&run).unwrap();
    let mut trainer = begin(&checkpoints);
    let mut events = Vec::new();
    let mut observer = |event: &Event| -> Result<(), BoxError> {
        // The run's folder is removed after update 8, so the checkpoint after update 10 cannot be
        // saved.
        if matches!(event, Event::Log { step: 8, .. }) {
            fs::remove_dir_all(&run)?;
        }
        events.push(event.clone());
        Ok(())
    };
    let error = train(&mut trainer, &mut observer).unwrap_err();
    let TrainError::Checkpoint(CheckpointError::Io { action: "create", path, .. }) = &error else {
        panic!("{error}")
    };
    assert_eq!(*path, checkpoints);
    assert!(!run.exists(), "a folder with a part of a run must not be made");
    assert!(trainer.needs_rescue());
    let saved = trainer.unsaved().unwrap().save(&elsewhere).unwrap();
    assert!(saved.ends_with("step-00000010"));
    drop(trainer);

    let mut observer = |event: &Event| -> Result<(), BoxError> {
        events.push(event.clone());
        Ok(())
    };
    train(&mut resume(&elsewhere), &mut observer).unwrap();
    assert_eq!(record(&events), expected);
    let (left, right) =
        (contents(&whole.join("step-00000020")), contents(&elsewhere.join("step-00000020")));
    assert!(left[MODEL_FILE] == right[MODEL_FILE] && left[OPTIMIZER_FILE] == right[OPTIMIZER_FILE]);
}

/// Observer that fails at the events of update `at`. It records the number of events at each flush.
struct Failing {
    events: Vec<Event>,
    at: u64,
    flushed: Vec<usize>,
}

impl Observer for Failing {
    fn observe(&mut self, event: &Event) -> Result<(), BoxError> {
        self.events.push(event.clone());
        if event.is_metric() && event.step() == self.at {
            Err("nobody listens".into())
        } else {
            Ok(())
        }
    }

    fn flush(&mut self) -> Result<(), BoxError> {
        self.flushed.push(self.events.len());
        Ok(())
    }
}

#[test]
fn an_observer_that_fails_ends_training_with_the_state_saved() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, parts) = (folder.path().join("whole"), folder.path().join("parts"));
    let expected = undisturbed(&whole);
    // After update 12, a log event and a validation are due. Although the observer fails at the log
    // event, the validation must be made.
    let mut observer = Failing { events: Vec::new(), at: 12, flushed: Vec::new() };
    let error = train(&mut begin(&parts), &mut observer).unwrap_err();
    assert!(matches!(error, TrainError::Observer { step: 12, .. }), "{error}");
    observer.at = u64::MAX;
    train(&mut resume(&parts), &mut observer).unwrap();
    assert_eq!(record(&observer.events), expected);
    assert_same_files(&whole, &parts);
    let checkpoints =
        observer.events.iter().filter(|event| matches!(event, Event::Checkpoint { .. })).count();
    assert_eq!(
        observer.flushed.len(),
        checkpoints,
        "the record is made durable before every checkpoint"
    );
}

/// Source that sets the stop flag when the micro-batch with this index is requested. The index is
/// counted from 0 over all epochs.
struct Stopping<'a>(Generated, u64, &'a AtomicBool);

impl Source for Stopping<'_> {
    fn batches(&mut self, epoch: u64) -> Result<u64, BoxError> {
        self.0.batches(epoch)
    }

    fn batch(&mut self, position: Position) -> Result<Batch, BoxError> {
        if position.epoch * self.0.batches + position.index == self.1 {
            self.2.store(true, Ordering::Relaxed);
        }
        self.0.batch(position)
    }
}

#[test]
fn an_interruption_changes_neither_the_average_nor_what_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, parts) = (folder.path().join("whole"), folder.path().join("parts"));
    undisturbed(&whole);
    let data = Generated::new(Task::Copy);
    let mut silent = |_: &Event| -> Result<(), BoxError> { Ok(()) };
    // The last update has the micro-batches 38 and 39, counted from 0. It is interrupted, so there
    // is a checkpoint of the update before it, which must not count among the two newest.
    let stop = AtomicBool::new(false);
    let mut trainer = begin(&parts);
    let reason = trainer
        .train(&mut Stopping(data, 38, &stop), &mut HeldOut(data), &mut silent, &stop)
        .unwrap();
    assert_eq!((reason, trainer.state().step), (StopReason::Interrupted, 19));
    drop(trainer);
    assert!(read_state(&parts.join("step-00000019")).unwrap().interim);
    train(&mut resume(&parts), &mut silent).unwrap();
    assert_same_files(&whole, &parts);
    let names = |path: &Path| {
        Checkpoints::new(path).list().unwrap().iter().map(|saved| saved.step).collect::<Vec<_>>()
    };
    assert_eq!(names(&parts), names(&whole));
}

#[test]
fn what_a_killed_process_left_half_done_is_resolved() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("checkpoints");
    undisturbed(&root);
    let checkpoints = Checkpoints::new(&root);
    let before = checkpoints.list().unwrap();
    // The state after two processes were killed: one after it renamed the old directory and before
    // it renamed the new one, and one while it was writing.
    fs::rename(root.join("step-00000020"), root.join(".step-00000020.replaced")).unwrap();
    fs::create_dir(root.join(".step-00000020.tmp")).unwrap();
    fs::write(root.join(".step-00000020.tmp").join(MODEL_FILE), b"half").unwrap();
    fs::write(root.join(".last.tmp"), b"step").unwrap();
    assert!(matches!(checkpoints.resolve("last"), Err(CheckpointError::Pointer { .. })));
    checkpoints.recover().unwrap();
    assert_eq!(checkpoints.list().unwrap(), before);
    load_model(&checkpoints.resolve("last").unwrap(), &model(&tiny(0.0)), "").unwrap();
    // The state after a process was killed between two steps: it had renamed the new directory,
    // which must be kept, but had not removed the old one.
    fs::create_dir(root.join(".step-00000020.replaced")).unwrap();
    checkpoints.recover().unwrap();
    assert_eq!(checkpoints.list().unwrap(), before);
    let hidden = fs::read_dir(&root)
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().starts_with('.'));
    assert_eq!(hidden.count(), 0);
    // The state after two processes were killed: one before it first wrote `last`, and one after it
    // saved a better checkpoint and before it wrote `best`. Both are pointers, files that name a
    // checkpoint.
    fs::remove_file(root.join("last")).unwrap();
    fs::write(root.join("best"), "step-00000010\n").unwrap();
    assert!(checkpoints.resolve("last").unwrap().ends_with("step-00000020"));
    resume(&root);
    assert_eq!(fs::read_to_string(root.join("last")).unwrap(), "step-00000020\n");
    assert!(!checkpoints.resolve("best").unwrap().ends_with("step-00000010"));
    Checkpoints::new(&folder.path().join("nowhere")).recover().unwrap();
}

/// A process that is killed before it sets the pointer `last` leaves a checkpoint that is later
/// than the pointer says. The resumed run, which can have other settings, must not take this
/// checkpoint for its own.
#[test]
fn a_checkpoint_without_its_pointer_is_set_aside() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("checkpoints");
    undisturbed(&root);
    let steps = || {
        Checkpoints::new(&root).list().unwrap().iter().map(|saved| saved.step).collect::<Vec<_>>()
    };
    fs::write(root.join("last"), "step-00000015\n").unwrap();
    assert_eq!(steps(), [5, 6, 10, 15, 18, 20]);
    resume(&root);
    assert_eq!(steps(), [5, 6, 10, 15]);
    assert!(root.join("left-step-00000018").is_dir() && root.join("left-step-00000020").is_dir());
    assert_eq!(fs::read_to_string(root.join("last")).unwrap(), "step-00000015\n");
    // The same without a pointer: the run is resumed from an earlier checkpoint by its name.
    fs::remove_file(root.join("last")).unwrap();
    let back = root.join("step-00000010");
    Trainer::resume_from(model(&tiny(0.2)), config(), Identity::default(), &root, &back).unwrap();
    assert_eq!(steps(), [5, 6, 10]);
}

/// Validator that fails once, after the update with this number.
struct FailingOnce(HeldOut, u64);

impl Validator<Transformer> for FailingOnce {
    fn validate(&mut self, model: &Transformer, step: u64) -> Result<Scores, BoxError> {
        if self.1 == step {
            self.1 = u64::MAX;
            return Err("the disk is gone".into());
        }
        self.0.validate(model, step)
    }
}

#[test]
fn a_validation_that_fails_costs_no_update() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, parts) = (folder.path().join("whole"), folder.path().join("parts"));
    // Checkpoints are only saved with validations, so that the last checkpoint is as early as
    // possible.
    let config = TrainingConfig { checkpoint_every: 0, ..config() };
    let data = Generated::new(Task::Copy);
    let train = |trainer: &mut Trainer<Transformer>, events: &mut Vec<Event>, failing: u64| {
        let mut observer = |event: &Event| -> Result<(), BoxError> {
            events.push(event.clone());
            Ok(())
        };
        let mut validate = FailingOnce(HeldOut(data), failing);
        trainer.train(&mut data.clone(), &mut validate, &mut observer, &AtomicBool::new(false))
    };
    let begin = |path: &Path| {
        Trainer::new(model(&tiny(0.2)), config.clone(), Identity::default(), path).unwrap()
    };
    let (mut expected, mut events) = (Vec::new(), Vec::new());
    train(&mut begin(&whole), &mut expected, u64::MAX).unwrap();
    let mut trainer = begin(&parts);
    // The first validation that fails is due in the middle of training. The second is the
    // validation at the end of training.
    for (step, before) in [(12, 6), (UPDATES, 18)] {
        let error = train(&mut trainer, &mut events, step).unwrap_err();
        assert!(
            matches!(error, TrainError::Validation { step: failed, .. } if failed == step),
            "{error}"
        );
        assert!(!trainer.needs_rescue());
        let saved = read_state(&parts.join(format!("step-{step:08}"))).unwrap();
        assert_eq!((saved.interim, saved.validated_at), (true, Some(before)));
        trainer =
            Trainer::resume(model(&tiny(0.2)), config.clone(), Identity::default(), &parts, "last")
                .unwrap();
    }
    train(&mut trainer, &mut events, u64::MAX).unwrap();
    assert_eq!(record(&events), record(&expected));
    assert_same_files(&whole, &parts);
}

#[test]
fn an_epoch_that_became_shorter_than_the_position_in_it_is_over() {
    let folder = tempfile::tempdir().unwrap();
    let (config, mut long) = (short_run(10), Generated::new(Task::Copy));
    long.batches = 100;
    let mut trainer =
        Trainer::new(model(&tiny(0.0)), config, Identity::default(), folder.path()).unwrap();
    let mut silent = |_: &Event| -> Result<(), BoxError> { Ok(()) };
    trainer.train(&mut long, &mut NoValidation, &mut silent, &AtomicBool::new(false)).unwrap();
    assert_eq!(trainer.state().position, Position { epoch: 0, index: 20 });
    drop(trainer);
    let mut short = Generated { batches: 7, ..long };
    let mut trainer = Trainer::resume(
        model(&tiny(0.0)),
        short_run(11),
        Identity::default(),
        folder.path(),
        "last",
    )
    .unwrap();
    trainer.train(&mut short, &mut NoValidation, &mut silent, &AtomicBool::new(false)).unwrap();
    assert_eq!(trainer.state().position, Position { epoch: 1, index: 2 });
}

#[test]
fn what_a_run_leaves_by_going_back_is_set_aside() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("checkpoints");
    undisturbed(&root);
    let steps = || {
        Checkpoints::new(&root).list().unwrap().iter().map(|saved| saved.step).collect::<Vec<_>>()
    };
    assert_eq!(steps(), [5, 6, 10, 15, 18, 20]);
    // This path of the checkpoint is different from the path that the run itself uses.
    let back = root.join("..").join("checkpoints").join("step-00000010");
    for left in ["left-step-00000015", "left-step-00000015-2"] {
        let mut trainer =
            Trainer::resume_from(model(&tiny(0.2)), config(), Identity::default(), &root, &back)
                .unwrap();
        assert_eq!(steps(), [5, 6, 10]);
        assert!(root.join(left).join(MODEL_FILE).is_file());
        assert_eq!(fs::read_to_string(root.join("last")).unwrap(), "step-00000010\n");
        assert!(
            !root.join("averaged").exists(),
            "the average is of checkpoints that the run has left"
        );
        train(&mut trainer, &mut |_: &Event| -> Result<(), BoxError> { Ok(()) }).unwrap();
    }
    assert_eq!(steps(), [5, 6, 10, 15, 18, 20]);
    assert!(root.join("left-averaged-2").is_dir() && root.join("averaged").is_dir());
    // The state after a process was killed between two steps: it had renamed the last checkpoint,
    // but had not changed the pointer `last`.
    fs::remove_dir_all(root.join("step-00000020")).unwrap();
    assert_eq!(Checkpoints::new(&root).resolve("last").unwrap(), root.join("step-00000018"));
    fs::remove_dir_all(root.join("left-step-00000020")).unwrap();
    assert!(
        Checkpoints::new(&root).resolve("last").is_err(),
        "a checkpoint that is missing for another reason is missed"
    );
    // The run is resumed from a checkpoint before the first validation, so that there is no best
    // checkpoint any more.
    Trainer::resume_from(
        model(&tiny(0.2)),
        config(),
        Identity::default(),
        &root,
        &root.join("step-00000005"),
    )
    .unwrap();
    assert!(steps() == [5] && !root.join("best").exists());
}

#[test]
fn another_metric_begins_its_own_comparison() {
    let folder = tempfile::tempdir().unwrap();
    undisturbed(folder.path());
    let mut config = TrainingConfig { max_updates: 30, keep_last: 2, keep_best: 1, ..config() };
    config.early_stopping.metric = Metric::Accuracy;
    let mut trainer =
        Trainer::resume(model(&tiny(0.2)), config, Identity::default(), folder.path(), "last")
            .unwrap();
    train(&mut trainer, &mut |_: &Event| -> Result<(), BoxError> { Ok(()) }).unwrap();
    // If accuracies were compared with the best loss so far, no accuracy would count as better,
    // because the loss is above 1.
    let best = trainer.state().early_stopping.best.unwrap();
    assert!(best.step > 20 && best.score < 1.0, "{best:?}");
    let kept: Vec<u64> =
        Checkpoints::new(folder.path()).list().unwrap().iter().map(|saved| saved.step).collect();
    assert!(kept.iter().all(|&step| step > 20), "{kept:?}");
}
