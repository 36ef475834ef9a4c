//! Division of a text without validation and test sets into training, validation and test sets.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use taper_data::DataConfig;

use super::corpus::{Corpus, CorpusFacts, number_of};

/// Largest number of distinct sources in the validation set, and in the test set.
const MOST: usize = 1000;
/// The validation set and the test set each have the number of distinct sources in the corpus,
/// divided by this number, but at most [`MOST`].
const SHARE: usize = 20;

/// Names of the splits. The sources with the lowest hashes belong to `val`, those with the next
/// higher hashes to `test`, and all others to `train`.
pub(super) const SPLITS: [&str; 3] = ["val", "test", "train"];

/// Number of distinct sources in the validation set, and in the test set, for a corpus with
/// `sources` distinct sources.
fn size(sources: usize) -> usize {
    (sources / SHARE).min(MOST)
}

/// Divides `corpus` into `train`, `val` and `test` in the new folder `folder`, and returns the part
/// of a recipe (configuration of a training) that reads them.
///
/// All pairs with the same source are in the same split, so no source of validation or test occurs
/// in the training text.
///
/// # Errors
/// If the corpus is too small or cannot be read, or the folder exists already or cannot be written
/// to.
pub(super) fn divide(
    corpus: &Corpus,
    facts: &CorpusFacts,
    languages: &[String; 2],
    folder: &Path,
) -> Result<DataConfig> {
    let limits = limits(&facts.sources, facts.pairs, folder)?;
    let written = write(corpus, languages, folder, limits);
    if written.is_err() {
        // The first error is returned. The folder is removed, because incomplete splits are
        // useless.
        let _ = fs::remove_dir_all(folder);
    }
    written?;
    Ok(DataConfig {
        dir: folder.to_owned(),
        source_language: languages[0].clone(),
        target_language: languages[1].clone(),
        validation: SPLITS[0].into(),
        test: SPLITS[1].into(),
        train: SPLITS[2].into(),
        ..DataConfig::default()
    })
}

/// Divides lines into `train`, `val` and `test` in the new folder `folder`. Each line is paired
/// with the hash of its source, which determines the split. The names of the files end in `ending`.
///
/// # Errors
/// See [`divide`].
pub(super) fn divide_lines(lines: &[(u64, String)], folder: &Path, ending: &str) -> Result<()> {
    let mut hashes: Vec<u64> = lines.iter().map(|(hash, _)| *hash).collect();
    hashes.sort_unstable();
    hashes.dedup();
    let limits = limits(&hashes, lines.len() as u64, folder)?;
    let write = || -> Result<()> {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        for (split, name) in SPLITS.into_iter().enumerate() {
            let of_split = lines.iter().filter(|(hash, _)| split_of(*hash, limits) == split);
            let text: String = of_split.map(|(_, line)| line.as_str()).collect();
            let path = folder.join(format!("{name}.{ending}"));
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    };
    let written = write();
    if written.is_err() {
        let _ = fs::remove_dir_all(folder);
    }
    written
}

/// Largest hash in the validation set, and largest hash in the test set. `hashes` has the distinct
/// hashes of all examples, in ascending order. `count` is the number of examples, for the message.
///
/// # Errors
/// If there are too few examples, or `folder` exists already.
fn limits(hashes: &[u64], count: u64, folder: &Path) -> Result<[u64; 2]> {
    let held_out = size(hashes.len());
    ensure!(
        held_out != 0,
        "{count} examples are too few to learn from and to be tested with; a model needs some \
             thousands"
    );
    ensure!(
        !folder.exists(),
        "{} exists already and is left as it is: name another folder for the divided text",
        folder.display()
    );
    // Hashes are independent of content, so the sources with the smallest hashes are a random
    // sample.
    Ok([hashes[held_out - 1], hashes[2 * held_out - 1]])
}

/// Index in [`SPLITS`] of the split to which an example with this hash belongs.
fn split_of(hash: u64, limits: [u64; 2]) -> usize {
    limits.iter().position(|&limit| hash <= limit).unwrap_or(limits.len())
}

/// Writes the files of the splits. `limits` has the largest hash in the validation set, and the
/// largest hash in the test set.
fn write(corpus: &Corpus, languages: &[String; 2], folder: &Path, limits: [u64; 2]) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let mut files = Vec::new();
    for split in SPLITS {
        for language in languages {
            let path = folder.join(format!("{split}.{language}"));
            let file =
                File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
            files.push(BufWriter::new(file));
        }
    }
    let failed = || format!("cannot write to {}", folder.display());
    for pair in corpus.pairs(languages)? {
        let sides = pair?;
        let split = split_of(number_of(&sides[0]), limits);
        for (file, text) in files[2 * split..].iter_mut().zip(&sides) {
            // A field of a table can contain line breaks; in the files, each sentence is one line.
            let text = text.replace(['\n', '\r'], " ");
            writeln!(file, "{text}").with_context(failed)?;
        }
    }
    for file in &mut files {
        file.flush().with_context(failed)?;
    }
    Ok(())
}

/// Removes the folder of a divided text if the recipe for which it was divided is not written, so
/// that the same command can be repeated. If the recipe is written, nothing is removed.
#[derive(Debug, Default)]
pub(super) struct Unused(Option<PathBuf>);

impl Unused {
    /// Removes `folder`, which this process has made, unless [`Self::keep`] is called. `None`:
    /// no folder was made.
    pub(super) fn new(folder: Option<PathBuf>) -> Self {
        Self(folder)
    }

    /// Keeps the folder, and returns it.
    pub(super) fn keep(mut self) -> Option<PathBuf> {
        self.0.take()
    }
}

impl Drop for Unused {
    fn drop(&mut self) {
        if let Some(folder) = &self.0 {
            // The first error is reported. The next attempt reports a folder that is still there.
            let _ = fs::remove_dir_all(folder);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use taper_data::{FieldsConfig, read_pairs};

    use super::*;

    #[test]
    fn no_source_stands_in_two_splits_and_no_pair_is_lost() {
        let folder = tempfile::tempdir().expect("folder");
        let path = |name: &str| folder.path().join(name);
        let lines = |word: &str| -> String {
            // Each source occurs three times, with different translations.
            (0..900)
                .map(|at| format!("{word} {}\n", if word == "s" { at % 300 } else { at }))
                .collect()
        };
        fs::write(path("a.txt"), lines("s")).expect("text");
        fs::write(path("b.txt"), lines("t")).expect("text");
        let corpus = Corpus::from_files(&[path("a.txt"), path("b.txt")], FieldsConfig::default())
            .expect("corpus");
        let languages = ["xx", "yy"].map(str::to_owned);
        let facts = corpus.look(&languages).expect("readable");
        assert_eq!((facts.pairs, facts.sources.len()), (900, 300));
        let config = divide(&corpus, &facts, &languages, &path("divided")).expect("divided");
        let mut earlier = BTreeSet::new();
        let mut pairs = 0;
        for (split, sources) in [("val", 15), ("test", 15), ("train", 270)] {
            let read = read_pairs(&config, split).expect("a split");
            pairs += read.len();
            let sources_of_split: BTreeSet<String> =
                read.into_iter().map(|pair| pair.source).collect();
            assert_eq!(sources_of_split.len(), sources, "{split}");
            assert!(sources_of_split.is_disjoint(&earlier), "{split}");
            earlier.extend(sources_of_split);
        }
        assert_eq!(pairs, 900);
        let again = divide(&corpus, &facts, &languages, &path("divided")).expect_err("it is there");
        assert!(again.to_string().contains("exists already"), "{again}");
    }
}
