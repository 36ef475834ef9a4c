//! Tests that training ends if it diverges, and that the error says where this began.

use std::sync::atomic::AtomicBool;

use taper_model::{Model, Transformer};
use taper_trainer::{
    BoxError, Checkpoints, Event, Identity, NoValidation, ScheduleConfig, ScheduleKind, Scores,
    TrainError, Trainer, TrainingConfig, Validator,
};

use super::FailingOnce;
use super::common::{Generated, HeldOut, Task, model, short_run, tiny};

/// Validator that ignores the model, and returns losses that increase by 5 each time.
struct Confident(f64);

impl Validator<Transformer> for Confident {
    fn validate(&mut self, _: &Transformer, _: u64) -> Result<Scores, BoxError> {
        self.0 += 5.0;
        let mut scores = Scores::default();
        scores.insert("loss", self.0);
        scores.insert("nll", self.0);
        Ok(scores)
    }
}

/// Configuration of a run with a constant learning rate, and a validation and a checkpoint after
/// every fourth update.
fn at_rate(rate: f64, updates: u64) -> TrainingConfig {
    TrainingConfig {
        schedule: ScheduleConfig {
            kind: ScheduleKind::Constant,
            learning_rate: rate,
            warmup: 0,
            ..ScheduleConfig::default()
        },
        clip_norm: 0.0,
        ema_decay: 0.0,
        validate_every: 4,
        checkpoint_every: 4,
        ..short_run(updates)
    }
}

#[test]
fn training_that_goes_astray_ends_with_its_checkpoints() {
    let train = |rate: f64, updates: u64, validate: &mut dyn Validator<Transformer>| {
        let folder = tempfile::tempdir().unwrap();
        let config = at_rate(rate, updates);
        let mut trainer =
            Trainer::new(model(&tiny(0.0)), config, Identity::default(), folder.path()).unwrap();
        let mut improved = Vec::new();
        let mut observer = |event: &Event| -> Result<(), BoxError> {
            if let Event::Validation { improved: best, .. } = event {
                improved.push(*best);
            }
            Ok(())
        };
        let (mut data, stop) = (Generated::new(Task::Copy), AtomicBool::new(false));
        let ended = trainer.train(&mut data, validate, &mut observer, &stop);
        assert!(!trainer.needs_rescue());
        let saved = Checkpoints::new(folder.path()).find("last").unwrap();
        (ended, improved, saved.is_some())
    };
    let held_out = || HeldOut(Generated::new(Task::Copy));
    // Training ends early after three validations whose loss is far above that of random guesses.
    // At the regular end of training, a single such validation is enough for the error.
    for (updates, validations) in [(100, 3), (4, 1)] {
        let (ended, improved, is_saved) = train(30.0, updates, &mut held_out());
        let Err(TrainError::Astray { loss, best: None, .. }) = &ended else { panic!("{ended:?}") };
        assert!(*loss > 5.0 && is_saved, "{loss}");
        assert!(improved.len() >= validations && !improved.contains(&true), "{improved:?}");
        let said = ended.unwrap_err().to_string();
        for part in ["diverged", "far above the 2.64 of guessing among 14 classes", "lower"] {
            assert!(said.contains(part), "{said}");
        }
    }
    // The validation loss increases, but the training loss is low. This is overfitting, not
    // divergence.
    let (ended, improved, _) = train(3e-3, 20, &mut Confident(0.0));
    assert!(ended.is_ok() && improved[0], "{ended:?} {improved:?}");
    // A validation loss of NaN always counts as divergence.
    let (ended, ..) = train(3e-3, 20, &mut Confident(f64::NAN));
    assert!(matches!(ended, Err(TrainError::Astray { .. })), "{ended:?}");
}

/// Checks a run that diverges. Its last validation would end it as diverged, but fails at first
/// with another error. The resumed run repeats this validation before its first update. It must
/// then end in the same way as an uninterrupted run.
#[test]
fn a_resumed_run_goes_astray_like_an_uninterrupted_one() {
    let config = at_rate(30.0, 100);
    let ends = |failing: u64| {
        let folder = tempfile::tempdir().unwrap();
        let (mut data, mut scores) = (Generated::new(Task::Copy), Vec::new());
        let mut observer = |event: &Event| -> Result<(), BoxError> {
            if let Event::Validation { step, scores: measured, improved, .. } = event {
                scores.push((*step, measured.get("nll").map(f64::to_bits), *improved));
            }
            Ok(())
        };
        let mut validate = FailingOnce(HeldOut(data), failing);
        let mut trainer =
            Trainer::new(model(&tiny(0.0)), config.clone(), Identity::default(), folder.path())
                .unwrap();
        let stop = AtomicBool::new(false);
        let mut ended = trainer.train(&mut data, &mut validate, &mut observer, &stop);
        if matches!(ended, Err(TrainError::Validation { .. })) {
            let (model, identity) = (model(&tiny(0.0)), Identity::default());
            let resumed = Trainer::resume(model, config.clone(), identity, folder.path(), "last");
            ended = resumed.unwrap().train(&mut data, &mut validate, &mut observer, &stop);
        }
        let Err(TrainError::Astray { step, loss, .. }) = ended else { panic!("{ended:?}") };
        (step, loss, scores)
    };
    let whole = ends(u64::MAX);
    assert_eq!(ends(whole.0), whole);
}

/// Multiplies the parameter `name` by each of `factors`, trains until training diverges, and
/// returns the place that the error names.
fn place_of_divergence(name: &str, factors: &[f64]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let broken = model(&tiny(0.0));
    let parameter = broken
        .parameters()
        .parameters()
        .iter()
        .find(|parameter| parameter.name() == name)
        .expect("a parameter of that name");
    for &factor in factors {
        let poisoned = (parameter.var().as_tensor() * factor).unwrap();
        parameter.var().set(&poisoned).unwrap();
    }
    let config = TrainingConfig { max_skipped_in_a_row: 2, ..short_run(10) };
    let mut trainer = Trainer::new(broken, config, Identity::default(), folder.path()).unwrap();
    let mut events = Vec::new();
    let mut observer = |event: &Event| -> Result<(), BoxError> {
        events.push(event.clone());
        Ok(())
    };
    let error = trainer
        .train(
            &mut Generated::new(Task::Copy),
            &mut NoValidation,
            &mut observer,
            &AtomicBool::new(false),
        )
        .unwrap_err();
    assert!(error.to_string().contains("there is no checkpoint from before"), "{error}");
    let TrainError::Diverged { in_a_row: 2, place, .. } = error else { panic!("{error}") };
    assert!(events.iter().any(
        |event| matches!(event, Event::Skipped { place: named, total: 1, .. } if *named == place)
    ));
    assert!(!trainer.needs_rescue(), "a diverged state is not worth keeping");
    place
}

#[test]
fn divergence_names_where_it_began() {
    // The factor 1.2e39 is applied in two steps, because it would itself be infinite in f32.
    let huge = [1e38, 12.0];
    for (layer, factors, place) in [
        (
            "decoder.layers.0.feed_forward.down",
            &[f64::NAN][..],
            "the parameter decoder.layers.0.feed_forward.down.weight",
        ),
        (
            "encoder.layers.0.feed_forward.up",
            &huge,
            "the output of encoder.layers.0.feed_forward.up",
        ),
        (
            "decoder.layers.0.feed_forward.up",
            &huge,
            "the output of decoder.layers.0.feed_forward.up",
        ),
    ] {
        assert_eq!(
            place_of_divergence(&format!("{layer}.weight"), factors),
            format!("first in {place}")
        );
    }
}
