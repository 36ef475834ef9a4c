//! Copies, in memory, of the files that are needed to load a run (the folder that a training
//! writes). If a file is removed from the disk during training, it is written again from its copy.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::RunFolder;
use crate::folder::files::write_atomically;

/// Names of the tokenizer files of a run. They do not change during training.
pub(crate) const TOKENIZERS: [&str; 6] = [
    "tokenizer.json",
    "tokenizer.special.json",
    "tokenizer.source.json",
    "tokenizer.source.special.json",
    "tokenizer.target.json",
    "tokenizer.target.special.json",
];
/// Names of other files of a run that are written before the first update and do not change during
/// training.
const FILES: [&str; 4] = ["config.toml", "data.json", "commands.jsonl", "embeddings.tsv"];
/// Names of folders of a run that contain only files which do not change during training.
const FOLDERS: [&str; 1] = ["text"];

/// Copies of the files that a run has at the start of training.
#[derive(Debug)]
pub(crate) struct KeptFiles {
    root: PathBuf,
    /// Path of each file within the run, and its content.
    files: Vec<(PathBuf, Vec<u8>)>,
}

impl KeptFiles {
    /// Reads the files to be kept that exist in the run `folder`.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub(crate) fn read(folder: &RunFolder) -> Result<Self> {
        let root = folder.root().to_owned();
        let mut names: Vec<PathBuf> = FILES.iter().chain(&TOKENIZERS).map(PathBuf::from).collect();
        for name in FOLDERS {
            let entries = fs::read_dir(root.join(name)).into_iter().flatten().flatten();
            names.extend(entries.map(|entry| Path::new(name).join(entry.file_name())));
        }
        names.retain(|name| root.join(name).is_file());
        names.sort();
        let read = |name: PathBuf| {
            let path = root.join(&name);
            let bytes =
                fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            Ok((name, bytes))
        };
        let files = names.into_iter().map(read).collect::<Result<_>>()?;
        Ok(Self { root, files })
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Writes again the files that are missing from the run, and returns their names. Does nothing
    /// if the run's folder no longer exists.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub(crate) fn restore(&self) -> Result<Vec<String>> {
        let mut restored = Vec::new();
        if !self.root.is_dir() {
            return Ok(restored);
        }
        for (name, bytes) in &self.files {
            // If another process has put something else in place of a file, it is left there.
            if fs::symlink_metadata(self.root.join(name)).is_err() {
                write(&self.root, name, bytes)?;
                restored.push(name.display().to_string());
            }
        }
        Ok(restored)
    }

    /// Writes all files except the configuration into the folder `root`.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub(crate) fn copy_to(&self, root: &Path) -> Result<()> {
        let mut files = self.files.iter().filter(|(name, _)| name != Path::new("config.toml"));
        files.try_for_each(|(name, bytes)| write(root, name, bytes))
    }
}

fn write(root: &Path, name: &Path, bytes: &[u8]) -> Result<()> {
    let path = root.join(name);
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    write_atomically(&path, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_gone_is_written_again_and_what_is_there_is_left() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let root = folder.path().join("run");
        fs::create_dir_all(root.join("text")).expect("folder");
        let special = "tokenizer.special.json";
        for name in ["config.toml", "tokenizer.json", special, "text/train.json", "notes.txt"] {
            fs::write(root.join(name), name).expect("write");
        }
        let kept = KeptFiles::read(&RunFolder::new(&root)).expect("readable");
        assert!(kept.restore().expect("nothing to do").is_empty());
        fs::remove_dir_all(root.join("text")).expect("remove");
        for name in ["tokenizer.json", special, "notes.txt"] {
            fs::remove_file(root.join(name)).expect("remove");
        }
        fs::write(root.join("config.toml"), "edited").expect("write");
        let restored = ["text/train.json", "tokenizer.json", special];
        assert_eq!(kept.restore().expect("written"), restored);
        let read = |name: &str| fs::read_to_string(root.join(name)).expect("there");
        assert_eq!(read("tokenizer.json"), "tokenizer.json");
        assert_eq!(read("text/train.json"), "text/train.json");
        assert_eq!(read("config.toml"), "edited");
        assert!(!root.join("notes.txt").exists(), "no file of the run");
        let other = folder.path().join("other");
        kept.copy_to(&other).expect("written");
        assert!(other.join("text/train.json").is_file() && !other.join("config.toml").exists());
        // If the run's folder is missing, it is not made again.
        fs::remove_dir_all(&root).expect("remove");
        assert!(kept.restore().expect("nothing to do").is_empty() && !root.exists());
    }
}
