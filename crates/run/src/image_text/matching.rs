//! Matching of images and texts in the space of a contrastive model.

use std::path::PathBuf;

use anyhow::{Result, anyhow, bail, ensure};
use candle_core::Tensor;
use taper_data::{END, Pixels, START, Tokenizer, prompts};
use taper_decoding::Control;
use taper_model::{ContrastiveModel, Model, Pass, Sequences};
use taper_ops::composed::CountedProduct;

use super::{values, values_of};
use crate::LoadedRun;
use crate::advice::{Action, Advice, Setting};
use crate::config::RunConfig;
use crate::finite::require_finite;
use crate::items::answer_each;
use crate::prediction::{Prediction, normalised};

/// Number of images or texts in one batch.
const TOGETHER: usize = 128;
/// Number of embeddings whose similarities with all candidates are in memory at a time.
const ROWS: usize = 512;

/// Embeddings of images or texts: a matrix whose rows have the Euclidean norm 1.
#[derive(Debug)]
pub(crate) struct Placed(Tensor);

impl Placed {
    /// Embeds `count` images. `read` returns the pixel values of the images with the given indices.
    /// `progress` receives the number of images that are embedded so far. `control` is asked before
    /// each batch.
    ///
    /// # Errors
    /// If an image cannot be read, or the model fails.
    pub(crate) fn images(
        model: &ContrastiveModel,
        (count, read): (usize, impl Fn(&[usize]) -> Result<Vec<Vec<u32>>>),
        control: &dyn Control,
        mut progress: impl FnMut(usize),
    ) -> Result<Self> {
        let mut rows = Vec::new();
        let numbers: Vec<usize> = (0..count).collect();
        for numbers in numbers.chunks(TOGETHER) {
            ensure!(!control.is_cancelled(numbers[0]), "the images are no longer wanted");
            let images = Sequences::pack(&read(numbers)?);
            let place = || model.images(&images, &Pass::evaluate());
            rows.push(taper_ops::threads::in_pool(model.device(), place)?);
            progress(numbers.last().map_or(0, |last| last + 1));
        }
        Self::join(&rows)
    }

    /// Joins embeddings of several batches.
    fn join(rows: &[Tensor]) -> Result<Self> {
        let all = Tensor::cat(rows, 0)?;
        // Rows with only finite values have norm 1, so the sum over all rows is finite if and only
        // if all values are.
        require_finite(
            "where the model puts images and texts",
            [all.sum_all()?.to_scalar::<f32>()?],
        )?;
        Ok(Self(all))
    }

    /// Embeds texts.
    ///
    /// # Errors
    /// If a text has too many tokens, or the model fails.
    pub(crate) fn texts(
        model: &ContrastiveModel,
        tokenizer: &Tokenizer,
        texts: &[String],
    ) -> Result<Self> {
        Self::encoded(model, texts, &tokenizer.encode_batch(texts)?)
    }

    /// Embeds texts that are already tokenised: `ids` has the token ids of each text. The texts
    /// themselves are only for messages.
    ///
    /// # Errors
    /// If a text has too many tokens, or the model fails.
    fn encoded(model: &ContrastiveModel, texts: &[String], ids: &[Vec<u32>]) -> Result<Self> {
        let most = model.config().longest_sequence().unwrap_or(usize::MAX);
        let mut rows = Vec::new();
        for (texts, ids) in texts.chunks(TOGETHER).zip(ids.chunks(TOGETHER)) {
            let mut marked = Vec::with_capacity(ids.len());
            for (ids, text) in ids.iter().zip(texts) {
                if ids.len() + 2 > most {
                    bail!(
                        "{text:?} has {} tokens, which together with two marks are more than \
                         {most}",
                        ids.len()
                    );
                }
                marked.push([&[START], ids.as_slice(), &[END]].concat());
            }
            let texts = Sequences::pack(&marked);
            let place = || model.texts(&texts, &Pass::evaluate());
            rows.push(taper_ops::threads::in_pool(model.device(), place)?);
        }
        Self::join(&rows)
    }

    /// Similarities (dot products) of at most [`ROWS`] rows, from row `first` on, with all rows of
    /// `others`.
    fn similarities(&self, first: usize, others: &Self) -> Result<Tensor> {
        let count = ROWS.min(self.0.dim(0)? - first);
        let rows = self.0.narrow(0, first, count)?;
        Ok(taper_ops::threads::in_pool(rows.device(), || rows.times(&others.0.t()?))?)
    }

    /// For each row, the probabilities of the rows of `others`: the softmax of `scale` · similarity
    /// over `others`.
    ///
    /// # Errors
    /// If the device fails.
    pub(crate) fn probabilities(&self, others: &Self, scale: f64) -> Result<Vec<Vec<f64>>> {
        let mut probabilities = Vec::new();
        for first in (0..self.0.dim(0)?).step_by(ROWS) {
            probabilities.extend(normalised(&(self.similarities(first, others)? * scale)?)?);
        }
        Ok(probabilities)
    }
}

/// Embeddings of the texts of labels.
#[derive(Debug)]
pub(crate) struct PlacedLabels {
    texts: Placed,
    /// Index of the label to which each text belongs.
    of_texts: Vec<usize>,
    labels: usize,
}

impl PlacedLabels {
    /// Embeds each label as the mean of the embeddings of its prompts, scaled to norm 1 (Radford et
    /// al. 2021, section 3.1.4). If the configuration has no prompts, the texts of a label are all
    /// captions that an image with this label can have. They are embedded one by one and not
    /// averaged, because each caption says more about an image than its label.
    ///
    /// # Errors
    /// If the model fails.
    pub(crate) fn embed(
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

    /// Labels with a single text each, such as the prompts of a user.
    fn named(texts: Placed) -> Result<Self> {
        let labels = texts.0.dim(0)?;
        Ok(Self { texts, of_texts: (0..labels).collect(), labels })
    }

    /// Probability of each label for each image: the sum of the probabilities of the label's texts.
    ///
    /// # Errors
    /// If the device fails.
    pub(crate) fn probabilities(&self, images: &Placed, scale: f64) -> Result<Vec<Vec<f64>>> {
        let of_labels = |of_texts: Vec<f64>| {
            let mut sums = vec![0.0; self.labels];
            for (&label, probability) in self.of_texts.iter().zip(of_texts) {
                sums[label] += probability;
            }
            sums
        };
        let probabilities = images.probabilities(&self.texts, scale)?;
        Ok(probabilities.into_iter().map(of_labels).collect())
    }
}

/// Recall at each of `ranks`: for a rank k, the share of `rows` for which a match is among the k
/// nearest rows of `others`. `texts_of` has, for each row, the indices of its matches in `others`.
/// Among equally near rows, matches are ranked last. Rows without matches do not count.
///
/// # Errors
/// If the device fails.
pub(crate) fn recalls<const N: usize>(
    rows: &Placed,
    others: &Placed,
    texts_of: &[Vec<u32>],
    ranks: [usize; N],
) -> Result<[f64; N]> {
    let (mut recalled, mut counted) = ([0_usize; N], 0_usize);
    for first in (0..texts_of.len()).step_by(ROWS) {
        let similarities = rows.similarities(first, others)?.to_vec2::<f32>()?;
        for (similarities, texts_of) in similarities.iter().zip(&texts_of[first..]) {
            if texts_of.is_empty() {
                continue;
            }
            counted += 1;
            let best = texts_of.iter().map(|&at| similarities[at as usize]);
            let best = best.fold(f32::NEG_INFINITY, f32::max);
            let before = similarities.iter().filter(|&&other| other >= best).count();
            let own_before =
                texts_of.iter().filter(|&&at| similarities[at as usize] >= best).count();
            for (recalled, rank) in recalled.iter_mut().zip(ranks) {
                *recalled += usize::from(before - own_before < rank);
            }
        }
    }
    Ok(recalled.map(|recalled| recalled as f64 / counted.max(1) as f64))
}

/// Finds the best of `prompts` for each PNG or JPEG file, or, if there are no prompts, the best of
/// the recipe's labels. The result for any other file is an error. `progress` receives the number
/// of files that are done so far.
///
/// # Errors
/// If there are no prompts and the recipe has no labels, or the model fails.
pub fn match_images(
    run: &LoadedRun<ContrastiveModel>,
    files: &[PathBuf],
    prompts: &[String],
    mut progress: impl FnMut(usize),
) -> Result<Vec<Result<Prediction>>> {
    let ids = run.tokenizers.target().encode_batch(prompts)?;
    let choice = Choice::new(run, prompts, &ids)?;
    let mut predictions = Vec::with_capacity(files.len());
    for files in files.chunks(TOGETHER) {
        let images = files.iter().map(|file| values_of(file, &run.config.data.images));
        predictions.extend(answer_each(images, |images| choice.among(&images))?);
        progress(predictions.len());
    }
    Ok(predictions)
}

/// Finds the best of `prompts` for each image, or, if there are no prompts, the best of the
/// recipe's labels. `ids` has the token ids of each prompt.
///
/// # Errors
/// If there are no prompts and the recipe has no labels, or the model fails.
pub fn match_pixels(
    run: &LoadedRun<ContrastiveModel>,
    images: Vec<Pixels>,
    prompts: &[String],
    ids: &[Vec<u32>],
) -> Result<Vec<Prediction>> {
    let images: Vec<Vec<u32>> = images.into_iter().map(values).collect();
    Choice::new(run, prompts, ids)?.among(&images)
}

/// Texts or labels with which images are compared.
struct Choice<'a> {
    model: &'a ContrastiveModel,
    names: &'a [String],
    labels: PlacedLabels,
    scale: f64,
}

impl<'a> Choice<'a> {
    /// Makes candidates of `prompts`, or, if there are none, of the recipe's labels. `ids` has the
    /// token ids of each prompt.
    fn new(
        run: &'a LoadedRun<ContrastiveModel>,
        prompts: &'a [String],
        ids: &[Vec<u32>],
    ) -> Result<Self> {
        let (data, tokenizer) = (&run.config.data, run.tokenizers.target());
        if prompts.is_empty() && data.images.format == taper_data::ImageFormat::Table {
            let advice =
                Advice::new(Action::Choose(Setting::Prompts), "names texts to choose from");
            return Err(advice.about(anyhow!("the run has no labels")));
        }
        let (names, labels) = if prompts.is_empty() {
            (&data.images.labels[..], PlacedLabels::embed(&run.model, tokenizer, &run.config)?)
        } else {
            (prompts, PlacedLabels::named(Placed::encoded(&run.model, prompts, ids)?)?)
        };
        Ok(Self { model: &run.model, names, labels, scale: run.model.scale()? })
    }

    /// Finds the best candidate for each image.
    fn among(&self, images: &[Vec<u32>]) -> Result<Vec<Prediction>> {
        let read = |places: &[usize]| Ok(places.iter().map(|&at| images[at].clone()).collect());
        let placed = Placed::images(self.model, (images.len(), read), &(), |_| {})?;
        let probabilities = self.labels.probabilities(&placed, self.scale)?;
        Ok(probabilities
            .into_iter()
            .map(|of_image| Prediction::from_probabilities(of_image, self.names))
            .collect())
    }
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
        let recalls_of = |texts_of: &[&[u32]]| {
            let rows = placed(&vec![[1.0, 0.0]; texts_of.len()]);
            let texts_of: Vec<Vec<u32>> =
                texts_of.iter().map(|texts_of| texts_of.to_vec()).collect();
            recalls(&rows, &others, &texts_of, [1, 2, 3]).expect("recalls")
        };
        assert_eq!(recalls_of(&[&[0]]), [1.0, 1.0, 1.0]);
        assert_eq!(recalls_of(&[&[1]]), [0.0, 1.0, 1.0]);
        // The nearest match counts. Here, the first candidate, which is no match, is nearer.
        assert_eq!(recalls_of(&[&[3, 1]]), [0.0, 1.0, 1.0]);
        assert_eq!(recalls_of(&[&[2]]), [0.0, 0.0, 0.0]);
        assert_eq!(recalls_of(&[&[2, 3]]), [0.0, 0.0, 1.0]);
        assert_eq!(recalls_of(&[&[0], &[1], &[]]), [0.5, 1.0, 1.0]);
    }
}
