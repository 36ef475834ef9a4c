//! Receptive fields of convolutions by depth. A state's receptive field is the tokens, or pixels,
//! on which the state depends. The study also measures how much the state depends on each of them
//! (Luo et al. 2016, "Understanding the Effective Receptive Field in Deep Convolutional Neural
//! Networks", section 2).
//!
//! For texts, a text whose tokens all differ goes through an encoder that is not trained. The
//! components of the middle token's state are multiplied by random factors and summed. This sum has
//! a gradient with respect to each token's row of the embedding matrix. Each token occurs only
//! once, so this is the gradient with respect to the one position where the token stands. For
//! images, the pixels are changed one after the other, and the change of the middle state is
//! measured.

use candle_core::{DType, Device, Tensor};
use taper_model::{
    Architecture, Builder, ImageClassifier, ImageEncoder, ImageShape, Model, ModelConfig, Pass,
    Sequences, Tied, TranslationModel,
};
use taper_ops::rng::{Counter, mix};
use taper_plots::{Axis, Chart, Figure, Series};
use taper_theory::TheoryError;
use taper_theory::studies::{Findings, Study, heads};

pub(crate) const STUDY: Study = Study {
    name: "receptive-field",
    claim: "A stack of convolutions sees 1 + Σ (k − 1) Π strides, most of it hardly: what counts \
            grows as the root of the depth. One layer of attention sees everything",
    run,
};

/// Number of tokens of a text.
const TOKENS: usize = 65;
/// Number of pixels along an image's side.
const PIXELS: usize = 48;
/// Width of the layers.
const WIDTH: usize = 32;
/// For texts, squared influences are averaged over this number of models, each with other random
/// weights. For images, they are averaged over a sixth of this number.
const DRAWS: u64 = 24;

/// Influence on the middle state of each token, or of each pixel in the middle row.
#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    /// Share of each token or pixel in the sum of all squared influences. The shares sum to 1.
    pub shares: Vec<f64>,
}

impl Field {
    fn new(squares: Vec<f64>) -> Self {
        let sum = squares.iter().sum::<f64>();
        Self { shares: squares.into_iter().map(|square| square / sum).collect() }
    }

    /// Number of positions from the first one that has an influence to the last one, both included.
    #[must_use]
    pub fn size(&self) -> usize {
        let has = |share: &f64| *share > 0.0;
        let (first, last) = (self.shares.iter().position(has), self.shares.iter().rposition(has));
        first.zip(last).map_or(0, |(first, last)| last + 1 - first)
    }

    /// Standard deviation of the positions, weighted by their shares.
    #[must_use]
    pub fn deviation(&self) -> f64 {
        let weighed = |of: &dyn Fn(f64) -> f64| {
            self.shares.iter().enumerate().map(|(at, share)| of(at as f64) * share).sum::<f64>()
        };
        let mean = weighed(&|at| at);
        weighed(&|at| (at - mean).powi(2)).sqrt()
    }

    /// Distance of the shares from the normal distribution that has the same mean and the same
    /// standard deviation. It is half of the sum of the absolute differences: 0 for equal
    /// distributions, and 1 for distributions that do not overlap.
    #[must_use]
    pub fn distance_from_normal(&self) -> f64 {
        let mean = self.shares.iter().enumerate().map(|(at, share)| at as f64 * share).sum::<f64>();
        let bell = |at: usize| (-0.5 * ((at as f64 - mean) / self.deviation()).powi(2)).exp();
        let sum: f64 = (0..self.shares.len()).map(bell).sum();
        let apart = |(at, share): (usize, &f64)| (share - bell(at) / sum).abs();
        0.5 * self.shares.iter().enumerate().map(apart).sum::<f64>()
    }
}

/// Influence of a text's tokens on the state of its middle token, in an encoder of `layers` layers.
/// The layers are convolutions of `kernel` tokens, or attention if `kernel` is `None`.
///
/// # Errors
/// If the memory is exhausted.
///
/// # Panics
/// If the model has no source embedding.
pub fn field_of_text(kernel: Option<usize>, layers: usize) -> Result<Field, TheoryError> {
    let mut config = ModelConfig {
        architecture: Architecture::Transformer,
        d_model: WIDTH,
        d_ff: 2 * WIDTH,
        heads: 2,
        encoder_layers: layers,
        decoder_layers: 1,
        tied: Tied::None,
        ..ModelConfig::default().with_dropout(0.0)
    };
    if let Some(kernel) = kernel {
        config.architecture = Architecture::Convolutional;
        config.convolutional.kernel = kernel;
    }
    let mut squares = vec![0.0; TOKENS];
    for seed in 0..DRAWS {
        let builder = Builder::seeded(seed, &Device::Cpu, DType::F32);
        let model = TranslationModel::new(&config, TOKENS, 2, builder)?;
        let text: Vec<u32> = (0..TOKENS as u32).collect();
        let pass = Pass::train(1, 1, 0);
        let hidden = model.encode(&Sequences::pack(&[text]), &pass)?.hidden().clone();
        // The rows of a convolutional encoder have the states in their first `WIDTH` columns, and
        // in their other columns the sums of the states and the embeddings.
        let (columns, counter) = (hidden.dim(1)?, Counter::new(mix(3, &[seed])));
        let mut drawn = vec![0.0_f32; TOKENS * columns];
        for column in 0..WIDTH {
            drawn[TOKENS / 2 * columns + column] = counter.normal_at(column as u64) as f32;
        }
        let drawn = Tensor::from_vec(drawn, (TOKENS, columns), &Device::Cpu)?;
        let table = model.parameters().get("source_embedding.weight").expect("an embedding");
        let tape = pass.into_tape().expect("a tape in training");
        let gradient = tape.differentiate(&hidden, &drawn)?.get(table.var().as_tensor())?;
        let rows = gradient.expect("a gradient of the embeddings").to_dtype(DType::F64)?;
        let norms: Vec<f64> = rows.sqr()?.sum(1)?.to_vec1()?;
        squares.iter_mut().zip(norms).for_each(|(sum, norm)| *sum += norm);
    }
    Ok(Field::new(squares))
}

/// Influence of the pixels in an image's middle row on the middle state. There is one result for
/// each of `layers` convolutions of 3 × 3 pixels: the influence on the states after it. Every
/// second convolution has stride 2.
///
/// # Errors
/// If the memory is exhausted.
pub fn fields_of_images(layers: usize) -> Result<Vec<Field>, TheoryError> {
    let config = ModelConfig {
        d_model: 8,
        encoder_layers: layers,
        image_encoder: ImageEncoder::Convolutional,
        ..ModelConfig::default().with_dropout(0.0)
    };
    let shape =
        ImageShape { size: PIXELS, channels: 1, patch: 4, mean: vec![0.5], deviation: vec![0.25] };
    let mut squares = vec![vec![0.0; PIXELS]; layers];
    for seed in 0..DRAWS / 6 {
        let builder = Builder::seeded(seed, &Device::Cpu, DType::F32);
        let model = ImageClassifier::new(&config, &shape, 2, builder)?;
        let counter = Counter::new(mix(4, &[seed]));
        let drawn: Vec<u32> =
            (0..PIXELS * PIXELS).map(|at| (counter.u64_at(at as u64) >> 56) as u32).collect();
        let changed = (0..PIXELS).map(|column| {
            let (mut image, at) = (drawn.clone(), PIXELS / 2 * PIXELS + column);
            image[at] = (image[at] + 128) % 256;
            image
        });
        let images: Vec<Vec<u32>> = [drawn.clone()].into_iter().chain(changed).collect();
        let states = model.convolved(&Sequences::pack(&images))?;
        for (states, squares) in states.iter().zip(&mut squares) {
            let (rows, width) = states.dims2()?;
            let places = rows / images.len();
            let side = places.isqrt();
            let middle = states
                .reshape((images.len(), places, width))?
                .narrow(1, side / 2 * side + side / 2, 1)?
                .squeeze(1)?
                .to_dtype(DType::F64)?;
            let apart = middle.broadcast_sub(&middle.narrow(0, 0, 1)?)?.sqr()?.sum(1)?;
            let apart: Vec<f64> = apart.to_vec1()?;
            squares.iter_mut().zip(&apart[1..]).for_each(|(sum, one)| *sum += one);
        }
    }
    Ok(squares.into_iter().map(Field::new).collect())
}

/// Size of the receptive field of a stack of convolutions. Each is given as (kernel, stride), from
/// the first to the last.
#[must_use]
pub fn field_by_formula(layers: &[(usize, usize)]) -> usize {
    let (mut size, mut step) = (1, 1);
    for (kernel, stride) in layers {
        size += (kernel - 1) * step;
        step *= stride;
    }
    size
}

/// Kernels and strides of the first `layers` convolutions that [`fields_of_images`] measures.
#[must_use]
pub fn layers_of_images(layers: usize) -> Vec<(usize, usize)> {
    (0..layers).map(|layer| (3, 1 + layer % 2)).collect()
}

fn run() -> Result<Findings, TheoryError> {
    let (mut rows, mut series) = (Vec::new(), Vec::new());
    let mut row = |name: &str, depth: usize, formula: usize, field: &Field, root: f64| {
        rows.push(vec![
            name.to_owned(),
            depth.to_string(),
            formula.to_string(),
            field.size().to_string(),
            format!("{:.2}", field.deviation()),
            if root > 0.0 { format!("{root:.2}") } else { String::new() },
            format!("{:.2}", field.distance_from_normal()),
        ]);
    };
    let first = field_of_text(Some(3), 1)?.deviation();
    for (colour, depth) in [1, 2, 4, 8, 16, 32].into_iter().enumerate() {
        let field = field_of_text(Some(3), depth)?;
        let formula = field_by_formula(&vec![(3, 1); depth]);
        row("convolutions of text, k = 3", depth, formula, &field, first * (depth as f64).sqrt());
        let middle = (TOKENS / 2) as f64;
        let name = if depth == 1 { "1 layer".to_owned() } else { format!("{depth} layers") };
        let points = field.shares.iter().enumerate();
        let points = points.map(|(at, share)| (at as f64 - middle, *share)).collect();
        series.push(Series::line(name, points).coloured(colour));
    }
    row("attention to text", 1, TOKENS, &field_of_text(None, 1)?, 0.0);
    for (number, field) in fields_of_images(6)?.iter().enumerate() {
        let formula = field_by_formula(&layers_of_images(number + 1));
        row("convolutions of images, 3 × 3", number + 1, formula, field, 0.0);
    }
    let x = Axis::linear("tokens from the middle");
    let y = Axis::log("share of the squared gradient").between(1e-8, 1.0);
    let title = "What a state depends on, by the number of convolutions";
    let description = "Nearly parabolas, which on a logarithmic axis are normal distributions. They \
                       widen more slowly than the field.";
    let figure = Figure::new(title, description, Chart::new(x, y, series));
    Ok(Findings {
        columns: heads(&[
            "layers",
            "depth",
            "field by formula",
            "measured",
            "deviation",
            "root of depth",
            "apart from normal",
        ]),
        rows,
        figures: vec![("receptive-field".to_owned(), figure)],
    })
}
