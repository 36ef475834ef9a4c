//! Files of pairs that are made from translations, with the origin of each pair.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::cache::checksum;
use crate::folder::files::{put_in_place, with_suffix, write_atomically};
use crate::translation::order::hex;
use crate::translation::single_line;

/// File with the description of the pairs ([`MadePairs`]). It is written last, so it shows that the
/// pairs are complete.
const RECORD: &str = "made.json";
/// File with the origin, line and score of each pair.
const ORIGINS: &str = "train.origins.tsv";

/// Numbers of pairs with one origin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OriginCount {
    /// Origin: `original`, or the name of the run (folder of the trained model) that made the
    /// pairs.
    pub origin: String,
    /// Number of pairs that were written.
    pub pairs: u64,
    /// Number of pairs that were omitted as repetitions.
    pub duplicates: u64,
    /// Number of pairs that were omitted because the source or the target is empty.
    pub empty: u64,
}

/// Description of the files of pairs in a folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MadePairs {
    /// Hash of the command, texts, weights and settings with which the pairs were made.
    pub identity: String,
    /// Names of the source file and of the target file in the folder.
    pub files: [String; 2],
    /// SHA-256 of the source file, of the target file, and of the file of origins.
    pub sha256: Vec<String>,
    /// Numbers of pairs for each origin.
    pub origins: Vec<OriginCount>,
}

impl MadePairs {
    /// Checks the files of the pairs in `folder`, and returns the description of the pairs; `None`
    /// if the folder has no complete pairs.
    ///
    /// # Errors
    /// If the folder has pairs with another identity, or damaged files.
    pub(super) fn find(folder: &Path, identity: &str) -> Result<Option<Self>> {
        let path = folder.join(RECORD);
        if !path.exists() {
            return Ok(None);
        }
        let text = taper_data::read_regular(&path, 1 << 20)?;
        let record: Self = serde_json::from_slice(&text)
            .with_context(|| format!("{} is damaged", path.display()))?;
        ensure!(
            record.identity == identity,
            "{} has pairs that were made with other weights, settings or text, and is left as \
                 it is: name another folder",
            folder.display()
        );
        for (name, known) in record.names().zip(&record.sha256) {
            ensure!(
                checksum(&folder.join(name)).is_ok_and(|sum| sum == *known),
                "{} is not what {} says: remove both, and they are made again",
                folder.join(name).display(),
                path.display()
            );
        }
        Ok(Some(record))
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.files.iter().map(String::as_str).chain([ORIGINS])
    }
}

/// Names of the source file and of the target file of pairs in these languages. If both sides have
/// the same language, the names say which side a file has.
pub(crate) fn file_names([source, target]: [&str; 2]) -> [String; 2] {
    match source == target {
        true => ["source", "target"].map(|side| format!("train.{source}.{side}")),
        false => [source, target].map(|language| format!("train.{language}")),
    }
}

/// Hash of `parts`, which must have everything on which the pairs depend.
pub(super) fn identity(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part.as_bytes());
    }
    hex(&hash.finalize())
}

/// Writer of the files of pairs in a folder.
pub(super) struct PairWriter {
    folder: PathBuf,
    identity: String,
    files: [String; 2],
    /// Writers of sources, targets and origins.
    writers: Vec<BufWriter<File>>,
    origins: Vec<OriginCount>,
    /// Hashes of the pairs written so far; `None` if repeated pairs are written, too.
    seen: Option<HashSet<[u8; 16]>>,
}

impl PairWriter {
    /// Begins the [files](file_names) in `folder`. If `is_set`, repeated pairs are omitted.
    ///
    /// # Errors
    /// If the folder cannot be written to.
    pub(super) fn begin(
        folder: &Path,
        identity: String,
        languages: [&str; 2],
        is_set: bool,
    ) -> Result<Self> {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let files = file_names(languages);
        let create = |name: &str| {
            let path = with_suffix(&folder.join(name), ".part");
            let file = File::create(&path);
            file.map(BufWriter::new).with_context(|| format!("cannot write {}", path.display()))
        };
        let names = [files[0].as_str(), files[1].as_str(), ORIGINS];
        let writers = names.into_iter().map(create).collect::<Result<_>>()?;
        let seen = is_set.then(HashSet::new);
        let origins = Vec::new();
        Ok(Self { folder: folder.to_owned(), identity, files, writers, origins, seen })
    }

    /// Sets the origin of the pairs that are added next.
    pub(super) fn origin(&mut self, origin: String) {
        self.origins.push(OriginCount { origin, pairs: 0, duplicates: 0, empty: 0 });
    }

    /// Adds a pair, or counts it if it is omitted. `line` is the number of the line from which the
    /// pair was made, counted from 1. `score` is the score of the translation, if there is one.
    ///
    /// # Errors
    /// If writing fails.
    pub(super) fn push(
        &mut self,
        [source, target]: [&str; 2],
        line: usize,
        score: Option<f64>,
    ) -> Result<()> {
        let Some(count) = self.origins.last_mut() else { bail!("pairs without an origin") };
        // A text from a table, such as CSV, can contain line ends; in these files, each text is one
        // line.
        let [source, target] = [source, target].map(|text| single_line(text.to_owned()));
        if source.trim().is_empty() || target.trim().is_empty() {
            count.empty += 1;
            return Ok(());
        }
        if let Some(seen) = &mut self.seen {
            let digest = Sha256::digest(format!("{source}\n{target}"));
            let mut short = [0; 16];
            short.copy_from_slice(&digest[..16]);
            if !seen.insert(short) {
                count.duplicates += 1;
                return Ok(());
            }
        }
        count.pairs += 1;
        let score = score.map_or_else(String::new, |score| format!("{score:.4}"));
        let origin = format!("{}\t{line}\t{score}", count.origin);
        for (to, text) in self.writers.iter_mut().zip([&source, &target, &origin]) {
            writeln!(to, "{text}").context("cannot write pairs")?;
        }
        Ok(())
    }

    /// Counts a pair that the caller omits as a repetition.
    pub(super) fn duplicate(&mut self) {
        if let Some(count) = self.origins.last_mut() {
            count.duplicates += 1;
        }
    }

    /// Gives the files their final names, and writes their description.
    ///
    /// # Errors
    /// If writing fails.
    pub(super) fn finish(self) -> Result<MadePairs> {
        let Self { folder, identity, files, writers, origins, .. } = self;
        let mut record = MadePairs { identity, files, sha256: Vec::new(), origins };
        let names: Vec<PathBuf> = record.names().map(|name| folder.join(name)).collect();
        for (writer, path) in writers.into_iter().zip(&names) {
            let file = writer.into_inner().map_err(std::io::IntoInnerError::into_error);
            file.and_then(|file| put_in_place(&file, &with_suffix(path, ".part"), path))
                .with_context(|| format!("cannot write {}", path.display()))?;
            record.sha256.push(checksum(path)?);
        }
        write_atomically(&folder.join(RECORD), &serde_json::to_vec_pretty(&record)?)?;
        Ok(record)
    }
}
