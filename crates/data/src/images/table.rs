//! Tables of captions. Each line is the path of a PNG or JPEG file, a tab, and a caption of the
//! picture.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::{Images, Pixels};
use crate::tasks::running_text::reader::corpus_files;
use crate::{Corpus, DataConfig, Error, ImagesConfig, LineReader, Result};

/// Endings that are tried after the configured name of a table.
const ENDINGS: [&str; 2] = ["", ".tsv"];

/// Returns the paths of the tables of a corpus, and then the path of each picture, without
/// repetitions.
///
/// # Errors
///
/// If the table or a picture is missing, or a line has no path or caption.
pub(super) fn files(config: &DataConfig, corpus: &Corpus) -> Result<Vec<PathBuf>> {
    let mut files = corpus_files(config, corpus, &ENDINGS)?;
    let pictures = read(&files)?.0;
    files.extend(pictures);
    Ok(files)
}

/// Pictures in the order in which they first occur in the tables, each with its captions.
fn read(tables: &[PathBuf]) -> Result<(Vec<PathBuf>, Vec<Vec<String>>)> {
    let mut numbers: HashMap<PathBuf, usize> = HashMap::new();
    let (mut pictures, mut captions) = (Vec::new(), Vec::<Vec<String>>::new());
    for table in tables {
        let folder = table.parent().unwrap_or_else(|| Path::new(""));
        let mut lines = LineReader::open(table)?;
        while let Some(line) = lines.next_line()? {
            if line.trim().is_empty() {
                continue;
            }
            let wrong = |message: &str| Error::Record {
                path: table.clone(),
                unit: "line",
                line: lines.line(),
                message: message.to_owned(),
            };
            let Some((path, caption)) = line.split_once('\t') else {
                return Err(wrong("has no tab; expected the path of an image, a tab, a caption"));
            };
            if caption.contains('\t') {
                let message = "has more than one tab; expected the path of an image, a tab, and a \
                               caption without any";
                return Err(wrong(message));
            }
            if path.is_empty() || caption.trim().is_empty() {
                return Err(wrong("has an empty path or caption"));
            }
            let path = folder.join(path);
            let number = *numbers.entry(path.clone()).or_insert_with(|| {
                pictures.push(path);
                captions.push(Vec::new());
                captions.len() - 1
            });
            let known = &mut captions[number];
            if !known.iter().any(|other| other == caption) {
                known.push(caption.to_owned());
            }
        }
    }
    if let Some(path) = pictures.iter().find(|path| !path.is_file()) {
        let hint = "a table of captions names it; paths are relative to the table's folder";
        let (tried, hint) = (String::new(), hint.to_owned());
        return Err(Error::Missing { path: path.clone(), tried, hint });
    }
    Ok((pictures, captions))
}

/// The images of a table, with their captions.
#[derive(Debug)]
pub(super) struct TableImages {
    paths: Vec<PathBuf>,
    captions: Vec<Vec<String>>,
    /// 0 for each image, because images with captions have no classes.
    classes: Vec<u32>,
    settings: ImagesConfig,
}

/// Reads the table. A picture is decoded only when it is needed.
///
/// # Errors
///
/// The errors of [`files`].
pub(super) fn open(config: &DataConfig, corpus: &Corpus) -> Result<TableImages> {
    let (paths, captions) = read(&corpus_files(config, corpus, &ENDINGS)?)?;
    let classes = vec![0; paths.len()];
    Ok(TableImages { paths, captions, classes, settings: config.images.clone() })
}

impl Images for TableImages {
    fn classes(&self) -> &[u32] {
        &self.classes
    }

    fn captions(&self, image: usize) -> &[String] {
        &self.captions[image]
    }

    fn read(&self, image: usize, pixels: &mut Vec<u8>) -> Result<()> {
        *pixels = Pixels::of_file(&self.paths[image], &self.settings)?.0;
        Ok(())
    }
}
