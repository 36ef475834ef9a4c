//! Images with their classes, and batches of them.

use std::path::Path;
use std::sync::Arc;

use rayon::prelude::*;

use super::report::ImageReport;
use crate::draws::Draws;
use crate::images::augmentation::augment;
use crate::images::{Images, Split, files, open};
use crate::text::fingerprint::Fingerprint;
use crate::{
    Batch, BatchingConfig, BatchingReport, Corpora, DataConfig, Dataset, Epoch, EpochPlan, Error,
    Format, ImageFormat, ImagesConfig, Prepared, Report, Result, Stream, TokenizerPair,
};

/// Purpose number of the random draws that put images in order (see [`crate::Draws::new`]).
const ORDER: u64 = 10;
/// Purpose number of the random draws that divide the training split into training and validation
/// images.
const DIVISION: u64 = 11;

/// Refuses settings that are impossible for images. `captioned` is true if the images have
/// captions.
///
/// # Errors
///
/// [`Error::Config`], with the offending key, if a setting is impossible.
pub(crate) fn validate(config: &DataConfig, captioned: bool) -> Result<()> {
    let wrong = |key, message: &str| Err(Error::Config { key, message: message.to_owned() });
    if config.hold_out > 0 {
        return wrong("data.hold_out", "is for sentence pairs; images have data.images.hold_out");
    }
    if config.text.hold_out > 0.0 {
        return wrong(
            "data.text.hold_out",
            "is for running text; images have data.images.hold_out",
        );
    }
    if config.images.hold_out > 0 && !config.validation.is_empty() {
        return wrong(
            "data.images.hold_out",
            "draws the validation images from the training split, but data.validation names \
             some: set one of the two to 0 or \"\"",
        );
    }
    let instead = "images are a name in data.dir, or { file = \"PATH\" }";
    config.train.require_plain("data.train", instead)?;
    config.validation.require_plain("data.validation", instead)?;
    config.test.require_plain("data.test", instead)?;
    for (key, split) in [
        ("data.train", &config.train),
        ("data.validation", &config.validation),
        ("data.test", &config.test),
    ] {
        if split.iter().any(|corpus| corpus.file.len() > 1) {
            return wrong(
                key,
                "names several files of one corpus; for images, each is a separate corpus: [{ \
                 file = \"A\" }, { file = \"B\" }]",
            );
        }
    }
    if config.images.format == ImageFormat::Table && !captioned {
        return wrong("data.images.format", "is \"table\", which has captions and no labels");
    }
    if config.format != Format::Text {
        return wrong("data.format", "is for text; images have data.images.format");
    }
    Ok(())
}

/// Images of a split, or of a part of it.
#[derive(Debug)]
pub struct ImageDataset {
    images: Arc<Split>,
    /// Indices of the images of this part.
    part: Vec<usize>,
    settings: ImagesConfig,
    /// True if images are changed at random (augmented), as in training.
    varies: bool,
    report: ImageReport,
}

/// Prepares the training and validation images of a run.
///
/// # Errors
///
/// Any fault of configuration, images or disk, see [`Error`].
pub fn prepare_images(config: &DataConfig, run: &Path) -> Result<Prepared<ImageDataset>> {
    config.validate()?;
    validate(config, false)?;
    let (train, validation) = open_images(config, run)?;
    Ok(Prepared {
        tokenizers: TokenizerPair::none(),
        train: Arc::new(train),
        validation: validation.map(Arc::new),
    })
}

/// Training images, and validation images, if there are any.
///
/// # Errors
///
/// If the images cannot be read, or if they change while they are read.
pub(crate) fn open_images(
    config: &DataConfig,
    run: &Path,
) -> Result<(ImageDataset, Option<ImageDataset>)> {
    let fingerprint =
        |split: &Corpora| Fingerprint::obtain(&files(config, split)?, &split.name(), run);
    let text = fingerprint(&config.train)?;
    let images = Arc::new(open(config, &config.train)?);
    text.still_holds()?;
    let (train, held_out) = divided(images.classes().len(), &config.images)?;
    let dataset = |images: &Arc<Split>, part, varies, text: &Fingerprint| {
        let mut dataset = ImageDataset::new(config, images.clone(), part, varies);
        dataset.report.text_hash.clone_from(&text.text_hash);
        dataset
    };
    let validation = if config.validation.is_empty() {
        (!held_out.is_empty()).then(|| dataset(&images, held_out, false, &text))
    } else {
        let text = fingerprint(&config.validation)?;
        let images = Arc::new(open(config, &config.validation)?);
        text.still_holds()?;
        let all = (0..images.classes().len()).collect();
        Some(dataset(&images, all, false, &text))
    };
    Ok((dataset(&images, train, true, &text), validation))
}

/// Indices of the training images, and of the held-out images.
fn divided(count: usize, settings: &ImagesConfig) -> Result<(Vec<usize>, Vec<usize>)> {
    if settings.hold_out >= count {
        return Err(Error::Config {
            key: "data.images.hold_out",
            message: format!(
                "is {}, but there are {count} training images: hold out fewer",
                settings.hold_out
            ),
        });
    }
    let mut order: Vec<usize> = (0..count).collect();
    if settings.hold_out > 0 || settings.fraction < 1.0 {
        Draws::new(settings.seed, 0, DIVISION).shuffle(&mut order);
    }
    let mut train = order.split_off(settings.hold_out);
    let kept = (settings.fraction * train.len() as f64).ceil() as usize;
    train.truncate(kept);
    train.sort_unstable();
    order.sort_unstable();
    Ok((train, order))
}

impl ImageDataset {
    /// Opens a whole split, to measure a model on it.
    ///
    /// # Errors
    ///
    /// If a file is missing or not of its format.
    pub fn read(config: &DataConfig, split: &Corpora) -> Result<Self> {
        let images = Arc::new(open(config, split)?);
        let all = (0..images.classes().len()).collect();
        Ok(Self::new(config, images, all, false))
    }

    fn new(config: &DataConfig, images: Arc<Split>, part: Vec<usize>, varies: bool) -> Self {
        Self::of_part(&config.batching, &config.images, &images, part, varies)
    }

    fn of_part(
        batching: &BatchingConfig,
        settings: &ImagesConfig,
        images: &Arc<Split>,
        part: Vec<usize>,
        varies: bool,
    ) -> Self {
        let (images, settings) = (images.clone(), settings.clone());
        let mut of_classes = vec![0; settings.labels.len()];
        for &image in &part {
            of_classes[images.classes()[image] as usize] += 1;
        }
        let mut report = ImageReport {
            split: images.name().to_owned(),
            images: part.len(),
            of_classes,
            size: settings.size,
            channels: settings.channels,
            ..ImageReport::default()
        };
        let most = batching.rows_of(settings.tokens());
        report.batching = BatchingReport::of_rows(
            part.len().div_ceil(most),
            most.min(part.len()),
            settings.tokens(),
        );
        Self { images, part, settings, varies, report }
    }

    /// Report of the split.
    pub(crate) fn image_report(&self) -> &ImageReport {
        &self.report
    }

    /// Images of the whole split.
    pub(crate) fn images(&self) -> &Split {
        &self.images
    }

    /// The number of images.
    pub fn len(&self) -> usize {
        self.part.len()
    }

    /// True if there is no image.
    pub fn is_empty(&self) -> bool {
        self.part.is_empty()
    }

    /// The class of each image.
    pub fn classes(&self) -> Vec<u32> {
        self.part.iter().map(|&image| self.images.classes()[image]).collect()
    }

    /// Indices of the images within their split.
    pub(crate) fn part(&self) -> &[usize] {
        &self.part
    }

    /// Keeps only the images for which `kept` is true. Its argument is the index of an image within
    /// the split.
    pub(crate) fn retain(&mut self, batching: &BatchingConfig, kept: impl Fn(usize) -> bool) {
        let part = self.part.iter().copied().filter(|&image| kept(image)).collect();
        let hash = std::mem::take(&mut self.report.text_hash);
        *self = Self::of_part(batching, &self.settings, &self.images, part, self.varies);
        self.report.text_hash = hash;
    }

    /// Indices of the images within their split, in the order of an epoch.
    fn order(&self, batching: &BatchingConfig, epoch: Epoch) -> Vec<usize> {
        let mut order = self.part.clone();
        if batching.shuffle {
            epoch.draws(ORDER).shuffle(&mut order);
        }
        order
    }

    /// Batches of an epoch.
    pub(crate) fn batches(&self, batching: &BatchingConfig, epoch: Epoch) -> ImageBatches {
        let (order, most) = (self.order(batching, epoch), self.most_images(batching));
        ImageBatches { order, most, epoch }
    }

    /// Largest number of images of a batch.
    fn most_images(&self, batching: &BatchingConfig) -> usize {
        batching.rows_of(self.settings.tokens())
    }

    /// Pixel values of the images with the indices `images` in the split. Training images are
    /// augmented for `epoch`; `None`: no image is augmented.
    ///
    /// # Errors
    ///
    /// If an image can no longer be read.
    pub(crate) fn pixels(&self, images: &[usize], epoch: Option<Epoch>) -> Result<Vec<Vec<u8>>> {
        let read = |&image: &usize| -> Result<Vec<u8>> {
            let mut pixels = Vec::new();
            self.images.read(image, &mut pixels)?;
            if let Some(epoch) = epoch.filter(|_| self.varies) {
                augment(&mut pixels, &self.settings, (epoch, image));
            }
            Ok(pixels)
        };
        images.par_iter().map(read).collect()
    }
}

/// Batch of images without classes. The ids are the values of pixels, from 0 to 255. The class of
/// an image is predicted at its first id.
pub fn batch_of_images(images: &[Vec<u8>]) -> Batch {
    let (mut stream, mut asked) = (Stream::default(), Vec::with_capacity(images.len()));
    for image in images {
        asked.push(stream.ids.len() as u32);
        stream.push(image.iter().map(|&value| u32::from(value)));
    }
    let (answers, indices) = (vec![0; images.len()], vec![0; images.len()]);
    Batch { streams: vec![stream], asked: Some(asked), answers, indices, ..Batch::default() }
}

impl Dataset for ImageDataset {
    fn plan(self: Arc<Self>, batching: &BatchingConfig, epoch: Epoch) -> Box<dyn EpochPlan> {
        let batches = self.batches(batching, epoch);
        Box::new(Plan { data: self, batches })
    }

    fn report(&self) -> Report<'_> {
        Report::Images(&self.report)
    }

    fn longest_row(&self) -> usize {
        self.settings.tokens()
    }

    fn most_tokens(&self) -> usize {
        self.part.len().saturating_mul(self.settings.tokens())
    }

    fn largest_batch(&self, tokens: usize) -> Batch {
        let image = vec![0; self.settings.values()];
        let most = self.report.batching.largest_sentences;
        let count = (tokens / self.settings.tokens()).clamp(1, most.max(1));
        batch_of_images(&vec![image; count])
    }
}

/// Images of the batches of an epoch.
pub(crate) struct ImageBatches {
    /// Indices of the images within their split, in the order of the epoch.
    order: Vec<usize>,
    /// Number of images of every batch but the last.
    most: usize,
    pub(crate) epoch: Epoch,
}

impl ImageBatches {
    pub(crate) fn len(&self) -> usize {
        self.order.len().div_ceil(self.most)
    }

    /// Images of a batch, with their values.
    ///
    /// # Errors
    ///
    /// If an image can no longer be read.
    pub(crate) fn read(
        &self,
        data: &ImageDataset,
        batch: usize,
    ) -> Result<(&[usize], Vec<Vec<u8>>)> {
        let first = batch * self.most;
        let images = &self.order[first..self.order.len().min(first + self.most)];
        Ok((images, data.pixels(images, Some(self.epoch))?))
    }
}

/// The batches of one epoch.
struct Plan {
    data: Arc<ImageDataset>,
    batches: ImageBatches,
}

impl EpochPlan for Plan {
    fn batches(&self) -> usize {
        self.batches.len()
    }

    fn batch(&self, batch: usize) -> Result<Batch> {
        let (images, pixels) = self.batches.read(&self.data, batch)?;
        let classes = self.data.images.classes();
        Ok(Batch {
            answers: images.iter().map(|&image| classes[image]).collect(),
            indices: images.iter().map(|image| image + 1).collect(),
            ..batch_of_images(&pixels)
        })
    }
}
