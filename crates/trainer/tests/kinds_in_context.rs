//! Tests that language models learn to copy and to reverse words with each kind of self-attention
//! that decoders can have. A text consists of words, the token `<s>`, and the answer: the same
//! words in the same or in reverse order. Also tests that models do not learn what their attention
//! cannot see.
//!
//! Answers are generated token by token, with cached keys and values. Linformer attention is not
//! possible in decoders; it is tested in `copy_reverse`.

mod common;

use std::sync::atomic::AtomicBool;

use candle_core::{D, DType, Device};
use common::{START, Task, VOCABULARY};
use taper_model::{
    AttentionConfig, AttentionKind, Batch, Builder, LanguageModel, ModelConfig, Positions,
    Sequences,
};
use taper_ops::rng::{Counter, mix};
use taper_trainer::{
    BoxError, Event, Identity, NoValidation, Position, ScheduleConfig, ScheduleKind, Source,
    Trainer, TrainingConfig,
};

/// Number of words before `<s>` in a text. There are ten different words.
const WORDS: usize = 8;

/// Number of texts in a batch.
const ROWS: u64 = 32;

/// Random texts, which only depend on the seed and the position in the data.
#[derive(Debug, Clone, Copy)]
struct Texts {
    task: Task,
    seed: u64,
    rows: u64,
}

impl Texts {
    fn words(&self, position: Position, row: u64) -> Vec<u32> {
        let counter = Counter::new(mix(self.seed, &[position.epoch, position.index, row]));
        let word = |i: u64| 4 + (counter.u64_at(i) % (VOCABULARY as u64 - 4)) as u32;
        (0..WORDS as u64).map(word).collect()
    }
}

impl Source for Texts {
    fn batches(&mut self, _epoch: u64) -> Result<u64, BoxError> {
        Ok(1 << 20)
    }

    fn batch(&mut self, position: Position) -> Result<Batch, BoxError> {
        let (mut texts, mut answers, mut asked) = (Vec::new(), Vec::new(), Vec::new());
        for row in 0..self.rows {
            let words = self.words(position, row);
            let answer = self.task.answer(&words);
            let first = row as usize * 2 * WORDS;
            asked.extend((WORDS..2 * WORDS).map(|place| (first + place) as u32));
            texts.push([words.as_slice(), &[START], &answer[..WORDS - 1]].concat());
            answers.extend(answer);
        }
        Ok(Batch { asked: Some(asked), ..Batch::new(vec![Sequences::pack(&texts)], answers) })
    }
}

/// Self-attention, position encoding and number of layers of a model, and number of updates of its
/// training.
struct Lesson {
    own: AttentionConfig,
    positions: Positions,
    layers: usize,
    updates: u64,
}

impl Lesson {
    fn new(own: AttentionConfig) -> Self {
        Self { own, positions: Positions::Learned, layers: 1, updates: 300 }
    }

    /// Trains the model with `rows` texts in each update. Returns the share of words that it then
    /// generates correctly, and the share of texts without a mistake.
    fn learned(&self, task: Task, rows: u64) -> [f64; 2] {
        let shape = ModelConfig {
            d_model: 64,
            d_ff: 128,
            heads: 2,
            decoder_layers: self.layers,
            decoder_attention: self.own.clone(),
            positions: self.positions,
            max_positions: 2 * WORDS,
            scale_embeddings: false,
            ..ModelConfig::default().with_dropout(0.0)
        };
        let builder = Builder::seeded(1, &Device::Cpu, DType::F32);
        let model = LanguageModel::new(&shape, VOCABULARY, builder).unwrap();
        let config = TrainingConfig {
            max_updates: self.updates,
            schedule: ScheduleConfig {
                kind: ScheduleKind::Cosine,
                learning_rate: 5e-3,
                warmup: 50,
                ..ScheduleConfig::default()
            },
            validate_every: 0,
            label_smoothing: 0.0,
            ..TrainingConfig::default()
        };
        let directory = tempfile::tempdir().unwrap();
        let mut trainer =
            Trainer::new(model, config, Identity::default(), directory.path()).unwrap();
        let mut data = Texts { task, seed: 5, rows };
        let mut observer = |_: &Event| Ok(());
        trainer
            .train(&mut data, &mut NoValidation, &mut observer, &AtomicBool::new(false))
            .unwrap();
        let held_out = Texts { seed: 1234, ..data };
        let found = (0..128).map(|row| held_out.words(Position::default(), row)).collect();
        written(trainer.model(), task, found)
    }

    fn learns(&self) {
        self.learns_one(Task::Copy);
        self.learns_one(Task::Reverse);
    }

    fn learns_one(&self, task: Task) {
        // The smaller batches are tried first, because they take half the time, and most models
        // learn from them.
        let mut shares = Vec::new();
        for rows in [ROWS / 2, ROWS] {
            shares.push(self.learned(task, rows)[1]);
            if shares.last() >= Some(&0.99) {
                return;
            }
        }
        panic!("{task:?} with {:?}: {shares:?} of texts", self.own);
    }

    /// Checks that the share of correct words is about that of random guesses among ten words.
    fn learns_nothing(&self, task: Task) {
        let [words, _] = self.learned(task, ROWS);
        assert!(words < 0.2, "{task:?} with {:?}: {words} of words", self.own);
    }
}

/// Generates answers to the words `found` greedily. Returns the share of correct words, and the
/// share of texts without a mistake.
fn written(model: &LanguageModel, task: Task, found: Vec<Vec<u32>>) -> [f64; 2] {
    let texts: Vec<_> = found.iter().map(|words| words.as_slice()).collect();
    let model = model.inference(2 * WORDS);
    let mut state = model.start(&texts).unwrap();
    let mut tokens = vec![START; found.len()];
    let mut outputs = vec![Vec::new(); found.len()];
    for _ in 0..WORDS {
        let blocks = model.step(&mut state, &tokens).unwrap(); // (rows, V) each
        tokens = blocks
            .flat_map(|logits| logits.unwrap().argmax(D::Minus1).unwrap().to_vec1::<u32>().unwrap())
            .collect();
        outputs.iter_mut().zip(&tokens).for_each(|(output, &token)| output.push(token));
    }
    let (mut words, mut whole) = (0, 0);
    for (own, output) in found.iter().zip(&outputs) {
        let answer = task.answer(own);
        words += answer.iter().zip(output).filter(|(one, other)| one == other).count();
        whole += usize::from(answer == *output);
    }
    let texts = found.len() as f64;
    [words as f64 / texts / WORDS as f64, whole as f64 / texts]
}

fn of_kind(kind: AttentionKind) -> AttentionConfig {
    AttentionConfig { kind, ..AttentionConfig::default() }
}

#[test]
fn full() {
    Lesson::new(of_kind(AttentionKind::Full)).learns();
}

#[test]
fn windows_and_what_is_seen_besides() {
    let sparse = |own: AttentionConfig| AttentionConfig { kind: AttentionKind::Sparse, ..own };
    let (window, random) =
        (|window| sparse(AttentionConfig { window, ..AttentionConfig::default() }), 4);
    Lesson::new(window(2 * WORDS)).learns();
    Lesson::new(AttentionConfig { global_first: WORDS, ..window(2) }).learns();
    Lesson { layers: 2, ..Lesson::new(AttentionConfig { block: 2, random, ..window(1) }) }.learns();
}

/// A window of three tokens consists of a token and the two tokens before it. So in two layers, a
/// token sees at most four tokens back. But the word to copy is eight tokens back.
#[test]
fn windows_that_end_before_the_words_teach_nothing() {
    let own = AttentionConfig { window: 3, ..of_kind(AttentionKind::Sparse) };
    Lesson { layers: 2, ..Lesson::new(own) }.learns_nothing(Task::Copy);
}

/// With a dilation of 2, the window only has tokens at even distances. A word to copy is at an even
/// distance, but words to reverse are at odd distances.
#[test]
fn a_window_of_each_second_token_copies_and_does_not_reverse() {
    let own = AttentionConfig { window: 5, dilation: 2, ..of_kind(AttentionKind::Sparse) };
    let lesson = Lesson { layers: 2, ..Lesson::new(own) };
    lesson.learns_one(Task::Copy);
    lesson.learns_nothing(Task::Reverse);
}

#[test]
fn sums_over_the_past() {
    Lesson::new(of_kind(AttentionKind::Linear)).learns();
    let own = AttentionConfig { features: 64, ..of_kind(AttentionKind::Performer) };
    Lesson::new(own).learns();
}

#[test]
fn reformer() {
    let own =
        AttentionConfig { hash_buckets: 4, hash_chunk: 4, ..of_kind(AttentionKind::Reformer) };
    Lesson { updates: 400, ..Lesson::new(own) }.learns();
}

/// The attention sees a chunk of two words as the mean of both. The mean still shows both words,
/// because position embeddings were added to them.
#[test]
fn hierarchical() {
    let own = AttentionConfig { chunk: 2, ..of_kind(AttentionKind::Hierarchical) };
    Lesson { layers: 2, ..Lesson::new(own) }.learns();
}

/// When the answer is generated, the words are in Transformer-XL's memory. Positions are only known
/// as distances, and reversing needs a different distance for each word, so training takes more
/// updates.
#[test]
fn transformer_xl() {
    let (segment, memory) = (WORDS, WORDS);
    let own = AttentionConfig { segment, memory, ..of_kind(AttentionKind::TransformerXl) };
    Lesson { positions: Positions::None, layers: 2, updates: 1200, ..Lesson::new(own) }.learns();
}

/// The words fill the first segment of the text. Without memory, the model cannot see this segment
/// when it generates the answer, which is in the second segment.
#[test]
fn a_transformer_xl_without_memory_learns_nothing() {
    let own =
        AttentionConfig { segment: WORDS, memory: 0, ..of_kind(AttentionKind::TransformerXl) };
    let lesson = Lesson { positions: Positions::None, layers: 2, ..Lesson::new(own) };
    lesson.learns_nothing(Task::Copy);
}

#[test]
fn state_space_layers() {
    Lesson { layers: 2, ..Lesson::new(of_kind(AttentionKind::Mamba)) }.learns();
    // Unlike Mamba, S4D has no selection (its recurrence does not depend on the input), so it needs
    // more updates.
    Lesson { layers: 2, updates: 800, ..Lesson::new(of_kind(AttentionKind::S4d)) }.learns();
}
