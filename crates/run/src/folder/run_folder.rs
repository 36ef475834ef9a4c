//! Folder of a run, to which a training writes: the paths of its files, and checks of whether it is
//! a run that can be used.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};
use taper_data::split_name;
use taper_trainer::{AVERAGED, BEST, Checkpoints, LAST, State, read_state};

use super::run_lock::{LOCK_FILE, RunLock};
use crate::advice::{Action, Advice, Resume, Setting, Start, Train, advised};
use crate::config::RunConfig;
use crate::config::paths::{absolute, moved};
use crate::event::RunObserver;
use crate::folder::files::write_atomically;

/// Folder of a run on disk.
#[derive(Debug, Clone)]
pub struct RunFolder {
    root: PathBuf,
}

impl RunFolder {
    /// Represents the folder `root` without any check; it need not exist.
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// Opens an existing run.
    ///
    /// # Errors
    /// When there is no folder at `root`, or it has no config.toml.
    pub fn open(root: &Path) -> Result<Self> {
        let folder = Self::new(root);
        if !root.is_dir() {
            let train = Train { run: Some(root.to_owned()), ..Train::default() };
            let error = anyhow!("{}: no such run", root.display());
            return Err(Advice::new(Action::Train(train), "would make it").about(error));
        }
        if !folder.config().is_file() {
            let shown = root.display();
            match Self::around(root) {
                Some(run) => {
                    let error = anyhow!(
                        "{shown}: a checkpoint, not a run: name {}, and the checkpoint separately",
                        run.root.display()
                    );
                    let resume =
                        Resume { run: run.root, from: Some(Start::Chosen), ..Resume::default() };
                    let advice = vec![
                        Advice::new(Action::Choose(Setting::Checkpoint), "loads it"),
                        Advice::new(Action::Resume(resume), "continues its training"),
                    ];
                    return Err(advised(error, advice));
                }
                None => bail!("{shown}: not a run: it has no config.toml"),
            }
        }
        Ok(folder)
    }

    /// Run that contains the checkpoint folder `path` (RUN/checkpoints/NAME); `None` if `path` is
    /// no checkpoint folder of a run.
    pub fn around(path: &Path) -> Option<Self> {
        let path =
            path.canonicalize().ok().filter(|path| path.join("model.safetensors").is_file())?;
        Some(Self::new(path.ancestors().nth(2)?)).filter(|run| run.config().is_file())
    }

    /// Run and checkpoint folder with the weights that `path` names. `path` is the folder of a
    /// checkpoint or the folder of a run. A run stands for its default checkpoint.
    ///
    /// # Errors
    /// When `path` is neither a checkpoint nor a run, or the run has no usable checkpoint.
    pub fn of_weights(path: &Path) -> Result<(Self, PathBuf)> {
        if let Some(run) = Self::around(path) {
            return Ok((run, path.to_owned()));
        }
        let run = Self::open(path)?;
        let checkpoint = run.checkpoint(None)?;
        Ok((run, checkpoint))
    }

    /// Whether the folder has any content, or a file is in its place. The lock and the incomplete
    /// configuration that a killed process may have left do not count.
    pub fn exists(&self) -> bool {
        let is_something = |entry: std::io::Result<fs::DirEntry>| match entry {
            Ok(entry) => {
                let name = entry.file_name().to_string_lossy().into_owned();
                let is_incomplete = name.starts_with("config.toml.") && name.ends_with(".partial");
                name != LOCK_FILE && !is_incomplete
            }
            Err(_) => true,
        };
        self.root.is_file()
            || (self.root.is_dir()
                && fs::read_dir(&self.root).map_or(true, |mut entries| entries.any(is_something)))
    }

    /// Removes incomplete files that killed processes have left. The calling process must hold the
    /// lock of the run.
    ///
    /// # Errors
    /// When the folder cannot be read or written.
    pub fn recover(&self) -> Result<()> {
        Checkpoints::new(&self.checkpoints()).recover()?;
        let folders = ["", "cache", "text", "translations"].map(|name| self.root.join(name));
        // Folders inside `cache`, for text that is tokenised in parts.
        let parts = fs::read_dir(&folders[1]).into_iter().flatten().flatten();
        let parts = parts.map(|entry| entry.path()).filter(|path| path.is_dir());
        let parts: Vec<PathBuf> = parts.collect();
        for folder in folders.into_iter().chain(parts) {
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

    /// Makes a run in this folder. `write` writes the files of the run, and must write the
    /// configuration last. After an error, the files are removed.
    ///
    /// # Errors
    /// When the folder cannot be made, another process holds its lock, or `write` fails.
    pub(crate) fn make(
        &self,
        observer: &mut dyn RunObserver,
        write: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let existed = self.root.is_dir();
        fs::create_dir_all(&self.root)
            .with_context(|| format!("cannot make {}", self.root.display()))?;
        let _lock = RunLock::acquire(&self.root, observer)?;
        write().inspect_err(|_| {
            // The error of `write` is returned. An incomplete run is of no use, so it is removed if
            // possible.
            let _ = self.remove(existed);
        })
    }

    /// Removes everything in the folder after a call that failed. Also removes the folder itself,
    /// unless `existed` says that it existed before the call. The calling process must hold the
    /// lock of the run.
    ///
    /// # Errors
    /// When a file or folder cannot be removed.
    pub fn remove(&self, existed: bool) -> Result<()> {
        for entry in fs::read_dir(&self.root)? {
            let path = entry?.path();
            if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) }
                .with_context(|| path.display().to_string())?;
        }
        if !existed {
            fs::remove_dir(&self.root)?;
        }
        Ok(())
    }

    /// Path of the folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Absolute path of the folder.
    pub(crate) fn absolute_root(&self) -> PathBuf {
        absolute(Path::new(""), &self.root)
    }

    /// Path of the complete configuration, config.toml.
    pub fn config(&self) -> PathBuf {
        self.root.join("config.toml")
    }

    /// Path of the report on the training data, data.json.
    pub fn data_report(&self) -> PathBuf {
        self.root.join("data.json")
    }

    /// Path of the record of the training, metrics.jsonl.
    pub fn metrics(&self) -> PathBuf {
        self.root.join("metrics.jsonl")
    }

    /// Path of the folder with the checkpoints.
    pub fn checkpoints(&self) -> PathBuf {
        self.root.join("checkpoints")
    }

    /// Makes the folder `cache`, in which commands that use the run remember the weights that they
    /// have verified.
    ///
    /// # Errors
    /// When the folder cannot be made.
    pub(crate) fn make_cache(&self) -> Result<()> {
        let cache = self.root.join("cache");
        fs::create_dir_all(&cache).with_context(|| format!("cannot make {}", cache.display()))
    }

    /// Path of the file that remembers which weights were verified last; `None` if the run has no
    /// folder `cache`, because reading a run makes no folders.
    pub(crate) fn verified_weights(&self) -> Option<PathBuf> {
        let cache = self.root.join("cache");
        cache.is_dir().then(|| cache.join("verified-weights.json"))
    }

    /// Path of the scores of the test sets, written when training ends.
    pub fn scores(&self) -> PathBuf {
        self.root.join("scores.json")
    }

    /// Path of the scores of hostile variants of test sets (with lines that were made harder),
    /// written by `taper evaluate --hostile`.
    pub fn hostile_scores(&self) -> PathBuf {
        self.root.join("scores.hostile.json")
    }

    /// Path of the translations of a test set, written when training ends.
    pub fn translations(&self, split: &str) -> PathBuf {
        self.root.join("translations").join(format!("{}.txt", split_name(split)))
    }

    /// Path of the file with links between words of the sources of a test set and words of their
    /// translations. It has one line of JSON for each sentence, and is written together with the
    /// file at [`Self::translations`].
    pub fn translation_links(&self, split: &str) -> PathBuf {
        self.root.join("translations").join(format!("{}.links.jsonl", split_name(split)))
    }

    /// Reads the run's configuration.
    ///
    /// # Errors
    /// See [`RunConfig::load`].
    pub fn load_config(&self, overrides: &[String]) -> Result<RunConfig> {
        RunConfig::load_of_run(&self.config(), overrides)
    }

    /// Writes `config`, the complete configuration, into the run.
    ///
    /// # Errors
    /// When the folder cannot be written to.
    pub fn save_config(&self, config: &RunConfig) -> Result<()> {
        let mut config = config.clone();
        config.data = moved(&config.data, &self.absolute_root(), Path::new(""));
        write_atomically(&self.config(), config.to_toml()?.as_bytes())
    }

    /// True if a checkpoint has been saved.
    ///
    /// # Errors
    /// When the checkpoints cannot be listed.
    pub fn has_checkpoint(&self) -> Result<bool> {
        Ok(self.checkpoints().is_dir() && !Checkpoints::new(&self.checkpoints()).list()?.is_empty())
    }

    /// Training state in the last checkpoint; `None` if there is no checkpoint yet.
    ///
    /// # Errors
    /// When the state, or the file that names the last checkpoint, cannot be read.
    pub fn last_state(&self) -> Result<Option<State>> {
        let last = Checkpoints::new(&self.checkpoints()).find(LAST)?;
        Ok(last.map(|checkpoint| read_state(&checkpoint)).transpose()?)
    }

    /// Folder of the checkpoint `name`, which is `best`, `last`, `average`, the name of a
    /// checkpoint or a path. `None` stands for the first of average, best and last that exists; an
    /// average that is older than the newest checkpoint does not count.
    ///
    /// # Errors
    /// When there is no such checkpoint (the error has advice), or a file that names it is damaged.
    pub fn checkpoint(&self, name: Option<&str>) -> Result<PathBuf> {
        let root = self.checkpoints();
        let checkpoints = Checkpoints::new(&root);
        match name {
            Some("average" | "averaged") => checkpoints.resolve(AVERAGED).map_err(|error| {
                let error = anyhow::Error::from(error).context("no averaged weights");
                Advice::new(Action::Average(self.root.clone()), "makes them").about(error)
            }),
            Some(name) if name.contains(['/', '\\']) => {
                let path = PathBuf::from(name);
                ensure!(path.is_dir(), "no such folder");
                Ok(path)
            }
            Some(name) => Ok(checkpoints.resolve(name)?),
            None => {
                if let Some(averaged) = checkpoints.find(AVERAGED)? {
                    let state = read_state(&averaged).map_err(|error| {
                        let error = anyhow::Error::from(error)
                            .context("the averaged weights are unusable: choose others");
                        let average = Action::Average(self.root.clone());
                        Advice::new(average, "makes the average again").about(error)
                    })?;
                    // Checkpoints that were saved at interruptions do not count as newer, because
                    // they are never averaged.
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
                    let error = anyhow!("{} has no checkpoint yet", self.root.display());
                    return Err(Advice::new(Action::resume(&self.root), "trains on").about(error));
                };
                Ok(last)
            }
        }
    }
}
