//! Folders of PNG and JPEG files, one folder for each class.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Images, Pixels};
use crate::{Corpus, DataConfig, Error, ImagesConfig, Result};

/// Endings of the names of image files.
const ENDINGS: [&str; 3] = ["png", "jpg", "jpeg"];

/// Files of a corpus with their classes, sorted by class and then by name.
///
/// # Errors
///
/// [`Error::Missing`] if the folder of the corpus or of a class does not exist, and
/// [`Error::Malformed`] if there is a folder that is not a class or a file that is not an image.
pub(super) fn files(config: &DataConfig, corpus: &Corpus) -> Result<Vec<(PathBuf, u32)>> {
    let folder = if corpus.stem.is_empty() {
        corpus.file.first_path().to_owned()
    } else {
        config.dir.join(&corpus.stem)
    };
    let labels = &config.images.labels;
    let hint = "it should have a folder for each of data.images.labels, with PNG or JPEG files";
    if !folder.is_dir() {
        let (tried, hint) = (String::new(), hint.to_owned());
        return Err(Error::Missing { path: folder, tried, hint });
    }
    for entry in entries(&folder)? {
        let name = entry.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if entry.is_dir() && !labels.contains(&name) {
            let message = format!("is not a class: data.images.labels has {}", labels.join(", "));
            return Err(Error::Malformed { path: entry, message });
        }
    }
    let mut files = Vec::new();
    for (class, label) in labels.iter().enumerate() {
        let of_class = folder.join(label);
        if !of_class.is_dir() {
            let (tried, hint) = (String::new(), hint.to_owned());
            return Err(Error::Missing { path: of_class, tried, hint });
        }
        for path in entries(&of_class)? {
            let ending = path.extension().map(|ending| ending.to_string_lossy().to_lowercase());
            if !ending.is_some_and(|ending| ENDINGS.contains(&ending.as_str())) {
                let message = "is not an image: expected .png, .jpg or .jpeg".to_owned();
                return Err(Error::Malformed { path, message });
            }
            files.push((path, class as u32));
        }
    }
    Ok(files)
}

/// Entries of a folder that are not hidden, sorted by name.
fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let failed = |error| Error::io(folder, error);
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.file_name().is_some_and(|name| name.as_encoded_bytes()[0] != b'.') {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

/// Images of a corpus of folders.
#[derive(Debug)]
pub(super) struct FolderImages {
    paths: Vec<PathBuf>,
    classes: Vec<u32>,
    settings: ImagesConfig,
}

/// Lists the files of a corpus. A picture is decoded only when it is needed.
///
/// # Errors
///
/// The errors of [`files`].
pub(super) fn open(config: &DataConfig, corpus: &Corpus) -> Result<FolderImages> {
    let (paths, classes) = files(config, corpus)?.into_iter().unzip();
    Ok(FolderImages { paths, classes, settings: config.images.clone() })
}

impl Images for FolderImages {
    fn classes(&self) -> &[u32] {
        &self.classes
    }

    fn read(&self, image: usize, pixels: &mut Vec<u8>) -> Result<()> {
        *pixels = Pixels::of_file(&self.paths[image], &self.settings)?.0;
        Ok(())
    }
}
