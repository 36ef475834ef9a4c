//! An optimizer of your own (Adagrad), in a hand-written training loop for a translation model.
//!
//!     cargo run --release -p taper-trainer --example custom_optimizer
//!
//! An optimizer is a rule that updates a piece (a range) of the vector of all parameters. The
//! caller keeps the buffers with the optimizer's state. Recipes (configuration files) can only name
//! optimizers that have a file in `trainer/src/optimizers`.

use candle_core::{DType, Device, Result, Tensor};
use taper_model::{Batch, Builder, Model, ModelConfig, Objective, Pass, Sequences, Transformer};
use taper_ops::{Gradients, Piece, global_norm, update_pieces};
use taper_trainer::{BoxError, Optimizer, Part, Step};

/// Adagrad (Duchi et al. 2011): `s ← s + g²`, then `θ ← θ - η g / (√s + ε)`.
#[derive(Debug)]
struct Adagrad;

impl Optimizer for Adagrad {
    fn buffers(&self) -> &'static [&'static str] {
        &["squares"]
    }

    fn step(&self, part: Part<'_>, step: &Step) -> Result<()> {
        let Part { store, range, gradient, state } = part;
        let (rate, scale) = (step.learning_rate as f32, step.gradient_scale as f32);
        update_pieces("adagrad", store, range, gradient, state, |piece| {
            let Piece { weights, gradient, mut state, .. } = piece;
            let [squares] = state.as_mut_slice() else { return };
            for ((weight, square), g) in weights.iter_mut().zip(&mut **squares).zip(gradient) {
                let g = g * scale;
                *square += g * g;
                *weight -= rate * g / (square.sqrt() + 1e-8);
            }
        })
    }
}

/// Batch of four sentences. The translation of a sentence has its tokens in reverse order. Token 2
/// begins a target, and token 3 ends a sentence.
fn batch() -> Batch {
    let sentences: [&[u32]; 4] = [&[4, 5, 6], &[7, 4], &[6, 6, 5, 4], &[5, 7]];
    let ended = |words: &[u32]| [words, &[3]].concat();
    let sources: Vec<_> = sentences.map(ended).into();
    let reversed = sentences.map(|words| words.iter().rev().copied().collect::<Vec<_>>());
    let inputs: Vec<_> = reversed.iter().map(|words| [&[2], words.as_slice()].concat()).collect();
    let answers = reversed.iter().flat_map(|words| ended(words)).collect();
    Batch::new(vec![Sequences::pack(&sources), Sequences::pack(&inputs)], answers)
}

/// Trains, and returns the loss of each update.
fn run() -> std::result::Result<Vec<f64>, BoxError> {
    let layers = ModelConfig { encoder_layers: 1, decoder_layers: 1, ..Default::default() };
    let config = ModelConfig { d_model: 32, d_ff: 64, heads: 4, ..layers };
    let builder = Builder::seeded(1, &Device::Cpu, DType::F32);
    let model = Transformer::new(&config, 8, 8, builder)?;
    let (store, batch, objective) = (model.parameters(), batch(), Objective::smoothed(0.0));
    let mut gradients = Gradients::new(store)?;
    let mut state = [Tensor::zeros(store.len(), DType::F32, store.device())?];
    let mut losses = Vec::new();
    for number in 1..=150 {
        gradients.zero()?;
        let pass = Pass::train(1, number, 0);
        let loss = model.loss(&batch, &objective, 1.0 / batch.tokens() as f64, &pass)?;
        losses.push(loss.nll_sum / loss.tokens as f64);
        pass.backward(&loss, store, &mut gradients)?;
        let gradient = gradients.flat()?;
        let gradient_scale = (1.0 / global_norm(gradient)?).min(1.0);
        let step = Step { number, learning_rate: 0.02, gradient_scale };
        Adagrad.step(Part { store, range: 0..store.len(), gradient, state: &mut state }, &step)?;
    }
    Ok(losses)
}

fn main() -> std::result::Result<(), BoxError> {
    for (number, loss) in run()?.iter().enumerate().step_by(25) {
        println!("update {}: {loss:.3} nats for each token", number + 1);
    }
    Ok(())
}

#[test]
fn it_learns() {
    let losses = run().expect("trained");
    assert!(losses[0] > 1.5 && losses[149] < 0.5, "{losses:?}");
}
