//! Fingerprints of the files of a split, which show whether the files have changed. They are
//! recorded in the folder of a run (the folder that a training writes), so that unchanged files
//! need not be read again.
//!
//! The SHA-256 of the content identifies a text. The size of a file and the time of its last
//! modification only avoid reading: a file with the recorded size and time counts as unchanged, and
//! any other file is read. A file that was modified shortly before it was read is always read
//! again, because the clock of the file system may be so coarse that a later modification gets the
//! same time.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::file_names::{hexadecimal, is_archive, split_name};
use crate::files::{read_regular, write_atomically};
use crate::text::lines::open_stream;
use crate::{Error, Result};

/// Coarsest resolution of the clocks of file systems in use (2 seconds, in FAT), with a margin.
const GRAIN: Duration = Duration::from_secs(4);

/// Largest number of bytes of a recorded fingerprint.
const MOST_BYTES: u64 = 1 << 24;

/// Folder of the recorded fingerprints within a run.
pub(crate) const TEXT_FOLDER: &str = "text";

/// State that a file had when its content was hashed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Stamp {
    path: PathBuf,
    bytes: u64,
    modified: SystemTime,
    /// True if the last modification was more than [`GRAIN`] before the file was read. Then any
    /// later modification gives another value of `modified`.
    settled: bool,
}

/// Files of a split, and the hash of their content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fingerprint {
    files: Vec<Stamp>,
    /// SHA-256 of the content of all files together.
    pub(crate) text_hash: String,
    /// True if compressed files were hashed after decompression. Earlier versions hashed the
    /// compressed bytes.
    #[serde(default)]
    decompressed: bool,
}

impl Fingerprint {
    /// Takes the fingerprint of files. They are read unless `known` shows that they are unchanged.
    fn take(paths: &[PathBuf], known: Option<&Self>) -> Result<Self> {
        let now = SystemTime::now();
        let files = paths.iter().map(|path| stamp(path, now)).collect::<Result<Vec<Stamp>>>()?;
        if let Some(known) = known
            && known.files == files
            && files.iter().all(|file| file.settled)
        {
            return Ok(known.clone());
        }
        if let Some(known) = known.filter(|known| !known.decompressed)
            && hash_files(&files, false)? == known.text_hash
        {
            return Ok(Self { files, ..known.clone() });
        }
        let text_hash = hash_files(&files, true)?;
        Ok(Self { files, text_hash, decompressed: true })
    }

    /// Takes the fingerprint of the files of a split, and records it in the folder `run`.
    pub(crate) fn obtain(files: &[PathBuf], split: &str, run: &Path) -> Result<Self> {
        let directory = &run.join(TEXT_FOLDER);
        let path = directory.join(file_name(split));
        let known = Self::recorded(&path);
        let taken = Self::take(files, known.as_ref())?;
        if known.as_ref() != Some(&taken) {
            std::fs::create_dir_all(directory).map_err(|error| Error::io(directory, error))?;
            let json = serde_json::to_vec_pretty(&taken)
                .map_err(|error| Error::io(&path, std::io::Error::other(error)))?;
            write_atomically(&path, &json)?;
        }
        Ok(taken)
    }

    /// Refuses a text that has changed since the fingerprint was taken.
    ///
    /// # Errors
    /// [`Error::Changed`] if the text has changed, and [`Error::Io`] if a file can no longer be
    /// read.
    pub(crate) fn still_holds(&self) -> Result<()> {
        let paths: Vec<PathBuf> = self.files.iter().map(|file| file.path.clone()).collect();
        let now = Self::take(&paths, Some(self))?;
        if now.text_hash == self.text_hash {
            return Ok(());
        }
        let files: Vec<String> =
            now.files.iter().map(|file| file.path.display().to_string()).collect();
        Err(Error::Changed { files: files.join(" and ") })
    }

    /// Checks like [`Fingerprint::still_holds`], but reads the files only if the size or the time
    /// of one of them has changed.
    ///
    /// # Errors
    /// See [`Fingerprint::still_holds`].
    pub(crate) fn seems_to_hold(&self) -> Result<()> {
        let now = SystemTime::now();
        for file in &self.files {
            let Stamp { bytes, modified, .. } = stamp(&file.path, now)?;
            if (bytes, modified) != (file.bytes, file.modified) {
                return self.still_holds();
            }
        }
        Ok(())
    }

    /// Takes a fingerprint like [`Fingerprint::obtain`], but does not record it, because another
    /// process does so.
    pub(crate) fn compute(files: &[PathBuf], split: &str, run: &Path) -> Result<Self> {
        Self::take(files, Self::recorded(&run.join(TEXT_FOLDER).join(file_name(split))).as_ref())
    }

    /// Recorded fingerprint; `None` if the record cannot be read. It is then made again.
    fn recorded(path: &Path) -> Option<Self> {
        serde_json::from_slice(&read_regular(path, MOST_BYTES).ok()?).ok()
    }

    fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }
}

/// Describes how the files of a split differ from the files with which the run in the folder `run`
/// was prepared. `None` if they do not differ, or if the split has no recorded fingerprint. Writes
/// nothing.
///
/// # Errors
///
/// If a file is missing or cannot be read.
pub(crate) fn change(
    split: &str,
    files: impl FnOnce() -> Result<Vec<PathBuf>>,
    run: &Path,
) -> Result<Option<String>> {
    let Some(known) = Fingerprint::recorded(&run.join(TEXT_FOLDER).join(file_name(split))) else {
        return Ok(None);
    };
    let now = Fingerprint::take(&files()?, Some(&known))?;
    if now.text_hash == known.text_hash {
        return Ok(None);
    }
    let names: Vec<String> = now.files.iter().map(|file| file.path.display().to_string()).collect();
    let size = match (known.bytes(), now.bytes()) {
        (before, after) if before == after => format!("other text of the same {after} bytes"),
        (before, after) => format!("{after} bytes, but was {before}"),
    };
    Ok(Some(format!("split {split:?} ({}) is {size}", names.join(", "))))
}

/// SHA-256 of the text of a split with which the run in the folder `run` was last prepared; `None`
/// if it is not recorded.
pub fn recorded_text(run: &Path, split: &str) -> Option<String> {
    let record = Fingerprint::recorded(&run.join(TEXT_FOLDER).join(file_name(split)))?;
    Some(record.text_hash)
}

/// File name of a split's recorded fingerprint.
fn file_name(split: &str) -> String {
    format!("{}.json", split_name(split))
}

fn stamp(path: &Path, now: SystemTime) -> Result<Stamp> {
    let metadata = std::fs::metadata(path).map_err(|error| Error::io(path, error))?;
    let modified = metadata.modified().map_err(|error| Error::io(path, error))?;
    let settled = now.duration_since(modified).is_ok_and(|age| age > GRAIN);
    let (modified, settled) = if modified < SystemTime::UNIX_EPOCH {
        // Times before 1970 cannot be recorded. So the recorded time could not show that the text
        // is unchanged.
        (SystemTime::UNIX_EPOCH, false)
    } else {
        (modified, settled)
    };
    Ok(Stamp { path: path.to_owned(), bytes: metadata.len(), modified, settled })
}

/// Hash of the content of files, one after another. If `decompressed` is true, compressed files are
/// decompressed first.
fn hash_files(files: &[Stamp], decompressed: bool) -> Result<String> {
    let mut digest = Sha256::new();
    let mut buffer = vec![0; 1 << 18];
    for Stamp { path, .. } in files {
        // An archive is hashed as it is, because it may contain several texts.
        let mut file: Box<dyn Read> = match decompressed && !is_archive(path) {
            true => Box::new(open_stream(path)?),
            false => Box::new(File::open(path).map_err(|error| Error::io(path, error))?),
        };
        let mut length = 0_u64;
        loop {
            match file.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => {
                    length += count as u64;
                    digest.update(&buffer[..count]);
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::io(path, error)),
            }
        }
        // The hash must change if bytes move from the end of one file to the beginning of the next.
        digest.update(length.to_le_bytes());
    }
    Ok(hexadecimal(&digest.finalize()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: &Path, text: &str, modified: SystemTime) {
        std::fs::write(path, text).expect("write");
        File::options()
            .write(true)
            .open(path)
            .and_then(|file| file.set_modified(modified))
            .expect("set the time");
    }

    #[test]
    fn content_decides_and_time_only_spares_reading() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let (source, target, run) = (
            folder.path().join("train.en"),
            folder.path().join("train.de"),
            folder.path().join("run"),
        );
        let files = [source.clone(), target.clone()];
        let changes = || change("train", || Ok(files.to_vec()), &run).expect("readable");
        let obtain = || Fingerprint::obtain(&files, "train", &run).expect("taken");
        let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        write(&source, "one\n", long_ago);
        write(&target, "eins\n", long_ago);
        assert_eq!(changes(), None, "nothing recorded");
        let first = obtain();

        // The time is new, but the content is the same: the file is read, and no change is found.
        write(&source, "one\n", long_ago + GRAIN);
        assert_eq!(changes(), None, "touched");
        // The content has changed, but not the time and size of the file, so the file is not read,
        // and the change is not noticed. This is the cost of avoiding reads.
        write(&source, "two\n", long_ago);
        assert_eq!(changes(), None, "not read");
        // The same change with any other time is noticed.
        write(&source, "two\n", long_ago + GRAIN);
        let said = changes().expect("changed");
        assert!(said.contains("train.en") && said.contains("same 9 bytes"), "{said}");
        write(&source, "three\n", long_ago);
        let said = changes().expect("changed");
        assert!(said.contains("11 bytes, but was 9"), "{said}");
        let second = obtain();
        assert_ne!(first.text_hash, second.text_hash);
        // A file from a moment ago is always read.
        write(&source, "four!\n", SystemTime::now());
        let fresh = obtain();
        assert!(fresh.files.iter().any(|file| !file.settled));
        assert_ne!(fresh.text_hash, second.text_hash);
        // An error is returned if a text has changed since its fingerprint was taken.
        fresh.still_holds().expect("the same");
        let message = second.still_holds().expect_err("changed").to_string();
        assert!(message.contains("train.en") && message.contains("while"), "{message}");
    }
}
