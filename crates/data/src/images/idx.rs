//! The IDX format of MNIST (LeCun et al. 1998) and of its drop-in replacements. A corpus is a file
//! of images and a file of labels.

use std::path::{Path, PathBuf};

use super::Images;
use super::records::Records;
use crate::{Corpus, DataConfig, Error, Result};

/// First bytes of a file of images: two zeros, 8 for unsigned bytes, and the number of dimensions.
const IMAGES: [u8; 4] = [0, 0, 8, 3];
/// First bytes of a file of labels, which has one dimension.
const LABELS: [u8; 4] = [0, 0, 8, 1];
/// Number of bytes before the first image.
const IMAGES_HEADER: usize = 16;
/// Number of bytes before the first label.
const LABELS_HEADER: usize = 8;

/// Endings that follow the name of the split in the names of the two files.
const NAMES: [[&str; 2]; 2] =
    [["-images-idx3-ubyte", "-labels-idx1-ubyte"], ["-images.idx3-ubyte", "-labels.idx1-ubyte"]];

/// The file of images and the file of labels of a corpus.
///
/// # Errors
///
/// [`Error::Missing`] if there is no such file, with the names that were tried.
pub(super) fn files(config: &DataConfig, corpus: &Corpus) -> Result<[PathBuf; 2]> {
    let with = |path: &Path, ending: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(ending);
        PathBuf::from(name)
    };
    let base = if corpus.stem.is_empty() {
        corpus.file.first_path().to_owned()
    } else {
        config.dir.join(&corpus.stem)
    };
    let name = base.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let candidates = NAMES.iter().flat_map(|[images, labels]| {
        let whole = name
            .contains(images)
            .then(|| [base.clone(), base.with_file_name(name.replace(images, labels))]);
        let of_stem = ["", ".gz"]
            .map(|end| [images, labels].map(|name| with(&base, &format!("{name}{end}"))));
        whole.into_iter().chain(of_stem)
    });
    let is_there = |pair: &[PathBuf; 2]| pair.iter().all(|path| path.is_file());
    candidates.into_iter().find(is_there).ok_or_else(|| Error::Missing {
        path: with(&base, NAMES[0][0]),
        tried: format!(" with {name}{} beside it (nor either with .gz)", NAMES[0][1]),
        hint: "set data.dir to the folder with both, and data.train to the part of their names \
               before -images; or fetch the images with one of scripts/fetch"
            .to_owned(),
    })
}

/// Images of an IDX file.
#[derive(Debug)]
pub(super) struct IdxImages {
    images: Records,
    /// Number of bytes of an image.
    bytes: usize,
    classes: Vec<u32>,
}

/// Opens the two files of a corpus, and reads the label of each image.
///
/// # Errors
///
/// If a file is missing, cut off or of another format, if the numbers of images and labels differ,
/// if the size of the images is not `data.images.size`, or if a label is not among
/// `data.images.labels`.
pub(super) fn open(config: &DataConfig, corpus: &Corpus) -> Result<IdxImages> {
    let settings = &config.images;
    let [images_path, labels_path] = files(config, corpus)?;
    let malformed =
        |path: &Path, message: String| Error::Malformed { path: path.to_owned(), message };
    if settings.channels != 1 {
        return Err(malformed(
            &images_path,
            format!("has one channel: set data.images.channels = 1, not {}", settings.channels),
        ));
    }
    let mut count = 0;
    let images = Records::open(&images_path, IMAGES_HEADER, |header, _| {
        require_magic(&images_path, header, IMAGES)?;
        let [number, rows, columns] = [4, 8, 12].map(|at| word(header, at));
        if [rows, columns] != [settings.size as u64; 2] {
            return Err(malformed(
                &images_path,
                format!(
                    "has images of {rows} x {columns} pixels, but data.images.size is {}",
                    settings.size
                ),
            ));
        }
        count = number;
        // Each factor is below 2^32, so the product is below 2^96.
        let pixels = u128::from(number) * u128::from(rows) * u128::from(columns);
        u64::try_from(pixels + IMAGES_HEADER as u128)
            .map_err(|_| malformed(&images_path, "declares more pixels than a file has".to_owned()))
    })?;
    let labels = Records::open(&labels_path, LABELS_HEADER, |header, _| {
        require_magic(&labels_path, header, LABELS)?;
        let number = word(header, 4);
        if number != count {
            return Err(malformed(
                &labels_path,
                format!("has {number} labels for the {count} images of {}", images_path.display()),
            ));
        }
        Ok(number + LABELS_HEADER as u64)
    })?;
    let mut bytes = Vec::new();
    // `count` is not too large to read at once: it equals the number of images, which was compared
    // with the length of the file of images.
    labels.read(LABELS_HEADER as u64, count as usize, &mut bytes)?;
    let class = |(index, &label): (usize, &u8)| match usize::from(label) {
        listed if listed < settings.labels.len() => Ok(u32::from(label)),
        _ => Err(Error::Record {
            path: labels_path.clone(),
            unit: "label",
            line: index as u64 + 1,
            message: format!(
                "is {label}, but data.images.labels names {} classes",
                settings.labels.len()
            ),
        }),
    };
    let classes = bytes.iter().enumerate().map(class).collect::<Result<_>>()?;
    Ok(IdxImages { images, bytes: settings.size * settings.size, classes })
}

/// Refuses a file whose `header` does not begin with the bytes `expected`.
fn require_magic(path: &Path, header: &[u8], expected: [u8; 4]) -> Result<()> {
    if header.starts_with(&expected) {
        return Ok(());
    }
    let message = format!(
        "begins with {:02x?}, but an IDX file of bytes in {} dimension(s) begins with \
         {expected:02x?}",
        &header[..4],
        expected[3]
    );
    Err(Error::Malformed { path: path.to_owned(), message })
}

/// Number in the four bytes from `at` on, the highest byte first.
fn word(header: &[u8], at: usize) -> u64 {
    header[at..at + 4].iter().fold(0, |sum, &byte| sum << 8 | u64::from(byte))
}

impl Images for IdxImages {
    fn classes(&self) -> &[u32] {
        &self.classes
    }

    fn read(&self, image: usize, pixels: &mut Vec<u8>) -> Result<()> {
        let at = IMAGES_HEADER as u64 + image as u64 * self.bytes as u64;
        self.images.read(at, self.bytes, pixels)
    }
}
