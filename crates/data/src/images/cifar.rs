//! The binary format of CIFAR-10 and CIFAR-100 (Krizhevsky 2009). Each image is a label (CIFAR-10)
//! or a coarse and a fine label (CIFAR-100), followed by three planes of 32 x 32 pixels.

use std::path::{Path, PathBuf};

use super::Images;
use super::records::Records;
use crate::tasks::running_text::reader::corpus_files;
use crate::{Corpus, DataConfig, Error, ImageFormat, Result};

const SIDE: usize = 32;
const PIXELS: usize = 3 * SIDE * SIDE;

/// The path of the file of a corpus.
///
/// # Errors
///
/// [`Error::Missing`] if there is no such file, with the names that were tried, and
/// [`Error::Malformed`] if the corpus is a folder.
pub(super) fn file(config: &DataConfig, corpus: &Corpus) -> Result<PathBuf> {
    let mut files = corpus_files(config, corpus, &["", ".bin"])?;
    match (files.pop(), files.pop()) {
        (Some(file), None) => Ok(file),
        (file, _) => Err(Error::Malformed {
            path: file.as_deref().and_then(Path::parent).unwrap_or(Path::new("")).to_owned(),
            message: "is a folder: name each file of it, as in [\"data_batch_1\", \
                      \"data_batch_2\"]"
                .to_owned(),
        }),
    }
}

/// Images of one CIFAR file.
#[derive(Debug)]
pub(super) struct CifarImages {
    records: Records,
    /// Number of labels before the pixels of an image; only the last label is used.
    labels: usize,
    classes: Vec<u32>,
}

/// Opens the file of a corpus, and reads the label of each image.
///
/// # Errors
///
/// If the file is missing, if its size is not a multiple of the size of one image, if the
/// configured size is not 32 x 32 pixels in three channels, or if a label is not in
/// `data.images.labels`.
pub(super) fn open(config: &DataConfig, corpus: &Corpus) -> Result<CifarImages> {
    let settings = &config.images;
    let path = file(config, corpus)?;
    let malformed = |message: String| Error::Malformed { path: path.clone(), message };
    if (settings.size, settings.channels) != (SIDE, 3) {
        return Err(malformed(format!(
            "has images of 32 x 32 pixels in 3 channels, but data.images.size is {} and \
             data.images.channels {}",
            settings.size, settings.channels
        )));
    }
    let labels = if settings.format == ImageFormat::Cifar100 { 2 } else { 1 };
    let record = labels + PIXELS;
    let records = Records::open(&path, record, |_, length| match length {
        Some(length) if length % record as u64 == 0 => Ok(length),
        Some(length) => Err(malformed(format!(
            "has {length} bytes, which is no multiple of an image's {record}: it is cut off, \
             or of another format"
        ))),
        None => {
            Err(malformed("is compressed, and does not say how long it is: unpack it".to_owned()))
        }
    })?;
    let count = (records.length() / record as u64) as usize;
    let mut classes = Vec::with_capacity(count);
    let mut label = Vec::with_capacity(1);
    for image in 0..count {
        records.read((image * record + labels - 1) as u64, 1, &mut label)?;
        match usize::from(label[0]) {
            class if class < settings.labels.len() => classes.push(class as u32),
            class => {
                let message = format!(
                    "has label {class}, but data.images.labels names {} classes",
                    settings.labels.len()
                );
                return Err(Error::Record { path, unit: "image", line: image as u64 + 1, message });
            }
        }
    }
    Ok(CifarImages { records, labels, classes })
}

impl Images for CifarImages {
    fn classes(&self) -> &[u32] {
        &self.classes
    }

    fn read(&self, image: usize, pixels: &mut Vec<u8>) -> Result<()> {
        let at = image * (self.labels + PIXELS) + self.labels;
        self.records.read(at as u64, PIXELS, pixels)
    }
}
