//! Captions of images, found by the same search as translations.

use std::path::PathBuf;

use anyhow::{Context, Result};
use taper_data::{END, Pixels, TokenizerPair};
use taper_decoding::{Control, DecodingConfig, DecodingError, NumberedSources, Translator};
use taper_model::ImageCaptioner;

use super::{values, values_of};
use crate::LoadedRun;
use crate::config::RunConfig;
use crate::items::answer_each;
use crate::translation::{Translation, as_text, for_the_best};

/// Number of images in one batch.
const TOGETHER: usize = 64;

/// Settings of the search for captions, from the configuration of a model. The length of a caption
/// is limited by `data.captions.max_tokens`, because an image has no length to which the limit
/// could be proportional.
pub(crate) fn caption_search(config: &RunConfig) -> DecodingConfig {
    DecodingConfig {
        max_length_ratio: 0.0,
        max_length_offset: config.data.captions.max_tokens,
        ..for_the_best(&config.decoding)
    }
}

/// Best caption of each of `count` images. `read` returns the pixel values of the images with the
/// given indices. `progress` receives the number of images that have captions so far. `control` can
/// cancel images; then the result is an error.
///
/// # Errors
/// If an image cannot be read, or the search or the tokenizer fails.
pub(crate) fn describe(
    model: &ImageCaptioner,
    tokenizers: &TokenizerPair,
    search: &DecodingConfig,
    (count, read): (usize, impl Fn(&[usize]) -> Result<Vec<Vec<u32>>> + Sync),
    control: &dyn Control,
    mut progress: impl FnMut(usize),
) -> Result<Vec<Translation>> {
    let inference = model.translation().inference();
    let read = |numbers: &[usize]| {
        // The search returns only errors of its own type, so the error and its causes become one
        // text.
        read(numbers).map_err(|error| DecodingError::model("read images", format!("{error:#}")))
    };
    let numbered = NumberedSources::new(&inference, read);
    let sources: Vec<Vec<u32>> = (0..count as u32).map(|number| vec![number, END]).collect();
    let captions = Translator::new(&numbered, search.clone())?
        .controlled(control)
        .translate_with(&sources, |chunk| progress(chunk.sentences_done))?;
    let best = |hypotheses: Vec<_>| {
        let best = hypotheses.into_iter().next().context("a search without a result")?;
        as_text(best, tokenizers)
    };
    captions.into_iter().map(best).collect()
}

/// Best caption of each PNG or JPEG file. Images are scaled to the size of the images in training.
/// The result for any other file is an error. `progress` receives the number of files that are done
/// so far.
///
/// # Errors
/// If the model fails.
pub fn describe_images(
    run: &LoadedRun<ImageCaptioner>,
    files: &[PathBuf],
    mut progress: impl FnMut(usize),
) -> Result<Vec<Result<Translation>>> {
    let search = caption_search(&run.config);
    let mut captions = Vec::with_capacity(files.len());
    for files in files.chunks(TOGETHER) {
        let images = files.iter().map(|file| values_of(file, &run.config.data.images));
        let before = captions.len();
        captions.extend(answer_each(images, |images| {
            let read = |places: &[usize]| Ok(places.iter().map(|&at| images[at].clone()).collect());
            let images = (images.len(), read);
            let progress = |done| progress(before + done);
            describe(&run.model, &run.tokenizers, &search, images, &(), progress)
        })?);
        progress(captions.len());
    }
    Ok(captions)
}

/// Best caption of each image, whose pixels are already scaled to the size of the images in
/// training.
///
/// # Errors
/// If the model fails.
pub fn describe_pixels(
    run: &LoadedRun<ImageCaptioner>,
    images: Vec<Pixels>,
) -> Result<Vec<Translation>> {
    let images: Vec<Vec<u32>> = images.into_iter().map(values).collect();
    let read = |places: &[usize]| Ok(places.iter().map(|&at| images[at].clone()).collect());
    let search = caption_search(&run.config);
    describe(&run.model, &run.tokenizers, &search, (images.len(), read), &(), |_| {})
}
