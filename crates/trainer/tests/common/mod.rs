//! Common parts of the tests: a tiny model, random data, validators, and the record of a run's
//! events.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "a module of several test binaries, each of which uses a part"
)]

use std::collections::BTreeMap;
use std::path::Path;

use candle_core::{DType, Device};
use taper_model::{Batch, Builder, ModelConfig, Sequences, Transformer};
use taper_ops::rng::{Counter, mix};
use taper_trainer::{
    BoxError, Event, Position, ScheduleConfig, ScheduleKind, Scores, Source, TrainingConfig,
    Validator, evaluate,
};

pub const START: u32 = 2;
pub const END: u32 = 3;
pub const VOCABULARY: usize = 14;

/// The task to learn: to copy the words of the source, or to reverse them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    Copy,
    Reverse,
}

impl Task {
    pub fn answer(self, words: &[u32]) -> Vec<u32> {
        match self {
            Self::Copy => words.to_vec(),
            Self::Reverse => words.iter().rev().copied().collect(),
        }
    }
}

/// Random sentences of 1 to `longest` words. They only depend on the seed and the position in the
/// data.
#[derive(Debug, Clone, Copy)]
pub struct Generated {
    pub task: Task,
    pub seed: u64,
    pub rows: usize,
    pub longest: u64,
    pub batches: u64,
}

impl Generated {
    pub fn new(task: Task) -> Self {
        Self { task, seed: 5, rows: 16, longest: 8, batches: 7 }
    }

    pub fn sentences(&self, position: Position) -> Vec<Vec<u32>> {
        let counter = Counter::new(mix(self.seed, &[position.epoch, position.index]));
        (0..self.rows as u64)
            .map(|row| {
                let length = 1 + counter.u64_at(row * 100) % self.longest;
                (1..=length)
                    .map(|word| {
                        4 + (counter.u64_at(row * 100 + word) % (VOCABULARY as u64 - 4)) as u32
                    })
                    .collect()
            })
            .collect()
    }
}

/// Micro-batch of sentences, with their answers as targets.
pub fn pack(task: Task, sentences: &[Vec<u32>]) -> Batch {
    let (mut source, mut target_in, mut target_out) = (Vec::new(), Vec::new(), Vec::new());
    for words in sentences {
        let answer = task.answer(words);
        source.push([words.as_slice(), &[END]].concat());
        target_in.push([&[START], answer.as_slice()].concat());
        target_out.extend([answer.as_slice(), &[END]].concat());
    }
    Batch::new(vec![Sequences::pack(&source), Sequences::pack(&target_in)], target_out)
}

impl Source for Generated {
    fn batches(&mut self, _epoch: u64) -> Result<u64, BoxError> {
        Ok(self.batches)
    }

    fn batch(&mut self, position: Position) -> Result<Batch, BoxError> {
        Ok(pack(self.task, &self.sentences(position)))
    }
}

/// Validator with teacher forcing on sentences that are not in the training data.
pub struct HeldOut(pub Generated);

impl Validator<Transformer> for HeldOut {
    fn validate(&mut self, model: &Transformer, _step: u64) -> Result<Scores, BoxError> {
        let held_out = Generated { seed: 99, ..self.0 };
        let batches = (0..2).map(|index| {
            Ok(pack(held_out.task, &held_out.sentences(Position { epoch: 0, index })))
        });
        Ok(evaluate(model, batches, 0.1)?.scores())
    }
}

/// Validator that ignores the model, and returns these losses, one after the other.
pub struct Scripted(pub Vec<f64>);

impl Validator<Transformer> for Scripted {
    fn validate(&mut self, _model: &Transformer, _step: u64) -> Result<Scores, BoxError> {
        let mut scores = Scores::default();
        scores.insert("loss", self.0.remove(0));
        Ok(scores)
    }
}

pub fn tiny(dropout: f64) -> ModelConfig {
    ModelConfig {
        d_model: 32,
        d_ff: 64,
        heads: 4,
        encoder_layers: 1,
        decoder_layers: 1,
        max_positions: 16,
        ..ModelConfig::default().with_dropout(dropout)
    }
}

pub fn model(config: &ModelConfig) -> Transformer {
    Transformer::new(config, VOCABULARY, VOCABULARY, Builder::seeded(3, &Device::Cpu, DType::F32))
        .unwrap()
}

/// Configuration of a short run with several micro-batches per update, a moving average,
/// validations and checkpoints.
pub fn short_run(max_updates: u64) -> TrainingConfig {
    TrainingConfig {
        seed: 11,
        max_updates,
        accumulation: 2,
        ema_decay: 0.9,
        log_every: 4,
        validate_every: 6,
        checkpoint_every: 5,
        keep_last: 10,
        schedule: ScheduleConfig {
            kind: ScheduleKind::Noam,
            warmup: 20,
            ..ScheduleConfig::default()
        },
        ..TrainingConfig::default()
    }
}

/// Log events, validations and skipped updates among `events`, as JSON without measured times.
pub fn record(events: &[Event]) -> Vec<serde_json::Value> {
    let bare = |event: &Event| {
        let mut value = serde_json::to_value(event).unwrap();
        value.as_object_mut().unwrap().remove("timing");
        value
    };
    events.iter().filter(|event| event.is_metric()).map(bare).collect()
}

/// Contents of the files of a checkpoint, by name.
pub fn contents(checkpoint: &Path) -> BTreeMap<String, Vec<u8>> {
    std::fs::read_dir(checkpoint)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap())
        })
        .collect()
}
