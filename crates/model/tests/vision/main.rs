//! Tests of image classifiers. A ViT is compared with one that is made of parts of the library
//! Transformers (golden files of `scripts/golden/images/vit.py`), and properties are checked that
//! hold for all weights and images. Models with class tokens are compared in another test, which
//! reads model folders in the format of the library Transformers (`run/tests/folders/vit.rs`).

#[path = "../common/mod.rs"]
mod common;
mod image_text;

use candle_core::{DType, Device};
use common::{
    TestResult, compare_gradients, compare_slopes, golden, ids, largest_difference, load, relative,
    trained,
};
use taper_model::{
    ActivationKind, Batch, Builder, ImageClassifier, ImageEncoder, ImageShape, Model, ModelConfig,
    NormPlacement, Objective, Pass, Pooling, Positions, Sequences, cost_of,
};

/// Configuration of the golden file.
fn small() -> ModelConfig {
    ModelConfig {
        d_model: 16,
        d_ff: 24,
        heads: 4,
        encoder_layers: 2,
        activation: ActivationKind::Gelu,
        norm_epsilon: 1e-12,
        positions: Positions::SinusoidalHalves,
        pooling: Pooling::Mean,
        ..ModelConfig::default().with_dropout(0.0)
    }
}

/// Configuration like [`small`], but of a convolutional network.
fn convolutional() -> ModelConfig {
    ModelConfig { image_encoder: ImageEncoder::Convolutional, ..small() }
}

fn shape() -> ImageShape {
    ImageShape {
        size: 12,
        channels: 3,
        patch: 4,
        mean: vec![0.4, 0.5, 0.45],
        deviation: vec![0.25, 0.3, 0.2],
    }
}

fn model(config: &ModelConfig) -> ImageClassifier {
    ImageClassifier::new(config, &shape(), 5, Builder::seeded(7, &Device::Cpu, DType::F32)).unwrap()
}

/// Makes images of the model's size. Their values depend on `seed`.
fn images(count: usize, seed: u32) -> Sequences {
    let value = move |at: u32| (at.wrapping_mul(2_654_435_761).wrapping_add(seed * 97) >> 11) % 256;
    let values = shape().values();
    let image = |image: usize| (0..values as u32).map(move |at| value(at + 5000 * image as u32));
    let rows: Vec<Vec<u32>> = (0..count).map(|at| image(at).collect()).collect();
    Sequences::pack(&rows)
}

fn batch(images: Sequences, answers: Vec<u32>) -> Batch {
    batch_of_values(images, answers, shape().values())
}

/// Makes a batch of images that have `values` values each.
fn batch_of_values(images: Sequences, answers: Vec<u32>, values: usize) -> Batch {
    let asked = (0..answers.len()).map(|image| (image * values) as u32).collect();
    Batch { asked: Some(asked), ..Batch::new(vec![images], answers) }
}

#[test]
fn transformers_agrees_on_the_mean_of_patches_with_sinusoids_of_two_dimensions() -> TestResult {
    agrees(&model(&small()), "images/vit-mean")
}

#[test]
fn torch_agrees_on_convolutions() -> TestResult {
    let shape = ImageShape { size: 7, patch: 1, ..shape() };
    let config = ModelConfig {
        d_model: 6,
        heads: 2,
        encoder_layers: 3,
        norm_epsilon: 1e-5,
        ..convolutional()
    };
    let model =
        ImageClassifier::new(&config, &shape, 4, Builder::seeded(7, &Device::Cpu, DType::F32))?;
    agrees(&model, "images/convolutions")
}

/// Compares logits, loss and gradients with a golden file, which also has the model's parameters.
fn agrees(model: &ImageClassifier, name: &str) -> TestResult {
    let file = golden(name);
    load(model, &file);
    let classes = ids(&file["classes"]);
    let values = model.shape().values();
    let images = Sequences { ids: ids(&file["images"]), lengths: vec![values; classes.len()] };
    let error = relative(&model.logits(&images)?, &file["logits"]);
    assert!(error < 1e-5, "logits {error}");
    for composed in [false, true] {
        let batch = batch_of_values(images.clone(), classes.clone(), values);
        let (loss, gradients) = trained(model, &batch, composed);
        let theirs = f64::from(file["loss"].to_scalar::<f32>()?);
        assert!((loss / theirs - 1.0).abs() < 1e-5, "loss {loss} {theirs}");
        compare_gradients(&format!("composed {composed}"), model, &gradients, &file);
    }
    Ok(())
}

/// Configurations of all kinds of image classifiers.
fn kinds() -> Vec<ModelConfig> {
    let mut kinds = vec![convolutional()];
    for pooling in [Pooling::ClassToken, Pooling::Mean] {
        for positions in [Positions::Learned, Positions::Sinusoidal, Positions::SinusoidalHalves] {
            for norm in [NormPlacement::Pre, NormPlacement::Post] {
                kinds.push(ModelConfig { pooling, positions, norm, ..small() });
            }
        }
    }
    kinds
}

#[test]
fn a_batch_is_its_images_and_each_patch_counts_where_it_stands() -> TestResult {
    for config in kinds() {
        let model = model(&config);
        let together = images(3, 1);
        let logits = model.logits(&together)?;
        for (image, values) in together.ids.chunks(shape().values()).enumerate() {
            let alone = model.logits(&Sequences::pack(&[values]))?;
            let difference = largest_difference(&alone, &logits.narrow(0, image, 1)?);
            assert!(difference < 2e-5, "{config:?}");
        }
        // Two rows of patches are swapped. In each channel, the rows of pixels 0 to 3 change places
        // with the rows 4 to 7.
        let mut turned = together.clone();
        for plane in turned.ids.chunks_mut(12 * 12) {
            let (first, second) = plane[..96].split_at_mut(48);
            first.swap_with_slice(second);
        }
        assert!(largest_difference(&model.logits(&turned)?, &logits) > 1e-4, "{config:?}");
    }
    Ok(())
}

/// Compares the gradients of parameters with finite differences: `(L(p + h d) - L(p - h d)) / 2h`
/// for a parameter p, where L is the loss and d is the direction of the parameter's gradient.
#[test]
fn gradients_are_finite_differences() -> TestResult {
    let of_token = ModelConfig { pooling: Pooling::ClassToken, ..small() };
    for config in [of_token, small(), convolutional()] {
        let config = ModelConfig { positions: Positions::Learned, ..config };
        let (model, batch) = (model(&config), batch(images(3, 2), vec![4, 0, 2]));
        let (_, gradients) = trained(&model, &batch, false);
        let loss = || trained(&model, &batch, false).0;
        compare_slopes("", model.parameters().parameters(), &gradients, (1e-2, 1e-3, 3e-2), loss);
    }
    Ok(())
}

#[test]
fn the_cost_is_known_before_the_model_is_made() -> TestResult {
    for config in kinds() {
        for biases in [true, false] {
            let config = ModelConfig { biases, ..config.clone() };
            let made = model(&config).parameters().len();
            let cost = cost_of(&Device::Cpu, |builder| {
                ImageClassifier::new(&config, &shape(), 5, builder)
            });
            assert_eq!(cost.parameters, made as u64, "{config:?}");
            assert_eq!(
                ImageClassifier::new(&config, &shape(), 5, Builder::outline())?.parameters().len(),
                made
            );
        }
    }
    Ok(())
}

#[test]
fn attention_of_each_token_sums_to_one() -> TestResult {
    let model = model(&ModelConfig { pooling: Pooling::ClassToken, ..small() });
    let layers = model.attention(&images(2, 3))?;
    assert_eq!(layers.len(), 2);
    for layer in layers {
        assert_eq!(layer.weights.dims(), [2, 4, 10, 10]);
        let sums = layer.weights.sum(3)?;
        assert!(largest_difference(&sums, &sums.ones_like()?) < 1e-5, "{}", layer.layer);
    }
    let none = self::model(&convolutional()).attention(&images(1, 3));
    assert!(none.unwrap_err().to_string().contains("no attention weights"));
    Ok(())
}

#[test]
fn what_is_no_image_of_the_model_is_refused() {
    let model = model(&small());
    let refused = |batch: &Batch| {
        let loss = model.loss(batch, &Objective::default(), 1.0, &Pass::evaluate());
        loss.err().map(|error| error.to_string()).unwrap_or_default()
    };
    let whole = batch(images(2, 1), vec![1, 2]);
    assert_eq!(refused(&whole), "");
    let short = batch_of_values(Sequences::pack(&[vec![0; 100], vec![0; 100]]), vec![1, 2], 100);
    assert!(refused(&short).contains("100 values, but the model reads 432"));
    let mut bright = whole.clone();
    bright.streams[0].ids[7] = 256;
    assert!(refused(&bright).contains("the value 256"));
    let other = Batch { asked: Some(vec![0, 1]), ..whole };
    assert!(refused(&other).contains("first value of each image"));
    let error = |config: ModelConfig, shape: ImageShape, classes| {
        let built = ImageClassifier::new(
            &config,
            &shape,
            classes,
            Builder::seeded(1, &Device::Cpu, DType::F32),
        );
        built.expect_err("refused").to_string()
    };
    assert!(error(small(), shape(), 1).contains("at least two classes"));
    let rotary = ModelConfig { positions: Positions::Rotary, ..small() };
    assert!(error(rotary, shape(), 5).contains("model.positions of images"));
    let narrow = ModelConfig { d_model: 18, heads: 2, ..small() };
    assert!(error(narrow, shape(), 5).contains("that 4 divides"));
    for other in [
        ImageShape { patch: 5, ..shape() },
        ImageShape { patch: 0, ..shape() },
        ImageShape { mean: vec![0.5], ..shape() },
    ] {
        assert!(error(small(), other, 5).contains("cannot be cut into"));
    }
    let channels = shape().channels;
    for (mean, deviation) in
        [(0.5, 0.0), (0.5, -1.0), (0.5, f64::NAN), (f64::NAN, 0.5), (0.5, 1e-60)]
    {
        let (mean, deviation) = (vec![mean; channels], vec![deviation; channels]);
        let other = ImageShape { mean, deviation, ..shape() };
        assert!(error(small(), other, 5).contains("cannot be normalised"));
    }
}
