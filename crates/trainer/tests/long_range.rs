//! Tests with tasks for which certain kinds of layers were designed: selection of tokens, and
//! attention to distant tokens.
//!
//! These tests take minutes, so they are only run by hand: `cargo test --release -p taper-trainer
//! --test long_range -- --ignored --nocapture`.

use std::sync::atomic::AtomicBool;

use candle_core::{DType, Device};
use taper_model::{
    AttentionConfig, AttentionKind, Batch, Builder, LanguageModel, Model, ModelConfig, Objective,
    Pass, Positions, Sequences,
};
use taper_ops::rng::{Counter, mix};
use taper_trainer::{
    BoxError, Event, Identity, NoValidation, Position, ScheduleConfig, ScheduleKind, Source,
    Trainer, TrainingConfig,
};

/// Token between words. The next constant, [`ASKS`], is a token at whose position a word must be
/// predicted.
const NOISE: u32 = 4;
const ASKS: u32 = 5;
/// Id of the first word.
const WORDS: u32 = 6;
/// Number of different words in selective copying.
const FEW: usize = 10;

/// Task to learn.
#[derive(Debug, Clone, Copy)]
enum Task {
    /// Text of `length` tokens, with `words` words at random positions among [`NOISE`], followed by
    /// the same number of tokens [`ASKS`]. At each [`ASKS`], the next of the words must be
    /// predicted (Gu and Dao 2023, section 4.1.1).
    SelectiveCopying { words: usize, length: usize },
    /// Text `0 w 0 w`, where 0 is [`NOISE`] and w is a sequence of `words` words from a vocabulary
    /// of `different` words. The second w must be predicted (Kitaev et al. 2020, section 2).
    Duplication { words: usize, different: usize },
}

impl Task {
    /// Number of different words.
    fn different(self) -> usize {
        match self {
            Self::SelectiveCopying { .. } => FEW,
            Self::Duplication { different, .. } => different,
        }
    }

    fn vocabulary(self) -> usize {
        WORDS as usize + self.different()
    }
}

#[derive(Debug, Clone, Copy)]
struct Made {
    task: Task,
    seed: u64,
    rows: usize,
}

impl Made {
    fn made(&self, position: Position) -> Batch {
        let (mut texts, mut asked, mut answers) = (Vec::new(), Vec::new(), Vec::new());
        let mut first = 0;
        for row in 0..self.rows as u64 {
            let counter = Counter::new(mix(self.seed, &[position.epoch, position.index, row]));
            let different = self.task.different() as u64;
            let word = |i: usize| WORDS + (counter.u64_at(i as u64) % different) as u32;
            let text = match self.task {
                Task::SelectiveCopying { words, length } => {
                    let mut places: Vec<usize> = (0..length).collect();
                    places.sort_by_key(|&place| counter.u64_at(1000 + place as u64));
                    let mut chosen = places[..words].to_vec();
                    chosen.sort_unstable();
                    let mut text = vec![NOISE; length];
                    for (i, &place) in chosen.iter().enumerate() {
                        text[place] = word(i);
                    }
                    answers.extend((0..words).map(word));
                    asked.extend((length..length + words).map(|at| (first + at) as u32));
                    text.extend(std::iter::repeat_n(ASKS, words));
                    text
                }
                Task::Duplication { words, .. } => {
                    let own: Vec<u32> = (0..words).map(word).collect();
                    let text = [&[NOISE], own.as_slice(), &[NOISE], own.as_slice()].concat();
                    answers.extend(&own);
                    asked.extend((words + 1..2 * words + 1).map(|at| (first + at) as u32));
                    text
                }
            };
            first += text.len();
            texts.push(text);
        }
        Batch { asked: Some(asked), ..Batch::new(vec![Sequences::pack(&texts)], answers) }
    }
}

impl Source for Made {
    fn batches(&mut self, _epoch: u64) -> Result<u64, BoxError> {
        Ok(1 << 20)
    }

    fn batch(&mut self, position: Position) -> Result<Batch, BoxError> {
        Ok(self.made(position))
    }
}

fn shape(decoder_attention: AttentionConfig, d_model: usize, decoder_layers: usize) -> ModelConfig {
    ModelConfig {
        d_model,
        d_ff: 2 * d_model,
        heads: 2,
        decoder_layers,
        decoder_attention,
        max_positions: 2048,
        ..ModelConfig::default().with_dropout(0.0)
    }
}

fn trained(shape: &ModelConfig, task: Task, (max_updates, rate): (u64, f64)) -> LanguageModel {
    let directory = tempfile::tempdir().unwrap();
    let builder = Builder::seeded(1, &Device::Cpu, DType::F32);
    let model = LanguageModel::new(shape, task.vocabulary(), builder).unwrap();
    let config = TrainingConfig {
        max_updates,
        schedule: ScheduleConfig {
            kind: ScheduleKind::Cosine,
            learning_rate: rate,
            warmup: 50,
            ..ScheduleConfig::default()
        },
        validate_every: 0,
        log_every: 200,
        label_smoothing: 0.0,
        ..TrainingConfig::default()
    };
    let mut trainer = Trainer::new(model, config, Identity::default(), directory.path()).unwrap();
    let mut data = Made { task, seed: 5, rows: 16 };
    let mut observer = |event: &Event| {
        if let Event::Log { step, nll, .. } = event {
            println!("update {step}: {nll:.4} nats an answer");
        }
        Ok(())
    };
    trainer.train(&mut data, &mut NoValidation, &mut observer, &AtomicBool::new(false)).unwrap();
    trainer.model().clone()
}

/// Share of correct predictions on texts that are not in the training data.
fn accuracy(model: &LanguageModel, task: Task) -> f64 {
    let held_out = Made { task, seed: 99, rows: 32 };
    let (mut correct, mut tokens) = (0, 0);
    for index in 0..4 {
        let batch = held_out.made(Position { epoch: 0, index });
        let output = model.loss(&batch, &Objective::default(), 1.0, &Pass::evaluate()).unwrap();
        correct += output.correct;
        tokens += output.tokens;
    }
    correct as f64 / tokens as f64
}

fn of_kind(kind: AttentionKind) -> AttentionConfig {
    AttentionConfig { kind, ..AttentionConfig::default() }
}

/// Trains two models on selective copying, and returns their accuracies: first a model with
/// selection (Mamba), then a model without selection (S4D). `training`: number of updates, and
/// learning rate.
fn copied(words: usize, length: usize, width: usize, training: (u64, f64)) -> [f64; 2] {
    let task = Task::SelectiveCopying { words, length };
    [AttentionKind::Mamba, AttentionKind::S4d].map(|kind| {
        let shape = ModelConfig { positions: Positions::None, ..shape(of_kind(kind), width, 2) };
        accuracy(&trained(&shape, task, training), task)
    })
}

#[test]
#[ignore = "a minute"]
fn selection_copies_words_from_among_noise() {
    let [mamba, s4d] = copied(3, 24, 32, (1200, 5e-3));
    println!("3 of 24: mamba {mamba}, s4d {s4d}");
    assert!(mamba >= 0.99, "mamba {mamba}");
    assert!(s4d < 0.9, "s4d {s4d}");
}

#[test]
#[ignore = "minutes"]
fn selection_copies_sixteen_words() {
    let [mamba, s4d] = copied(16, 64, 64, (10_000, 3e-3));
    println!("16 of 64: mamba {mamba}, s4d {s4d}");
    assert!(mamba >= 0.99, "mamba {mamba}");
    assert!(s4d < 0.9, "s4d {s4d}");
}

/// Trains a model on duplication, and returns its accuracies with each number of hash rounds in
/// `rounds`. `training`: number of updates, and learning rate.
///
/// The query at position i has to find the key at position i − n, where n is the number of words
/// plus 1. In a Reformer, queries are also the keys. So training must make the embeddings of
/// positions at the distance n similar, and the part of a query that depends on its word small. For
/// this, the embeddings of positions and words have initial values of the same size. If word
/// embeddings are scaled to unit variance, and position embeddings are a tenth as large, a model
/// learns nothing in 1,000 updates on 63 words.
fn duplicated(
    task: Task,
    own: AttentionConfig,
    rounds: [usize; 4],
    training: (u64, f64),
) -> [f64; 4] {
    let shape = |hash_rounds| ModelConfig {
        positions: Positions::Learned,
        scale_embeddings: false,
        ..shape(AttentionConfig { hash_rounds, ..own.clone() }, 64, 1)
    };
    let model = trained(&shape(own.hash_rounds), task, training);
    rounds.map(|rounds| {
        let builder = Builder::zeroed(&Device::Cpu, DType::F32);
        let other = LanguageModel::new(&shape(rounds), task.vocabulary(), builder).unwrap();
        for (to, from) in
            other.parameters().parameters().iter().zip(model.parameters().parameters())
        {
            to.set(from.var().flatten_all().unwrap().to_vec1().unwrap()).unwrap();
        }
        accuracy(&other, task)
    })
}

/// The texts have 256 tokens. In each hash round, with 16 buckets, a token attends to at most 32
/// tokens. One round is not enough. With each doubling of the number of rounds, more words are
/// found.
#[test]
#[ignore = "minutes"]
fn hashing_finds_what_is_duplicated() {
    let own = AttentionConfig {
        hash_rounds: 4,
        hash_buckets: 16,
        hash_chunk: 16,
        ..of_kind(AttentionKind::Reformer)
    };
    let task = Task::Duplication { words: 127, different: 127 };
    let found = duplicated(task, own, [1, 2, 4, 8], (1500, 3e-3));
    println!("0 w 0 w of 127 words, 1, 2, 4 and 8 rounds: {found:?}");
    assert!(found[3] >= 0.99, "{found:?}");
    assert!(found[0] < found[1] && found[1] < found[2], "{found:?}");
}
