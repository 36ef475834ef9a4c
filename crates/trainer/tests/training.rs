//! Tests of the training loop: several micro-batches per update, reasons to end, checkpoints that
//! are kept, and losses that are not finite.

mod common;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use candle_core::{DType, Device};
use common::{
    Generated, HeldOut, Scripted, Task, VOCABULARY, model, pack, record, short_run, tiny,
};
use taper_model::{Batch, Builder, Model, ModelConfig, Tied, Transformer};
use taper_ops::Parameter;
use taper_trainer::{
    BoxError, Checkpoints, DueUpdate, Event, Identity, NoValidation, Outcome, Position, Scores,
    Source, StopReason, TrainError, Trainer, TrainingConfig, Updater, Validator, load_model,
    read_state,
};

fn train(
    trainer: &mut Trainer<Transformer>,
    source: &mut dyn Source,
    validate: &mut dyn Validator<Transformer>,
) -> (Result<StopReason, TrainError>, Vec<Event>) {
    let mut events = Vec::new();
    let mut observer = |event: &Event| -> Result<(), BoxError> {
        events.push(event.clone());
        Ok(())
    };
    let result = trainer.train(source, validate, &mut observer, &AtomicBool::new(false));
    (result, events)
}

fn weights(trainer: &Trainer<Transformer>) -> Vec<f32> {
    trainer.model().parameters().flat().unwrap().to_vec1().unwrap()
}

/// Source that divides each batch of 16 sentences into `parts` batches with different numbers of
/// tokens.
struct Cut {
    data: Generated,
    parts: usize,
}

impl Source for Cut {
    fn batches(&mut self, _epoch: u64) -> Result<u64, BoxError> {
        Ok(self.data.batches * self.parts as u64)
    }

    fn batch(&mut self, position: Position) -> Result<Batch, BoxError> {
        let whole = Position { index: position.index / self.parts as u64, ..position };
        let sentences = self.data.sentences(whole);
        let size = sentences.len() / self.parts;
        let part = (position.index % self.parts as u64) as usize;
        Ok(pack(self.data.task, &sentences[part * size..(part + 1) * size]))
    }
}

/// Validator that stores the weights of the models that it receives.
#[derive(Default)]
struct Seen(Vec<Vec<f32>>);

impl Validator<Transformer> for Seen {
    fn validate(&mut self, model: &Transformer, _step: u64) -> Result<Scores, BoxError> {
        self.0.push(model.parameters().flat()?.to_vec1()?);
        Ok(Scores::default())
    }
}

#[test]
fn what_is_validated_and_saved_is_the_moving_average() {
    let directory = tempfile::tempdir().unwrap();
    let run = |ema_decay: f64| {
        let config =
            TrainingConfig { ema_decay, validate_every: 1, checkpoint_every: 0, ..short_run(12) };
        let path = directory.path().join(ema_decay.to_string());
        let mut trainer =
            Trainer::new(model(&tiny(0.3)), config, Identity::default(), &path).unwrap();
        let (before, mut seen) = (weights(&trainer), Seen::default());
        train(&mut trainer, &mut Generated::new(Task::Copy), &mut seen).0.unwrap();
        let saved = model(&tiny(0.0));
        load_model(&Checkpoints::new(&path).resolve("last").unwrap(), &saved, "").unwrap();
        (
            before,
            seen.0,
            weights(&trainer),
            saved.parameters().flat().unwrap().to_vec1::<f32>().unwrap(),
        )
    };
    let (before, trained, last, saved) = run(0.0);
    assert_eq!((trained.last(), &saved), (Some(&last), &last));
    let (_, averaged, last_of_averaged, saved) = run(0.5);
    assert!(last_of_averaged == last, "the average is not trained on");
    assert_eq!(averaged.last(), Some(&saved));
    let mut expected: Vec<f64> = before.iter().map(|&value| f64::from(value)).collect();
    for (step, (weights, averaged)) in (1_u32..).zip(trained.iter().zip(&averaged)) {
        // The decay is lower at first, because otherwise the initial weights would have a large
        // share in the average for many updates.
        let decay = (f64::from(1 + step) / f64::from(10 + step)).min(0.5);
        for ((mean, &weight), &found) in expected.iter_mut().zip(weights).zip(averaged) {
            *mean = decay * *mean + (1.0 - decay) * f64::from(weight);
            assert!((*mean - f64::from(found)).abs() < 1e-6, "update {step}: {mean} {found}");
        }
    }
    assert_ne!(saved, last);
}

#[test]
fn k_micro_batches_train_as_one_batch_k_times_as_large() {
    let directory = tempfile::tempdir().unwrap();
    let run = |parts: usize, r_drop: f64| {
        // Adam divides by the size of a gradient plus epsilon. With a small epsilon, a gradient
        // that consists only of rounding errors would cause a full step.
        let mut config =
            TrainingConfig { accumulation: parts, r_drop, ema_decay: 0.0, ..short_run(8) };
        config.optimizer.epsilon = 1e-3;
        let path = directory.path().join(format!("{parts}-{r_drop}"));
        let mut trainer =
            Trainer::new(model(&tiny(0.0)), config, Identity::default(), &path).unwrap();
        let before = weights(&trainer);
        let (result, events) = train(
            &mut trainer,
            &mut Cut { data: Generated::new(Task::Copy), parts },
            &mut NoValidation,
        );
        result.unwrap();
        (before, weights(&trainer), record(&events))
    };
    let (before, whole, log) = run(1, 0.0);
    let largest = |a: &[f32], b: &[f32]| {
        let apart = a.iter().zip(b).map(|(a, b)| (a - b).abs());
        // `total_cmp` orders NaN after infinity, so a NaN is returned as the maximum.
        apart.max_by(f32::total_cmp).unwrap()
    };
    assert!(largest(&whole, &before) > 1e-2, "nothing was trained");
    // Without dropout, training with R-Drop's two passes gives the same weights as with one pass.
    for (parts, r_drop) in [(4, 0.0), (1, 1.0), (4, 1.0)] {
        let (_, cut, cut_log) = run(parts, r_drop);
        assert!(
            largest(&whole, &cut) < 1e-5,
            "{parts} parts, R-Drop {r_drop}: {}",
            largest(&whole, &cut)
        );
        for (a, b) in log.iter().zip(&cut_log) {
            assert_eq!(a["tokens"], b["tokens"]);
            assert!((a["loss"].as_f64().unwrap() - b["loss"].as_f64().unwrap()).abs() < 1e-5);
        }
    }
}

fn scripted(
    directory: &Path,
    config: TrainingConfig,
    scores: &[f64],
) -> (StopReason, Vec<Event>, Trainer<Transformer>) {
    let mut trainer =
        Trainer::new(model(&tiny(0.0)), config, Identity::default(), directory).unwrap();
    let (result, events) =
        train(&mut trainer, &mut Generated::new(Task::Copy), &mut Scripted(scores.to_vec()));
    (result.unwrap(), events, trainer)
}

#[test]
fn training_ends_when_patience_runs_out_and_the_best_is_kept() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = TrainingConfig {
        validate_every: 2,
        checkpoint_every: 0,
        keep_last: 2,
        average_last: 2,
        ..short_run(100)
    };
    config.early_stopping.patience = 3;
    let (reason, events, trainer) = scripted(directory.path(), config, &[3.0, 2.0, 2.5, 2.4, 2.0]);
    assert_eq!(reason, StopReason::EarlyStopping);
    assert_eq!(trainer.state().step, 10);
    let checkpoints = Checkpoints::new(directory.path());
    let steps: Vec<u64> = checkpoints.list().unwrap().iter().map(|saved| saved.step).collect();
    assert_eq!(steps, [4, 8, 10]);
    assert!(checkpoints.resolve("best").unwrap().ends_with("step-00000004"));
    assert!(checkpoints.resolve("last").unwrap().ends_with("step-00000010"));
    assert!(
        events.iter().any(
            |event| matches!(event, Event::Averaged { checkpoints, .. } if checkpoints.len() == 2)
        ),
        "{events:?}"
    );
    load_model(&checkpoints.resolve("averaged").unwrap(), trainer.model(), "").unwrap();
}

#[test]
fn epochs_and_minutes_end_a_run_too() {
    let directory = tempfile::tempdir().unwrap();
    // An update has two micro-batches, and an epoch has 7. So two epochs are 7 updates, and in
    // three epochs, the last update has one micro-batch.
    for (max_epochs, updates) in [(2, 7), (3, 11)] {
        let config = TrainingConfig { max_epochs, ..short_run(0) };
        let path = directory.path().join(max_epochs.to_string());
        let (reason, _, trainer) = scripted(&path, config, &[1.0; 9]);
        assert_eq!((reason, trainer.state().step), (StopReason::MaxEpochs, updates));
    }
    let config = TrainingConfig { max_minutes: 1e-9, ..short_run(0) };
    let (reason, _, trainer) = scripted(&directory.path().join("minutes"), config, &[1.0]);
    assert_eq!((reason, trainer.state().step), (StopReason::MaxMinutes, 1));
}

#[test]
fn a_score_that_is_watched_must_be_measured() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = short_run(6);
    config.early_stopping.metric = taper_trainer::Metric::Bleu;
    let mut trainer =
        Trainer::new(model(&tiny(0.0)), config, Identity::default(), directory.path()).unwrap();
    let data = Generated::new(Task::Copy);
    let error =
        train(&mut trainer, &mut data.clone(), &mut HeldOut(data)).0.unwrap_err().to_string();
    assert_eq!(
        error,
        "training.early_stopping.metric is bleu, but validation measured only: accuracy, loss, nll, perplexity"
    );
}

#[test]
fn updates_that_are_not_finite_are_skipped_and_several_in_a_row_end_training() {
    let directory = tempfile::tempdir().unwrap();
    let config = TrainingConfig { max_skipped_in_a_row: 3, ..short_run(10) };
    let broken = model(&tiny(0.0));
    let first = &broken.parameters().parameters()[0];
    let poison = (first.var().as_tensor() * f64::NAN).unwrap();
    first.var().set(&poison).unwrap();
    let mut trainer = Trainer::new(broken, config, Identity::default(), directory.path()).unwrap();
    let untouched = weights(&trainer).split_off(first_len(&trainer));
    let (result, events) = train(&mut trainer, &mut Generated::new(Task::Copy), &mut NoValidation);
    assert!(matches!(result, Err(TrainError::Diverged { step: 0, in_a_row: 3, .. })), "{result:?}");
    assert_eq!(record(&events).iter().filter(|event| event["event"] == "skipped").count(), 3);
    assert_eq!(
        weights(&trainer).split_off(first_len(&trainer)),
        untouched,
        "a skipped update must not change weights"
    );
    assert_eq!((trainer.state().step, trainer.state().skipped), (0, 3));
}

/// Source with the same words in all batches except one.
struct OneBroken;

impl Source for OneBroken {
    fn batches(&mut self, _epoch: u64) -> Result<u64, BoxError> {
        Ok(40)
    }

    fn batch(&mut self, position: Position) -> Result<Batch, BoxError> {
        let words = if position.index == 30 { vec![9, 10, 11] } else { vec![4, 4, 5] };
        Ok(pack(Task::Copy, &vec![words; 8]))
    }
}

#[test]
fn an_update_with_a_loss_far_above_the_mean_is_skipped_where_that_is_asked_for() {
    for (spike_factor, skipped) in [(0.0, 0), (1.5, 1)] {
        let directory = tempfile::tempdir().unwrap();
        let config =
            TrainingConfig { spike_factor, accumulation: 1, max_epochs: 1, ..short_run(0) };
        let mut trainer =
            Trainer::new(model(&tiny(0.0)), config, Identity::default(), directory.path()).unwrap();
        let (result, events) = train(&mut trainer, &mut OneBroken, &mut NoValidation);
        assert_eq!(result.unwrap(), StopReason::MaxEpochs);
        let found: Vec<_> =
            record(&events).into_iter().filter(|event| event["event"] == "skipped").collect();
        assert_eq!(found.len(), skipped);
        assert!(
            found.iter().all(|event| event["place"] == "in micro-batch 30 of epoch 0"),
            "{found:?}"
        );
        assert_eq!(
            (trainer.state().step, trainer.state().skipped),
            (40 - skipped as u64, skipped as u64)
        );
        assert_eq!(
            (trainer.state().skipped_in_a_row, trainer.state().mean_loss.is_some()),
            (0, skipped > 0)
        );
    }
}

/// Source that sets the stop flag when the batch that will be skipped is requested.
struct StoppingAtTheBroken<'a>(&'a AtomicBool);

impl Source for StoppingAtTheBroken<'_> {
    fn batches(&mut self, epoch: u64) -> Result<u64, BoxError> {
        OneBroken.batches(epoch)
    }

    fn batch(&mut self, position: Position) -> Result<Batch, BoxError> {
        self.0.store(position.index == 30, Ordering::Relaxed);
        OneBroken.batch(position)
    }
}

#[test]
fn an_interruption_after_a_skipped_update_leaves_the_checkpoint_before_it_the_schedules() {
    let directory = tempfile::tempdir().unwrap();
    let config =
        TrainingConfig { spike_factor: 1.5, accumulation: 1, max_epochs: 1, ..short_run(0) };
    let mut trainer =
        Trainer::new(model(&tiny(0.0)), config, Identity::default(), directory.path()).unwrap();
    let stop = AtomicBool::new(false);
    let mut silent = |_: &Event| -> Result<(), BoxError> { Ok(()) };
    let reason = trainer
        .train(&mut StoppingAtTheBroken(&stop), &mut NoValidation, &mut silent, &stop)
        .unwrap();
    assert_eq!(
        (reason, trainer.state().step, trainer.state().skipped),
        (StopReason::Interrupted, 30, 1)
    );
    let saved = read_state(&directory.path().join("step-00000030")).unwrap();
    assert_eq!(
        (saved.interim, saved.skipped),
        (false, 1),
        "the schedule has it, and its position is after the skipped batch"
    );
}

/// Checks that f16 loses no gradients: without scaling of the loss, the gradients of classes that
/// are not targets would be too small for f16.
#[test]
fn f16_loses_no_gradient_to_its_range() {
    let classes = 30_000;
    let config = ModelConfig { tied: Tied::None, ..tiny(0.0) };
    let model = Transformer::new(
        &config,
        VOCABULARY,
        classes,
        Builder::seeded(3, &Device::Cpu, DType::F16),
    )
    .unwrap();
    let output = model
        .parameters()
        .parameters()
        .iter()
        .find(|parameter| parameter.name().starts_with("output"))
        .unwrap();
    let rows = |parameter: &Parameter| parameter.var().as_tensor().to_vec2::<f32>().unwrap();
    let before = rows(output);
    let data = Generated { rows: 8, ..Generated::new(Task::Copy) };
    let batches: Vec<Batch> =
        (0..60).map(|index| data.clone().batch(Position { epoch: 0, index }).unwrap()).collect();
    let training = TrainingConfig { clip_norm: 1.0, ..TrainingConfig::default() };
    let due = DueUpdate { step: 1, learning_rate: 1e-3, loss_limit: f64::INFINITY };
    let (mut updater, stop) = (
        Updater::new(model.parameters(), &training).unwrap().with_composed_operations(),
        AtomicBool::new(false),
    );
    let Outcome::Made(measured) = updater.update(&model, &training, due, &batches, &stop).unwrap()
    else {
        panic!()
    };
    assert!(measured.tokens > 2000 && measured.gradient_norm < 10.0, "{measured:?}");
    let changed =
        rows(output).iter().zip(&before).filter(|(after, before)| after != before).count();
    assert_eq!(changed, classes);
}

fn first_len(trainer: &Trainer<Transformer>) -> usize {
    trainer.model().parameters().parameters()[0].len()
}
