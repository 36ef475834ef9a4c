//! Which text belongs to an image, and which image to a text, by where a contrastive model puts
//! them.

use std::path::PathBuf;

use anyhow::{Result, bail};
use candle_core::Tensor;
use taper_data::{END, START, Tokenizer, prompts};
use taper_model::{ContrastiveModel, Model, Pass, Sequences};
use taper_ops::composed::CountedProduct;

use super::values_of;
use crate::LoadedRun;
use crate::config::RunConfig;
use crate::finite::require_finite;
use crate::items::answer_each;
use crate::prediction::{Prediction, normalised};

/// Images or texts that pass through the model together.
const TOGETHER: usize = 128;
/// Rows whose similarities to all others are held at a time.
const ROWS: usize = 512;

/// Images or texts where a model puts them: rows of length 1.
#[derive(Debug)]
pub(crate) struct Placed(Tensor);

impl Placed {
    /// Of `count` images, whose values `read` gives by their numbers.
    ///
    /// # Errors
    /// When an image cannot be read, or the model fails.
    pub(crate) fn images(
        model: &ContrastiveModel,
        (count, read): (usize, impl Fn(&[usize]) -> Result<Vec<Vec<u32>>>),
        mut progress: impl FnMut(usize),
    ) -> Result<Self> {
        let mut rows = Vec::new();
        let numbers: Vec<usize> = (0..count).collect();
        for numbers in numbers.chunks(TOGETHER) {
            let images = Sequences::pack(&read(numbers)?);
            let place = || model.images(&images, &Pass::evaluate());
            rows.push(taper_ops::threads::in_pool(model.device(), place)?);
            progress(numbers.last().map_or(0, |last| last + 1));
        }
        Self::of(&rows)
    }

    /// Rows that a model has placed.
    fn of(rows: &[Tensor]) -> Result<Self> {
        let all = Tensor::cat(rows, 0)?;
        // All lie at length 1: no sum overflows that has no such number in it.
        require_finite(
            "where the model puts images and texts",
            [all.sum_all()?.to_scalar::<f32>()?],
        )?;
        Ok(Self(all))
    }

    /// Of texts.
    ///
    /// # Errors
    /// For a text with too many tokens, and when the model fails.
    pub(crate) fn texts(
        model: &ContrastiveModel,
        tokenizer: &Tokenizer,
        texts: &[String],
    ) -> Result<Self> {
        let most = model.config().longest_sequence().unwrap_or(usize::MAX);
        let mut rows = Vec::new();
        for texts in texts.chunks(TOGETHER) {
            let ids = tokenizer.encode_batch(texts)?;
            let mut marked = Vec::with_capacity(ids.len());
            for (ids, text) in ids.iter().zip(texts) {
                if ids.len() + 2 > most {
                    bail!("{text:?} has {} tokens, with two marks more than {most}", ids.len());
                }
                marked.push([&[START], ids.as_slice(), &[END]].concat());
            }
            let texts = Sequences::pack(&marked);
            let place = || model.texts(&texts, &Pass::evaluate());
            rows.push(taper_ops::threads::in_pool(model.device(), place)?);
        }
        Self::of(&rows)
    }

    /// The similarities of rows `first` and those after it with all rows of `others`.
    fn similarities(&self, first: usize, others: &Self) -> Result<Tensor> {
        let count = ROWS.min(self.0.dim(0)? - first);
        let rows = self.0.narrow(0, first, count)?;
        Ok(taper_ops::threads::in_pool(rows.device(), || rows.times(&others.0.t()?))?)
    }

    /// The probability of each of `others` for each row: `softmax(scale · similarity)`.
    ///
    /// # Errors
    /// When the device fails.
    pub(crate) fn probabilities(&self, others: &Self, scale: f64) -> Result<Vec<Vec<f64>>> {
        let mut found = Vec::new();
        for first in (0..self.0.dim(0)?).step_by(ROWS) {
            found.extend(normalised(&(self.similarities(first, others)? * scale)?)?);
        }
        Ok(found)
    }
}

/// Where labels lie.
#[derive(Debug)]
pub(crate) struct PlacedLabels {
    texts: Placed,
    /// The label of each text.
    of_texts: Vec<usize>,
    labels: usize,
}

impl PlacedLabels {
    /// Each label at the mean of its prompts, brought to length 1 (Radford et al. 2021, section
    /// 3.1.4); of captions, which say more than the label, at each of them.
    ///
    /// # Errors
    /// When the model fails.
    pub(crate) fn of(
        model: &ContrastiveModel,
        tokenizer: &Tokenizer,
        config: &RunConfig,
    ) -> Result<Self> {
        let sentences = prompts(&config.data);
        let is_mean = !config.data.captions.prompts.is_empty();
        let (mut rows, mut of_texts) = (Vec::new(), Vec::new());
        for (label, sentences) in sentences.iter().enumerate() {
            let placed = Placed::texts(model, tokenizer, sentences)?.0;
            let placed = if is_mean {
                let mean = placed.mean_keepdim(0)?;
                mean.broadcast_div(&mean.sqr()?.sum_keepdim(1)?.sqrt()?)?
            } else {
                placed
            };
            of_texts.extend(std::iter::repeat_n(label, placed.dim(0)?));
            rows.push(placed);
        }
        Ok(Self { texts: Placed(Tensor::cat(&rows, 0)?), of_texts, labels: sentences.len() })
    }

    /// Texts that are labels themselves.
    fn named(texts: Placed) -> Result<Self> {
        let labels = texts.0.dim(0)?;
        Ok(Self { texts, of_texts: (0..labels).collect(), labels })
    }

    /// The probability of each label for each image: that of its texts together.
    ///
    /// # Errors
    /// When the device fails.
    pub(crate) fn probabilities(&self, images: &Placed, scale: f64) -> Result<Vec<Vec<f64>>> {
        let of_labels = |of_texts: Vec<f64>| {
            let mut sums = vec![0.0; self.labels];
            for (&label, probability) in self.of_texts.iter().zip(of_texts) {
                sums[label] += probability;
            }
            sums
        };
        let found = images.probabilities(&self.texts, scale)?;
        Ok(found.into_iter().map(of_labels).collect())
    }
}

/// For each of `ranks` the share of rows that have one of their `own` others among so many nearest:
/// recall at that rank. Of equally near ones, those that are not the row's own come first. A row
/// without any of its own does not count.
///
/// # Errors
/// When the device fails.
pub(crate) fn recalls<const N: usize>(
    rows: &Placed,
    others: &Placed,
    own: &[Vec<u32>],
    ranks: [usize; N],
) -> Result<[f64; N]> {
    let (mut found, mut counted) = ([0_usize; N], 0_usize);
    for first in (0..own.len()).step_by(ROWS) {
        let similarities = rows.similarities(first, others)?.to_vec2::<f32>()?;
        for (similarities, own) in similarities.iter().zip(&own[first..]) {
            if own.is_empty() {
                continue;
            }
            counted += 1;
            let best = own.iter().map(|&at| similarities[at as usize]);
            let best = best.fold(f32::NEG_INFINITY, f32::max);
            let before = similarities.iter().filter(|&&other| other >= best).count();
            let own_before = own.iter().filter(|&&at| similarities[at as usize] >= best).count();
            for (found, rank) in found.iter_mut().zip(ranks) {
                *found += usize::from(before - own_before < rank);
            }
        }
    }
    Ok(found.map(|found| found as f64 / counted.max(1) as f64))
}

/// Which of `prompts` fits each PNG or JPEG file best, or without any which of the recipe's labels;
/// `progress` is called with the images done so far. A file that is no such picture has an error in
/// its place.
///
/// # Errors
/// Without prompts where the recipe has no labels, and when the model fails.
pub fn match_images(
    run: &LoadedRun<ContrastiveModel>,
    files: &[PathBuf],
    prompts: &[String],
    mut progress: impl FnMut(usize),
) -> Result<Vec<Result<Prediction>>> {
    let (data, tokenizer) = (&run.config.data, run.tokenizers.target());
    if prompts.is_empty() && data.images.format == taper_data::ImageFormat::Table {
        bail!("the run has no labels: name the texts to choose from with --prompt");
    }
    let scale = run.model.scale()?;
    let (names, labels) = if prompts.is_empty() {
        (&data.images.labels[..], PlacedLabels::of(&run.model, tokenizer, &run.config)?)
    } else {
        (prompts, PlacedLabels::named(Placed::texts(&run.model, tokenizer, prompts)?)?)
    };
    let mut found = Vec::with_capacity(files.len());
    for files in files.chunks(TOGETHER) {
        let images = files.iter().map(|file| values_of(file, &data.images));
        found.extend(answer_each(images, |images| {
            let read = |places: &[usize]| Ok(places.iter().map(|&at| images[at].clone()).collect());
            let placed = Placed::images(&run.model, (images.len(), read), |_| {})?;
            let probabilities = labels.probabilities(&placed, scale)?;
            Ok(probabilities.into_iter().map(|of| Prediction::of(of, names)).collect())
        })?);
        progress(found.len());
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;

    #[test]
    fn recall_counts_what_stands_before_the_nearest_of_ones_own() {
        let placed = |rows: &[[f32; 2]]| {
            let shape = (rows.len(), 2);
            Placed(Tensor::from_vec(rows.concat(), shape, &Device::Cpu).expect("rows"))
        };
        let others = placed(&[[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [0.0, 1.0]]);
        let of = |own: &[&[u32]]| {
            let rows = placed(&vec![[1.0, 0.0]; own.len()]);
            let own: Vec<Vec<u32>> = own.iter().map(|own| own.to_vec()).collect();
            recalls(&rows, &others, &own, [1, 2, 3]).expect("recalls")
        };
        assert_eq!(of(&[&[0]]), [1.0, 1.0, 1.0]);
        assert_eq!(of(&[&[1]]), [0.0, 1.0, 1.0]);
        // The nearest of several counts, and a tie is lost.
        assert_eq!(of(&[&[3, 1]]), [0.0, 1.0, 1.0]);
        assert_eq!(of(&[&[2]]), [0.0, 0.0, 0.0]);
        assert_eq!(of(&[&[2, 3]]), [0.0, 0.0, 1.0]);
        assert_eq!(of(&[&[0], &[1], &[]]), [0.5, 1.0, 1.0]);
    }
}
