//! Tests of models of images and text. Contrastive models are compared with CLIP of Hugging Face
//! Transformers (golden files of `scripts/golden/images/clip.py`). Captioners are compared with a
//! captioner that is made of parts of ViT and of torch (`captions.py`).
#![allow(clippy::disallowed_methods, reason = "Candle's own products")]

use candle_core::{DType, Device, Tensor};
use taper_model::{
    ActivationKind, Batch, Builder, ContrastiveConfig, ContrastiveModel, ImageCaptioner,
    ImageEncoder, Model, ModelConfig, Objective, Pass, Pooling, Positions, Sequences, Tied,
    cost_of,
};

use super::common::{
    compare_gradients, compare_slopes, fill, golden, ids, largest_difference, lengths, load,
    relative, trained,
};
use super::{TestResult, images, shape, small};

/// Configuration of the golden file of CLIP.
fn clip() -> ModelConfig {
    ModelConfig {
        decoder_layers: 2,
        activation: ActivationKind::QuickGelu,
        norm_epsilon: 1e-5,
        positions: Positions::Learned,
        max_positions: 9,
        pooling: Pooling::ClassToken,
        scale_embeddings: false,
        contrastive: ContrastiveConfig {
            dimensions: 10,
            text_d_model: 12,
            text_d_ff: 20,
            text_heads: 3,
            ..ContrastiveConfig::default()
        },
        ..small()
    }
}

/// Configuration of the golden file for captions.
fn captions() -> ModelConfig {
    ModelConfig {
        activation: ActivationKind::Gelu,
        max_positions: 8,
        contrastive: ContrastiveConfig::default(),
        ..clip()
    }
}

fn drawn(seed: u64) -> Builder {
    Builder::seeded(seed, &Device::Cpu, DType::F32)
}

fn contrastive(config: &ModelConfig) -> ContrastiveModel {
    ContrastiveModel::new(config, &shape(), 20, drawn(7)).unwrap()
}

fn captioner(config: &ModelConfig) -> ImageCaptioner {
    ImageCaptioner::new(config, &shape(), 23, drawn(7)).unwrap()
}

/// Makes a batch of images and texts for a contrastive model. The embedding of a text is read at
/// its last token.
fn compared(images: Sequences, texts: Sequences) -> Batch {
    let mut end = 0;
    let last = |length: &usize| {
        end += *length as u32;
        end - 1
    };
    let asked: Vec<u32> = texts.lengths.iter().map(last).collect();
    let answers = vec![0; asked.len()];
    Batch { asked: Some(asked), ..Batch::new(vec![images, texts], answers) }
}

/// Makes a batch of images and captions for a captioner.
fn written(images: Sequences, captions: &[Vec<u32>]) -> Batch {
    let inputs: Vec<Vec<u32>> =
        captions.iter().map(|caption| [&[2], caption.as_slice()].concat()).collect();
    let answers = captions.iter().flat_map(|caption| [caption.as_slice(), &[3]].concat()).collect();
    Batch::new(vec![images, Sequences::pack(&inputs)], answers)
}

/// Sets the parameters of the model to those of a golden file, and compares the loss and the
/// gradients on `batch`.
fn agrees(model: &impl Model, name: &str, batch: &Batch) -> TestResult {
    let file = golden(name);
    load(model, &file);
    for composed in [false, true] {
        let (loss, gradients) = trained(model, batch, composed);
        let theirs = f64::from(file["loss"].to_scalar::<f32>()?);
        assert!((loss / theirs - 1.0).abs() < 1e-5, "loss {loss} {theirs}");
        compare_gradients(&format!("composed {composed}"), model, &gradients, &file);
    }
    Ok(())
}

/// Reads the images of a golden file. `count` is the number of these images.
fn stored_images(name: &str, count: usize) -> Sequences {
    Sequences { ids: ids(&golden(name)["images"]), lengths: vec![shape().values(); count] }
}

#[test]
fn transformers_agrees_on_clip() -> TestResult {
    let (model, file) = (contrastive(&clip()), golden("images/clip"));
    fill(&model, &golden("images/clip"));
    let texts = Sequences { ids: ids(&file["texts"]), lengths: lengths(&file["lengths"]) };
    let images = stored_images("images/clip", texts.lengths.len());
    let pass = Pass::evaluate();
    let rows = [model.images(&images, &pass)?, model.texts(&texts, &pass)?];
    for (ours, theirs) in rows.iter().zip(["image_rows", "text_rows"]) {
        let error = relative(ours, &file[theirs]);
        assert!(error < 1e-5, "{theirs} {error}");
    }
    let logits = (rows[0].matmul(&rows[1].t()?)? * model.scale()?)?;
    assert!(relative(&logits, &file["logits"]) < 1e-5);
    agrees(&model, "images/clip", &compared(images, texts))
}

#[test]
fn torch_agrees_on_captions() -> TestResult {
    let (model, file) = (captioner(&captions()), golden("images/captions"));
    fill(&model, &golden("images/captions"));
    let (all, lengths) = (ids(&file["captions"]), lengths(&file["lengths"]));
    let mut rest = all.as_slice();
    let captions: Vec<Vec<u32>> = lengths
        .iter()
        .map(|&length| {
            let (caption, after) = rest.split_at(length);
            rest = after;
            caption.to_vec()
        })
        .collect();
    let batch = written(stored_images("images/captions", lengths.len()), &captions);
    let (translation, pass) = (model.translation(), Pass::evaluate());
    let encoded = translation.encode(&batch.streams[0], &pass)?;
    let states = translation.decode(&batch.streams[1], &encoded, &pass)?;
    assert!(relative(&translation.logits(&states, &pass)?, &file["logits"]) < 1e-5);
    agrees(&model, "images/captions", &batch)
}

/// A function that returns the loss and the gradients of a model for a batch.
type Trained = Box<dyn Fn(&Batch) -> (f64, Tensor)>;

/// Makes contrastive models and captioners, each with its parameters and a batch.
fn both() -> Vec<(Trained, taper_ops::ParameterStore, Batch)> {
    let texts = Sequences::pack(&[vec![2, 7, 3], vec![2, 5, 9, 3], vec![2, 3]]);
    let captions = [vec![7, 9], vec![5], vec![4, 8, 6]];
    let mut all: Vec<(Trained, _, _)> = Vec::new();
    for pooling in [Pooling::ClassToken, Pooling::Mean] {
        let model = contrastive(&ModelConfig { pooling, ..clip() });
        let (store, batch) = (model.parameters().clone(), compared(images(3, 2), texts.clone()));
        all.push((Box::new(move |batch| trained(&model, batch, false)), store, batch));
        let model = captioner(&ModelConfig { pooling, tied: Tied::None, ..self::captions() });
        let (store, batch) = (model.parameters().clone(), written(images(3, 2), &captions));
        all.push((Box::new(move |batch| trained(&model, batch, false)), store, batch));
    }
    all
}

/// Compares the gradients of parameters with finite differences: `(L(p + h d) - L(p - h d)) / 2h`
/// for a parameter p, where L is the loss and d is the direction of the parameter's gradient.
#[test]
fn gradients_are_finite_differences() -> TestResult {
    for (loss, store, batch) in both() {
        let (_, gradients) = loss(&batch);
        compare_slopes("", store.parameters(), &gradients, (3e-3, 1e-2, 3e-2), || loss(&batch).0);
    }
    Ok(())
}

#[test]
fn the_cost_is_known_before_the_model_is_made() -> TestResult {
    for (pooling, tied, biases) in [
        (Pooling::ClassToken, Tied::All, true),
        (Pooling::Mean, Tied::None, false),
        (Pooling::Mean, Tied::Decoder, true),
    ] {
        let changed = |config| ModelConfig { pooling, tied, biases, ..config };
        let (of_clip, of_captions) = (changed(clip()), changed(captions()));
        let made = contrastive(&of_clip).parameters().len();
        let cost =
            cost_of(&Device::Cpu, |builder| ContrastiveModel::new(&of_clip, &shape(), 20, builder));
        assert_eq!(cost.parameters, made as u64, "{of_clip:?}");
        let outline = ContrastiveModel::new(&of_clip, &shape(), 20, Builder::outline())?;
        assert_eq!(outline.parameters().len(), made);
        let made = captioner(&of_captions).parameters().len();
        let cost = cost_of(&Device::Cpu, |builder| {
            ImageCaptioner::new(&of_captions, &shape(), 23, builder)
        });
        assert_eq!(cost.parameters, made as u64, "{of_captions:?}");
        let outline = ImageCaptioner::new(&of_captions, &shape(), 23, Builder::outline())?;
        assert_eq!(outline.parameters().len(), made);
    }
    Ok(())
}

/// Checks that an image or a text has the same embedding in a batch as alone. Also checks that
/// decoding captions token by token gives the same logits as one pass over the captions.
#[test]
fn a_batch_is_its_images_and_texts() -> TestResult {
    let (model, pass, together) = (contrastive(&clip()), Pass::evaluate(), images(3, 1));
    let texts = [vec![2, 7, 3], vec![2, 5, 9, 3], vec![2, 3]];
    let rows = [model.images(&together, &pass)?, model.texts(&Sequences::pack(&texts), &pass)?];
    for (at, (image, text)) in together.ids.chunks(shape().values()).zip(&texts).enumerate() {
        let alone = model.images(&Sequences::pack(&[image]), &pass)?;
        assert!(largest_difference(&alone, &rows[0].narrow(0, at, 1)?) < 1e-5);
        let alone = model.texts(&Sequences::pack(&[text]), &pass)?;
        assert!(largest_difference(&alone, &rows[1].narrow(0, at, 1)?) < 1e-5);
    }
    let (captioner, input) = (captioner(&captions()), [2, 9, 4, 7]);
    let translation = captioner.translation();
    let inputs = Sequences::pack(&[input; 3]);
    let states = translation.decode(&inputs, &translation.encode(&together, &pass)?, &pass)?;
    let at_once = translation.logits(&states, &pass)?.reshape((3, input.len(), 23))?;
    let inference = translation.inference();
    let mut state = inference.start(&together)?;
    for (at, token) in input.into_iter().enumerate() {
        let blocks: Vec<Tensor> =
            inference.step(&mut state, &[token; 3])?.collect::<Result<_, _>>()?;
        let stepwise = Tensor::cat(&blocks, 0)?;
        let difference = largest_difference(&stepwise, &at_once.narrow(1, at, 1)?.squeeze(1)?);
        assert!(difference < 1e-4, "{difference}");
    }
    Ok(())
}

/// Checks that an image is compared only with the texts of its own micro-batch. The loss of a batch
/// is therefore not the mean of the losses of its halves.
#[test]
fn pairs_are_compared_within_their_micro_batch() -> TestResult {
    let model = contrastive(&clip());
    let texts = Sequences::pack(&[vec![2, 7, 3], vec![2, 5, 3], vec![2, 3], vec![2, 8, 3]]);
    let batch = compared(images(4, 5), texts);
    let parts = batch.divided(2);
    assert_eq!(parts.iter().map(Batch::tokens).collect::<Vec<_>>(), [2, 2]);
    let whole = trained(&model, &batch, false).0;
    let halves: f64 = parts.iter().map(|part| trained(&model, part, false).0 / 2.0).sum();
    // To choose the right one of two texts is easier than to choose one of four. The loss of the
    // halves is therefore lower.
    assert!(halves < whole - 0.1, "{halves} {whole}");
    Ok(())
}

#[test]
fn what_cannot_be_compared_or_written_is_refused() {
    let model = contrastive(&clip());
    let refused = |batch: &Batch, objective: &Objective| {
        let loss = model.loss(batch, objective, 1.0, &Pass::evaluate());
        loss.err().map(|error| error.to_string()).unwrap_or_default()
    };
    let plain = Objective::default();
    let whole = compared(images(2, 1), Sequences::pack(&[vec![2, 7, 3], vec![2, 3]]));
    assert_eq!(refused(&whole, &plain), "");
    let twice = Objective { r_drop: 1.0, ..plain };
    assert!(refused(&whole, &twice).contains("training.r_drop"));
    let other = Batch { asked: Some(vec![0, 1]), ..whole };
    assert!(refused(&other, &plain).contains("last token of each text"));
    let empty = Sequences::pack(&[vec![], vec![2]]);
    assert!(model.texts(&empty, &Pass::evaluate()).unwrap_err().to_string().contains("empty"));
    let error = |config: ModelConfig| {
        let built = ContrastiveModel::new(&config, &shape(), 20, drawn(1));
        built.expect_err("refused").to_string()
    };
    let encoder = ImageEncoder::Convolutional;
    assert!(error(ModelConfig { image_encoder: encoder, ..clip() }).contains("image_encoder"));
    let of = |contrastive| ModelConfig { contrastive, ..clip() };
    let none = ContrastiveConfig { dimensions: 0, ..clip().contrastive };
    assert!(error(of(none)).contains("dimensions = 0"));
    let hot = ContrastiveConfig { temperature: 0.001, ..clip().contrastive };
    assert!(error(of(hot)).contains("temperature = 0.001"));
    let heads = ContrastiveConfig { text_heads: 5, ..clip().contrastive };
    assert!(error(of(heads)).contains("does not divide"));
    let model = captioner(&captions());
    let faults = [vec![images(1, 1)], vec![images(2, 1), Sequences::pack(&[[2]])]];
    for (streams, said) in faults.into_iter().zip(["image and target", "in its stream image"]) {
        let batch = Batch::new(streams, vec![3]);
        let loss = model.loss(&batch, &plain, 1.0, &Pass::evaluate());
        let error = loss.expect_err("another batch").to_string();
        assert!(error.contains(said), "{error}");
    }
}
