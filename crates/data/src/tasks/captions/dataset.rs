//! Images with tokenised captions, and batches of them.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use rayon::prelude::*;

use super::grammar;
use super::report::CaptionReport;
use crate::images::{Images, Split, open};
use crate::tasks::images::dataset::{ImageBatches, open_images, validate as validate_images};
use crate::{
    Batch, BatchingConfig, BatchingReport, Corpora, DataConfig, Dataset, END, Epoch, EpochPlan,
    Error, ImageDataset, ImageFormat, Prepared, Report, Result, START, Stream, Tokenizer,
    TokenizerPair,
};

/// Purpose number of the random draws that choose a caption of an image (see
/// [`crate::Draws::new`]).
const CHOICE: u64 = 12;

/// Use that a model makes of captions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CaptionUse {
    /// A model writes captions, token by token.
    Written,
    /// A model reads captions and compares them with images.
    Compared,
}

/// Refuses settings that are impossible for captions.
///
/// # Errors
///
/// [`Error::Config`], with the offending key, if a setting is impossible.
pub(crate) fn validate(config: &DataConfig) -> Result<()> {
    validate_images(config, true)?;
    let wrong = |key, message: &str| Err(Error::Config { key, message: message.to_owned() });
    if config.captions.sentences.is_empty() && config.images.format != ImageFormat::Table {
        return wrong(
            "data.captions.sentences",
            "is empty: images with labels are described by sentences with {label} in them",
        );
    }
    if config.tokenizer.dropout > 0.0 || config.tokenizer.sampling_alpha > 0.0 {
        return wrong(
            "data.tokenizer",
            "draws segmentations anew in each epoch, which captions do not know: set dropout and \
             sampling_alpha to 0",
        );
    }
    grammar::validate(config)
}

/// The captions of each image of a split.
fn captions(config: &DataConfig, split: &Split) -> Result<Vec<Vec<String>>> {
    let captions_of = |image: usize| -> Result<Vec<String>> {
        if config.images.format == ImageFormat::Table {
            return Ok(split.captions(image).to_vec());
        }
        let mut pixels = Vec::new();
        split.read(image, &mut pixels)?;
        let label = &config.images.labels[split.classes()[image] as usize];
        Ok(grammar::captions_of(config, label, &pixels))
    };
    (0..split.classes().len()).into_par_iter().map(captions_of).collect()
}

/// Loads the configured tokenizer, or trains one on captions. These are the captions in the table
/// of the training split, or all captions that the configured sentences can produce.
///
/// # Errors
///
/// If a caption cannot be read, or the tokenizer cannot be trained or loaded.
pub(crate) fn train_tokenizer(config: &DataConfig) -> Result<TokenizerPair> {
    let settings = &config.tokenizer;
    if let Some(path) = &settings.path {
        return Tokenizer::load(path)?.with_special_tokens(path).map(TokenizerPair::joint);
    }
    let texts: Vec<String> = match config.images.format {
        ImageFormat::Table => captions(config, &open(config, &config.train)?)?.concat(),
        _ => grammar::all_captions(config),
    };
    let most = usize::try_from(settings.max_pairs).unwrap_or(usize::MAX);
    let texts = texts.into_iter().take(most).map(Ok);
    Tokenizer::train(settings, config.nfkc, config.lowercase, texts).map(TokenizerPair::joint)
}

/// Images of a split or of a part of it, with their captions.
#[derive(Debug)]
pub struct CaptionedDataset {
    images: ImageDataset,
    usage: CaptionUse,
    /// Distinct captions of the images of this part.
    texts: Vec<String>,
    /// Token ids of each caption in `texts`.
    ids: Vec<Vec<u32>>,
    /// For each image of the split, the indices of its captions in `texts`. They have no meaning
    /// for images outside this part.
    of_images: Vec<Vec<u32>>,
    longest: usize,
    report: CaptionReport,
}

/// Prepares the training and validation images of a run, and their captions.
///
/// # Errors
///
/// Any fault of configuration, images, captions, tokenizer or disk, see [`Error`].
pub fn prepare_captions(
    usage: CaptionUse,
    config: &DataConfig,
    run: &Path,
) -> Result<Prepared<CaptionedDataset>> {
    config.validate()?;
    validate(config)?;
    let (train, validation) = open_images(config, run)?;
    let tokenizers = TokenizerPair::load_or_train(run, || train_tokenizer(config))?;
    let dataset_of =
        |images| CaptionedDataset::new(usage, config, tokenizers.target(), images).map(Arc::new);
    Ok(Prepared {
        train: dataset_of(train)?,
        validation: validation.map(dataset_of).transpose()?,
        tokenizers: tokenizers.clone(),
    })
}

impl CaptionedDataset {
    /// Opens a whole split, to measure a model on it.
    ///
    /// # Errors
    ///
    /// If a file is missing or not of its format.
    pub fn read(
        usage: CaptionUse,
        config: &DataConfig,
        tokenizer: &Tokenizer,
        split: &Corpora,
    ) -> Result<Self> {
        Self::new(usage, config, tokenizer, ImageDataset::read(config, split)?)
    }

    fn new(
        usage: CaptionUse,
        config: &DataConfig,
        tokenizer: &Tokenizer,
        mut images: ImageDataset,
    ) -> Result<Self> {
        let (mut texts, mut numbers) = (Vec::<String>::new(), HashMap::<String, u32>::new());
        let mut number = |text: String| {
            *numbers.entry(text).or_insert_with_key(|text| {
                texts.push(text.clone());
                texts.len() as u32 - 1
            })
        };
        let captions = captions(config, images.images())?.into_iter();
        let all: Vec<Vec<u32>> =
            captions.map(|texts| texts.into_iter().map(&mut number).collect()).collect();
        let ids = tokenizer.encode_batch(&texts)?;
        let fits = |caption: &u32| ids[*caption as usize].len() <= config.captions.max_tokens;
        let before = images.len();
        let counted = |captions_of_images: &[Vec<u32>], images: &ImageDataset| -> u64 {
            images.part().iter().map(|&image| captions_of_images[image].len() as u64).sum()
        };
        let read = counted(&all, &images);
        let mut of_images: Vec<Vec<u32>> =
            all.into_iter().map(|captions| captions.into_iter().filter(fits).collect()).collect();
        let kept = counted(&of_images, &images);
        images.retain(&config.batching, |image| !of_images[image].is_empty());
        if images.is_empty() {
            let message = format!(
                "is {}, but every caption of the split {:?} has more tokens",
                config.captions.max_tokens,
                images.images().name()
            );
            return Err(Error::Config { key: "data.captions.max_tokens", message });
        }
        let used = renumber(&mut of_images, images.part(), texts.len());
        let texts: Vec<String> = used.iter().map(|&at| texts[at].clone()).collect();
        let ids: Vec<Vec<u32>> = used.iter().map(|&at| ids[at].clone()).collect();
        let longest = ids.iter().map(Vec::len).max().unwrap_or(0);
        let unknown = |row: &Vec<u32>| row.iter().filter(|&&id| tokenizer.is_unknown(id)).count();
        let mut report = CaptionReport {
            images: images.image_report().clone(),
            captions: kept,
            different: texts.len(),
            left_out: read - kept,
            images_left_out: before - images.len(),
            unknown: ids.iter().map(|row| unknown(row) as u64).sum(),
            tokenizer_hash: tokenizer.hash().to_owned(),
        };
        let batching = &mut report.images.batching;
        let longest = longest + if usage == CaptionUse::Compared { 2 } else { 1 };
        *batching = BatchingReport {
            largest_source_tokens: batching.largest_target_tokens,
            longest_source: batching.longest_target,
            largest_target_tokens: batching.largest_sentences * longest,
            longest_target: longest,
            ..*batching
        };
        Ok(Self { images, usage, texts, ids, of_images, longest, report })
    }

    /// The number of images.
    pub fn len(&self) -> usize {
        self.images.len()
    }

    /// True if there is no image.
    pub fn is_empty(&self) -> bool {
        self.images.is_empty()
    }

    /// Class of each image; 0 for images without classes.
    pub fn classes(&self) -> Vec<u32> {
        self.images.classes()
    }

    /// Distinct captions, and for each image the indices of its captions in this list.
    pub fn captions(&self) -> (&[String], Vec<&[u32]>) {
        let captions_of_image = |&image: &usize| self.of_images[image].as_slice();
        (&self.texts, self.images.part().iter().map(captions_of_image).collect())
    }

    /// Pixel values of images as they are in their files, each from 0 to 255. `places` are indices
    /// of images in this part.
    ///
    /// # Errors
    ///
    /// If an image can no longer be read.
    pub fn values(&self, places: &[usize]) -> Result<Vec<Vec<u32>>> {
        let numbers: Vec<usize> = places.iter().map(|&place| self.images.part()[place]).collect();
        let pixels = self.images.pixels(&numbers, None)?;
        Ok(pixels.into_iter().map(|image| image.into_iter().map(u32::from).collect()).collect())
    }

    /// A batch of images and captions.
    fn batch(&self, images: &[Vec<u8>], captions: &[&[u32]]) -> Batch {
        let (mut values, mut text) = (Stream::default(), Stream::default());
        let (mut asked, mut answers) = (Vec::new(), Vec::new());
        for (image, caption) in images.iter().zip(captions) {
            values.push(image.iter().map(|&value| u32::from(value)));
            let begun = [START].into_iter().chain(caption.iter().copied());
            match self.usage {
                CaptionUse::Written => {
                    text.push(begun);
                    answers.extend(caption.iter().copied().chain([END]));
                }
                CaptionUse::Compared => {
                    text.push(begun.chain([END]));
                    asked.push(text.ids.len() as u32 - 1);
                    // The correct image of a caption is the image with the same index in the batch,
                    // so this answer is only a placeholder.
                    answers.push(0);
                }
            }
        }
        let asked = (self.usage == CaptionUse::Compared).then_some(asked);
        let indices = vec![0; images.len()];
        Batch { streams: vec![values, text], asked, answers, indices, ..Batch::default() }
    }
}

/// Renumbers captions, so that only the captions of the images in `part` have numbers. The new
/// numbers are 0, 1, 2 and so on, in the order in which the captions first occur in `part`.
///
/// `of_images` has the numbers of each image's captions; the function replaces them by the new
/// numbers. All old numbers are below `count`. Returns the old number of each caption that has a
/// new number, in the order of the new numbers.
fn renumber(of_images: &mut [Vec<u32>], part: &[usize], count: usize) -> Vec<usize> {
    let mut place = vec![None; count];
    let mut used = Vec::new();
    for &image in part {
        for caption in &mut of_images[image] {
            let before = *caption as usize;
            *caption = *place[before].get_or_insert_with(|| {
                used.push(before);
                used.len() as u32 - 1
            });
        }
    }
    used
}

impl Dataset for CaptionedDataset {
    fn plan(self: Arc<Self>, batching: &BatchingConfig, epoch: Epoch) -> Box<dyn EpochPlan> {
        let batches = self.images.batches(batching, epoch);
        Box::new(Plan { data: self, batches })
    }

    fn report(&self) -> Report<'_> {
        Report::Captions(&self.report)
    }

    fn longest_row(&self) -> usize {
        self.longest
    }

    fn most_tokens(&self) -> usize {
        self.images.most_tokens()
    }

    fn largest_batch(&self, tokens: usize) -> Batch {
        let images = self.images.largest_batch(tokens);
        let (values, lengths) = images.stream(0);
        let image = vec![0; values.len() / lengths.len().max(1)];
        let marks = if self.usage == CaptionUse::Compared { 2 } else { 1 };
        let caption = vec![END; self.longest - marks];
        let count = lengths.len();
        self.batch(&vec![image; count], &vec![caption.as_slice(); count])
    }
}

/// The batches of one epoch.
struct Plan {
    data: Arc<CaptionedDataset>,
    batches: ImageBatches,
}

impl EpochPlan for Plan {
    fn batches(&self) -> usize {
        self.batches.len()
    }

    fn batch(&self, batch: usize) -> Result<Batch> {
        let (data, batches) = (&self.data, &self.batches);
        let (images, pixels) = batches.read(&data.images, batch)?;
        let draws = batches.epoch.draws(CHOICE);
        let captions = images.iter().map(|&image| {
            let choices = &data.of_images[image];
            let chosen = (draws.unit(image as u64) * choices.len() as f64) as usize;
            data.ids[choices[chosen] as usize].as_slice()
        });
        let indices = images.iter().map(|image| image + 1).collect();
        Ok(Batch { indices, ..data.batch(&pixels, &captions.collect::<Vec<_>>()) })
    }
}
