//! Several processes, here threads, train what one trains, to the byte.

mod common;

use std::path::Path;
use std::sync::atomic::AtomicBool;

use common::{Generated, HeldOut, Task, contents, model, record, short_run, tiny};
use taper_model::{Batch, Transformer};
use taper_trainer::{
    BoxError, Checkpoints, Event, Identity, MODEL_FILE, OPTIMIZER_FILE, OptimizerKind, Position,
    Scores, Source, State, StopReason, TrainError, Trainer, TrainingConfig, Validate, in_process,
    read_state,
};

/// Sentences of which the process that fails cannot read any more from some position on.
struct Failing {
    data: Generated,
    from: Option<Position>,
}

impl Source for Failing {
    fn batches(&mut self, epoch: u64) -> Result<u64, BoxError> {
        self.data.batches(epoch)
    }

    fn batch(&mut self, position: Position) -> Result<Batch, BoxError> {
        match self.from {
            Some(from) if position >= from => Err("the disk is gone".into()),
            _ => self.data.batch(position),
        }
    }
}

/// Measures in the first process, and must not be asked in the others.
struct Measuring(usize);

impl Validate<Transformer> for Measuring {
    fn validate(&mut self, model: &Transformer, step: u64) -> Result<Scores, BoxError> {
        assert_eq!(self.0, 0, "one process validates");
        HeldOut(Generated::new(Task::Reverse)).validate(model, step)
    }
}

type Ended = Result<StopReason, TrainError>;

/// Trains in `size` processes, from the last checkpoint if there is one, and from `failing` on
/// without data in the last of them. What each comes to, and the events of the first.
fn train(
    size: usize,
    directory: &Path,
    config: &TrainingConfig,
    failing: Option<Position>,
) -> (Vec<Ended>, Vec<Event>) {
    let last = Checkpoints::new(directory).find("last").unwrap();
    let one = |exchange: taper_trainer::InProcess, rank: usize| {
        let (model, identity) = (model(&tiny(0.2)), Identity::default());
        let exchange = Box::new(exchange);
        let mut trainer = match &last {
            Some(path) => {
                Trainer::resume_among(exchange, model, config.clone(), identity, directory, path)
            }
            None => Trainer::begin_among(exchange, model, config.clone(), identity, directory),
        }
        .unwrap();
        let from = failing.filter(|_| rank == size - 1);
        let mut source = Failing { data: Generated::new(Task::Reverse), from };
        let mut events = Vec::new();
        let mut observer = |event: &Event| {
            events.push(event.clone());
            Ok(())
        };
        let stop = AtomicBool::new(false);
        let ended = trainer.train(&mut source, &mut Measuring(rank), &mut observer, &stop);
        assert!(rank == 0 || events.is_empty(), "one process tells");
        (ended, events)
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = in_process(size)
            .into_iter()
            .enumerate()
            .map(|(rank, exchange)| scope.spawn(move || one(exchange, rank)))
            .collect();
        let mut all = Vec::new();
        let mut events = Vec::new();
        for thread in threads {
            let (ended, of_one) = thread.join().unwrap();
            all.push(ended);
            events.extend(of_one);
        }
        (all, events)
    })
}

/// The state of a checkpoint without what the clock says.
fn timeless(checkpoint: &Path) -> State {
    let mut state = read_state(checkpoint).unwrap();
    (state.training_seconds, state.window.seconds) = (0.0, 0.0);
    state.checksum.clear();
    state
}

fn assert_same(expected: &Path, got: &Path, what: &str) {
    let path = |directory: &Path, which: &str| Checkpoints::new(directory).resolve(which).unwrap();
    for which in ["last", "best"] {
        let (expected, got) = (path(expected, which), path(got, which));
        assert_eq!(expected.file_name(), got.file_name(), "{what}");
        let (left, right) = (contents(&expected), contents(&got));
        for file in [MODEL_FILE, OPTIMIZER_FILE] {
            assert!(left[file] == right[file], "{what}: {file} of {which} differs");
        }
        assert_eq!(timeless(&expected), timeless(&got), "{what}");
    }
}

#[test]
fn any_number_of_processes_trains_the_same() {
    let mut lion = TrainingConfig { accumulation: 5, ..short_run(7) };
    lion.optimizer.kind = OptimizerKind::Lion;
    // Whole subtrees for each process, and not; more processes than micro-batches.
    let adam = TrainingConfig { accumulation: 4, ..short_run(12) };
    for (config, sizes) in [(adam, [2, 3, 4].as_slice()), (lion, &[2, 6])] {
        let whole = tempfile::tempdir().unwrap();
        let (ended, expected) = train(1, whole.path(), &config, None);
        assert_eq!(
            ended.into_iter().map(Result::unwrap).collect::<Vec<_>>(),
            [StopReason::MaxUpdates]
        );
        assert!(record(&expected).len() > 1);
        for &size in sizes {
            let parts = tempfile::tempdir().unwrap();
            let (ended, events) = train(size, parts.path(), &config, None);
            assert!(ended.iter().all(|ended| matches!(ended, Ok(StopReason::MaxUpdates))));
            assert_eq!(record(&events), record(&expected), "{size} processes");
            assert_same(whole.path(), parts.path(), &format!("{size} processes"));
        }
    }
}

#[test]
fn a_run_goes_on_with_another_number_of_processes() {
    let config = |updates| TrainingConfig { accumulation: 4, ..short_run(updates) };
    let whole = tempfile::tempdir().unwrap();
    train(1, whole.path(), &config(18), None);
    let parts = tempfile::tempdir().unwrap();
    for (size, updates) in [(4, 6), (1, 12), (2, 18)] {
        let (ended, _) = train(size, parts.path(), &config(updates), None);
        assert!(ended.iter().all(Result::is_ok), "{ended:?}");
    }
    assert_same(whole.path(), parts.path(), "4, 1 and 2 processes");
}

#[test]
fn where_one_cannot_read_on_all_of_them_save_and_end() {
    let config = TrainingConfig { accumulation: 4, ..short_run(12) };
    let (whole, parts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    train(1, whole.path(), &config, None);
    let (ended, _) = train(4, parts.path(), &config, Some(Position { epoch: 4, index: 0 }));
    for (rank, ended) in ended.iter().enumerate() {
        let error = ended.as_ref().unwrap_err();
        match rank {
            3 => assert!(matches!(error, TrainError::Source { .. }), "{error}"),
            _ => assert_eq!(
                error.to_string(),
                "process 3 of the training has ended: see what it says"
            ),
        }
    }
    let saved = Checkpoints::new(parts.path()).resolve("last").unwrap();
    assert!(read_state(&saved).unwrap().interim);
    let (ended, _) = train(2, parts.path(), &config, None);
    assert!(ended.iter().all(Result::is_ok), "{ended:?}");
    assert_same(whole.path(), parts.path(), "after the failure");
}
