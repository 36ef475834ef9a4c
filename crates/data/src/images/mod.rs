//! Reads images on disk one by one, so that all images together may be larger than the memory.
//!
//! The readers of `candle-datasets` are not used, because they read whole uncompressed files into
//! tensors, and this crate has no tensors. Here each image is read when it is needed: from its
//! place in a file of records, or from its own file, which is then decoded. Only the content of a
//! compressed file of records is held in memory, decompressed.

pub(crate) mod augmentation;
mod cifar;
mod folders;
mod idx;
mod jpeg;
mod metadata;
mod picture;
mod png;
mod preparation;
mod raster;
mod records;
mod resampling;
mod resize;
mod table;
#[cfg(test)]
mod tests;

use std::fmt::Debug;
use std::path::PathBuf;

pub use self::png::write_png;
pub use picture::Pixels;
pub use resampling::Resampling;
pub use resize::Resize;

use crate::{Corpora, DataConfig, Error, ImageFormat, Result};

/// Images of a corpus or split, each with a class or with captions.
pub(crate) trait Images: Debug + Send + Sync {
    /// Class of each image, in order; 0 for images with captions.
    fn classes(&self) -> &[u32];

    /// Captions of an image; empty for images with classes.
    fn captions(&self, _image: usize) -> &[String] {
        &[]
    }

    /// Reads the values of the image with the index `image` into `pixels`: channel by channel, row
    /// by row.
    ///
    /// # Errors
    ///
    /// If the image cannot be read, or the file is not an image.
    fn read(&self, image: usize, pixels: &mut Vec<u8>) -> Result<()>;
}

/// The paths of the files of a split.
///
/// # Errors
///
/// [`Error::Missing`] if there is no such file, with the names that were tried. Other errors if the
/// files of a corpus cannot be listed.
pub(crate) fn files(config: &DataConfig, split: &Corpora) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for corpus in split.iter() {
        match config.images.format {
            ImageFormat::Idx => files.extend(idx::files(config, corpus)?),
            ImageFormat::Cifar10 | ImageFormat::Cifar100 => {
                files.push(cifar::file(config, corpus)?)
            }
            ImageFormat::Folders => {
                let of_classes = folders::files(config, corpus)?;
                files.extend(of_classes.into_iter().map(|(path, _)| path));
            }
            ImageFormat::Table => files.extend(table::files(config, corpus)?),
        }
    }
    Ok(files)
}

/// Images of a split, corpus after corpus.
///
/// # Errors
///
/// If a file is missing or has another format, or there is no image.
pub(crate) fn open(config: &DataConfig, split: &Corpora) -> Result<Split> {
    let mut corpora: Vec<Box<dyn Images>> = Vec::new();
    for corpus in split.iter() {
        corpora.push(match config.images.format {
            ImageFormat::Idx => Box::new(idx::open(config, corpus)?),
            ImageFormat::Cifar10 | ImageFormat::Cifar100 => Box::new(cifar::open(config, corpus)?),
            ImageFormat::Folders => Box::new(folders::open(config, corpus)?),
            ImageFormat::Table => Box::new(table::open(config, corpus)?),
        });
    }
    let mut split = Split { corpora, classes: Vec::new(), name: split.name() };
    for corpus in &split.corpora {
        split.classes.extend_from_slice(corpus.classes());
    }
    if split.classes.is_empty() {
        let files = files(config, &config.split(&split.name))?;
        let files: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
        return Err(Error::EmptyImages { split: split.name, files: files.join(", ") });
    }
    Ok(split)
}

/// Images of several corpora.
#[derive(Debug)]
pub(crate) struct Split {
    corpora: Vec<Box<dyn Images>>,
    classes: Vec<u32>,
    name: String,
}

impl Split {
    /// Name of the split.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

impl Images for Split {
    fn classes(&self) -> &[u32] {
        &self.classes
    }

    fn captions(&self, image: usize) -> &[String] {
        let (corpus, image) = self.place(image);
        corpus.captions(image)
    }

    fn read(&self, image: usize, pixels: &mut Vec<u8>) -> Result<()> {
        let (corpus, image) = self.place(image);
        corpus.read(image, pixels)
    }
}

impl Split {
    /// The corpus with an image, and the image's index in this corpus.
    fn place(&self, mut image: usize) -> (&dyn Images, usize) {
        for corpus in &self.corpora {
            match image.checked_sub(corpus.classes().len()) {
                None => return (&**corpus, image),
                Some(further) => image = further,
            }
        }
        unreachable!("an image of the split")
    }
}
