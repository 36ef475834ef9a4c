//! The files of a run: where each one is, and when a folder may be used.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use taper_data::split_name;
use taper_trainer::{AVERAGED, BEST, Checkpoints, LAST, State, read_state};

use super::quoted::quoted;
use super::run_lock::LOCK_FILE;
use crate::config::RunConfig;
use crate::config::paths::{absolute, moved};
use crate::folder::files::write_atomically;

/// A run on disk.
#[derive(Debug, Clone)]
pub struct RunFolder {
    root: PathBuf,
}

impl RunFolder {
    /// Names the folder without touching it.
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// An existing run.
    ///
    /// # Errors
    /// When there is no folder, or it holds no config.toml.
    pub fn open(root: &Path) -> Result<Self> {
        let folder = Self::new(root);
        if !root.is_dir() {
            bail!(
                "{}: no such run; `taper train CONFIG --run {}` would make it",
                root.display(),
                root.display()
            );
        }
        if !folder.config().is_file() {
            let shown = root.display();
            match Self::around(root) {
                Some(run) => bail!(
                    "{shown}: a checkpoint, not a run: name {}, and the checkpoint with \
                     --checkpoint, or with --from to resume",
                    run.root.display()
                ),
                None => bail!("{shown}: not a run: it has no config.toml"),
            }
        }
        Ok(folder)
    }

    /// The run in which the checkpoint folder `path` lies, if it is one: RUN/checkpoints/NAME.
    pub fn around(path: &Path) -> Option<Self> {
        let path =
            path.canonicalize().ok().filter(|path| path.join("model.safetensors").is_file())?;
        Some(Self::new(path.ancestors().nth(2)?)).filter(|run| run.config().is_file())
    }

    /// The weights at `path`, the folder of a run, of which they are the default ones, or of a
    /// checkpoint; and the run that they are of.
    ///
    /// # Errors
    /// When it is neither, or the run has no usable checkpoint.
    pub fn of_weights(path: &Path) -> Result<(Self, PathBuf)> {
        if let Some(run) = Self::around(path) {
            return Ok((run, path.to_owned()));
        }
        let run = Self::open(path)?;
        let checkpoint = run.checkpoint(None)?;
        Ok((run, checkpoint))
    }

    /// Whether something is there already. What a process leaves that is killed before it has
    /// written the configuration is nothing.
    pub fn exists(&self) -> bool {
        let is_something = |entry: std::io::Result<fs::DirEntry>| match entry {
            Ok(entry) => {
                entry.file_name() != LOCK_FILE && entry.file_name() != "config.toml.partial"
            }
            Err(_) => true,
        };
        self.root.is_file()
            || (self.root.is_dir()
                && fs::read_dir(&self.root).map_or(true, |mut entries| entries.any(is_something)))
    }

    /// Clears up what processes that were killed have left half written. Only for the process that
    /// holds the lock.
    ///
    /// # Errors
    /// When the folder cannot be read or written.
    pub fn recover(&self) -> Result<()> {
        Checkpoints::new(&self.checkpoints()).recover()?;
        let own = ["", "cache", "text", "translations"].map(|name| self.root.join(name));
        // Where text is tokenised in parts.
        let parts = fs::read_dir(&own[1]).into_iter().flatten().flatten();
        let parts = parts.map(|entry| entry.path()).filter(|path| path.is_dir());
        let parts: Vec<PathBuf> = parts.collect();
        for folder in own.into_iter().chain(parts) {
            let Ok(entries) = fs::read_dir(&folder) else { continue };
            for path in entries.flatten().map(|entry| entry.path()) {
                if path.extension().is_some_and(|extension| extension == "partial") {
                    fs::remove_file(&path)
                        .with_context(|| format!("cannot remove {}", path.display()))?;
                }
            }
        }
        Ok(())
    }

    /// Removes what a call that came to nothing has written, and the folder unless it was `found`.
    /// Only for the process that holds the lock.
    ///
    /// # Errors
    /// When something cannot be removed.
    pub fn remove(&self, found: bool) -> Result<()> {
        for entry in fs::read_dir(&self.root)? {
            let path = entry?.path();
            if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) }
                .with_context(|| path.display().to_string())?;
        }
        if !found {
            fs::remove_dir(&self.root)?;
        }
        Ok(())
    }

    /// The folder itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The folder itself, from the root of the file system.
    pub(crate) fn absolute_root(&self) -> PathBuf {
        absolute(Path::new(""), &self.root)
    }

    /// The resolved configuration.
    pub fn config(&self) -> PathBuf {
        self.root.join("config.toml")
    }

    /// The data report.
    pub fn data_report(&self) -> PathBuf {
        self.root.join("data.json")
    }

    /// The record of the training.
    pub fn metrics(&self) -> PathBuf {
        self.root.join("metrics.jsonl")
    }

    /// The folder of the checkpoints.
    pub fn checkpoints(&self) -> PathBuf {
        self.root.join("checkpoints")
    }

    /// Scores of the test sets, written when training ends.
    pub fn scores(&self) -> PathBuf {
        self.root.join("scores.json")
    }

    /// Translations of a test set, written when training ends.
    pub fn translations(&self, split: &str) -> PathBuf {
        self.root.join("translations").join(format!("{}.txt", split_name(split)))
    }

    /// Reads the run's configuration.
    ///
    /// # Errors
    /// As [`RunConfig::load`].
    pub fn load_config(&self, overrides: &[String]) -> Result<RunConfig> {
        RunConfig::load_of_run(&self.config(), overrides)
    }

    /// Writes the resolved configuration.
    ///
    /// # Errors
    /// When the folder cannot be written to.
    pub fn save_config(&self, config: &RunConfig) -> Result<()> {
        let mut config = config.clone();
        config.data = moved(&config.data, &self.absolute_root(), Path::new(""));
        write_atomically(&self.config(), config.to_toml()?.as_bytes())
    }

    /// Whether a checkpoint has been saved.
    ///
    /// # Errors
    /// When the checkpoints cannot be listed.
    pub fn has_checkpoint(&self) -> Result<bool> {
        Ok(self.checkpoints().is_dir() && !Checkpoints::new(&self.checkpoints()).list()?.is_empty())
    }

    /// What the last checkpoint has recorded; nothing where there is none yet.
    ///
    /// # Errors
    /// When it, or the pointer to it, cannot be read.
    pub fn last_state(&self) -> Result<Option<State>> {
        let last = Checkpoints::new(&self.checkpoints()).find(LAST)?;
        Ok(last.map(|checkpoint| read_state(&checkpoint)).transpose()?)
    }

    /// The checkpoint called `name`: best, last, average or a path; without a
    /// name, the first of average, best and last that exists. An average that was made before the
    /// run went on does not count.
    ///
    /// # Errors
    /// When there is none, saying what to do; or a pointer is damaged.
    pub fn checkpoint(&self, name: Option<&str>) -> Result<PathBuf> {
        let root = self.checkpoints();
        let checkpoints = Checkpoints::new(&root);
        match name {
            Some("average" | "averaged") => checkpoints.resolve(AVERAGED).with_context(|| {
                format!(
                    "no averaged weights; make them with `taper average {}`",
                    self.root.display()
                )
            }),
            Some(name) if name.contains(['/', '\\']) => {
                let path = PathBuf::from(name);
                if !path.is_dir() {
                    bail!("no such folder");
                }
                Ok(path)
            }
            Some(name) => Ok(checkpoints.resolve(name)?),
            None => {
                if let Some(averaged) = checkpoints.find(AVERAGED)? {
                    let state = read_state(&averaged).with_context(|| {
                        format!(
                            "make the average again with `taper average {}`, or choose other \
                             weights with --checkpoint",
                            self.root.display()
                        )
                    })?;
                    // What an interruption has left is not averaged where there is anything else.
                    let newest = checkpoints
                        .list()?
                        .iter()
                        .rev()
                        .find(|saved| !saved.interim)
                        .map_or(0, |saved| saved.step);
                    if state.step >= newest {
                        return Ok(averaged);
                    }
                }
                if let Some(best) = checkpoints.find(BEST)? {
                    return Ok(best);
                }
                let Some(last) = checkpoints.find(LAST)? else {
                    bail!(
                        "{} has no checkpoint yet; `taper resume {}` trains on",
                        self.root.display(),
                        quoted(&self.root)
                    )
                };
                Ok(last)
            }
        }
    }
}
