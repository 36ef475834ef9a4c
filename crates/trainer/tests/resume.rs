//! Tests that the files of a run that was interrupted and resumed are identical byte for byte to
//! those of an uninterrupted run.

mod common;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use common::{Generated, HeldOut, Task, contents, model, record, short_run, tiny};
use taper_model::{
    Architecture, Batch, Builder, ModelConfig, RecurrentAttention, RecurrentConfig, Transformer,
};
use taper_trainer::{
    BoxError, Event, Identity, MODEL_FILE, OPTIMIZER_FILE, OptimizerKind, Position, Source,
    StopReason, TrainError, Trainer, TrainingConfig, read_state,
};

/// Source that interrupts the run: it sets the stop flag when it is asked for a micro-batch for the
/// `after`-th time.
struct Interrupting<'a> {
    data: Generated,
    fetched: u64,
    after: u64,
    stop: &'a AtomicBool,
}

impl Source for Interrupting<'_> {
    fn batches(&mut self, epoch: u64) -> Result<u64, BoxError> {
        self.data.batches(epoch)
    }

    fn batch(&mut self, position: Position) -> Result<Batch, BoxError> {
        self.fetched += 1;
        if self.fetched == self.after {
            self.stop.store(true, Ordering::Relaxed);
        }
        self.data.batch(position)
    }
}

const UPDATES: u64 = 20;

/// Trains until a micro-batch is requested for the `after`-th time, or to the end.
fn run(trainer: &mut Trainer<Transformer>, after: u64, events: &mut Vec<Event>) -> StopReason {
    let data = Generated::new(Task::Reverse);
    let stop = AtomicBool::new(false);
    let mut source = Interrupting { data, fetched: 0, after, stop: &stop };
    let mut observer = |event: &Event| {
        events.push(event.clone());
        Ok(())
    };
    trainer.train(&mut source, &mut HeldOut(data), &mut observer, &stop).unwrap()
}

fn begin(directory: &Path, config: &TrainingConfig) -> Trainer<Transformer> {
    begin_with(&tiny(0.2), directory, config)
}

fn begin_with(
    shape: &ModelConfig,
    directory: &Path,
    config: &TrainingConfig,
) -> Trainer<Transformer> {
    Trainer::new(model(shape), config.clone(), Identity::default(), directory).unwrap()
}

fn resume(shape: &ModelConfig, directory: &Path, config: &TrainingConfig) -> Trainer<Transformer> {
    // The initial weights have another seed, so that the test notices weights that the checkpoint
    // does not replace.
    let other = Transformer::new(
        shape,
        14,
        14,
        Builder::seeded(77, &candle_core::Device::Cpu, candle_core::DType::F32),
    )
    .unwrap();
    Trainer::resume(other, config.clone(), Identity::default(), directory, "last").unwrap()
}

#[test]
fn a_resumed_run_equals_an_uninterrupted_one_to_the_byte() {
    let plain = interrupted_equals_whole(&short_run(UPDATES));
    let twice = interrupted_equals_whole(&TrainingConfig { r_drop: 2.0, ..short_run(UPDATES) });
    // Some updates must be skipped. So the learning rate is so low that the loss hardly decreases,
    // and some losses are more than 2 % above the running mean.
    let mut config = TrainingConfig { spike_factor: 1.02, ..short_run(UPDATES) };
    config.schedule.scale = 1e-3;
    let choosy = interrupted_equals_whole(&config);
    assert!(choosy.iter().filter(|event| event["event"] == "skipped").count() > 0, "{choosy:?}");
    let mut config = short_run(UPDATES);
    config.optimizer.kind = OptimizerKind::Lion;
    let lion = interrupted_equals_whole(&config);
    assert_ne!(plain, lion);
    config.optimizer.kind = OptimizerKind::Muon;
    let muon = interrupted_equals_whole(&config);
    assert!(plain != muon && lion != muon);
    assert!(plain.iter().all(|event| event.get("divergence").is_none()));
    for event in twice.iter().filter(|event| event["event"] == "log") {
        assert!(event["divergence"].as_f64().unwrap() > 1e-3, "{event}");
    }
    let tokens = |events: &[serde_json::Value]| {
        events.iter().filter_map(|event| event["tokens"].as_u64()).collect::<Vec<_>>()
    };
    assert_eq!(
        tokens(&plain),
        tokens(&twice),
        "tokens are those of the data, however often they pass"
    );
}

#[test]
fn so_does_one_of_each_architecture() {
    for attention in [RecurrentAttention::None, RecurrentAttention::Additive] {
        let recurrent = RecurrentConfig { width: 24, attention, ..RecurrentConfig::default() };
        let architecture = Architecture::Recurrent;
        let shape = ModelConfig { architecture, recurrent, ..tiny(0.2) };
        interrupted_equals_whole_of(&shape, &short_run(UPDATES));
    }
    let shape = ModelConfig { architecture: Architecture::Convolutional, ..tiny(0.2) };
    interrupted_equals_whole_of(&shape, &short_run(UPDATES));
}

/// Compares an interrupted run with an uninterrupted one. Returns the record of the uninterrupted
/// run.
fn interrupted_equals_whole(config: &TrainingConfig) -> Vec<serde_json::Value> {
    interrupted_equals_whole_of(&tiny(0.2), config)
}

/// Compares runs like [`interrupted_equals_whole`], for a model of this shape.
fn interrupted_equals_whole_of(
    shape: &ModelConfig,
    config: &TrainingConfig,
) -> Vec<serde_json::Value> {
    let (whole, parts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut expected = Vec::new();
    assert_eq!(
        run(&mut begin_with(shape, whole.path(), config), u64::MAX, &mut expected),
        StopReason::MaxUpdates
    );

    // An update has two micro-batches. So the 15th request comes in update 8, and the run is
    // interrupted after update 7. Then the 13th request comes in update 7 + 7 = 14, and the run is
    // interrupted after update 13. (Skipped updates are counted, too.) After updates 7 and 13,
    // neither a log event nor a validation nor a checkpoint is due. The two updates are in
    // different epochs, because an epoch has 7 micro-batches.
    let mut events = Vec::new();
    let mut trainer = begin_with(shape, parts.path(), config);
    assert_eq!(run(&mut trainer, 15, &mut events), StopReason::Interrupted);
    assert_eq!(trainer.state().step + trainer.state().skipped, 7);
    assert_eq!(trainer.state().window.updates, trainer.state().step % 4);
    assert_ne!(trainer.state().window.updates, 0, "the interruption must fall inside a window");
    drop(trainer);
    let mut trainer = resume(shape, parts.path(), config);
    assert_eq!(run(&mut trainer, 13, &mut events), StopReason::Interrupted);
    assert_eq!(trainer.state().step + trainer.state().skipped, 13);
    drop(trainer);
    assert_eq!(
        run(&mut resume(shape, parts.path(), config), u64::MAX, &mut events),
        StopReason::MaxUpdates
    );

    assert_eq!(record(&events), record(&expected));
    assert_eq!(record(&events).iter().filter(|event| event["event"] == "log").count(), 5);
    for step in ["step-00000010", "step-00000015", "step-00000020"] {
        let (left, right) =
            (contents(&whole.path().join(step)), contents(&parts.path().join(step)));
        for file in [MODEL_FILE, OPTIMIZER_FILE] {
            assert!(left[file] == right[file], "{file} of {step} differs");
        }
        let (mut left, mut right) = (
            read_state(&whole.path().join(step)).unwrap(),
            read_state(&parts.path().join(step)).unwrap(),
        );
        for state in [&mut left, &mut right] {
            state.training_seconds = 0.0;
            state.window.seconds = 0.0;
            state.checksum.clear();
        }
        assert_eq!(left, right);
    }
    assert_ne!(
        contents(&whole.path().join("step-00000015"))[MODEL_FILE],
        contents(&whole.path().join("step-00000020"))[MODEL_FILE],
        "the comparison would not see a model that does not train"
    );
    record(&expected)
}

#[test]
fn a_run_goes_on_only_with_its_own_seed() {
    let directory = tempfile::tempdir().unwrap();
    run(&mut begin(directory.path(), &short_run(UPDATES)), 2, &mut Vec::new());
    let config = TrainingConfig { seed: 12, ..short_run(UPDATES) };
    let error =
        Trainer::resume(model(&tiny(0.2)), config, Identity::default(), directory.path(), "last")
            .err()
            .unwrap();
    assert!(matches!(error, TrainError::Seed { saved: 11, configured: 12, .. }), "{error}");
}

/// Checks that a run cannot continue with an optimizer that has other buffers than its first
/// optimizer, Adam. It can continue with AdamW, which has the same two buffers.
#[test]
fn a_run_goes_on_only_with_an_optimizer_of_its_state() {
    let directory = tempfile::tempdir().unwrap();
    run(&mut begin(directory.path(), &short_run(UPDATES)), 2, &mut Vec::new());
    let with = |kind| {
        let mut config = short_run(UPDATES);
        config.optimizer.kind = kind;
        let model = model(&tiny(0.2));
        Trainer::resume(model, config, Identity::default(), directory.path(), "last")
    };
    assert!(with(OptimizerKind::Adamw).is_ok());
    let error = with(OptimizerKind::Lion).err().unwrap().to_string();
    assert!(
        error.contains(OPTIMIZER_FILE)
            && error.contains("'momentum'")
            && error.contains("training.optimizer.kind"),
        "{error}"
    );
    let error = with(OptimizerKind::Muon).err().unwrap().to_string();
    assert!(error.contains("'muon.momentum'"), "{error}");
}
