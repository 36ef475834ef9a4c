//! Tests that models learn to copy and to reverse sentences, with at least 99 % of the outputs
//! exactly right. The models have each norm placement, position encoding and kind of attention.
//!
//! A Transformer with a serious error in attention, positions, masks or gradients does not reach
//! this share.

mod common;

use std::sync::atomic::AtomicBool;

use candle_core::{D, DType, Device};
use common::{END, Generated, START, Task, VOCABULARY, tiny};
use taper_model::{
    Architecture, AttentionConfig, AttentionKind, Builder, CellKind, ExpertsConfig, ModelConfig,
    NormPlacement, Positions, RecurrentAttention, RecurrentConfig, Sequences, Transformer,
};
use taper_trainer::{
    Event, Identity, NoValidation, Position, ScheduleConfig, ScheduleKind, Trainer, TrainingConfig,
};

const LONGEST: usize = 8;

/// Numbers of sentences in a batch. Training is tried with the smaller number first, because it
/// takes half the time, and most models learn from it. The larger number is tried if that fails.
const BATCH_SIZES: [usize; 2] = [32, 64];

/// Translates each of `sentences` by greedy decoding, word by word.
fn decode(model: &Transformer, sentences: &[Vec<u32>]) -> Vec<Vec<u32>> {
    let sources: Vec<Vec<u32>> =
        sentences.iter().map(|words| [words.as_slice(), &[END]].concat()).collect();
    let model = model.inference();
    let mut state = model.start(&Sequences::pack(&sources)).unwrap();
    let mut tokens = vec![START; sentences.len()];
    let mut outputs = vec![Vec::new(); sentences.len()];
    for _ in 0..=LONGEST {
        let blocks = model.step(&mut state, &tokens).unwrap(); // (rows, V) each
        tokens = blocks
            .flat_map(|logits| logits.unwrap().argmax(D::Minus1).unwrap().to_vec1::<u32>().unwrap())
            .collect();
        outputs.iter_mut().zip(&tokens).for_each(|(output, &token)| output.push(token));
    }
    for output in &mut outputs {
        let end = output.iter().position(|&token| token == END).unwrap_or(output.len());
        output.truncate(end);
    }
    outputs
}

fn learns(task: Task, norm: NormPlacement, positions: Positions) {
    // In the encoder, ALiBi's bias is the same in both directions. So one layer can see the
    // distance of a word to the end of the sentence, but not which words stand before it and which
    // after it. Copying needs the distance from the start, which a second layer can infer.
    let (encoder_layers, max_updates) =
        if positions == Positions::Alibi { (2, 1500) } else { (1, 900) };
    let shape = ModelConfig { norm, positions, encoder_layers, ..tiny(0.0) };
    learns_with(task, shape, max_updates);
}

fn learns_with(task: Task, shape: ModelConfig, max_updates: u64) {
    let shape = ModelConfig { d_model: 64, d_ff: 128, ..shape };
    let mut shares = Vec::new();
    for rows in BATCH_SIZES {
        shares.push(exact_after(task, &shape, max_updates, rows));
        if shares.last() >= Some(&0.99) {
            return;
        }
    }
    panic!(
        "{task:?} with {:?} {:?}, {:?} norm, {:?} positions and {:?} attention: {shares:?} \
         exact, by batch size",
        shape.architecture,
        shape.recurrent,
        shape.norm,
        shape.positions,
        shape.encoder_attention.kind
    );
}

/// Trains a model in `max_updates` updates with `rows` sentences each. Returns the share of
/// held-out sentences for which its output is exactly right.
fn exact_after(task: Task, shape: &ModelConfig, max_updates: u64, rows: usize) -> f64 {
    let directory = tempfile::tempdir().unwrap();
    let builder = Builder::seeded(1, &Device::Cpu, DType::F32);
    let model = Transformer::new(shape, VOCABULARY, VOCABULARY, builder).unwrap();
    let config = TrainingConfig {
        max_updates,
        schedule: ScheduleConfig {
            kind: ScheduleKind::Cosine,
            learning_rate: 3e-3,
            warmup: 100,
            ..ScheduleConfig::default()
        },
        validate_every: 0,
        label_smoothing: 0.0,
        ..TrainingConfig::default()
    };
    let mut trainer = Trainer::new(model, config, Identity::default(), directory.path()).unwrap();
    let mut data =
        Generated { rows, longest: LONGEST as u64, batches: 1 << 20, ..Generated::new(task) };
    let mut observer = |_: &Event| Ok(());
    trainer.train(&mut data, &mut NoValidation, &mut observer, &AtomicBool::new(false)).unwrap();

    let held_out = Generated { seed: 1234, rows: 400, ..data }.sentences(Position::default());
    let outputs = decode(trainer.model(), &held_out);
    let exact = held_out
        .iter()
        .zip(&outputs)
        .filter(|(words, output)| task.answer(words) == **output)
        .count();
    exact as f64 / held_out.len() as f64
}

macro_rules! learns {
    ($($name:ident: $positions:ident;)*) => {$(
        mod $name {
            use super::*;

            #[test]
            fn copy_with_pre_norm() {
                learns(Task::Copy, NormPlacement::Pre, Positions::$positions);
            }

            #[test]
            fn copy_with_post_norm() {
                learns(Task::Copy, NormPlacement::Post, Positions::$positions);
            }

            #[test]
            fn reverse_with_pre_norm() {
                learns(Task::Reverse, NormPlacement::Pre, Positions::$positions);
            }

            #[test]
            fn reverse_with_post_norm() {
                learns(Task::Reverse, NormPlacement::Post, Positions::$positions);
            }
        }
    )*};
}

learns! {
    sinusoidal: Sinusoidal;
    sinusoidal_halves: SinusoidalHalves;
    learned: Learned;
    t5: T5;
    rotary: Rotary;
    alibi: Alibi;
}

/// Kinds of self-attention, and of layers in its place. (Attention from the decoder to the encoder
/// is always full.)
mod kinds {
    use super::*;

    fn shape(encoder: AttentionConfig, decoder: AttentionConfig) -> ModelConfig {
        let (encoder_attention, decoder_attention) = (encoder, decoder);
        ModelConfig { encoder_layers: 1, encoder_attention, decoder_attention, ..tiny(0.0) }
    }

    fn learns_both(attention: AttentionConfig) {
        for task in [Task::Copy, Task::Reverse] {
            learns_with(task, shape(attention.clone(), attention.clone()), 900);
        }
    }

    #[test]
    fn sparse() {
        let kind = AttentionKind::Sparse;
        learns_both(AttentionConfig { kind, window: 4, ..AttentionConfig::default() });
    }

    #[test]
    fn linear() {
        learns_both(AttentionConfig { kind: AttentionKind::Linear, ..AttentionConfig::default() });
    }

    /// Three experts in each layer, one of which computes each token.
    #[test]
    fn experts() {
        let experts = ExpertsConfig { count: 3, capacity: 2.0, ..ExpertsConfig::default() };
        let full = AttentionConfig::default;
        learns_with(Task::Copy, ModelConfig { experts, ..shape(full(), full()) }, 600);
    }

    /// Recurrent models, with and without attention. Without attention, the decoder gets the whole
    /// sentence as a single vector. This is enough for eight words, but needs more updates.
    #[test]
    fn recurrent_layers() {
        // Without attention, the vector must be wider, because it has to represent the whole
        // sentence.
        let width = |attention| if attention == RecurrentAttention::None { 144 } else { 64 };
        let of = |cell, attention| ModelConfig {
            architecture: Architecture::Recurrent,
            recurrent: RecurrentConfig {
                cell,
                width: width(attention),
                attention,
                bidirectional: true,
            },
            ..tiny(0.0)
        };
        for (cell, attention, task, updates) in [
            (CellKind::Gru, RecurrentAttention::Additive, Task::Copy, 500),
            (CellKind::Lstm, RecurrentAttention::Additive, Task::Reverse, 500),
            (CellKind::Gru, RecurrentAttention::Dot, Task::Reverse, 500),
            (CellKind::Gru, RecurrentAttention::None, Task::Reverse, 1500),
        ] {
            learns_with(task, of(cell, attention), updates);
        }
    }

    #[test]
    fn gated_convolutions() {
        for task in [Task::Copy, Task::Reverse] {
            let architecture = Architecture::Convolutional;
            let shape = ModelConfig {
                encoder_layers: 2,
                decoder_layers: 2,
                positions: Positions::Learned,
                scale_embeddings: false,
                ..tiny(0.0)
            };
            learns_with(task, ModelConfig { architecture, ..shape }, 1000);
        }
    }

    /// Mamba layers in place of attention and feed-forward layers; in the encoder, they read in
    /// both directions.
    #[test]
    fn mamba() {
        let mamba = || AttentionConfig { kind: AttentionKind::Mamba, ..AttentionConfig::default() };
        learns_with(Task::Copy, shape(mamba(), mamba()), 450);
        learns_with(Task::Reverse, shape(mamba(), mamba()), 600);
    }

    /// The encoder is a Linformer and the decoder a Performer, because Linformer attention is not
    /// possible in decoders.
    #[test]
    fn linformer_and_performer() {
        let of = |kind| AttentionConfig { kind, ..AttentionConfig::default() };
        let encoder = AttentionConfig { rank: 6, length: 9, ..of(AttentionKind::Linformer) };
        let decoder = AttentionConfig { features: 16, ..of(AttentionKind::Performer) };
        for task in [Task::Copy, Task::Reverse] {
            learns_with(task, shape(encoder.clone(), decoder.clone()), 450);
        }
    }

    #[test]
    fn reformer() {
        learns_both(AttentionConfig {
            kind: AttentionKind::Reformer,
            hash_buckets: 4,
            hash_chunk: 4,
            ..AttentionConfig::default()
        });
    }

    #[test]
    fn hierarchical() {
        let kind = AttentionKind::Hierarchical;
        learns_both(AttentionConfig { kind, chunk: 3, ..AttentionConfig::default() });
    }

    /// Neither encoder nor decoder needs position encodings: the encoder's layers (S4D) read tokens
    /// in order, and the decoder's attention (Transformer-XL) depends on distances.
    #[test]
    fn s4d_and_transformer_xl() {
        let of = |kind| AttentionConfig { kind, ..AttentionConfig::default() };
        let decoder = AttentionConfig { segment: 3, memory: 6, ..of(AttentionKind::TransformerXl) };
        for task in [Task::Copy, Task::Reverse] {
            let shape = shape(of(AttentionKind::S4d), decoder.clone());
            learns_with(task, ModelConfig { positions: Positions::None, ..shape }, 600);
        }
    }
}
