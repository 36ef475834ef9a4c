//! A model of your own in the training loop: a bigram model, that is, a table with the logits of
//! the next letter for each letter.
//!
//!     cargo run --release -p taper-trainer --example custom_model
//!
//! A model only needs parameters and a loss. The training loop provides gradient accumulation and
//! clipping, learning-rate schedules, checkpoints, and resumption of an interrupted run with the
//! same result.

use std::sync::atomic::AtomicBool;

use candle_core::{D, Device, Tensor};
use taper_model::{
    Batch, LossOutput, LossSpec, Model, ModelConfig, ModelCore, ModelError, Sequences,
};
use taper_ops::{ParameterStore, composed};
use taper_trainer::{
    BoxError, Event, Identity, NoValidation, Position, ScheduleConfig, ScheduleKind, Source,
    Trainer, TrainingConfig,
};

/// Letters that the model knows. The index of a letter is its id.
const LETTERS: &[u8] = b" abcdefghijklmnopqrstuvwxyz";
/// Text to learn.
const TEXT: &str = "the quick brown fox jumps over the lazy dog and the cat sat on the mat";

/// Model with the logits of the next letter (column) for each letter (row).
struct Bigrams {
    core: ModelCore,
    table: Tensor, // (V, V)
}

impl Bigrams {
    fn new(vocabulary: usize) -> candle_core::Result<Self> {
        let mut store = ParameterStore::new(&Device::Cpu);
        let zeros = vec![0.0; vocabulary * vocabulary];
        let table = store.add("table", &[vocabulary, vocabulary], zeros)?;
        let core = ModelCore::new(store, &ModelConfig::default(), &["text"]);
        Ok(Self { core, table })
    }

    /// Most likely letter after `letter`.
    fn next(&self, letter: u8) -> candle_core::Result<u8> {
        let row = self.table.detach().get(id(letter) as usize)?; // (V,)
        Ok(LETTERS[row.argmax(D::Minus1)?.to_scalar::<u32>()? as usize])
    }
}

impl Model for Bigrams {
    fn core(&self) -> &ModelCore {
        &self.core
    }

    fn loss_of_pass(&self, batch: &Batch, spec: LossSpec<'_>) -> Result<LossOutput, ModelError> {
        let LossSpec { scale, pass, .. } = spec;
        let [text] = batch.read(["text"])?;
        let count = batch.answers.len();
        let letters = Tensor::new(text.ids.as_slice(), self.device())?; // (N,)
        let answers = Tensor::new(batch.answers.as_slice(), self.device())?.unsqueeze(1)?; // (N, 1)
        // The loss is computed with plain Candle operations. The tape (the record of operations for
        // the backward pass) records all of them as a single operation, and Candle computes the
        // gradient of that operation.
        let loss = composed::on_tape(pass.tape(), "bigrams", &[&self.table], |inputs| {
            let logits = inputs[0].index_select(&letters, 0)?; // (N, V)
            let right = logits.gather(&answers, 1)?.sum_all()?;
            (logits.log_sum_exp(1)?.sum_all()? - right)? * scale
        })?;
        let sum = f64::from(loss.to_scalar::<f32>()?) / scale;
        Ok(LossOutput::of_sum(loss, sum, 0, count))
    }
}

fn id(letter: u8) -> u32 {
    LETTERS.iter().position(|one| *one == letter).unwrap_or(0) as u32
}

/// Source of training data: each epoch consists of one batch with the whole text.
struct Text;

impl Source for Text {
    fn batches(&mut self, _epoch: u64) -> Result<u64, BoxError> {
        Ok(1)
    }

    fn batch(&mut self, _position: Position) -> Result<Batch, BoxError> {
        let ids: Vec<u32> = TEXT.bytes().map(id).collect();
        let (before, after) = (ids[..ids.len() - 1].to_vec(), ids[1..].to_vec());
        Ok(Batch::new(vec![Sequences::pack(&[before])], after))
    }
}

/// Trains, and returns a `t` followed by the three letters that are most likely after it.
fn run() -> Result<String, BoxError> {
    let folder = tempfile::tempdir()?;
    let config = TrainingConfig {
        max_updates: 200,
        log_every: 50,
        label_smoothing: 0.0,
        schedule: ScheduleConfig {
            kind: ScheduleKind::Cosine,
            learning_rate: 0.1,
            warmup: 10,
            ..ScheduleConfig::default()
        },
        ..TrainingConfig::default()
    };
    let model = Bigrams::new(LETTERS.len())?;
    let mut trainer = Trainer::new(model, config, Identity::default(), folder.path())?;
    let mut observer = |event: &Event| {
        if let Event::Log { step, nll, .. } = event {
            println!("update {step}: {nll:.3} nats for each letter");
        }
        Ok(())
    };
    let stop = AtomicBool::new(false);
    trainer.train(&mut Text, &mut NoValidation, &mut observer, &stop)?;
    let (mut letter, mut text) = (b't', String::from("t"));
    for _ in 0..3 {
        letter = trainer.model().next(letter)?;
        text.push(char::from(letter));
    }
    Ok(text)
}

fn main() -> Result<(), BoxError> {
    println!("after a t: {:?}", run()?);
    Ok(())
}

#[test]
fn it_learns_what_follows() {
    assert_eq!(run().expect("trained"), "the ");
}
