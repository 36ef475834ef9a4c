//! Tests of R-Drop: a loss over two passes of the same batch, in which dropout drops different
//! elements.

use candle_core::{DType, Device};
use taper_model::{
    Batch, Builder, LossOutput, Model, ModelConfig, Objective, Pass, Sequences, Transformer,
};
use taper_ops::Gradients;

const SOURCES: [&[u32]; 3] = [&[4, 5, 6, 7, 3], &[8, 3], &[9, 10, 11, 3]];
const TARGETS: [&[u32]; 3] = [&[2, 12, 13, 14, 15], &[2, 5], &[2, 16, 17]];
const OUT: [u32; 10] = [12, 13, 14, 15, 3, 5, 3, 16, 17, 3];

/// Four dropout rates: those of embeddings, attention weights, feed-forward layers and residuals.
type Rates = [f64; 4];

fn model(
    [embedding_dropout, attention_dropout, feed_forward_dropout, residual_dropout]: Rates,
    compute: DType,
) -> Transformer {
    let config = ModelConfig {
        d_model: 24,
        d_ff: 40,
        heads: 3,
        encoder_layers: 2,
        decoder_layers: 2,
        embedding_dropout,
        attention_dropout,
        feed_forward_dropout,
        residual_dropout,
        ..Default::default()
    };
    Transformer::new(&config, 19, 19, Builder::seeded(7, &Device::Cpu, compute)).unwrap()
}

/// Returns the loss, as a mean over the tokens, and its gradient with respect to all parameters.
fn run(model: &Transformer, r_drop: f64, pass: Pass) -> (LossOutput, Vec<f32>) {
    let (source, target) = (Sequences::pack(&SOURCES), Sequences::pack(&TARGETS));
    let objective = Objective { r_drop, ..Objective::smoothed(0.1) };
    let batch = Batch::new(vec![source, target], OUT.to_vec());
    let output = model.loss(&batch, &objective, 1.0 / OUT.len() as f64, &pass).unwrap();
    let mut gradients = Gradients::new(model.parameters()).unwrap();
    pass.backward(&output, model.parameters(), &mut gradients).unwrap();
    let gradient = gradients.flat().unwrap().to_vec1().unwrap();
    (output, gradient)
}

fn distance(a: &[f32], b: &[f32]) -> f32 {
    let square =
        |values: &mut dyn Iterator<Item = f32>| values.map(|value| value * value).sum::<f32>();
    (square(&mut a.iter().zip(b).map(|(a, b)| a - b)) / square(&mut b.iter().copied())).sqrt()
}

#[test]
fn without_dropout_it_is_the_ordinary_loss() {
    let model = model([0.0; 4], DType::F32);
    let (once, gradient) = run(&model, 0.0, Pass::train(5, 1, 0));
    let (twice, twice_gradient) = run(&model, 3.0, Pass::train(5, 1, 0));
    assert_eq!(once.divergence_sum, 0.0);
    assert!(twice.divergence_sum.abs() < 1e-5, "{}", twice.divergence_sum);
    assert_eq!((once.tokens, once.correct), (twice.tokens, twice.correct));
    for (once, twice) in [(once.smoothed_sum, twice.smoothed_sum), (once.nll_sum, twice.nll_sum)] {
        assert!((once / twice - 1.0).abs() < 1e-6, "{once} {twice}");
    }
    assert!(
        distance(&twice_gradient, &gradient) < 1e-5,
        "{}",
        distance(&twice_gradient, &gradient)
    );
}

#[test]
fn every_kind_of_dropout_sets_the_passes_apart() {
    for kind in 0..4 {
        let mut rates = [0.0; 4];
        rates[kind] = 0.3;
        let (output, _) = run(&model(rates, DType::F32), 1.0, Pass::train(5, 1, 0));
        assert!(
            output.divergence_sum > 1e-3 * OUT.len() as f64,
            "kind {kind}: {}",
            output.divergence_sum
        );
        let loss = f64::from(output.loss.to_scalar::<f32>().unwrap()) * OUT.len() as f64;
        assert!(
            (loss / (output.smoothed_sum + output.divergence_sum) - 1.0).abs() < 1e-5,
            "kind {kind}: {loss}"
        );
    }
}

#[test]
fn fused_and_composed_operations_agree_on_it() {
    let model = model([0.1, 0.2, 0.3, 0.1], DType::F32);
    let (fused, gradient) = run(&model, 2.5, Pass::train(5, 1, 0));
    let (composed, composed_gradient) = run(&model, 2.5, Pass::train(5, 1, 0).composed());
    assert!((fused.divergence_sum / composed.divergence_sum - 1.0).abs() < 1e-4);
    assert!(
        distance(&gradient, &composed_gradient) < 1e-4,
        "{}",
        distance(&gradient, &composed_gradient)
    );
    let (_, plain) = run(&model, 0.0, Pass::train(5, 1, 0));
    assert!(
        distance(&plain, &composed_gradient) > 0.1,
        "the divergence has no part in the gradient"
    );
}
